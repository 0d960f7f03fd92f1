//===- LogitsQueries.cuh - what stages query of the logits of rows --------===//
//
// Control's half of Reducers.cuh. A stage's call says what it asks for; the answers of the pass stand in
// LaunchParams::reduced when its code goes on.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Pass.cuh"
#include "megalith/Exact.h"
#include "megalith/Sampling.h"
#include "megalith/Sequences.cuh"

namespace megalith::device {

/// One reducer of a call that a slot waits for.
struct CallQuery {
  ReducerKind reducer;
  int first, last; ///< rows of the call that it reads, as the stage gave them: negative ones count from the end
  int tokens;      ///< how many rows have a token; -1: it takes none
  sampling::Settings settings;
  int noise, ahead;
  int place;       ///< its words begin there in those of a row
  int count;       ///< words of a row
  int part;        ///< of top_k
  int result;      ///< of the model; 0: the logits
  int fields;      ///< that keep rows of logits: see keptBy
  int at;          ///< how many rows there are in the field that it reads, or in front of those that a field keeps
  int hand;        ///< of what the stage gives these rows by hand: a HandRecord in the slot's words; -1: nothing
  int handRows;    ///< of what each row has for itself among it, the fewest
  int biases, bys; ///< tokens and numbers among it

  /// Of `fields`, beside the numbers of fields: the request's settings change the rows that it reads.
  static constexpr int kEdited = 1 << 24;
  /// The same of what the stage changes by hand.
  static constexpr int kEditedByHand = 1 << 25;
  __device__ __forceinline__ bool editedByRequest() const { return fields & kEdited; }
  __device__ __forceinline__ bool editedByHand() const { return fields & kEditedByHand; }
  __device__ __forceinline__ bool isEdited() const { return fields & (kEdited | kEditedByHand); }

  /// What a reducer has to do with a field that keeps rows.
  enum Role : int { Reads, Minus, Keeps };
  /// The field's number; -1: none.
  __device__ __forceinline__ int keptBy(Role role) const { return (fields >> 8 * int(role) & 255) - 1; }

