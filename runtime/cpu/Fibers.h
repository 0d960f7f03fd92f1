//===- Fibers.h - stacks of the threads of a grid -------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_FIBERS_H
#define MEGALITH_RUNTIME_CPU_FIBERS_H

#include "runtime/cpu/Arena.h"
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>

namespace megalith::cpu {

/// Stacks of one size in one reserved range, kept from launch to launch. The first
/// ones end at a page that traps, the others (the kernel's table of mappings is
/// short) at a word that must not change. The lanes of a warp take turns at the same
/// depth: no two of their stacks begin in the same places of the processor's caches.
class Stacks {
public:
  static constexpr size_t kBytes = 68 << 10, kMost = 65536, kGuarded = 8192, kGuard = 4096;

  Stacks();
  Stacks(const Stacks &) = delete;

  /// Makes the first `count` stacks ready for new contexts.
  void prepare(size_t count);
  boost::context::detail::fcontext_t context(size_t i, void (*entry)(boost::context::detail::transfer_t)) const {
    const size_t shift = i * (9 * 64) % 4096;
    return boost::context::detail::make_fcontext(memory + (i + 1) * kBytes - shift, kBytes - kGuard - shift, entry);
  }
  bool overrun(size_t i) const { return i >= kGuarded && *canary(i) != kCanary; }

  const char *begin() const { return memory; }
  const char *end() const { return memory + kMost * kBytes; }
  /// The stack whose trapping page holds `at`; kMost: none.
  size_t trapped(const void *at) const;

private:
  static constexpr uint64_t kCanary = 0x57AC4E9D0B1C2A3Full;
  uint64_t *canary(size_t i) const { return reinterpret_cast<uint64_t *>(memory + i * kBytes); }
  Reserved reserved;
  char *memory;
  size_t guarded = 0;
};

/// While it lives, `onTrap(address)` is called for a fault in this thread, on another
/// stack; when it returns, the fault is as if this was not here.
class FaultHandler {
public:
  explicit FaultHandler(void (*onTrap)(void *address));
  ~FaultHandler();
  FaultHandler(const FaultHandler &) = delete;
};

} // namespace megalith::cpu
#endif
