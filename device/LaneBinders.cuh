//===- LaneBinders.cuh - functions over ranges, of one lane ----------------===//
//
// What Binders are to a warp: a lane goes through a range by itself, one number after the other.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Binders.cuh"

namespace megalith::device {

struct LaneBinders : FaultingFunctions {
  /// A lane takes no warp.
  template <class Function> __device__ __forceinline__ static Function inTurn(Function function) { return function; }

  template <class Test> __device__ static int prefixWhile(int low, int high, Test test) {
    int i = low;
#pragma unroll 1
    while (i < high && test(i))
      ++i;
    return i - low;
  }
  template <class Test> __device__ static int prefixWhile(int count, Test test) { return prefixWhile(0, count, test); }
  template <class Test> __device__ static int prefixWhileInTurn(int count, Test test) {
    return prefixWhile(0, count, test);
  }
  template <class Test> __device__ static int countIf(int low, int high, Test test) {
    int total = 0;
#pragma unroll 1
    for (int i = low; i < high; ++i)
      total += test(i) ? 1 : 0;
    return total;
  }
  template <class Test> __device__ static int countIf(int count, Test test) { return countIf(0, count, test); }
  template <class Test> __device__ static int countIfInTurn(int count, Test test) { return countIf(0, count, test); }

  template <class Test> __device__ static int find(int low, int high, Test test) {
    const int before = prefixWhile(low, high, [&](int i) { return !test(i); });
    return before < lengthOf(low, high) ? low + before : -1;
  }
  template <class Test> __device__ static bool all(int low, int high, Test test) {
    return prefixWhile(low, high, test) == lengthOf(low, high);
  }
  template <class Test> __device__ static bool any(int low, int high, Test test) { return find(low, high, test) >= 0; }

  /// i ascending, rounded at each step.
  template <class Function> __device__ static auto sum(int low, int high, Function function) {
    decltype(function(0)) total = 0;
#pragma unroll 1
    for (int i = low; i < high; ++i)
      total = Binders::sumOf(total, function(i));
    return total;
  }

  /// The first one of equal ones; 0 and -1 of an empty range.
  template <class Function> __device__ static auto greatest(int low, int high, Function function) {
    return bestOf<true>(low, high, function).value;
  }
  template <class Function> __device__ static auto least(int low, int high, Function function) {
    return bestOf<false>(low, high, function).value;
  }
  template <class Function> __device__ static int argGreatest(int low, int high, Function function) {
    return bestOf<true>(low, high, function).at;
  }
  template <class Function> __device__ static int argLeast(int low, int high, Function function) {
    return bestOf<false>(low, high, function).at;
  }

private:
  template <class T> struct Best {
    T value;
    int at;
  };
  template <bool Greatest, class Function> __device__ static auto bestOf(int low, int high, Function function) {
    Best<decltype(function(0))> best{0, -1};
    u32 rank = 0;
#pragma unroll 1
    for (int i = low; i < high; ++i) {
      const auto value = function(i);
      const u32 own = rankOf<Greatest>(value);
      if (best.at < 0 || own < rank) {
        best = {value, i};
        rank = own;
      }
    }
    return best;
  }
};

} // namespace megalith::device
