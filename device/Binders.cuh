//===- Binders.cuh - functions over ranges and sequences, of a warp --------===//
//
// map, sum, top, sort and so on, and what makes tables. Ascending order, one rounding a step, so the results are those
// of the reference executor. A lane has one number of the range; where the function uses the whole warp itself
// (InTurn), one comes after the other. See docs/language.md, "Functions".
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Faults.cuh"
#include "megalith/Sequences.cuh"

namespace megalith::device {

/// What a stage is told of faults.
struct FaultingFunctions : StageFunctions {
  int fault = 0;             ///< the first one: faultAt
  abi::FaultNumbers numbers; ///< its own, if it has some

  __device__ void raise(int code, int line) { fault = fault ? fault : faultAt(code, line); }
  /// A fault that has numbers, see Contract/Faults.def.
  __device__ void raise(int code, int line, int first, int second) {
    if (!fault)
      numbers = {first, second, 0};
    raise(code, line);
  }
  /// The same where a branch would keep loads from overlapping.
  __device__ __forceinline__ void raiseIf(bool wrong, int code, int line, int first, int second) {
    const bool told = wrong && fault == 0;
    fault = told ? faultAt(code, line) : fault;
    numbers.words[0] = told ? first : numbers.words[0];
    numbers.words[1] = told ? second : numbers.words[1];
    numbers.words[2] = told ? 0 : numbers.words[2];
  }
  __device__ void raiseRange(int line, int index, int count) { raise(kIndexRange, line, index, count); }

  /// Element `i`; outside the sequence it is 0, or empty, and the activation faults.
  template <class View> __device__ auto at(const View &sequence, int i, int line = __builtin_LINE()) {
    const auto view = asView(sequence);
    if (i >= 0 && i < view.size())
      return view[i];
    raiseRange(line, i, view.size());
    return ItemOf<View>{};
  }
  __device__ static int lengthOf(int low, int high) { return low < high ? high - low : 0; }
};

/// The part of an activation that knows no request. The whole warp holds it, with the same values in every lane.
struct Binders : FaultingFunctions {
  /// Number of leading i in [0, count) for which test(i) holds. One lane per i. A fault that test() raises after the
  /// first failure does not count.
  template <class Test> __device__ int prefixWhile(int count, Test test) {
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const int i = base + laneId(), earlier = fault;
      const bool holds = i < count && test(i);
      const u32 failed = __ballot_sync(~0u, !holds);
      const int first = failed ? __ffs(failed) - 1 : 32;
      agree(earlier, first < 31 ? (2u << first) - 1 : ~0u);
      if (failed)
        return base + first;
    }
    return count > 0 ? count : 0;
  }

