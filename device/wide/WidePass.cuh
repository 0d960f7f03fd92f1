//===- WidePass.cuh - how a CTA goes through a wide pass -------------------===//
//
// The tensor unit calls the roles' functions, which stand in a unit of their own: part by part of each layer. `M`:
//
//   M::layers          their number
//   M::parts           the parts of a layer
//   M::stepsOfLast     steps of the last layer up to the one that stores its keys and values: nobody reads more
//   M::multiply(), M::workOnRows(), M::attend(layer)                    consumers
//   M::bringWeights(range, half), M::bringKeys(layer, half)             warps that bring weights
//   M::bringRows(range), M::bringQueries(layer)                         the warp that brings rows
//   M::dealSteps()                                                      a consumer warp, first: all others read it
//   M::signal(range)                                                    the thread that tells what is written
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/WideRing.cuh"

namespace megalith::device::wide {

/// Steps [first, end) of a layer.
struct Part {
  Work work;
  int first, end;
};

/// Roles that no consumer has.
enum Role : int { kFirstWeights, kSecondWeights, kRows, kSignal, kRoles };

/// Calls fn(work, range) for each part of each layer.
template <class M, class Fn> __device__ __forceinline__ void eachPart(Fn fn) {
  constexpr int count = sizeof(M::parts) / sizeof(M::parts[0]);
#pragma unroll 1
  for (int layer = 0; layer < M::layers; ++layer)
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int end = layer + 1 < M::layers ? M::parts[i].end : min(M::parts[i].end, M::stepsOfLast);
      if (M::parts[i].first < end)
        fn(M::parts[i].work, Range{layer, layer, M::parts[i].first, end});
    }
}

/// A consumer warp, before all roles begin. `done`: counters, which are 0.
template <class M> __device__ __forceinline__ void begin(Pass &pass, int rows, u32 *done) {
  if (laneId() == 0)
    pass = {rows, {0, M::layers - 1, 0, M::parts[sizeof(M::parts) / sizeof(M::parts[0]) - 1].end}, {}, done};
  __syncwarp();
  M::dealSteps();
}

/// CTA 0's consumers, when nobody looks at them any more.
__device__ __forceinline__ void clear(u32 *done, int count) {
  for (int i = threadIdx.x; i < count; i += kConsumerThreads)
    done[i] = 0;
}

/// The consumers. False when the kernel stops.
template <class M> __device__ __forceinline__ bool consume(Pass &pass, const GridEdges &grid) {
  eachPart<M>([&](Work work, Range range) {
    if (threadIdx.x == 0)
      pass.now = range;
    if (work == Work::OnRows)
      M::workOnRows();
    else if (work == Work::Product)
      M::multiply();
    else
      M::attend(range.layer);
  });
  return !grid.stopRequested();
}

/// Another role.
template <class M> __device__ __forceinline__ void bring(int role) {
  eachPart<M>([&](Work work, Range range) {
    if (work == Work::Attention) {
      if (role <= kSecondWeights)
        M::bringKeys(range.layer, role);
      else if (role == kRows)
        M::bringQueries(range.layer);
    } else if (role == kSignal) {
      M::signal(range);
    } else if (work == Work::Product) {
      if (role == kRows)
        M::bringRows(range);
      else
        M::bringWeights(range, role);
    }
  });
}

} // namespace megalith::device::wide
