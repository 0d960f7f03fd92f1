//===- Buffers.cuh - what a call brings, and its elements -----------------===//
//
// x[i][j] is a place, x[i].slice(low, high) a slice. Nothing is looked at before a stage says t.at(place),
// t.set(place, value) or t.copy(to, from), which check indices and raise faults.
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

template <class T, int Rank> struct Buffer;

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

/// The first `Known` indices of a place.
template <class T, int Rank, int Known> struct Place {
  const Buffer<T, Rank> &buffer;
  int indices[Known];

  __device__ __forceinline__ Place<T, Rank, Known + 1> operator[](int i) const {
    static_assert(Known < Rank);
    Place<T, Rank, Known + 1> place{buffer, {}};
#pragma unroll
    for (int d = 0; d < Known; ++d)
      place.indices[d] = indices[d];
    place.indices[Known] = i;
    return place;
  }
  __device__ __forceinline__ Part<Place> slice(int low, int high) const { return {*this, low, high}; }
};

/// As the host lays it out: see CallAbi.h.
template <class T, int Rank> struct alignas(8) Buffer {
  T *data;
  int sizes[Rank];

  __device__ __forceinline__ Place<T, Rank, 1> operator[](int i) const { return {*this, {i}}; }
  __device__ __forceinline__ Part<const Buffer &> slice(int low, int high) const { return {*this, low, high}; }
  /// Elements of one number of dimension `d`.
  __device__ __forceinline__ long long stride(int d) const {
    long long elements = 1;
#pragma unroll
    for (int k = 0; k < Rank; ++k)
      elements *= k > d ? sizes[k] : 1;
    return elements;
  }
};

/// Which copy of a stage it is.
template <int Number> struct CopyNumber {};

/// What stages do with buffers. `Who` says how its threads go through an item: Binders, or LaneBinders.
template <class Who> struct OnBuffers : Who {
  using Who::at;

  template <class T, int Rank>
  __device__ __forceinline__ auto at(const Place<T, Rank, Rank> &place, int line = __builtin_LINE()) {
    const long long number = numberOf(place, line);
    using Kept = Element<T>;
    T stored{};
    if (number >= 0)
      stored = place.buffer.data[number];
    const auto value = Kept::of(stored);
    if constexpr (Kept::wide)
      if (value != stored)
        this->raise(kValueRange, line, number < 0x7fffffff ? int(number) : 0x7fffffff, 0);
    return value;
  }

  template <class T, int Rank>
  __device__ __forceinline__ void set(const Place<T, Rank, Rank> &place, typename Element<T>::Value value,
                                      int line = __builtin_LINE()) {
    const long long number = numberOf(place, line);
    this->meet();
    if (number >= 0 && this->rank() == 0)
      place.buffer.data[number] = Element<T>::stored(value);
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
    if (written != read)
      this->raise(kCopySize, line, written, read);
    if (this->fault == before)
      this->template move<Number>(a.data + a.low * a.bytes, b.data + b.low * b.bytes, written * a.bytes);
  }

private:
  /// The element's number in the whole buffer; -1 after a fault.
  template <class T, int Rank, int Known>
  __device__ __forceinline__ long long numberOf(const Place<T, Rank, Known> &place, int line) {
    long long number = 0;
    bool inside = true;
#pragma unroll
    for (int d = 0; d < Known; ++d) {
      const int i = place.indices[d], size = place.buffer.sizes[d];
      if (inside && (i < 0 || i >= size))
        this->raiseRange(line, i, size);
      inside = inside && i >= 0 && i < size;
      number = number * size + i;
    }
    return inside ? number : -1;
  }
  /// The slice behind `Lead` indices, which lead to `number`.
  template <int Lead, class T, int Rank>
  __device__ __forceinline__ SliceOf bounded(const Buffer<T, Rank> &buffer, long long number, int low, int high,
                                             int line) {
    const int size = buffer.sizes[Lead];
    if (low < 0 || low > size)
      this->raiseRange(line, low, size);
    else if (high < 0 || high > size)
      this->raiseRange(line, high, size);
    const long long elements = buffer.stride(Lead);
    return {reinterpret_cast<char *>(buffer.data + number * size * elements), elements * (long long)sizeof(T), low,
            high};
  }
  template <class T, int Rank, int Lead>
  __device__ __forceinline__ SliceOf sliceOf(const Part<Place<T, Rank, Lead>> &of, int line) {
    const long long number = numberOf(of.of, line);
    return bounded<Lead>(of.of.buffer, number < 0 ? 0 : number, of.low, of.high, line);
  }
  template <class T, int Rank>
  __device__ __forceinline__ SliceOf sliceOf(const Part<const Buffer<T, Rank> &> &of, int line) {
    return bounded<0>(of.of, 0, of.low, of.high, line);
  }
};

} // namespace megalith::device
