//===- ControlTrees.cuh - rows that need not be a chain -------------------===//
//
// A call may say what its rows hang on, or what they see. Control keeps of each row that a run of a stage feeds the
// place of the one before it on its path, its position and what it sees (PoolState::rowWord). Of the rows of a tree
// those of a path can be kept: they move to where plain decoding would have put them.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Faults.cuh"
#include "megalith/Pages.cuh"
#include "megalith/Sequences.cuh"

namespace megalith::device {

// What the rows of a call hang on, and how many positions they see: parent(row of the call, the row of the run before
// it), visible(row of the call, its position).

/// Each row hangs on the one before it, and sees the positions up to its own.
struct RowBefore {
  __device__ static int size(int rows) { return rows; }
  __device__ static int parent(int, int before) { return before; }
  __device__ static int visible(int, int position) { return position + 1; }
};
template <class View> struct HangsOn {
  View parents;
  __device__ int size(int) const { return parents.size(); }
  __device__ int parent(int i, int) const { return parents[i]; }
  __device__ static int visible(int, int position) { return position + 1; }
};
template <class View> struct Sees : RowBefore {
  View seen;
  __device__ int size(int) const { return seen.size(); }
  __device__ int visible(int i, int) const { return seen[i]; }
};
struct SeesAlike : RowBefore {
  int seen;
  __device__ int visible(int, int) const { return seen; }
};

/// What a call feeds, and how its rows hang together. `line`: of the call.
template <class View, class Hangs> struct FedRows {
  View view;
  Hangs hangs;
  int line;
};
template <class View, class Hangs>
__device__ __forceinline__ FedRows<View, Hangs> fedRows(const View &view, const Hangs &hangs, int line) {
  return {view, hangs, line};
}

/// A run of a stage ends. The whole warp.
template <class Activation> __device__ __forceinline__ void endRuns(Activation &t) {
  if (laneId() == 0 && t.slot >= 0)
    t.c.pools.each([&](auto &pool) {
      if constexpr (requires { pool.runRows; })
        pool.runRows[t.slot] = 0;
    });
  __syncwarp();
}

/// Notes of each row of a call of `size` rows its parent's place, its position and what it sees. The activation faults
/// where these are none. The whole warp.
template <class Call, class Activation, class Pool, class Hangs>
__device__ void noteRows(Activation &t, Pool &pool, int size, const Hangs &hangs, int line) {
  using Config = typename Activation::Config;
  const int slot = t.slot, len = pool.kvOf(t.r).len;
  const int count = min(size, Call::chunk > 0 ? min(Call::chunk, Config::rowsPerPass) : Config::rowsPerPass);
  const int from = pool.keepFrom(slot, len), first = pool.firstPlace(slot, len, Call::draft), earlier = first - len;
  if (hangs.size(size) != size)
    t.raiseRange(line, hangs.size(size), size);
  if (t.fault)
    return;
#pragma unroll 1
  for (int base = 0; base < count; base += 32) {
    const int i = base + laneId(), row = earlier + i, parent = i < count ? hangs.parent(i, row - 1) : -1;
    if (const u32 bad = __ballot_sync(~0u, i < count && (parent < -1 || parent >= row))) {
      t.raiseRange(line, __shfl_sync(~0u, parent, __ffs(bad) - 1), __shfl_sync(~0u, row, __ffs(bad) - 1));
      return;
    }
  }
  __syncwarp();
  if (laneId() == 0) { // rowWord() goes by it
    pool.fedFrom[slot] = from;
    pool.someFree[slot] = 0;
  }
  __syncwarp();
#pragma unroll 1
  for (int base = 0; base < count; base += 32) {
    const int i = base + laneId(), row = earlier + i;
    const bool mine = i < count;
    const int parent = mine ? hangs.parent(i, row - 1) : -1; // of the run
    // Of a parent that another lane has, its distance is added up until one comes whose position is known.
    int above = parent - (earlier + base), position = 1;
    if (above < 0) {
      position = parent < 0 ? len : pool.rowWord(slot, pool.Position, len + parent) + 1;
      above = -1;
    }
#pragma unroll
    for (int step = 0; step < 5; ++step) {
      const int more = __shfl_sync(~0u, position, max(above, 0)), next = __shfl_sync(~0u, above, max(above, 0));
      if (above >= 0) {
        position += more;
        above = next;
      }
    }
    const int place = first + i, visible = mine ? hangs.visible(i, position) : 0;
    // It sees no row after those of its call.
    const int most = position - i + count;
    if (const u32 bad = __ballot_sync(~0u, mine && (visible < 1 || visible > most))) {
      t.raiseRange(line, __shfl_sync(~0u, visible, __ffs(bad) - 1), __shfl_sync(~0u, most, __ffs(bad) - 1));
      return;
    }
    const bool free = __any_sync(~0u, mine && (position != place || visible != position + 1));
    if (mine) {
      pool.rowWord(slot, pool.Parent, place) = len + parent;
      pool.rowWord(slot, pool.Position, place) = position;
      pool.rowWord(slot, pool.Visible, place) = visible;
    }
    if (free && laneId() == 0)
      pool.someFree[slot] = 1;
    __syncwarp();
  }
}

/// Copies logits from line to line of the caller's dump. The whole warp. Of a live session the lines stand in the
/// host's memory, of which words take a microsecond to come: several are on their way at a time.
template <class Pool> __device__ __noinline__ void copyLogits(const Pool &, long long from, long long to) {
  const abi::LaunchParams &p = paramsOfCta();
  constexpr int together = 8;
  const float *const source = p.logits + from * Pool::dumpedWords;
  float *const target = p.logits + to * Pool::dumpedWords;
  __syncwarp();
#pragma unroll 1
  for (int base = laneId(); base < Pool::vocab; base += 32 * together) {
    u32 words[together];
#pragma unroll
    for (int k = 0; k < together; ++k)
      if (base + 32 * k < Pool::vocab)
        words[k] = loadWord(source + base + 32 * k);
#pragma unroll
    for (int k = 0; k < together; ++k)
      if (base + 32 * k < Pool::vocab)
        target[base + 32 * k] = __uint_as_float(words[k]);
  }
  if (laneId() == 0 && p.logitsRows == 0)
    lineMark(p, to) = lineMark(p, from);
  __syncwarp();
}
/// For the caller's dump: drafts up to position `kept` are kept, and their logits are those after their positions.
template <class Activation, class Pool> __device__ void keepLogits(Activation &t, const Pool &pool, int kept) {
  if (!t.p.logits || t.p.replay || Pool::model != 0)
    return;
  const OwnLines own = linesOf(t.p, t.r, t.number);
  const int told = t.p.logitsRows > 0 ? 0 : arrivalsOf(t.p)[t.number].toldGenerated; // the host may read those
  bool some = false;
  for (int place = pool.kvOf(t.r).len; place < kept; ++place)
    if (const int token = place + 1 - t.r.promptLen; token >= told && token < own.count) {
      copyLogits(pool, pool.draftLine(t.slot, place, own), own.first + token);
      some = true;
    }
  if (some && laneId() == 0) // the next pass may write the lines that were read
    atomicAdd(&t.c.moved, 1);
}

/// Moves keys and values of `layers` layers from `first` on: from the element `source` of each of the first `count`
/// lanes to its `target`, those of lower lanes first. Each lane of the warp takes 16 bytes at a time.
template <class P>
__device__ __forceinline__ void moveLayers(const abi::ModelParams &memory, long long source, long long target,
                                           int count, int first, int layers) {
  using S = PoolStrides<P>;
  constexpr int columns = 16 / S::elementBytes, ofLayer = P::kvHeads * P::headDim / columns, batch = 4;
  const int pieces = layers * ofLayer;
#pragma unroll 1
  for (int base = 0; base < pieces; base += 32 * batch)
#pragma unroll 1
    for (int row = 0; row < count; ++row) {
      const long long read = __shfl_sync(~0u, source, row), write = __shfl_sync(~0u, target, row);
      const auto at = [&](int k, long long element) {
        const int piece = base + 32 * k + laneId(), column = piece % ofLayer * columns;
        return (element + layerAddress<P>(first + piece / ofLayer) + columnAddress<P>(column)) * S::elementBytes;
      };
      Words4 words[2 * batch];
#pragma unroll
      for (int k = 0; k < batch; ++k)
        if (base + 32 * k + laneId() < pieces) {
          words[2 * k] = loadWords(memory.kCache + at(k, read));
          words[2 * k + 1] = loadWords(memory.vCache + at(k, read));
        }
#pragma unroll
      for (int k = 0; k < batch; ++k)
        if (base + 32 * k + laneId() < pieces) {
          *reinterpret_cast<Words4 *>(memory.kCache + at(k, write)) = words[2 * k];
          *reinterpret_cast<Words4 *>(memory.vCache + at(k, write)) = words[2 * k + 1];
        }
    }
  if constexpr (kE4m3<P>)
#pragma unroll 1
    for (int base = 0; base < layers * P::kvHeads; base += 32)
#pragma unroll 1
      for (int row = 0; row < count; ++row) {
        const long long read = __shfl_sync(~0u, source, row), write = __shfl_sync(~0u, target, row);
        const int head = base + laneId(); // of a layer
        if (head >= layers * P::kvHeads)
          continue;
        const auto at = [&](long long element) {
          return scaleAddress<P>(element, head % P::kvHeads) + layerAddress<P>(first + head / P::kvHeads);
        };
        const u16 key = loadHalfWord(memory.kCache + at(read)), value = loadHalfWord(memory.vCache + at(read));
        *reinterpret_cast<u16 *>(memory.kCache + at(write)) = key;
        *reinterpret_cast<u16 *>(memory.vCache + at(write)) = value;
      }
}
/// Moves those of all layers from place `from` of each of these lanes to its place `to`.
template <class P>
__device__ __noinline__ void moveKv(const PoolState<P> &pool, int slot, int from, int to, int count) {
  const abi::ModelParams &memory = pool.memory();
  const int *const table = pool.table(slot);
  const auto elementOf = [&](int place) {
    return pageAddress<P>(0, table[place / P::pageTokens], 0, place % P::pageTokens);
  };
  const bool mine = laneId() < count;
  const long long source = mine ? elementOf(from) : 0, target = mine ? elementOf(to) : 0;
  if constexpr (kMixed<P>) {
#pragma unroll 1
    for (int layer = 0; layer < P::layers; ++layer)
      if (isInBf16<P>(layer))
        moveLayers<InBf16<P>>(memory, source, target, count, layer, 1);
      else
        moveLayers<P>(memory, source, target, count, layer, 1);
  } else {
    moveLayers<P>(memory, source, target, count, 0, P::layers);
  }
  __threadfence();
}

/// Moves the rows path[0] to path[count - 1] of the run to the first places after the valid ones. They should be a
/// path, on which rows ascend: so what is written was read. The whole warp.
template <class Activation, class Pool, class View>
__device__ void moveRows(Activation &t, Pool &pool, int count, const View &path, int line) {
  const int slot = t.slot, first = pool.kvOf(t.r).len, rows = pool.kvOf(t.r).end - first;
  if (count > rows) {
    t.raiseRange(line, count, rows);
    return;
  }
  const Span tokens = t.tokens();
  const OwnLines own = linesOf(t.p, t.r, t.number);
  const bool dumps = t.p.logits && !t.p.replay && Pool::model == 0 && own.count > 0;
  int known = min(pool.known[slot], first), before = -1; // the row before, on the path
  bool broken = false, moved = false;
#pragma unroll 1
  for (int base = 0; base < count; base += 32) {
    const int row = base + laneId() < count ? path[base + laneId()] : 0;
    if (const u32 bad = __ballot_sync(~0u, row < 0 || row >= rows)) {
      t.raiseRange(line, __shfl_sync(~0u, row, __ffs(bad) - 1), rows);
      return;
    }
  }
#pragma unroll 1
  for (int base = 0; base < count; base += 32) {
    const int j = base + laneId(), place = first + j, some = min(32, count - base);
    const bool mine = j < count;
    const int row = mine ? path[j] : 0;
    const int from = first + row, above = __shfl_up_sync(~0u, row, 1);
    if constexpr (Pool::indexed) {
      const int sealed = pool.sealedOf(slot) * Pool::pageTokens;
      if (const u32 bad = __ballot_sync(~0u, mine && place < sealed && from != place)) {
        t.raise(kSealedPage, line, first + base + __ffs(bad) - 1, sealed);
        return;
      }
    }
    int token = 0;
    bool hangs = true;
    if (mine) {
      token = pool.fedToken(slot, from);
      hangs = pool.rowWord(slot, pool.Parent, from) == first + (laneId() ? above : before) &&
              pool.rowWord(slot, pool.Position, from) == place && pool.rowWord(slot, pool.Visible, from) == place + 1;
    }
    before = __shfl_sync(~0u, row, 31);
    const u32 loose = __ballot_sync(~0u, !hangs);
    hangs = hangs && !broken && (loose & ((1u << laneId()) - 1)) == 0;
    broken = broken || loose != 0;
    const bool same = mine && hangs && place < t.r.numTokens && tokens[min(place, t.r.numTokens - 1)] == token;
    const u32 others = __ballot_sync(~0u, !same);
    if (known == first + base)
      known += others ? __ffs(others) - 1 : 32;
    for (int k = 0; dumps && k < some; ++k) // keepLogits() takes them from there
      if (const int source = __shfl_sync(~0u, row, k); source != base + k)
        copyLogits(pool, pool.draftLine(slot, first + source, own), pool.draftLine(slot, first + base + k, own));
    if (__any_sync(~0u, mine && row != j)) {
      moveKv(pool, slot, from, place, some);
      moved = true;
    }
    __syncwarp();
    if (mine) {
      pool.setFedToken(slot, place, token);
      pool.rowWord(slot, pool.Parent, place) = hangs ? place - 1 : -2;
      pool.rowWord(slot, pool.Position, place) = place;
      pool.rowWord(slot, pool.Visible, place) = place + 1;
    }
    __syncwarp();
  }
  if (laneId() == 0) {
    pool.known[slot] = known;
    if (moved)
      atomicAdd(&t.c.moved, 1);
  }
  __syncwarp();
}

} // namespace megalith::device
