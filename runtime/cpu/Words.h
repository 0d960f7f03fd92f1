//===- Words.h - who did something, and when, in 64 bits ------------------===//
//
// An epoch: bits 0-15 thread, 16 atomic access, 17-35 number of the pc, 36-63 the
// thread's clock. A set of epochs has kSet as its thread and the number of a node of
// Sets; a granule of an mbarrier has kMark. 0: nobody yet.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_WORDS_H
#define MEGALITH_RUNTIME_CPU_WORDS_H

#include <cstdint>

namespace megalith::cpu {

using Word = uint64_t;

constexpr unsigned kMark = 0xFFFD, kSet = 0xFFFE;
constexpr unsigned kMostThreads = 0xFFF0; ///< threads and asynchronous agents of one launch
constexpr Word kAtomicBit = 1 << 16;
constexpr unsigned kPcBits = 19;

inline Word epochWord(uint32_t clock, uint32_t thread, uint32_t pc, bool atomic) {
  return (Word)clock << 36 | (Word)pc << 17 | (atomic ? kAtomicBit : 0) | thread;
}
inline unsigned threadOf(Word w) { return w & 0xFFFF; }
inline uint32_t clockOf(Word w) { return w >> 36; }
inline uint32_t pcOf(Word w) { return (w >> 17) & ((1u << kPcBits) - 1); }
inline bool isAtomic(Word w) { return w & kAtomicBit; }

// Sets: bits 16-43 node, 44-63 launch.
inline bool isSet(Word w) { return threadOf(w) == kSet; }
inline Word setWord(uint32_t node, uint32_t launch) { return (Word)launch << 44 | (Word)node << 16 | kSet; }
inline uint32_t nodeOf(Word w) { return (w >> 16) & 0xFFFFFFF; }
inline uint32_t launchOf(Word w) { return w >> 44; }
constexpr uint32_t kMostLaunches = 1u << 20;
/// Clocks go on from launch to launch; beyond this they start again.
constexpr uint32_t kMostClock = 1u << 27;

/// Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014.
struct Random {
  uint64_t state = 0;
  uint64_t next() {
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }
  uint32_t below(uint32_t n) { return (uint64_t)(uint32_t)(next() >> 32) * n >> 32; }
};

} // namespace megalith::cpu
#endif