  /// The rows that it reads of `served` ones.
  struct Rows {
    int first, last;
    __device__ __forceinline__ int count() const { return last - first; }
    __device__ __forceinline__ bool has(int row) const { return row >= first && row < last; }
  };
  __device__ __forceinline__ static Rows rowsOf(int served, int first, int last) {
    const auto clamped = [&](int at) { return max(0, min(served, at < 0 ? served + at : at)); };
    const int begin = clamped(first);
    return {begin, max(begin, clamped(last))};
  }
  __device__ __forceinline__ Rows rowsOf(int served) const {
    const Rows rows = rowsOf(keptBy(Reads) < 0 ? served : at, first, last);
    return {rows.first, tokens < 0 ? rows.last : min(rows.last, rows.first + tokens)};
  }
  /// More tokens than rows, or kept rows that go with no row of the call.
  __device__ __forceinline__ bool readsTooMany(int ofCall) const {
    CallQuery all = *this;
    all.tokens = -1;
    return tokens > all.rowsOf(ofCall).count() || (keptBy(Reads) >= 0 && rowsOf(ofCall).last > ofCall) ||
           (hand >= 0 && (rowsOf(ofCall).count() > handRows || biases != bys));
  }
  /// Then how many there are, and how many there may be.
  __device__ abi::FaultNumbers tooMany(int ofCall) const {
    CallQuery all = *this;
    all.tokens = -1;
    const int most = all.rowsOf(ofCall).count();
    const Rows rows = rowsOf(ofCall);
    return tokens > most                              ? abi::FaultNumbers{tokens, most, 0}
           : keptBy(Reads) >= 0 && rows.last > ofCall ? abi::FaultNumbers{rows.last, ofCall, 0}
           : hand >= 0 && rows.count() > handRows     ? abi::FaultNumbers{rows.count(), handRows, 0}
                                                      : abi::FaultNumbers{biases, bys, 0};
  }
  /// Whether the token of a row with these settings can be drawn while its logits are made.
  __device__ __forceinline__ bool isDraw(const sampling::Settings &ofRow, int vocab) const {
    return reducer == ReducerKind::Sample && count == 1 &&
           (sampling::isGreedy(ofRow) ||
            ((ofRow.topK <= 0 || ofRow.topK >= vocab) && ofRow.topP >= 1.0f && ofRow.minP <= 0.0f));
  }
};

static_assert(sizeof(CallQuery) == abi::kCallQueryBytes);

/// The reducers of the call that a slot waits for.
template <int Queries> struct alignas(16) CallQueries {
  int count;
  alignas(16) CallQuery queries[Queries];
};

/// A list of tokens for all rows that a query reads, or one for each.
struct HandList {
  int kind;          ///< 0: there is none; 1: one for all; 2: a table
  int at;            ///< in the slot's words: lengths, then items
  int rows, columns; ///< of a table
};
/// What a stage gives the rows that a query reads by hand. Its lists follow.
struct alignas(16) HandRecord {
  HandList only, without;
  int bias, by; ///< in the slot's words
  int biasCount;
  int temperatures, noises; ///< of each row, in the slot's words; -1: all have those of the query
  int unused[3];
};
static_assert(sizeof(HandRecord) == 4 * abi::kHandRecordWords);
/// Words of it, as the control unit has them: the record, then its lists.
template <int Begin, int OnlyRows, int OnlyColumns, int WithoutRows, int WithoutColumns, int Biases, int Temperatures,
          int Noises>
struct HandPlaces {
  static constexpr int begin = Begin, onlyRows = OnlyRows, onlyColumns = OnlyColumns, withoutRows = WithoutRows,
                       withoutColumns = WithoutColumns, biases = Biases, temperaturesMost = Temperatures,
                       noisesMost = Noises;
  static constexpr int only = begin + abi::kHandRecordWords, without = only + OnlyRows * (1 + OnlyColumns),
                       bias = without + WithoutRows * (1 + WithoutColumns), by = bias + Biases,
                       temperatures = by + Biases, noises = temperatures + Temperatures, end = noises + Noises;
  static constexpr bool edits = OnlyRows + WithoutRows + Biases > 0; ///< some of it changes logits
};
/// Words of a slot for what stages change by hand.
template <class Config> __device__ constexpr int handWordsOf() {
  if constexpr (requires { Config::handWords; })
    return Config::handWords;
  else
    return 0;
}

/// LaunchParams::queries, and what is control's there: after the queries of a pass those of each slot, then the tokens
/// whose probability they ask for.
template <class Config> struct QueryMemory {
  static constexpr long long rows = readRowsOf<Config>(), queries = Config::queries, results = resultsOf<Config>();
  /// Words of a row in LaunchParams::reduced. The first one tells how many there are.
  static constexpr int reducedWords = 1 + Config::queryWords;
  static constexpr long long ofPass = sizeof(abi::QueryHeader) +
                                      rows * results * (sizeof(abi::RowDraw) + sizeof(abi::RowEdit)) +
                                      rows * queries * sizeof(abi::RowQuery);
  using OfSlot = CallQueries<Config::queries>;

  __device__ __forceinline__ static OfSlot &ofSlot(const abi::LaunchParams &p, int slot) {
    return reinterpret_cast<OfSlot *>(p.queries + ofPass)[slot];
  }
  /// [rows of the call]
  __device__ __forceinline__ static int *tokens(const abi::LaunchParams &p, int slot, int query) {
    return reinterpret_cast<int *>(&ofSlot(p, Config::slots)) + (slot * queries + query) * rows;
  }
  static constexpr long long handsBegin = abi::queryBytes(rows, Config::slots, queries, results, 0) + 15 & ~15ll;
  /// [rows of a pass][queries]
  __device__ __forceinline__ static abi::RowHand *rowHands(const abi::LaunchParams &p) {
    return reinterpret_cast<abi::RowHand *>(p.queries + handsBegin);
  }
  __device__ __forceinline__ static int *hands(const abi::LaunchParams &p, int slot) {
    return reinterpret_cast<int *>(rowHands(p) + rows * queries) + slot * handWordsOf<Config>();
  }
  /// [results][rows]
  __device__ __forceinline__ static abi::RowDraw *draws(const abi::LaunchParams &p) {
    return reinterpret_cast<abi::RowDraw *>(p.queries + sizeof(abi::QueryHeader));
  }
  /// [results][rows]
  __device__ __forceinline__ static abi::RowEdit *edits(const abi::LaunchParams &p) {
    return reinterpret_cast<abi::RowEdit *>(draws(p) + rows * results);
  }
  __device__ __forceinline__ static abi::RowQuery *rowQueries(const abi::LaunchParams &p) {
    return reinterpret_cast<abi::RowQuery *>(edits(p) + rows * results);
  }
};

/// What a call gave for its rows from `first` on: a number or a token of each.
template <class Value> struct Reduced {
  const u32 *words; ///< of the first row
  int stride, count;
  bool atHand = false; ///< in shared memory
  __device__ int size() const { return count; }
  __device__ Value operator[](int i) const {
    const u32 *const at = words + (long long)i * stride;
    const u32 word = atHand ? *at : loadWord(at);
    if constexpr (Value(0.5f) != Value(0)) // f32
      return __uint_as_float(word);
    else
      return Value(word);
  }
};

/// Of which result it is; 0: of the logits.
template <class Which> __device__ constexpr int resultOfQuery() {
  if constexpr (requires { Which::result; })
    return Which::result;
  else
    return 0;
}

/// CallQuery::fields of it.
template <class Which> __device__ constexpr int fieldsOfQuery() {
  if constexpr (requires { Which::fields; })
    return Which::fields;
  else
    return 0;
}

/// Whether settings of requests may change the rows that it reads.
template <class Which> __device__ constexpr bool mayBeEdited() {
  return requires { Which::edited; };
}

/// A field of the request that keeps rows of logits: which the request has, with the best token of each.
struct KeptField {
  int offset; ///< in the request's descriptor: the number of rows, then their best tokens
  int rows;   ///< at most
  int first;  ///< of the lines of slot 0, among those of all fields

