//===- Executor.h - runs a grid of threads on the CPU ---------------------===//
//
// Every thread of the grid is a fiber of the calling thread. A scheduler picks
// who goes next at each call into device/cpu/Host.h, deterministically from a
// seed. A checked launch follows the PTX memory model: plain accesses must be
// ordered by happens-before (else they are reported), relaxed ones may show old
// values, asynchronous copies land late and in pieces.
//
//   Executor executor;
//   char *buffer = executor.allocate("rows", bytes, Initial::Image, image);
//   LaunchResult r = executor.launch({4, 288, 65536}, options, [&] { kernel(params); });
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_EXECUTOR_H
#define MEGALITH_RUNTIME_CPU_EXECUTOR_H

#include "device/cpu/Host.h"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace megalith::runtime {
class HostMemory;
}

namespace megalith::cpu {

/// Who goes next, and how late memory shows.
struct Schedule {
  enum Kind {
    RoundRobin, ///< each thread until it waits; nothing is late
    Random,     ///< any thread at every step
    Pct,        ///< priorities with change points (Burckhardt et al., ASPLOS 2010)
  } kind = RoundRobin;
  uint64_t seed = 0;
  unsigned changePoints = 3; ///< of Pct
  /// Decisions that the seed makes; after them the launch goes on as RoundRobin. To
  /// find the shortest prefix of a schedule that still fails.
  uint64_t prefix = UINT64_MAX;
};

struct LaunchShape {
  unsigned ctas = 1, threads = 32;
  size_t sharedBytes = 0;
};

struct LaunchOptions {
  Schedule schedule;
  bool check = false; ///< the memory model and everything of Findings.def but deadlocks, which are always found
  /// Livelock: so many steps in which `progress` did not change. 0: no limit.
  uint64_t maxIdleSteps = 200'000'000;
  std::function<uint64_t()> progress; ///< null: the number of steps is not limited
  std::function<bool()> interrupted;  ///< asked now and then; `true` ends the launch where it is, without a finding
  /// Other threads of the process change memory of the launch through atomics: waiting for them is no deadlock, the
  /// clock is real, and a thread that sleeps while nobody else can go on lets the processor sleep.
  bool live = false;
  /// Null, or one more thread beside the grid, in a CTA of its own. It reaches memory through Executor::outside().
  std::function<void()> outside;
  std::optional<unsigned> stalledCta; ///< test hook: this CTA stops at its step `stallAt`
  uint64_t stallAt = 0;
};

enum class FindingKind {
#define FINDING(Enum, Name) Enum,
#include "runtime/cpu/Findings.def"
};
const char *findingName(FindingKind kind);

/// Where a thread was.
struct Place {
  unsigned cta = 0, thread = 0;
  bool host = false;                ///< the memory's first content, or an asynchronous copy: see the text
  const void *pc = nullptr;         ///< in the kernel's shared object; null: unknown
  int edge = -1;                    ///< the last grid-wide edge its CTA came to; -1: none yet
  unsigned long long edgeCount = 0; ///< how many edges its CTA had come to
  bool outside = false;             ///< LaunchOptions::outside
};

struct Finding {
  FindingKind kind;
  std::string what; ///< one sentence, e.g. "4 bytes at `rows` + 128 are read while another thread writes them"
  struct Party {
    std::string role; ///< "read", "earlier write", "waits at barrier 1 (255 of 256 have come)", ...
    Place place;
    unsigned alike = 1; ///< threads in the same situation that this party stands for
  };
  std::vector<Party> parties; ///< of a deadlock: the whole wait graph
};

struct LaunchResult {
  std::optional<Finding> finding; ///< the first; the launch stopped there
  uint64_t steps = 0;             ///< calls of threads into the host
  uint64_t decisions = 0;         ///< that the seed made
  bool interrupted = false;       ///< LaunchOptions::interrupted ended it
};

/// What memory holds when the launch starts.
enum class Initial {
  Image,     ///< given by the host; may be written
  Const,     ///< given by the host; a write is reported
  Zero,      ///< zeros count as written
  Unwritten, ///< reading it before something wrote it is reported; holds a pattern
};

class Executor {
public:
  Executor();
  ~Executor();
  Executor(const Executor &) = delete;

  /// Memory of the device, 256-byte aligned, with room after it that nothing may
  /// touch. `image` (of Image and Const) is copied. Throws runtime::NoRoom, as does the constructor.
  /// `bytewise`: threads write single bytes beside each other. Only plain accesses are allowed there.
  char *allocate(const std::string &name, size_t bytes, Initial initial, const void *image = nullptr,
                 bool bytewise = false);
  /// Gives memory its first content again, before another launch.
  /// (`image` may be `memory` itself: its content stays.)
  void reset(char *memory, Initial initial, const void *image = nullptr);
  /// Nothing will use this memory any more: the system may have it. Its addresses are not used again.
  void drop(char *memory);

  /// What a launch has room for: CTAs of so many threads, and bytes of shared memory of each.
  static unsigned mostCtas(unsigned threads);
  static size_t mostShared();
  /// Runs `kernel` on every thread of the grid until all have returned or something
  /// was found. One launch at a time. Throws runtime::NoRoom for a larger one, and
  /// std::bad_alloc where memory is short.
  LaunchResult launch(const LaunchShape &shape, const LaunchOptions &options, const std::function<void()> &kernel);

  /// Memory of a launch as LaunchOptions::outside reaches it, on that thread.
  static runtime::HostMemory &outside();

  /// What kernels are bound to; stays at its place.
  const Host *host() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace megalith::cpu
#endif
