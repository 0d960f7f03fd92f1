//===- HostLoop.h - who keeps the loop, and what the host asks --*- C++ -*-===//
//
// Plain data: host programs and the runtime use the same.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_HOSTLOOP_H
#define MEGALITH_HOSTLOOP_H

#include <cstdint>

namespace megalith {

/// Who keeps the loop. Tokens, logits and traces are the same.
enum class Control {
  Resident, ///< the kernel
  Host,  ///< the host, as conventional engines do: each tick is a launch, after which it waits, and reads back tokens
         ///< and states
  Graph, ///< the host, for which a launch is that of a CUDA graph. A GPU's
};

/// What the host asked of the CUDA driver, from a run's first launch to its results. Counted where the driver's
/// functions are called.
struct HostCalls {
  int64_t launches = 0;         ///< of kernels
  int64_t graphLaunches = 0;    ///< each launches the kernel once
  int64_t synchronizations = 0; ///< waits for a stream or an event
  int64_t copies = 0, bytes = 0;

  HostCalls operator-(const HostCalls &before) const {
    return {launches - before.launches, graphLaunches - before.graphLaunches,
            synchronizations - before.synchronizations, copies - before.copies, bytes - before.bytes};
  }
  HostCalls operator+(const HostCalls &more) const {
    return {launches + more.launches, graphLaunches + more.graphLaunches, synchronizations + more.synchronizations,
            copies + more.copies, bytes + more.bytes};
  }
  bool operator==(const HostCalls &) const = default;
};

} // namespace megalith
#endif