  __device__ __forceinline__ int line(int slot, int row) const { return -1 - (first + slot * rows + row); }
  template <class Request> __device__ __forceinline__ int *words(Request &r) const {
    return reinterpret_cast<int *>(reinterpret_cast<char *>(&r) + offset);
  }
  template <class Request> __device__ __forceinline__ int size(Request &r) const {
    return max(0, min(rows, *words(r)));
  }
};

/// How many fields keep rows of logits.
template <class Config> __device__ constexpr int keptFieldsOf() {
  if constexpr (requires { Config::keptFields; })
    return Config::keptFields;
  else
    return 0;
}

/// Tells of the i-th row that a query reads what the stage changes by hand, as number `entry` of the pass's. Its place;
/// kNone: nothing. Any thread.
template <class Config>
__device__ __forceinline__ int tellHand(const abi::LaunchParams &p, int slot, const CallQuery &query, int i,
                                        int entry) {
  if constexpr (handWordsOf<Config>() > 0) {
    using Memory = QueryMemory<Config>;
    if (!query.editedByHand())
      return abi::kNone;
    const int *const words = Memory::hands(p, slot);
    const HandRecord &record = *reinterpret_cast<const HandRecord *>(words + query.hand);
    const auto place = [&](int at) { return (int)(reinterpret_cast<const char *>(words + at) - p.queries); };
    const auto first = [&](const HandList &list) {
      return list.kind == 0   ? abi::kNone
             : list.kind == 1 ? place(list.at + 1)
                              : place(list.at + list.rows + i * list.columns);
    };
    const auto count = [&](const HandList &list) {
      return list.kind == 0 ? 0 : words[list.at + (list.kind == 2 ? i : 0)];
    };
    abi::RowHand &to = Memory::rowHands(p)[entry];
    to = {first(record.only), count(record.only), first(record.without), count(record.without),
          place(record.bias), place(record.by),   record.biasCount,      0};
    return (int)((reinterpret_cast<const char *>(&to) - p.queries) / 16);
  }
  return abi::kNone;
}

/// What the i-th row that a query reads has for itself, in place of the query's. Any thread.
template <class Config>
__device__ __forceinline__ void takeOfRow(const abi::LaunchParams &p, int slot, const CallQuery &query, int i,
                                          sampling::Settings &settings, int &noise) {
  if constexpr (handWordsOf<Config>() > 0) {
    if (query.hand < 0)
      return;
    const int *const words = QueryMemory<Config>::hands(p, slot);
    const HandRecord &record = *reinterpret_cast<const HandRecord *>(words + query.hand);
    if (record.temperatures >= 0)
      settings.temperature = __int_as_float(words[record.temperatures + i]);
    if (record.noises >= 0)
      noise = words[record.noises + i];
  }
}

template <class Which, class View> struct LogitsQueryOf;

/// What a call asks for: `Which` is one of its reducers, as the text of the control unit names it.
template <class Which> struct LogitsQuery {
  using Reducer = Which;
  sampling::Settings settings = {};
  int noise = 0, ahead = 0;
  int first = 0, last = kAllRows;
  int at = 0; ///< see CallQuery
  static constexpr int kAllRows = 0x7fffffff, words = Which::reducer == ReducerKind::ArgMax ? 0 : Which::count;

  __device__ bool isPlain() const {
    const bool best = Which::reducer == ReducerKind::ArgMax ||
                      (Which::reducer == ReducerKind::Sample && Which::count == 1 && sampling::isGreedy(settings));
    return best && resultOfQuery<Which>() == 0 && fieldsOfQuery<Which>() == 0;
  }
  /// The same with a token for each row from `first` on.
  template <class View> __device__ auto of(const View &tokens) const {
    return LogitsQueryOf<Which, decltype(asView(tokens))>{*this, asView(tokens)};
  }
  /// Stores it with the slot's others. `edited`: the request has settings that change rows. The whole warp calls it.
  template <class Config>
  __device__ void store(const abi::LaunchParams &p, int slot, bool edited, int tokens = -1) const {
    CallQuery &to = QueryMemory<Config>::ofSlot(p, slot).queries[Which::index];
    if (laneId() == 0)
      to = {Which::reducer,
            first,
            last,
            tokens,
            settings,
            noise,
            ahead,
            Which::place,
            Which::count,
            Which::part,
            resultOfQuery<Which>(),
            fieldsOfQuery<Which>() | (mayBeEdited<Which>() && edited ? CallQuery::kEdited : 0),
            at,
            -1,
            0,
            0,
            0};
  }
};
/// With a token for each row.
template <class Which, class View> struct LogitsQueryOf : LogitsQuery<Which> {
  View view;
  template <class Config> __device__ void store(const abi::LaunchParams &p, int slot, bool edited) const {
    const int count = min(view.size(), (int)readRowsOf<Config>());
    int *to = QueryMemory<Config>::tokens(p, slot, Which::index);
    for (int i = laneId(); i < count; i += 32)
      to[i] = view[i];
    LogitsQuery<Which>::template store<Config>(p, slot, edited, count);
  }
};

struct NotGiven {
  static constexpr bool notGiven = true;
};
/// With what the stage gives by hand: sequences, for `only` and `without` also tables; NotGiven.
template <class Query, class Only, class Without, class Bias, class By, class Temperatures, class Noises>
struct QueryByHand : Query {
  using Which = typename Query::Reducer;
  using Places = typename Which::Hand;
  Only only;
  Without without;
  Bias bias;
  By by;
  Temperatures temperatures;
  Noises noises;

