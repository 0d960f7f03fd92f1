//===- Sequences.cuh - token sequences as lazy views ----------------------===//
//
// A view has size() and [i]. Nothing is copied until a view is stored into a field, appended or fed to a
// model. Views are cheap values in registers. Every lane of a slot's warp holds the same view, and may
// read any element.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Contract/Row.h"
#include "megalith/Values.cuh"
#include "megalith/Exact.h"

namespace megalith::device {

/// What memory holds of an element. A bool takes a word, as others do.
template <class T> struct Stored {
  using Word = T;
};
template <> struct Stored<bool> {
  using Word = int;
};
template <class T> using WordOf = typename Stored<T>::Word;

/// A sequence field of a request: its length, then `Capacity` words.
template <int Capacity, class T = int> struct Sequence {
  static constexpr int capacity = Capacity;
  int length;
  WordOf<T> items[Capacity];

  __device__ int size() const { return length < 0 ? 0 : length < Capacity ? length : Capacity; }
  __device__ bool inRange() const { return length >= 0 && length <= Capacity; }
};

/// A table field: how many rows there are, the length of each, then room for `Rows` rows.
template <int Rows, int Columns, class T = int> struct Table {
  int length;
  int lengths[Rows];
  WordOf<T> items[Rows * Columns];

  __device__ int size() const { return length < 0 ? 0 : length < Rows ? length : Rows; }
  __device__ bool inRange() const {
    bool good = length >= 0 && length <= Rows;
    for (int i = 0; good && i < length; ++i)
      good = lengths[i] >= 0 && lengths[i] <= Columns;
    return good;
  }
};

/// Words in memory: a field, or the request's tokens as of now.
struct Span {
  const int *items;
  int count;
  int known = -1, value = 0; ///< item `known` is `value`, so it need not be loaded
  __device__ int size() const { return count; }
  __device__ int operator[](int i) const { return i == known ? value : items[i]; }
};

/// Elements in memory: of a field, in scratch, or constants.
template <class T> struct Items {
  const WordOf<T> *items;
  int count;
  __device__ int size() const { return count; }
  __device__ T operator[](int i) const { return T(items[i]); }
};

/// Rows in memory; its elements are sequences.
template <class T> struct TableItems {
  const int *lengths;
  const WordOf<T> *items;
  int stride, count;
  __device__ int size() const { return count; }
  __device__ Items<T> operator[](int i) const {
    const int length = lengths[i];
    return {items + i * stride, length < 0 ? 0 : length < stride ? length : stride};
  }
};

/// A few computed elements.
template <int Count, class T = int> struct List {
  T items[Count > 0 ? Count : 1];
  __device__ int size() const { return Count; }
  __device__ T operator[](int i) const {
    T item = items[0];
#pragma unroll
    for (int k = 1; k < Count; ++k)
      item = i == k ? items[k] : item;
    return item;
  }
};

/// A copy that later writes to its source do not change.
template <int Capacity, class T = int> struct Held {
  T items[Capacity];
  int count;
  __device__ int size() const { return count; }
  __device__ T operator[](int i) const { return items[i]; }
};

template <class View> struct Slice {
  View view;
  int first, count;
  __device__ int size() const { return count; }
  __device__ auto operator[](int i) const { return view[first + i]; }
};

template <class Left, class Right> struct Concat {
  Left left;
  Right right;
  __device__ int size() const { return left.size() + right.size(); }
  __device__ auto operator[](int i) const {
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
  __device__ auto operator[](int i) const { return isFirst ? first[i] : second[i]; }
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

/// The rows and the parents of a tree.
struct TreeRows {
  Items<int> rows, parents;
};

template <class View> __device__ __forceinline__ View asView(const View &view) { return view; }
template <int Capacity> __device__ __forceinline__ Span asView(const Sequence<Capacity> &field) {
  return {field.items, field.size()};
}
template <int Capacity, class T> __device__ __forceinline__ Items<T> asView(const Sequence<Capacity, T> &field) {
  return {field.items, field.size()};
}
template <int Rows, int Columns, class T>
__device__ __forceinline__ TableItems<T> asView(const Table<Rows, Columns, T> &field) {
  return {field.lengths, field.items, Columns, field.size()};
}
template <int Count, class T> __device__ __forceinline__ Items<T> asView(const T (&constants)[Count]) {
  return {constants, Count};
}

/// The type of a view's elements.
template <class View> using ItemOf = decltype(asView(*static_cast<const View *>(nullptr))[0]);

/// Where a number stands in the order of all: greater is later, whatever the number's type. A NaN has no place.
__device__ __forceinline__ u32 orderOf(int v) { return u32(v) ^ 0x80000000u; }
__device__ __forceinline__ u32 orderOf(float v) {
  const u32 bits = __float_as_uint(v == 0.0f ? 0.0f : v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ bool hasOrder(int) { return true; }
__device__ __forceinline__ bool hasOrder(float v) { return v == v; }
/// A rank among others: less comes first, a NaN last, in either direction.
template <bool Descending, class T> __device__ __forceinline__ u32 rankOf(T v) {
  return !hasOrder(v) ? ~0u : Descending ? ~orderOf(v) : orderOf(v);
}

/// A function that the whole warp evaluates, for one number after the other.
template <class Function> struct InTurn {
  Function function;
};

/// Finds the longest suffix of `view`, of at most `most` <= `Ngram` tokens, that stands somewhere in `text`, with a
/// token after it: text[end], for which allowed(end) holds. Returns the last such end; 0: there is none. The whole
/// warp calls it. `text` may be `view`: what precedes the suffix itself then.
template <int Ngram, class View, class Text, class Allowed>
__device__ int findSuffix(const View &view, const Text &text, int most, Allowed allowed) {
  const int size = view.size(), count = text.size(), lane = laneId();
  int suffix[Ngram];
#pragma unroll
  for (int k = 0; k < Ngram; ++k)
    suffix[k] = k < size ? view[size - 1 - k] : -1;
  // Each lane looks at one end per step, the most recent ones first.
  int bestLength = 0, bestEnd = 0;
  constexpr int steps = 4; // their loads overlap
  for (int base = 0; base < count - 1; base += 32 * steps) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int end = count - 1 - base - step * 32 - lane;
      int length = 0;
#pragma unroll
      for (int k = 0; k < Ngram; ++k)
        if (length == k && k < most && end - 1 - k >= 0 && text[end - 1 - k] == suffix[k])
          ++length;
      if (length > bestLength && allowed(end)) {
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
  /// A sequence of the given elements.
  template <class T, class... More> __device__ __forceinline__ static auto list(T first, More... more) {
    return List<1 + int(sizeof...(More)), T>{{first, more...}};
  }
  template <class T = int> __device__ __forceinline__ static List<0, T> list() { return {}; }
  /// A long list of constants.
  template <class T, int Count> __device__ __forceinline__ static Items<T> constants(const WordOf<T> (&items)[Count]) {
    return {items, Count};
  }
  /// A table without rows.
  template <class T = int> __device__ __forceinline__ static TableItems<T> noRows() { return {}; }

  template <int Capacity, class T>
  __device__ __forceinline__ static Held<Capacity, T> hold(const Sequence<Capacity, T> &field) {
    Held<Capacity, T> copy;
    copy.count = field.size();
#pragma unroll
    for (int i = 0; i < Capacity; ++i)
      copy.items[i] = T(field.items[i]);
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

  /// What `first` or `second` gives. Only that one is called.
  template <class First, class Second>
  __device__ __forceinline__ static auto choose(bool isFirst, First first, Second second) {
    using A = decltype(asView(first()));
    using B = decltype(asView(second()));
    Either<A, B> chosen{isFirst, A{}, B{}};
    if (isFirst)
      chosen.first = asView(first());
    else
      chosen.second = asView(second());
    return chosen;
  }

  /// Whether two sequences have the same elements.
  template <class Left, class Right>
  __device__ __forceinline__ static bool equal(const Left &leftOf, const Right &rightOf) {
    const auto left = asView(leftOf);
    const auto right = asView(rightOf);
    bool same = left.size() == right.size();
#pragma unroll 1
    for (int i = 0; same && i < left.size(); ++i)
      same = left[i] == right[i];
    return same;
  }

  /// For what goes through a range: its function uses the whole warp itself.
  template <class Function> __device__ __forceinline__ static InTurn<Function> inTurn(Function function) {
    return {function};
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
  __device__ __forceinline__ static int abs(int a) { return a < 0 ? wrapNeg(a) : a; }
  __device__ __forceinline__ static float abs(float a) { return exactAbs(a); }
  __device__ __forceinline__ static float exp(float a) { return exactExp(a); }
  __device__ __forceinline__ static float log(float a) { return exactLog(a); }
  __device__ __forceinline__ static float pow(float a, float b) { return exactPow(a, b); }
  __device__ __forceinline__ static float sqrt(float a) { return exactSqrt(a); }
  __device__ __forceinline__ static int toInt(float a) { return exactInt(a); }

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
