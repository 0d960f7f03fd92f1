//===- Buffers.cuh - what a call brings, and its elements -----------------===//
//
// x[i][j] is a place, x[i].slice(low, high) a slice. Nothing is looked at before a stage says t.at(place),
// t.set(place, value) or t.copy(to, from), which check indices and raise faults. x(i, j) is the same place where the
// compiler has seen that each index is inside, whatever the sizes are.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Faults.cuh"
#include "megalith/Sequences.cuh"

namespace megalith::device {

/// Elements that may be copied, not computed with.
struct Half {
  u16 bits;
};
struct Flag {
  unsigned char byte;
};

/// How a buffer keeps its elements, and what they are to a stage.
template <class T> struct Element {
  using Value = T;
  static constexpr bool wide = false;
  __device__ static Value of(T stored) { return stored; }
  __device__ static T stored(Value v) { return v; }
};
template <> struct Element<long long> {
  using Value = int;
  static constexpr bool wide = true; ///< it may hold what is no i32
  __device__ static Value of(long long stored) { return int(stored); }
  __device__ static long long stored(Value v) { return v; }
};
template <> struct Element<Flag> {
  using Value = bool;
  static constexpr bool wide = false;
  __device__ static Value of(Flag stored) { return stored.byte != 0; }
  __device__ static Flag stored(Value v) { return {(unsigned char)v}; }
};

/// Numbers [low, high) of the next dimension of what `of` is: a buffer, or a place with fewer indices than dimensions.
template <class Of> struct Part {
  Of of;
  int low, high;
};
/// The same in bytes.
struct SliceOf {
  char *data;      ///< of number 0
  long long bytes; ///< of a number
  int low, high;
};

template <class T, int Rank> struct Buffer;

/// An element that is there.
template <class T> struct Known {
  T *data; ///< of the buffer
  long long number;
};

/// The first `Known` indices of a place. (No arrays: all of it stays in registers.)
template <class T, int Rank, int Known> struct Place {
  Place<T, Rank, Known - 1> before;
  int index;

  __device__ __forceinline__ auto operator[](int i) const {
    static_assert(Known < Rank);
    return Place<T, Rank, Known + 1>{*this, i};
  }
  __device__ __forceinline__ Part<Place> slice(int low, int high) const { return {*this, low, high}; }
  __device__ __forceinline__ const Buffer<T, Rank> &buffer() const { return before.buffer(); }
};
template <class T, int Rank> struct Place<T, Rank, 0> {
  const Buffer<T, Rank> &of;
  __device__ __forceinline__ const Buffer<T, Rank> &buffer() const { return of; }
};

/// As the host lays it out: see CallAbi.h.
template <class T, int Rank> struct alignas(8) Buffer {
  T *data;
  int sizes[Rank];

  __device__ __forceinline__ Place<T, Rank, 1> operator[](int i) const { return {{*this}, i}; }
  template <class... More> __device__ __forceinline__ Known<T> operator()(int i, More... more) const {
    static_assert(1 + sizeof...(More) == Rank);
    return {data, numberOf<0>(0, i, more...)};
  }
  __device__ __forceinline__ Part<Place<T, Rank, 0>> slice(int low, int high) const { return {{*this}, low, high}; }
  template <int D, class... More>
  __device__ __forceinline__ long long numberOf(long long outer, int i, More... more) const {
    if constexpr (sizeof...(More) == 0)
      return outer * sizes[D] + i;
    else
      return numberOf<D + 1>(outer * sizes[D] + i, more...);
  }
  /// Elements of one number of dimension `D`.
  template <int D> __device__ __forceinline__ long long stride() const {
    if constexpr (D + 1 == Rank)
      return 1;
    else
      return sizes[D + 1] * stride<D + 1>();
  }
};

/// Which copy of a stage it is.
template <int Number> struct CopyNumber {};

/// What stages do with buffers. `Who` says how its threads go through an item: Binders, or LaneBinders.
template <class Who> struct OnBuffers : Who {
  using Who::at;

  template <class T, int Rank>
  __device__ __forceinline__ auto at(const Place<T, Rank, Rank> &place, int line = __builtin_LINE()) {
    using Kept = Element<T>;
    const Found found = numberOf(place, line);
    T stored{};
    if (found.inside)
      stored = place.buffer().data[found.number];
    const auto value = Kept::of(stored);
    if constexpr (Kept::wide)
      this->raiseIf(value != stored, kValueRange, line, found.number < 0x7fffffff ? int(found.number) : 0x7fffffff, 0);
    return value;
  }

  template <class T> __device__ __forceinline__ auto at(const Known<T> &place, int line = __builtin_LINE()) {
    using Kept = Element<T>;
    const T stored = place.data[place.number];
    const auto value = Kept::of(stored);
    if constexpr (Kept::wide)
      this->raiseIf(value != stored, kValueRange, line, place.number < 0x7fffffff ? int(place.number) : 0x7fffffff, 0);
    return value;
  }
  template <class T>
  __device__ __forceinline__ void set(const Known<T> &place, typename Element<T>::Value value, int = 0) {
    this->meet();
    if (this->rank() == 0)
      place.data[place.number] = Element<T>::stored(value);
    this->meet();
  }

  template <class T, int Rank>
  __device__ __forceinline__ void set(const Place<T, Rank, Rank> &place, typename Element<T>::Value value,
                                      int line = __builtin_LINE()) {
    const Found found = numberOf(place, line);
    this->meet();
    if (found.inside && this->rank() == 0)
      place.buffer().data[found.number] = Element<T>::stored(value);
    this->meet();
  }

  template <class To, class From>
  __device__ __forceinline__ void copy(const To &to, const From &from, int line = __builtin_LINE()) {
    copy(to, from, CopyNumber<0>(), line);
  }
  template <class To, class From, int Number>
  __device__ __forceinline__ void copy(const To &to, const From &from, CopyNumber<Number>,
                                       int line = __builtin_LINE()) {
    const int before = this->fault;
    const SliceOf a = sliceOf(to, line), b = sliceOf(from, line);
    const int written = this->lengthOf(a.low, a.high), read = this->lengthOf(b.low, b.high);
    this->raiseIf(written != read, kCopySize, line, written, read);
    if (this->fault == before)
      this->template move<Number>(a.data + a.low * a.bytes, b.data + b.low * b.bytes, written * a.bytes);
  }

  /// Of copy number `wanted` of an item: all that it may copy.
  template <class From> __device__ __forceinline__ void source(const From &from) {
    const SliceOf slice = sliceOf(from, 0);
    this->from = slice.data + slice.low * slice.bytes;
    this->bytes = (slice.high - slice.low) * slice.bytes;
  }

private:
  /// An element's number in the whole buffer.
  struct Found {
    long long number;
    bool inside; ///< else an index has raised a fault
  };
  template <class T, int Rank, int Known>
  __device__ __forceinline__ Found numberOf(const Place<T, Rank, Known> &place, int line) {
    if constexpr (Known == 0) {
      return {0, true};
    } else {
      const Found outer = numberOf(place.before, line);
      const int size = place.buffer().sizes[Known - 1];
      const bool inside = u32(place.index) < u32(size);
      this->raiseIf(outer.inside && !inside, kIndexRange, line, place.index, size);
      return {outer.number * size + place.index, outer.inside && inside};
    }
  }
  template <class T, int Rank, int Lead>
  __device__ __forceinline__ SliceOf sliceOf(const Part<Place<T, Rank, Lead>> &part, int line) {
    const Buffer<T, Rank> &buffer = part.of.buffer();
    const Found found = numberOf(part.of, line);
    const int size = buffer.sizes[Lead];
    this->raiseIf(u32(part.low) > u32(size), kIndexRange, line, part.low, size);
    this->raiseIf(u32(part.high) > u32(size), kIndexRange, line, part.high, size);
    const long long elements = buffer.template stride<Lead>();
    return {reinterpret_cast<char *>(buffer.data + (found.inside ? found.number * size * elements : 0)),
            elements * (long long)sizeof(T), part.low, part.high};
  }
};

} // namespace megalith::device