  __device__ static bool isPlain() { return false; }
  template <class Config> __device__ void store(const abi::LaunchParams &p, int slot, bool edited) const {
    static_assert(Places::end <= handWordsOf<Config>(), "the layout of the compiler");
    Query::template store<Config>(p, slot, edited);
    int *const words = QueryMemory<Config>::hands(p, slot);
    HandRecord record = {};
    int rows = 0x7fffffff;
    record.only = storeList<Places::only, Places::onlyRows, Places::onlyColumns>(words, only, rows);
    record.without = storeList<Places::without, Places::withoutRows, Places::withoutColumns>(words, without, rows);
    record.bias = Places::bias;
    record.by = Places::by;
    int numbers = 0;
    if constexpr (!requires { Bias::notGiven; }) {
      record.biasCount = min(bias.size(), Places::biases);
      numbers = by.size();
      for (int i = laneId(); i < record.biasCount; i += 32) {
        words[Places::bias + i] = bias[i];
        words[Places::by + i] = i < numbers ? __float_as_int(by[i]) : 0;
      }
    }
    record.temperatures = storeOfEach<Places::temperatures, Places::temperaturesMost>(words, temperatures, rows);
    record.noises = storeOfEach<Places::noises, Places::noisesMost>(words, noises, rows);
    if (laneId() == 0) {
      *reinterpret_cast<HandRecord *>(words + Places::begin) = record;
      CallQuery &to = QueryMemory<Config>::ofSlot(p, slot).queries[Which::index];
      to.fields |= Places::edits ? CallQuery::kEditedByHand : 0;
      to.hand = Places::begin;
      to.handRows = rows;
      to.biases = record.biasCount;
      to.bys = numbers;
    }
  }

private:
  __device__ static int wordOf(float number) { return __float_as_int(number); }
  __device__ static int wordOf(int number) { return number; }
  /// Numbers of rows; their place.
  template <int At, int Most, class List> __device__ static int storeOfEach(int *words, const List &list, int &fewest) {
    if constexpr (requires { List::notGiven; }) {
      return -1;
    } else {
      const int count = min(list.size(), Most);
      for (int i = laneId(); i < count; i += 32)
        words[At + i] = wordOf(list[i]);
      fewest = min(fewest, count);
      return At;
    }
  }
  template <int At, int Rows, int Columns, class List>
  __device__ static HandList storeList(int *words, const List &list, int &fewest) {
    if constexpr (requires { List::notGiven; }) {
      return {};
    } else if constexpr (requires { list[0].size(); }) {
      const int rows = min(list.size(), Rows);
#pragma unroll 1
      for (int i = 0; i < rows; ++i) {
        const auto row = list[i];
        const int count = min(row.size(), Columns);
        for (int k = laneId(); k < count; k += 32)
          words[At + Rows + i * Columns + k] = row[k];
        if (laneId() == 0)
          words[At + i] = count;
      }
      fewest = min(fewest, rows);
      return {2, At, Rows, Columns};
    } else {
      const int count = min(list.size(), Columns);
      for (int k = laneId(); k < count; k += 32)
        words[At + 1 + k] = list[k];
      if (laneId() == 0)
        words[At] = count;
      return {1, At, 1, Columns};
    }
  }
};
/// `query` with that.
template <class Query, class Only, class Without, class Bias, class By, class Temperatures, class Noises>
__device__ auto byHand(const Query &query, const Only &only, const Without &without, const Bias &bias, const By &by,
                       const Temperatures &temperatures, const Noises &noises) {
  return QueryByHand<Query, decltype(asView(only)), decltype(asView(without)), decltype(asView(bias)),
                     decltype(asView(by)), decltype(asView(temperatures)), decltype(asView(noises))>{
      query, asView(only), asView(without), asView(bias), asView(by), asView(temperatures), asView(noises)};
}

} // namespace megalith::device
