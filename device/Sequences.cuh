//===- Sequences.cuh - token sequences as lazy views ----------------------===//
//
// A view has size() and [i]; nothing is copied until it is stored into a field,
// appended or fed to a model. Views are cheap values in registers: every lane of
// a slot's warp holds the same one and may read any element.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::device {

/// A sequence field of a request: its length, then `Capacity` words.
template <int Capacity> struct Sequence {
  static constexpr int capacity = Capacity;
  int length;
  int items[Capacity];

  __device__ int size() const { return length < 0 ? 0 : length < Capacity ? length : Capacity; }
  __device__ bool inRange() const { return length >= 0 && length <= Capacity; }
};

/// Words in memory: a field, or the request's tokens as of now.
struct Span {
  const int *items;
  int count;
  int known = -1, value = 0; ///< item `known` is `value`: it is at hand
  __device__ int size() const { return count; }
  __device__ int operator[](int i) const { return i == known ? value : items[i]; }
};

/// A few computed tokens.
template <int Count> struct List {
  int items[Count > 0 ? Count : 1];
  __device__ int size() const { return Count; }
  __device__ int operator[](int i) const {
    int token = items[0];
#pragma unroll
    for (int k = 1; k < Count; ++k)
      token = i == k ? items[k] : token;
    return token;
  }
};

/// A copy that later writes to its source do not change.
template <int Capacity> struct Held {
  int items[Capacity];
  int count;
  __device__ int size() const { return count; }
  __device__ int operator[](int i) const { return items[i]; }
};

template <class View> struct Slice {
  View view;
  int first, count;
  __device__ int size() const { return count; }
  __device__ int operator[](int i) const { return view[first + i]; }
};

template <class Left, class Right> struct Concat {
  Left left;
  Right right;
  __device__ int size() const { return left.size() + right.size(); }
  __device__ int operator[](int i) const {
    const int split = left.size();
    return i < split ? left[i] : right[i - split];
  }
};

/// One result per row of the call that was just served.
struct Results {
  const abi::Row *rows;
  int count;
  __device__ int size() const { return count; }
  __device__ int operator[](int i) const { return rows[i].result; }
};

/// One of two sequences.
template <class Left, class Right> struct Chosen {
  bool isLeft;
  Left left;
  Right right;
  __device__ int size() const { return isLeft ? left.size() : right.size(); }
  __device__ int operator[](int i) const { return isLeft ? left[i] : right[i]; }
};

/// What ngram_lookup found: a part of what was searched, or injected drafts.
template <class View> struct Found {
  View view;
  const int *injected; ///< null: none
  int first, count;
  __device__ int size() const { return count; }
  __device__ int operator[](int i) const { return injected ? injected[i] : view[first + i]; }
};

template <class View> __device__ __forceinline__ View asView(const View &view) { return view; }
template <int Capacity> __device__ __forceinline__ Span asView(const Sequence<Capacity> &field) {
  return {field.items, field.size()};
}

/// A sequence of the given tokens.
template <class... Tokens> __device__ __forceinline__ auto list(Tokens... tokens) {
  return List<int(sizeof...(Tokens))>{{tokens...}};
}

template <int Capacity> __device__ __forceinline__ Held<Capacity> hold(const Sequence<Capacity> &field) {
  Held<Capacity> copy;
  copy.count = field.size();
#pragma unroll
  for (int i = 0; i < Capacity; ++i)
    copy.items[i] = field.items[i];
  return copy;
}

/// Elements [low, high), both clamped to [0, size]; empty when low >= high.
template <class View> __device__ __forceinline__ auto slice(const View &sequence, int low, int high) {
  const auto view = asView(sequence);
  const int size = view.size();
  low = low < 0 ? 0 : low < size ? low : size;
  high = high < low ? low : high < size ? high : size;
  return Slice<decltype(asView(sequence))>{view, low, high - low};
}

template <class Left, class Right>
__device__ __forceinline__ auto concat(const Left &left, const Right &right) {
  return Concat<decltype(asView(left)), decltype(asView(right))>{asView(left), asView(right)};
}

template <class Left, class Right>
__device__ __forceinline__ auto choose(bool isLeft, const Left &left, const Right &right) {
  return Chosen<decltype(asView(left)), decltype(asView(right))>{isLeft, asView(left), asView(right)};
}

