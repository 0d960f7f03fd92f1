//===- Clocks.h - vector clocks that threads share ------------------------===//
//
// What a thread knows of the others is an immutable vector, shared by all that know
// the same, and beside it the thread's own clock: a barrier makes one vector for
// all that took part.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_CLOCKS_H
#define MEGALITH_RUNTIME_CPU_CLOCKS_H

#include "runtime/cpu/Words.h"
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace megalith::cpu {

class Clocks;

struct Clock {
  Clocks *owner;
  uint64_t serial; ///< no two of a process have the same
  uint32_t refs;
  alignas(16) uint32_t at[4]; ///< as many as the launch has threads and agents
};

class ClockRef {
  Clock *clock = nullptr;

public:
  ClockRef() = default;
  explicit ClockRef(Clock *c) : clock(c) {
    if (clock)
      ++clock->refs;
  }
  ClockRef(const ClockRef &o) : ClockRef(o.clock) {}
  ClockRef(ClockRef &&o) noexcept : clock(std::exchange(o.clock, nullptr)) {}
  ClockRef &operator=(ClockRef o) noexcept {
    std::swap(clock, o.clock);
    return *this;
  }
  inline ~ClockRef();
  Clock *operator->() const { return clock; }
  Clock *get() const { return clock; }
  explicit operator bool() const { return clock; }
};

/// Of what a thread knows that which lies before a proxy fence, of shared and of global memory. Null: nothing of
/// this launch.
struct Proxied {
  ClockRef of[2];
};

/// What a thread knew when it released: `base`, and its own clock.
struct Release {
  ClockRef base;
  uint32_t thread = ~0u, own = 0; ///< ~0u: it is in `base`
  Proxied proxied;
  explicit operator bool() const { return (bool)base; }
};

/// Releases that a thread saw and does not know yet: one vector, its own, that grows in place.
struct Pending {
  ClockRef sum;
  uint64_t held[4] = {}; ///< serials of bases that are in it
  unsigned next = 0;
};

class Clocks {
public:
  /// Begins a launch: clocks of `size` components, all `floor`. No ClockRef may be left
  /// that is used again; those on abandoned stacks do no harm.
  void start(size_t size, uint32_t floor);
  const ClockRef &root() const { return first; }

  ClockRef join(const ClockRef &a, const ClockRef &b);
  /// The vector of a release; kept in it.
  const ClockRef &whole(Release &release);
  void collect(Pending &to, const Release &release);
  void join(Proxied &to, const Proxied &more);
  Proxied gatherProxied(const std::vector<Release> &all);
  /// What the first `threads` did as `proxied` knows it, and what others did as `base` does.
  ClockRef beside(const ClockRef &proxied, const ClockRef &base, size_t threads);
  /// One vector of all. `more`: further components.
  ClockRef gather(const std::vector<Release> &all, const std::vector<std::pair<uint32_t, uint32_t>> &more = {});

private:
  friend class ClockRef;
  Clock *fresh();
  ClockRef copy(const Clock &of);
  void raise(Clock &to, const Clock &by) const;
  void recycle(Clock *c) { spare.push_back(c); }

  struct Memo {
    ClockRef a, b, result;
  };
  size_t size = 0;
  std::vector<std::unique_ptr<char[]>> blocks;
  std::vector<Clock *> spare;
  ClockRef first; // after what it goes back to
  std::vector<Memo> memo;
};

inline ClockRef::~ClockRef() {
  if (clock && --clock->refs == 0)
    clock->owner->recycle(clock);
}

} // namespace megalith::cpu
#endif
