//===- Arena.h - the memory of the device ---------------------------------===//
//
// One reserved range: shared memory of the CTAs first, each in a slot of its own, then
// the allocations. An offset into it names a byte.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_ARENA_H
#define MEGALITH_RUNTIME_CPU_ARENA_H

#include "runtime/cpu/Executor.h"
#include <utility>

namespace megalith::cpu {

/// Reserved address space; pages are zero until written. Throws runtime::NoRoom.
class Reserved {
public:
  Reserved() = default;
  explicit Reserved(size_t bytes);
  ~Reserved();
  Reserved(Reserved &&other) noexcept : at(std::exchange(other.at, nullptr)), bytes(other.bytes) {}
  Reserved &operator=(Reserved &&other) noexcept {
    std::swap(at, other.at);
    std::swap(bytes, other.bytes);
    return *this;
  }

  void *at = nullptr;
  size_t bytes = 0;
};

struct Region {
  std::string name;
  size_t begin, end;
  Initial initial;
  uint64_t readOnlyIn = 0; ///< the last launch that read some of it through the read-only path
  /// Each byte has a granule of its own, where threads write single ones. Plain accesses alone look there; behind the
  /// region as much room again is left free, whose granules these are.
  bool bytewise = false;
};

class Arena {
public:
  static constexpr size_t kSharedSlot = 512 << 10, kMostCtas = 1024;
  static constexpr size_t kShared = kSharedSlot * kMostCtas, kGlobal = 32ull << 30;
  static constexpr size_t kSize = kShared + kGlobal;
  static constexpr size_t kPage = 4096;

  Arena();
  Arena(const Arena &) = delete;

private:
  Reserved memory, pageNumbers;

public:
  char *base;
  std::vector<Region> regions; ///< 0: none

  /// Offset of a new region. Throws runtime::NoRoom.
  size_t allocate(const std::string &name, size_t bytes, Initial initial, bool bytewise = false);
  /// The region of the page that holds `offset`, which must lie after the shared memory.
  Region &regionOf(size_t offset) { return regions[pages[offset / kPage]]; }
  /// The region that a byte most likely was meant to be in.
  const Region &nearest(size_t offset) const;
  /// Where a byte is, for a reader: "`rows` + 128".
  std::string describe(size_t offset) const;
  size_t used() const { return next; } ///< offset after the last region
  /// Whether the address belongs to the program or a library: not checked.
  bool inModule(const void *at);

private:
  uint16_t *pages;
  size_t next = kShared + kPage;
  std::vector<std::pair<uintptr_t, uintptr_t>> modules;
};

} // namespace megalith::cpu
#endif