  /// Number of i in [0, count) for which test(i) holds. One lane per i.
  template <class Test> __device__ int countIf(int count, Test test) {
    int total = 0;
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const int i = base + laneId(), earlier = fault;
      total += __popc(__ballot_sync(~0u, i < count && test(i)));
      agree(earlier);
    }
    return total;
  }

  /// prefixWhile and countIf for a test that uses the whole warp itself: one i after the other.
  template <class Test> __device__ static int prefixWhileInTurn(int count, Test test) {
    int i = 0;
#pragma unroll 1
    while (i < count && test(i))
      ++i;
    return i;
  }
  template <class Test> __device__ static int countIfInTurn(int count, Test test) {
    int total = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      total += test(i) ? 1 : 0;
    return total;
  }
  template <class Test> __device__ int prefixWhile(int count, InTurn<Test> test) {
    return prefixWhileInTurn(count, test.function);
  }
  template <class Test> __device__ int countIf(int count, InTurn<Test> test) {
    return countIfInTurn(count, test.function);
  }
  /// The same for i in [low, high).
  template <class Test> __device__ int prefixWhile(int low, int high, Test test) {
    return prefixWhile(lengthOf(low, high), from(low, test));
  }
  template <class Test> __device__ int countIf(int low, int high, Test test) {
    return countIf(lengthOf(low, high), from(low, test));
  }

  /// The first i in [low, high) for which test(i) holds; -1: none. A fault after it does not count.
  template <class Test> __device__ int find(int low, int high, Test test) {
    const int before = prefixWhile(low, high, negated(test));
    return before < lengthOf(low, high) ? low + before : -1;
  }
  template <class Test> __device__ bool all(int low, int high, Test test) {
    return prefixWhile(low, high, test) == lengthOf(low, high);
  }
  template <class Test> __device__ bool any(int low, int high, Test test) {
    return prefixWhile(low, high, negated(test)) < lengthOf(low, high);
  }

  /// The sum of function(i), i ascending, rounded at each step. One lane per i computes what is added.
  template <class Function> __device__ auto sum(int low, int high, Function function) {
    using T = ValueOf<Function>;
    T total = 0;
#pragma unroll 1
    for (int base = low; base < high; base += 32) {
      const T mine = evaluate(base, high, function);
      total = addUp(total, mine, min(32, high - base), [](int, T) {});
    }
    return total;
  }

  /// The greatest and the least function(i), the first of equal ones; 0 of an empty range.
  template <class Function> __device__ auto greatest(int low, int high, Function function) {
    ValueOf<Function> best = 0;
    bestOf<true>(low, high, function, best);
    return best;
  }
  template <class Function> __device__ auto least(int low, int high, Function function) {
    ValueOf<Function> best = 0;
    bestOf<false>(low, high, function, best);
    return best;
  }
  /// Where they stand; -1 of an empty range.
  template <class Function> __device__ int argGreatest(int low, int high, Function function) {
    ValueOf<Function> best = 0;
    return bestOf<true>(low, high, function, best);
  }
  template <class Function> __device__ int argLeast(int low, int high, Function function) {
    ValueOf<Function> best = 0;
    return bestOf<false>(low, high, function, best);
  }

  /// function(i) for each i in [low, high), which are `Capacity` at most. It stands at `words`.
  template <int Capacity, class Function>
  __device__ auto map(int *words, int low, int high, Function function, int line = __builtin_LINE()) {
    using T = ValueOf<Function>;
    auto *items = reinterpret_cast<WordOf<T> *>(words);
    const int count = roomFor<Capacity>(low, high, line);
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const T mine = evaluate(low + base, low + count, function);
      if (base + laneId() < count)
        items[base + laneId()] = WordOf<T>(mine);
    }
    __syncwarp();
    return Items<T>{items, count};
  }
  /// The same where function(i) is a sequence of at most `Columns` elements. The whole warp evaluates it.
  template <int Rows, int Columns, class Function>
  __device__ auto mapRows(int *words, int low, int high, Function function, int line = __builtin_LINE()) {
    using T = ItemOf<decltype(function(0))>;
    const int count = roomFor<Rows>(low, high, line);
#pragma unroll 1
    for (int i = 0; i < count; ++i)
      storeRow<Rows, Columns, T>(words, i, function(low + i), line);
    return tableAt<Rows, Columns, T>(words, count);
  }
  /// A table of the given rows.
  template <int Rows, int Columns, class First, class... More>
  __device__ auto table(int *words, const First &first, const More &...more) {
    using T = ItemOf<First>;
    int i = 0;
    storeRow<Rows, Columns, T>(words, i++, first, __builtin_LINE());
    (storeRow<Rows, Columns, T>(words, i++, more, __builtin_LINE()), ...);
    return tableAt<Rows, Columns, T>(words, i);
  }

  /// Those i in [low, high), ascending, for which test(i) holds.
  template <int Capacity, class Test>
  __device__ Items<int> filter(int *words, int low, int high, Test test, int line = __builtin_LINE()) {
    const int count = roomFor<Capacity>(low, high, line);
    int taken = 0;
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const bool takes = evaluate(low + base, low + count, test) && base + laneId() < count;
      const u32 takers = __ballot_sync(~0u, takes);
      if (takes)
        words[taken + __popc(takers & ((1u << laneId()) - 1))] = low + base + laneId();
      taken += __popc(takers);
    }
    __syncwarp();
    return {words, taken};
  }

  /// For each i in [low, high) the sum of function(j) for j from low to i, rounded at each step.
  template <int Capacity, class Function>
  __device__ auto scan(int *words, int low, int high, Function function, int line = __builtin_LINE()) {
    using T = ValueOf<Function>;
    T *items = reinterpret_cast<T *>(words);
    const int count = roomFor<Capacity>(low, high, line);
    T total = 0;
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const T mine = evaluate(low + base, low + count, function);
      total = addUp(total, mine, min(32, count - base), [&](int k, T sum) {
        if (laneId() == k)
          items[base + k] = sum;
      });
    }
    __syncwarp();
    return Items<T>{items, count};
  }

  /// The `k` values of i in [low, high) with the greatest function(i), the greatest first, of equal ones the lower i
  /// first. `Range` bounds the range, `Capacity` the result. Keys come after it.
  template <int Range, int Capacity, class Function>
  __device__ Items<int> top(int *words, int low, int high, int k, Function function, int line = __builtin_LINE()) {
    const int count = roomFor<Range>(low, high, line);
    int *keys = words + Capacity;
    storeKeys<true>(keys, low, count, function);
    return arrange(words, words + Capacity, 0, low, count, max(0, min(min(k, Capacity), count)));
  }
  /// The values of i in [low, high), by ascending keys, of equal ones the lower i first.
  template <int Capacity, class... Functions>
  __device__ Items<int> sort(int *words, int low, int high, Functions... functions) {
    const int count = roomFor<Capacity>(low, high, __builtin_LINE());
    int *keys = words + Capacity;
    (storeKeys<false>(keys, low, count, functions), ...);
    return arrange(words, words + Capacity, int(sizeof...(Functions)) - 1, low, count, count);
  }

  /// The longest path from row `root` on which each row's token is `best` at its parent; the lowest of equal ones.
  template <int Capacity, class Rows, class Parents, class Best>
  __device__ Items<int> follow(int *words, const Rows &rowsOf, const Parents &parentsOf, const Best &choices,
                               int root) {
    const auto rows = asView(rowsOf);
    const auto parents = asView(parentsOf);
    const auto best = asView(choices);
    const int count = min(Capacity, min(rows.size(), min(parents.size(), best.size())));
    u64 longest = 0; // length, then the row from after
#pragma unroll 1
    for (int i = laneId(); i < count; i += 32) {
      int at = i, length = 1;
#pragma unroll 1
      while (at != root) {
        const int parent = parents[at];
        if (parent < 0 || parent >= at || rows[at] != best[parent])
          break;
        at = parent;
        ++length;
      }
      const u64 mine = at == root ? u64(length) << 32 | (0xffffffffu - u32(i)) : 0;
      longest = mine > longest ? mine : longest;
    }
    longest = warpGreatest(longest);
    const int length = int(longest >> 32);
    __syncwarp();
    if (laneId() == 0) {
      int at = int(0xffffffffu - u32(longest));
#pragma unroll 1
      for (int i = length - 1; i >= 0; --i) {
        words[i] = at;
        at = parents[at];
      }
    }
    __syncwarp();
    return {words, length};
  }

  /// A row for `last` and one for each token of the table's rows, unless its parent has one with that token already.
  template <int Capacity, class Branches> __device__ TreeRows tree(int *words, int last, const Branches &branchesOf) {
    const auto branches = asView(branchesOf);
    int *rows = words, *parents = words + Capacity;
    int count = 1;
    __syncwarp();
    if (laneId() == 0) {
      rows[0] = last;
      parents[0] = -1;
    }
    __syncwarp();
#pragma unroll 1
    for (int b = 0; b < branches.size(); ++b) {
      const auto branch = branches[b];
      int at = 0;
#pragma unroll 1
      for (int i = 0; i < branch.size() && count < Capacity; ++i) {
        const int token = branch[i];
        int child = count;
#pragma unroll 1
        for (int base = at + 1; base < count && child == count; base += 32) {
          const int row = base + laneId();
          const u32 same = __ballot_sync(~0u, row < count && parents[row] == at && rows[row] == token);
          child = same ? base + __ffs(same) - 1 : count;
        }
        if (child == count) {
          if (laneId() == 0) {
            rows[child] = token;
            parents[child] = at;
          }
          ++count;
          __syncwarp();
        }
        at = child;
      }
    }
    return {{rows, count}, {parents, count}};
  }

  /// All lanes take the fault of the first of those in `reached` that has one. `earlier`: what it was before.
  __device__ void agree(int earlier, u32 reached = ~0u) {
    const u32 faulted = __ballot_sync(~0u, fault != earlier) & reached;
    if (!faulted) {
      fault = earlier;
      return;
    }
    const int first = __ffs(faulted) - 1;
    fault = __shfl_sync(~0u, fault, first);
    for (int &word : numbers.words)
      word = __shfl_sync(~0u, word, first);
  }

  /// As a function of numbers from 0 on.
  template <class Test> __device__ static auto from(int low, Test test) {
    return [=](int i) { return test(low + i); };
  }
  template <class Test> __device__ static auto from(int low, InTurn<Test> test) {
    return StageFunctions::inTurn([=](int i) { return test.function(low + i); });
  }
  template <class Test> __device__ static auto negated(Test test) {
    return [=](int i) { return !test(i); };
  }
  template <class Test> __device__ static auto negated(InTurn<Test> test) {
    return StageFunctions::inTurn([=](int i) { return !test.function(i); });
  }

  template <class Function> __device__ static auto called(const Function &function) { return function(0); }
  template <class Function> __device__ static auto called(const InTurn<Function> &function) {
    return function.function(0);
  }
  template <class Function> using ValueOf = decltype(called(*static_cast<const Function *>(nullptr)));

  /// function(i) of this lane, whose i is `base` + its number; nothing from `high` on.
  template <class Function> __device__ auto evaluate(int base, int high, const Function &function) {
    const int i = base + laneId(), earlier = fault;
    ValueOf<Function> mine{};
    if (i < high)
      mine = function(i);
    agree(earlier);
    return mine;
  }
  template <class Function> __device__ auto evaluate(int base, int high, const InTurn<Function> &function) {
    ValueOf<InTurn<Function>> mine{};
#pragma unroll 1
    for (int k = 0; k < 32 && base + k < high; ++k) {
      const auto value = function.function(base + k);
      if (laneId() == k)
        mine = value;
    }
    return mine;
  }

  /// Adds the values of the first `count` lanes, one after the other; each(k, sum) sees every step.
  template <class T, class Each> __device__ static T addUp(T total, T mine, int count, Each each) {
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      total = sumOf(total, __shfl_sync(~0u, mine, k));
      each(k, total);
    }
    return total;
  }
  __device__ static int sumOf(int a, int b) { return StageFunctions::wrapAdd(a, b); }
  __device__ static float sumOf(float a, float b) { return __fadd_rn(a, b); }

  __device__ static u64 warpGreatest(u64 mine) {
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) {
      const u64 other = __shfl_xor_sync(~0u, mine, distance);
      mine = other > mine ? other : mine;
    }
    return mine;
  }

  /// Where the greatest or least function(i) stands, and what it is; -1 when there is none.
  template <bool Greatest, class Function, class T>
  __device__ int bestOf(int low, int high, const Function &function, T &best) {
    u64 first = ~0ull; // rank, then the number's place
    T mine = 0;
#pragma unroll 1
    for (int base = low; base < high; base += 32) {
      const T value = evaluate(base, high, function);
      const u64 place = u64(rankOf<Greatest>(value)) << 32 | u32(base + laneId() - low);
      if (base + laneId() < high && place < first) {
        first = place;
        mine = value;
      }
    }
    if (low >= high)
      return -1;
    const u64 winner = ~warpGreatest(~first);
    const int at = int(u32(winner));
    best = __shfl_sync(~0u, mine, at & 31);
    return low + at;
  }

  /// How many numbers the range has. More than `Capacity` are a fault: what bounds them was overwritten.
  template <int Capacity> __device__ int roomFor(int low, int high, int line) {
    const int count = lengthOf(low, high);
    if (count <= Capacity)
      return count;
    raise(kCorruptField, line);
    return 0;
  }

  /// Copies a view to `words`.
  template <class T, class View> __device__ static Items<T> keep(int *words, const View &view) {
    auto *items = reinterpret_cast<WordOf<T> *>(words);
    const int count = view.size();
    __syncwarp();
#pragma unroll 1
    for (int i = laneId(); i < count; i += 32)
      items[i] = WordOf<T>(view[i]);
    __syncwarp();
    return {items, count};
  }

  /// A table at `words`: the lengths of `Rows` rows, then their elements.
  template <int Rows, int Columns, class T, class View>
  __device__ void storeRow(int *words, int row, const View &sequence, int line) {
    const auto view = asView(sequence);
    const int count = view.size();
    if (count > Columns || row >= Rows) {
      raise(kCorruptField, line);
      return;
    }
    keep<T>(words + Rows + row * Columns, view);
    if (laneId() == 0)
      words[row] = count;
    __syncwarp();
  }
  template <int Rows, int Columns, class T> __device__ static TableItems<T> tableAt(const int *words, int count) {
    return {words, reinterpret_cast<const WordOf<T> *>(words + Rows), Columns, count};
  }

  /// Writes the rank of each number to `keys`, which then comes after them.
  template <bool Descending, class Function>
  __device__ void storeKeys(int *&keys, int low, int count, const Function &function) {
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < count; base += 32) {
      const u32 key = rankOf<Descending>(evaluate(low + base, low + count, function));
      if (base + laneId() < count)
        keys[base + laneId()] = int(key);
    }
    __syncwarp();
    keys += count;
  }
  /// The first `kept` of the numbers low + i in the order of their keys; `more` further keys come after the first.
  __device__ static Items<int> arrange(int *words, const int *keys, int more, int low, int count, int kept) {
#pragma unroll 1
    for (int i = laneId(); i < count; i += 32) {
      int before = 0;
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        int k = 0;
        while (k < more && keys[k * count + j] == keys[k * count + i])
          ++k;
        const u32 other = u32(keys[k * count + j]), own = u32(keys[k * count + i]);
        before += other < own || (other == own && j < i);
      }
      if (before < kept)
        words[before] = low + i;
    }
    __syncwarp();
    return {words, kept};
  }
};

} // namespace megalith::device