/// i32 wraps. C++'s signed numbers do not: these stand where a result can leave them.
__device__ __forceinline__ int wrapAdd(int a, int b) { return int(u32(a) + u32(b)); }
__device__ __forceinline__ int wrapSub(int a, int b) { return int(u32(a) - u32(b)); }
__device__ __forceinline__ int wrapMul(int a, int b) { return int(u32(a) * u32(b)); }
__device__ __forceinline__ int wrapNeg(int a) { return int(0u - u32(a)); }

/// `a`, unless `b` is less or greater; also of zeros of two signs, and where one is no number.
__device__ __forceinline__ float lesser(float a, float b) { return b < a ? b : a; }
__device__ __forceinline__ float greater(float a, float b) { return a < b ? b : a; }

/// 0 when `b` is 0, else a / b rounded once.
__device__ __forceinline__ float ratio(int a, int b) {
  return b == 0 ? 0.0f : __fdiv_rn(__int2float_rn(a), __int2float_rn(b));
}
/// Truncating division; by zero gives 0.
__device__ __forceinline__ int divide(int a, int b) {
  return b == 0 ? 0 : b == -1 ? int(0u - unsigned(a)) : a / b;
}
__device__ __forceinline__ int modulo(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }

/// Where in [1, size) the longest suffix of at most `Ngram` tokens occurred before:
/// the end of its most recent earlier occurrence; 0: nowhere. The whole warp calls it.
template <int Ngram, class View> __device__ int findSuffix(const View &view) {
  const int size = view.size(), lane = laneId();
  int suffix[Ngram];
#pragma unroll
  for (int k = 0; k < Ngram; ++k)
    suffix[k] = k < size ? view[size - 1 - k] : -1;
  // Each lane looks at one end per step, the most recent ones first.
  int bestLength = 0, bestEnd = 0;
  constexpr int steps = 4; // their loads overlap
  for (int base = 0; base < size - 1; base += 32 * steps) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int end = size - 1 - base - step * 32 - lane;
      int length = 0;
#pragma unroll
      for (int k = 0; k < Ngram; ++k)
        if (length == k && end - 1 - k >= 0 && view[end - 1 - k] == suffix[k])
          ++length;
      if (length > bestLength) {
        bestLength = length;
        bestEnd = end;
      }
    }
    if (__any_sync(~0u, bestLength == Ngram))
      break;
  }
#pragma unroll
  for (int distance = 16; distance; distance >>= 1) {
    const int length = __shfl_xor_sync(~0u, bestLength, distance);
    const int end = __shfl_xor_sync(~0u, bestEnd, distance);
    if (length > bestLength || (length == bestLength && end > bestEnd)) {
      bestLength = length;
      bestEnd = end;
    }
  }
  return bestEnd;
}

/// Number of leading i in [0, count) for which test(i) holds; one lane per i. A
/// fault that test() raises for an i behind the first failure did not happen.
template <class Turn, class Test> __device__ int prefixWhile(Turn &t, int count, Test test) {
#pragma unroll 1
  for (int base = 0; base < count; base += 32) {
    const int i = base + laneId(), earlier = t.fault;
    const bool holds = i < count && test(i);
    const u32 failed = __ballot_sync(~0u, !holds);
    const int first = failed ? __ffs(failed) - 1 : 32;
    const u32 reached = first < 31 ? (2u << first) - 1 : ~0u;
    const u32 faulted = __ballot_sync(~0u, t.fault != earlier) & reached;
    t.fault = faulted ? __shfl_sync(~0u, t.fault, __ffs(faulted) - 1) : earlier;
    if (failed)
      return base + first;
  }
  return count > 0 ? count : 0;
}

/// Number of i in [0, count) for which test(i) holds; one lane per i.
template <class Turn, class Test> __device__ int countIf(Turn &t, int count, Test test) {
  int total = 0;
#pragma unroll 1
  for (int base = 0; base < count; base += 32) {
    const int i = base + laneId(), earlier = t.fault;
    total += __popc(__ballot_sync(~0u, i < count && test(i)));
    const u32 faulted = __ballot_sync(~0u, t.fault != earlier);
    t.fault = faulted ? __shfl_sync(~0u, t.fault, __ffs(faulted) - 1) : earlier;
  }
  return total;
}

/// The same for a test that uses the whole warp itself: one i after the other.
template <class Test> __device__ int prefixWhileInTurn(int count, Test test) {
  int i = 0;
#pragma unroll 1
  while (i < count && test(i))
    ++i;
  return i;
}
template <class Test> __device__ int countIfInTurn(int count, Test test) {
  int total = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i)
    total += test(i) ? 1 : 0;
  return total;
}

} // namespace megalith::device
