//===- Exchange.cuh - activations that cross from CTA to CTA --------------===//
//
// A pass writes every place of its workspace once, because each layer has its own instance of a buffer.
// The plan chooses how a reader knows that a value is there:
//
//   ByBarrier   a barrier of the grid stands between writer and reader
//   ByWords     the reader polls the value itself. Before the pass every bit of a word is one. No result
//               is like that: a NaN is 7fff in bf16 and 7fffffff in f32. So one access brings both the
//               value and the news that it is there
//
// Two sets of the workspace alternate from pass to pass. A pass sets the words of the pass before back to
// ones. The end of a pass stands between that and the last reader of these words. The end of another pass
// stands between that and their next writer.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Values.cuh"
#include "megalith/Sync.cuh"

namespace megalith::device {

constexpr u32 kAbsent = 0xffffffffu;

struct ByBarrier {
  __device__ ByBarrier(const GridEdges *, int) {}
  static constexpr bool polls = false;
  __device__ __forceinline__ u32 word(const void *p) const { return loadWord(p); }
  __device__ __forceinline__ Words4 peek(const void *p, int bytes) const { return loadWordsUpTo(p, bytes); }
  __device__ __forceinline__ void settle(const void *, int, Words4 &) const {}
  __device__ __forceinline__ bool absent(Words4, int) const { return false; }
  __device__ __forceinline__ bool await(const void *, int) const { return true; }
  __device__ __forceinline__ u32 peekWord(const void *p) const { return loadWord(p); }
  __device__ __forceinline__ void settleWord(const void *, u32 &) const {}
  __device__ __forceinline__ void storeWord(void *p, u32 word) const { *static_cast<u32 *>(p) = word; }
  __device__ __forceinline__ void storeWords(void *p, Words4 words) const { *static_cast<Words4 *>(p) = words; }
};

/// Whether one of the words that begin in the first `bytes` bytes is not there yet.
__device__ __forceinline__ bool someAbsent(Words4 w, int bytes) {
  if (bytes >= 16)
    return w.x == kAbsent || w.y == kAbsent || w.z == kAbsent || w.w == kAbsent;
  return (bytes > 0 && w.x == kAbsent) || (bytes > 4 && w.y == kAbsent) || (bytes > 8 && w.z == kAbsent) ||
         (bytes > 12 && w.w == kAbsent);
}

/// Polls until the words are there. When the kernel stops, it returns whatever is there: the CTA goes on to the end of
/// the pass, and leaves there.
inline __device__ __noinline__ Words4 awaitWords(const GridEdges &grid, int edge, const void *p, int bytes) {
  assumeShared(&grid);
  u64 since = 0;
  for (u32 spin = 1;; ++spin) {
    const Words4 w = loadFresh4(p);
    if (!someAbsent(w, bytes) || grid.stopSeen(edge, spin, since))
      return w;
  }
}
inline __device__ __noinline__ u32 awaitWord(const GridEdges &grid, int edge, const void *p) {
  assumeShared(&grid);
  u64 since = 0;
  for (u32 spin = 1;; ++spin) {
    const u32 w = loadRelaxed(static_cast<const u32 *>(p));
    if (w != kAbsent || grid.stopSeen(edge, spin, since))
      return w;
  }
}

struct ByWords {
  const GridEdges *grid;
  int edge; ///< the plan's edge that the words stand for
  __device__ ByWords(const GridEdges *grid, int edge) : grid(grid), edge(edge) {}
  static constexpr bool polls = true;
  __device__ __forceinline__ u32 word(const void *p) const {
    u32 w = peekWord(p);
    settleWord(p, w);
    return w;
  }
  /// Loads words without waiting for them to be there; settle() waits. So many loads can be under way at once.
  __device__ __forceinline__ Words4 peek(const void *p, int) const { return loadFresh4(p); }
  __device__ __forceinline__ void settle(const void *p, int bytes, Words4 &words) const {
    if (someAbsent(words, bytes))
      words = awaitWords(*grid, edge, p, bytes);
  }
  __device__ __forceinline__ bool absent(Words4 words, int bytes) const { return someAbsent(words, bytes); }
  /// Waits for the words. False when the kernel stops before they are there.
  __device__ __forceinline__ bool await(const void *p, int bytes) const {
    return !someAbsent(awaitWords(*grid, edge, p, bytes), bytes);
  }
  /// For a caller that polls in a loop of its own: whether the kernel stops.
  __device__ __forceinline__ bool stops(u32 spin, u64 &since) const { return grid->stopSeen(edge, spin, since); }
  __device__ __forceinline__ u32 peekWord(const void *p) const { return loadRelaxed(static_cast<const u32 *>(p)); }
  __device__ __forceinline__ void settleWord(const void *p, u32 &word) const {
    if (word == kAbsent)
      word = awaitWord(*grid, edge, p);
  }
  __device__ __forceinline__ void storeWord(void *p, u32 word) const { storeFresh(p, word); }
  __device__ __forceinline__ void storeWords(void *p, Words4 words) const { storeFresh4(p, words); }
};

/// Sets `bytes` bytes, a multiple of 16, back to ones. The CTAs share the work.
inline __device__ __noinline__ void clearWords(char *words, long long bytes) {
  for (long long i = (blockIdx.x * kConsumerThreads + threadIdx.x) * 16ll; i < bytes;
       i += gridDim.x * kConsumerThreads * 16ll)
    storeFresh4(words + i, {kAbsent, kAbsent, kAbsent, kAbsent});
}

/// Sets bytes [Begin, End) of each of the first `rows` records back to ones. A record has RowBytes bytes.
template <int RowBytes, int Begin, int End> __device__ __noinline__ void clearRecords(char *words, int rows) {
  constexpr int ofRow = (End - Begin) / 16;
  static_assert(Begin % 16 == 0 && End % 16 == 0 && Begin <= End && End <= RowBytes);
  if constexpr (ofRow > 0) // else all buffers are operands
    for (int i = blockIdx.x * kConsumerThreads + threadIdx.x; i < rows * ofRow; i += gridDim.x * kConsumerThreads)
      storeFresh4(words + (long long)(i / ofRow) * RowBytes + Begin + i % ofRow * 16,
                  {kAbsent, kAbsent, kAbsent, kAbsent});
}

/// The four lanes that hold neighbouring columns of one row (see streamProduct).
__device__ __forceinline__ u32 lanesOfRow() { return 0xfu << (laneId() & 28); }

/// A lane's row, where all lanes of a warp call a store together, also those that store nothing. So they can exchange
/// values without asking which lanes take part.
struct RowOfWarp {
  int row;
  bool mine; ///< false: nothing is stored
  __device__ __forceinline__ operator int() const { return row; }
};

/// The words of a pair of values, between the load (peekPair) and the use (takePair).
struct PairWords {
  u32 first, second;
};

/// One instance of a buffer: [rows][Columns] bf16, padded to 8 columns. Rows lie RowBytes apart. The padding may hold
/// anything, and part of it is never written.
template <class Crossing, int Columns, long long RowBytes> struct Bf16Rows {
  static constexpr int columns = Columns;
  static constexpr bool polls = Crossing::polls;
  char *base;
  Crossing crossing;

  __device__ __forceinline__ char *at(int row, int col) const { return base + row * RowBytes + col * 2; }
  __device__ __forceinline__ Words4 peek(int row, int col) const {
    return crossing.peek(at(row, col), (Columns - col) * 2);
  }
  /// How many of the 16 bytes of 8 columns mean something.
  __device__ __forceinline__ static int bytesAt(int col) { return Columns % 8 == 0 ? 16 : (Columns - col) * 2; }
  __device__ __forceinline__ void settle(int row, int col, Words4 &words) const {
    crossing.settle(at(row, col), bytesAt(col), words);
  }
  __device__ __forceinline__ bool absent(int col, Words4 words) const { return crossing.absent(words, bytesAt(col)); }
  __device__ __forceinline__ bool await(int row, int col) const { return crossing.await(at(row, col), bytesAt(col)); }
  __device__ __forceinline__ bool stops(u32 spin, u64 &since) const { return crossing.stops(spin, since); }
  __device__ __forceinline__ Words4 words(int row, int col) const {
    Words4 w = peek(row, col);
    settle(row, col, w);
    return w;
  }
  __device__ __forceinline__ Bf16Floats<8> load8(int row, int col) const { return unpack8(words(row, col)); }
  __device__ __forceinline__ Floats<1> load(int row, int col) const {
    if (Columns % 8 != 0 && col >= Columns)
      return {{0.0f}};
    if constexpr (!Crossing::polls)
      return {{bf16ToFloat(loadHalfWord(at(row, col)))}};
    const u32 w = crossing.word(at(row, col & ~1));
    return {{col & 1 ? bf16High(w) : bf16Low(w)}};
  }
  /// Loads two columns. Adjacent ones, of which `c0` is even, are one word; others are loaded one by one.
  __device__ __forceinline__ Floats<2> loadPair(int row, int c0, int c1) const {
    if (c1 != c0 + 1)
      return {{load(row, c0).v[0], load(row, c1).v[0]}};
    if (Columns % 8 != 0 && c0 >= Columns)
      return {{0.0f, 0.0f}};
    const u32 w = crossing.word(at(row, c0));
    return {{bf16Low(w), bf16High(w)}};
  }

  /// loadPair and load in two steps, peek and take. The loads are under way between the two.
  __device__ __forceinline__ PairWords peekPair(int row, int c0, int c1) const {
    if (Columns % 8 != 0 && c0 >= Columns)
      return {0, 0};
    return {crossing.peekWord(at(row, c0 & ~1)), c1 == c0 + 1 ? 0 : crossing.peekWord(at(row, c1 & ~1))};
  }
  __device__ __forceinline__ Floats<2> takePair(int row, int c0, int c1, PairWords words) const {
    if (c1 != c0 + 1)
      return {{half(row, c0, words.first), half(row, c1, words.second)}};
    if (Columns % 8 != 0 && c0 >= Columns)
      return {{0.0f, 0.0f}};
    crossing.settleWord(at(row, c0), words.first);
    return {{bf16Low(words.first), bf16High(words.first)}};
  }
  __device__ __forceinline__ PairWords peekOne(int row, int col) const { return peekPair(row, col, col + 1); }
  __device__ __forceinline__ Floats<1> takeOne(int row, int col, PairWords words) const {
    return {{half(row, col, words.first)}};
  }
  __device__ __forceinline__ float half(int row, int col, u32 word) const {
    if (Columns % 8 != 0 && col >= Columns)
      return 0.0f;
    crossing.settleWord(at(row, col & ~1), word);
    return col & 1 ? bf16High(word) : bf16Low(word);
  }

  __device__ __forceinline__ void store8(int row, int col, Floats<8> f) const {
    crossing.storeWords(at(row, col), pack8(f));
  }
  __device__ __forceinline__ void store(int row, int col, Floats<1> f) const {
    static_assert(!Crossing::polls, "a bf16 alone is no word");
    *reinterpret_cast<u16 *>(at(row, col)) = floatToBf16(f.v[0]);
  }
  /// The four lanes of a row store neighbouring columns, from a multiple of four on.
  __device__ __forceinline__ void storeOne(int row, int col, Floats<1> f) const {
    const float next = __shfl_xor_sync(lanesOfRow(), f.v[0], 1);
    if (laneId() % 2 == 0)
      crossing.storeWord(at(row, col), packBf16(f.v[0], next));
  }
  __device__ __forceinline__ void storeOne(RowOfWarp row, int col, Floats<1> f) const {
    const float next = __shfl_xor_sync(~0u, f.v[0], 1);
    if (laneId() % 2 == 0 && row.mine)
      crossing.storeWord(at(row, col), packBf16(f.v[0], next));
  }
  /// The four lanes of a row store neighbouring pairs of columns. A pair is (c0, c0 + 1). Or it is (c0, c1), which lie
  /// apart; then the pair of the next lane is (c0 + 1, c1 + 1).
  __device__ __forceinline__ void storePair(int row, int c0, int c1, Floats<2> f) const {
    if (c1 == c0 + 1) {
      crossing.storeWord(at(row, c0), packBf16(f.v[0], f.v[1]));
      return;
    }
    const bool odd = laneId() & 1;
    const float other = __shfl_xor_sync(lanesOfRow(), odd ? f.v[0] : f.v[1], 1);
    crossing.storeWord(odd ? at(row, c1 - 1) : at(row, c0), odd ? packBf16(other, f.v[1]) : packBf16(f.v[0], other));
  }
};

/// Loads `Count` times 8 columns without waiting for them to be there. The j-th 8 columns stand in row rowOf(j), from
/// columnOf(j) on. Those for which wanted(j) is false are zero.
template <int Count, class Rows, class Wanted, class RowOf, class ColumnOf>
__device__ __forceinline__ void peekAll(const Rows &source, Words4 (&words)[Count], Wanted wanted, RowOf rowOf,
                                        ColumnOf columnOf) {
#pragma unroll
  for (int j = 0; j < Count; ++j) {
    words[j] = {0, 0, 0, 0};
    if (wanted(j))
      words[j] = source.peek(rowOf(j), columnOf(j));
  }
}
/// Waits until what peekAll loads is there. When some of it is not, waits for one of the missing, and then loads all
/// again. Mostly the others have come meanwhile. To wait for one after the other would cost a trip to the L2 cache for
/// each. `eager`, for one or two of them: loads both until they are there, which saves a trip. More polling than that
/// would delay what is polled for.
template <int Count, class Rows, class Wanted, class RowOf, class ColumnOf>
__device__ __forceinline__ void settleAll(const Rows &source, Words4 (&words)[Count], Wanted wanted, RowOf rowOf,
                                          ColumnOf columnOf, bool eager = false) {
  if constexpr (Count == 1) { // settle() returns the words that came
    if (wanted(0))
      source.settle(rowOf(0), columnOf(0), words[0]);
  } else if constexpr (Rows::polls) {
    u64 since = 0;
    for (u32 spin = 1;; ++spin) {
      int late = -1;
#pragma unroll
      for (int j = 0; j < Count; ++j)
        if (wanted(j) && source.absent(columnOf(j), words[j]))
          late = j;
      if (late < 0)
        return;
      if (eager ? source.stops(spin, since) : !source.await(rowOf(late), columnOf(late)))
        return;
      peekAll(source, words, wanted, rowOf, columnOf);
    }
  }
}

/// Bf16Rows in f32.
template <class Crossing, int Columns, long long RowBytes> struct FloatRows {
  static constexpr int columns = Columns;
  char *base;
  Crossing crossing;

  __device__ __forceinline__ char *at(int row, int col) const { return base + row * RowBytes + col * 4; }
  /// The bits of a value, where every NaN is 7fffffff. Not every operation makes that NaN.
  __device__ __forceinline__ static u32 present(float v) { return v != v ? 0x7fffffffu : __float_as_uint(v); }
  __device__ __forceinline__ Floats<8> load8(int row, int col) const {
    const char *p = at(row, col);
    const int bytes = (Columns - col) * 4;
    Words4 a = crossing.peek(p, bytes), b = crossing.peek(p + 16, bytes - 16);
    crossing.settle(p, bytes, a);
    crossing.settle(p + 16, bytes - 16, b);
    return {{__uint_as_float(a.x), __uint_as_float(a.y), __uint_as_float(a.z), __uint_as_float(a.w),
             __uint_as_float(b.x), __uint_as_float(b.y), __uint_as_float(b.z), __uint_as_float(b.w)}};
  }
  __device__ __forceinline__ Words4 words(int row, int col) const { return pack8(load8(row, col)); }
  __device__ __forceinline__ Floats<1> load(int row, int col) const {
    if (Columns % 8 != 0 && col >= Columns)
      return {{0.0f}};
    return {{__uint_as_float(crossing.word(at(row, col)))}};
  }
  __device__ __forceinline__ Floats<2> loadPair(int row, int c0, int c1) const {
    return {{load(row, c0).v[0], load(row, c1).v[0]}};
  }
  __device__ __forceinline__ PairWords peekPair(int row, int c0, int c1) const {
    return {peekOne(row, c0).first, peekOne(row, c1).first};
  }
  __device__ __forceinline__ Floats<2> takePair(int row, int c0, int c1, PairWords words) const {
    return {{takeOne(row, c0, {words.first, 0}).v[0], takeOne(row, c1, {words.second, 0}).v[0]}};
  }
  __device__ __forceinline__ PairWords peekOne(int row, int col) const {
    return {Columns % 8 != 0 && col >= Columns ? 0 : crossing.peekWord(at(row, col)), 0};
  }
  __device__ __forceinline__ Floats<1> takeOne(int row, int col, PairWords words) const {
    if (Columns % 8 != 0 && col >= Columns)
      return {{0.0f}};
    crossing.settleWord(at(row, col), words.first);
    return {{__uint_as_float(words.first)}};
  }
  __device__ __forceinline__ void store(int row, int col, Floats<1> f) const {
    crossing.storeWord(at(row, col), present(f.v[0]));
  }
  __device__ __forceinline__ void store8(int row, int col, Floats<8> f) const {
#pragma unroll
    for (int i = 0; i < 8; i += 4)
      crossing.storeWords(at(row, col + i),
                          {present(f.v[i]), present(f.v[i + 1]), present(f.v[i + 2]), present(f.v[i + 3])});
  }
  __device__ __forceinline__ void storeOne(int row, int col, Floats<1> f) const { store(row, col, f); }
  __device__ __forceinline__ void storeOne(RowOfWarp row, int col, Floats<1> f) const {
    if (row.mine)
      store(row, col, f);
  }
  __device__ __forceinline__ void storePair(int row, int c0, int c1, Floats<2> f) const {
    store(row, c0, {{f.v[0]}});
    store(row, c1, {{f.v[1]}});
  }
};

} // namespace megalith::device
