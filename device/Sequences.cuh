//===- Sequences.cuh - token sequences as lazy views ----------------------===//
//
// A view has size() and [i]. Nothing is copied until a view is stored into a field, appended or fed to a
// model. Views are cheap values in registers. Every lane of a slot's warp holds the same view, and may
// read any element.
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
  int known = -1, value = 0; ///< item `known` is `value`, so it need not be loaded
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

/// One of two sequences.
template <class First, class Second> struct Either {
  bool isFirst;
  First first;
  Second second;
  __device__ int size() const { return isFirst ? first.size() : second.size(); }
  __device__ int operator[](int i) const { return isFirst ? first[i] : second[i]; }
};

/// One result per row of the call that was just served.
struct Results {
  const Row *rows;
  int count;
  __device__ int size() const { return count; }
  __device__ int operator[](int i) const { return rows[i].result; }
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

/// Finds the longest suffix, of at most `Ngram` tokens, that occurred before. Returns the end of its most recent
/// earlier occurrence, which is in [1, size); 0: there is none. The whole warp calls it.
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

/// What stages compute. They say `t.slice(...)`, because their own locals may have any name, and hide no member of `t`.
struct StageFunctions {
  /// A sequence of the given tokens.
  template <class... Tokens> __device__ __forceinline__ static auto list(Tokens... tokens) {
    return List<int(sizeof...(Tokens))>{{tokens...}};
  }

  template <int Capacity> __device__ __forceinline__ static Held<Capacity> hold(const Sequence<Capacity> &field) {
    Held<Capacity> copy;
    copy.count = field.size();
#pragma unroll
    for (int i = 0; i < Capacity; ++i)
      copy.items[i] = field.items[i];
    return copy;
  }

  /// Elements [low, high), both clamped to [0, size]; empty when low >= high.
  template <class View> __device__ __forceinline__ static auto slice(const View &sequence, int low, int high) {
    const auto view = asView(sequence);
    const int size = view.size();
    low = low < 0 ? 0 : low < size ? low : size;
    high = high < low ? low : high < size ? high : size;
    return Slice<decltype(asView(sequence))>{view, low, high - low};
  }

  template <class Left, class Right>
  __device__ __forceinline__ static auto concat(const Left &left, const Right &right) {
    return Concat<decltype(asView(left)), decltype(asView(right))>{asView(left), asView(right)};
  }

  /// `first` or `second`, which may be of different kinds.
  template <class First, class Second>
  __device__ __forceinline__ static auto either(bool isFirst, const First &first, const Second &second) {
    return Either<decltype(asView(first)), decltype(asView(second))>{isFirst, asView(first), asView(second)};
  }

  template <class Number> __device__ __forceinline__ static Number min(Number a, Number b) { return ::min(a, b); }
  template <class Number> __device__ __forceinline__ static Number max(Number a, Number b) { return ::max(a, b); }
  /// `a`, unless `b` is less (min) or greater (max). So it is `a` also for zeros of two signs, and where one is a NaN.
  __device__ __forceinline__ static float min(float a, float b) { return b < a ? b : a; }
  __device__ __forceinline__ static float max(float a, float b) { return a < b ? b : a; }

  /// i32 wraps. C++'s signed numbers do not. So these functions stand where a result may leave the range of i32.
  __device__ __forceinline__ static int wrapAdd(int a, int b) { return int(u32(a) + u32(b)); }
  __device__ __forceinline__ static int wrapSub(int a, int b) { return int(u32(a) - u32(b)); }
  __device__ __forceinline__ static int wrapMul(int a, int b) { return int(u32(a) * u32(b)); }
  __device__ __forceinline__ static int wrapNeg(int a) { return int(0u - u32(a)); }

  /// 0 when `b` is 0, else a / b rounded once.
  __device__ __forceinline__ static float ratio(int a, int b) {
    return b == 0 ? 0.0f : __fdiv_rn(__int2float_rn(a), __int2float_rn(b));
  }
  /// Truncating division; by zero gives 0.
  __device__ __forceinline__ static int divide(int a, int b) {
    return b == 0 ? 0 : b == -1 ? int(0u - unsigned(a)) : a / b;
  }
  __device__ __forceinline__ static int modulo(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }
};

} // namespace megalith::device
