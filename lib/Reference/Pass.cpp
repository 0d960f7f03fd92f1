#include "Machine.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Reducers.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <tuple>

using namespace megalith;
using namespace megalith::reference;

/// Whether the request is at a call that feeds its prompt: it has `chunk`, or many rows of which only the last one is
/// read.
bool Machine::isOfPrompt(const Running &r) {
  return r.call.op && r.call.op->op != ir::Op::Enter &&
         (r.call.op->get<ir::attr::chunk>() > 0 || (r.call.op->has<ir::attr::last_row>() && r.call.feed.size() > 1));
}

// Passes are those of the model that a request waits for.
bool Machine::waitsBefore(const Running *a, const Running *b) {
  auto key = [](const Running *r) {
    return std::tuple(r->call.since, isOfPrompt(*r), -int64_t(r->input->priority), r->kv[r->call.pool].passes,
                      r->number);
  };
  return key(a) < key(b);
}

void Machine::runPass(int pool, int64_t site) {
  std::map<int32_t, int64_t> taken; // rows by slot, ascending
  const bool alone = llvm::all_of(slots, [](const Running *r) { return !r || isOfPrompt(*r); });
  PassRoom room{program.rowsPerPass, alone ? program.rowsPerPass : program.rowsBeside};
  for (Running *r : waitingFor(pool, site))
    takeRows(*r, pool, room, taken);
  freePages(pool, room.pagesTaken);
  for (auto [r, count] : room.pages)
    for (; count > 0; --count) {
      r->kv[pool].pages.push_back(pools[pool].free.back());
      ++pools[pool].holders[pools[pool].free.back()];
      pools[pool].free.pop_back();
    }
  if (!taken.empty())
    runRows(pool, taken, orderOfRows(pool, taken));
}

/// Whether a call counts among those that are read: it has reducers, its rows are no chain, or the host wants their
/// logits.
bool Machine::isRead(const Running &r, int pool) const {
  const bool isDraft = r.call.op->get<ir::attr::kv>() == ir::KvUse::Draft;
  const auto isFree = [](const FedRow &row) { return row.visible != row.position + 1; };
  int64_t place = r.call.begin;
  return !r.call.reducers.empty() ||
         (pool == 0 && r.keepPrompt && !isDraft && r.kv[pool].len + 1 < std::ssize(r.input->tokens)) ||
         llvm::any_of(r.call.feed, [&](const FedRow &row) { return row.position != place++ || isFree(row); });
}

/// How many of a call's `rows` rows are read, of a pass with more than limits::readRows: these are its last ones.
int64_t Machine::readRowsOf(const Running &r, int pool, int64_t rows) const {
  return r.call.op->has<ir::attr::last_row>() ? std::min<int64_t>(rows, 1) : isRead(r, pool) ? rows : 0;
}

/// The rows of slots as they stand in the pass: in ascending order, but in a pass that runs in pieces those that are
/// not read come first.
std::vector<RowsOfSlot> Machine::orderOfRows(int pool, const std::map<int32_t, int64_t> &taken) const {
  std::vector<RowsOfSlot> unread, read;
  int64_t all = 0;
  for (const auto &[slot, rows] : taken)
    all += rows;
  for (const auto &[slot, rows] : taken) {
    const int64_t from = all > limits::readRows ? rows - readRowsOf(*slots[slot], pool, rows) : 0;
    if (from > 0)
      unread.push_back({slot, 0, from});
    if (from < rows)
      read.push_back({slot, from, rows});
  }
  unread.insert(unread.end(), read.begin(), read.end());
  return unread;
}

/// The requests whose call waits for a pass of the model, or for that of a site in a loop, in the order of serving.
std::vector<Running *> Machine::waitingFor(int pool, int64_t site) const {
  std::vector<Running *> waiting;
  for (Running *r : slots)
    if (r && r->call.op && !r->call.served && r->call.pool == pool && r->call.ownPass == site)
      waiting.push_back(r);
  std::sort(waiting.begin(), waiting.end(), waitsBefore);
  return waiting;
}

/// Free pages that no request in a slot has reserved.
int64_t Machine::unreserved(int pool) const {
  int64_t pages = available(pool);
  for (const Running *r : slots)
    if (r)
      pages -= std::max<int64_t>(0, r->kv[pool].reserved - static_cast<int64_t>(r->kv[pool].pages.size()));
  return pages;
}

/// Serves one call: gives it rows for which there is room in the pass, and the pages for
/// them. A call that cannot have both gets neither, so that those after it can.
void Machine::takeRows(Running &r, int pool, PassRoom &room, std::map<int32_t, int64_t> &taken) {
  KvShare &kv = r.kv[pool];
  const PoolInfo &info = program.pools[pool];
  auto rows = static_cast<int64_t>(r.call.feed.size());
  if (rows == 0) { // needs no pass
    kv.end = r.call.begin;
    for (const ReducerInput &input : r.call.reducers)
      if (const auto bad = readsTooMany(input, 0))
        return fail(r, *bad);
    r.call.results.resize(r.call.reducers.size());
    serve(r);
    return;
  }
  const bool read = isRead(r, pool), lastRow = r.call.op->has<ir::attr::last_row>();
  const int64_t left = lastRow ? room.rows : read ? std::min(room.rows, room.readRows) : room.rows;
  const int64_t chunk = r.call.op->get<ir::attr::chunk>();
  if (chunk > 0)
    rows = std::min({rows, chunk, left, room.promptRows});
  const bool ofPrompt = isOfPrompt(r);
  if (chunk == 0 && ofPrompt && rows > room.promptRows && room.feedsPrompt)
    return; // one that has more than these may is the only one
  if (rows < 1 || rows > left || readRowsOf(r, pool, rows) > room.readRows)
    return;
  if (const auto bad = checkFeed(r, pool, rows))
    return fail(r, *bad);
  for (const ReducerInput &input : r.call.reducers)
    if (const auto bad = readsTooMany(input, rows))
      return fail(r, *bad);

  auto held = static_cast<int64_t>(kv.pages.size());
  int64_t need = (r.call.begin + rows + info.pageTokens - 1) / info.pageTokens - kv.first - held;
  if (info.wait) {
    // What is reserved is there. Beyond that nobody takes a page after one who waits for some.
    int64_t beyond = need - std::max<int64_t>(0, kv.reserved - held);
    if (beyond > 0 && (room.blocked || beyond > unreserved(pool) - room.beyondTaken)) {
      room.blocked = true;
      return;
    }
    room.beyondTaken += std::max<int64_t>(0, beyond);
  }
  need = std::max<int64_t>(0, need);
  if (need > available(pool) - room.pagesTaken) // of a pool that reserves, what was reserved is not there
    return fail(r, Fault::PoolExhausted);
  room.pages.emplace_back(&r, need);
  room.pagesTaken += need;
  taken[r.slot] = rows;
  room.rows -= rows;
  if (ofPrompt) {
    room.promptRows = std::max<int64_t>(0, room.promptRows - rows);
    room.feedsPrompt = true;
  }
  room.readRows -= readRowsOf(r, pool, rows);
}

static FaultSignal outOfRange(int64_t index, int64_t count) {
  return {Fault::IndexRange, {}, {static_cast<int32_t>(index), static_cast<int32_t>(count)}};
}

/// There are more tokens than rows, or kept rows are read that go with no row of the call.
std::optional<FaultSignal> Machine::readsTooMany(const ReducerInput &input, int64_t rows) {
  const auto [from, to] = input.rowsOf(rows);
  if (input.tokens && static_cast<int64_t>(input.tokens->size()) > to - from)
    return outOfRange(static_cast<int64_t>(input.tokens->size()), to - from);
  if (const int64_t last = input.rowsRead(rows).second; !input.kept.empty() && last > rows)
    return outOfRange(last, rows);
  const auto [first, last] = input.rowsRead(rows);
  int64_t fewest = last - first; // of what each row has for itself
  for (const auto *tokens : {&input.only, &input.without})
    if (*tokens && (*tokens)->ofEach)
      fewest = std::min<int64_t>(fewest, std::ssize((*tokens)->rows));
  if (input.temperatures)
    fewest = std::min<int64_t>(fewest, std::ssize(*input.temperatures));
  if (input.noises)
    fewest = std::min<int64_t>(fewest, std::ssize(*input.noises));
  if (fewest < last - first)
    return outOfRange(last - first, fewest);
  if (input.bias.size() != input.by.size())
    return outOfRange(std::ssize(input.bias), std::ssize(input.by));
  return std::nullopt;
}

/// A row without a token, which a format has where no text of it goes on, is one that nobody accepts.
/// Every other row must be a token and, below the end of the request's tokens, the one that stands there. A draft that
/// the model lacks cannot be accepted, and what a model after the first one gives are drafts: these may be any token.
std::optional<FaultSignal> Machine::checkFeed(const Running &r, int pool, int64_t rows) const {
  const bool mustKnow = pool == 0 && r.call.op->get<ir::attr::kv>() != ir::KvUse::Draft;
  const int64_t end = mustKnow ? models[pool]->vocab() : INT32_MAX; // the greatest number is no token of any model
  for (int64_t i = 0; i < rows; ++i) {
    const FedRow &row = r.call.feed[i];
    if (row.token >= end || (row.token < 0 && !(row.token == -1 && r.format())))
      return FaultSignal{Fault::TokenRange, {}, {row.token, static_cast<int32_t>(end)}};
    if (row.position < static_cast<int64_t>(r.tokens.size()) && row.token != r.tokens[row.position])
      return FaultSignal{Fault::FeedMismatch, {}, {row.position, row.token, r.tokens[row.position]}};
    const auto place = static_cast<int32_t>(r.call.begin + i);
    const int64_t sealed = r.kv[pool].sealed * program.pools[pool].pageTokens;
    if (place < sealed && (row.position != place || row.parent != place - 1 || row.visible != place + 1))
      return FaultSignal{Fault::SealedPage, {}, {place, static_cast<int32_t>(sealed)}};
  }
  return std::nullopt;
}

/// Lets the call continue after the pass.
void Machine::serve(Running &r) {
  KvShare &kv = r.kv[r.call.pool];
  r.call.served = true;
  progress = true;
  ++servedCalls;
  if (r.call.op->get<ir::attr::kv>() != ir::KvUse::Draft)
    kv.len = kv.end;
  kv.drafts = kv.end - kv.len;
}

std::pair<int64_t, int64_t> ReducerInput::rowsOf(int64_t rows) const {
  if (!kept.empty())
    rows = keptRows;
  const auto place = [&](int64_t bound) { return std::clamp<int64_t>(bound < 0 ? rows + bound : bound, 0, rows); };
  const int64_t from = first ? place(*first) : 0, to = last ? place(*last) : rows;
  return {from, std::max(from, to)};
}

std::pair<int64_t, int64_t> ReducerInput::rowsRead(int64_t rows) const {
  auto [from, to] = rowsOf(rows);
  return {from, tokens ? std::min(to, from + static_cast<int64_t>(tokens->size())) : to};
}

RowReduction ReducerInput::of(int64_t i, const Row &row) const {
  RowReduction r = with;
  r.position = static_cast<int32_t>(static_cast<uint32_t>(row.position) + 1 + static_cast<uint32_t>(ahead));
  if (tokens)
    r.token = (*tokens)[i];
  if (temperatures)
    r.temperature = (*temperatures)[i];
  if (noises)
    r.noise = (*noises)[i];
  return r;
}

void ReducerInput::changeByHand(RowEdits &edits, int64_t i) const {
  edits.byHand = only || without || !bias.empty();
  if (only)
    edits.only = only->of(i);
  if (without)
    edits.without = without->of(i);
  for (size_t k = 0; k < bias.size(); ++k)
    edits.added.push_back({bias[k], by[k]});
}

/// Which of the `rows` rows of its call some reducer reads.
std::vector<bool> Machine::rowsRead(const Running &r, int64_t rows) const {
  std::vector<bool> read(rows, false);
  for (const ReducerInput &input : r.call.reducers) {
    const auto [from, to] = input.rowsRead(rows);
    std::fill(read.begin() + from, read.begin() + to, true);
  }
  return read;
}

std::vector<int32_t> Running::textOf(int64_t place) const {
  const KvShare &share = kv[call.pool];
  std::vector<int32_t> path; // from its end
  while (place >= share.len) {
    const FedRow &row = place >= call.begin ? call.feed.at(place - call.begin) : share.fed.at(place);
    path.push_back(row.token);
    place = row.parent;
  }
  std::vector<int32_t> text(tokens.begin(), tokens.begin() + std::min<int64_t>(share.len, std::ssize(tokens)));
  text.insert(text.end(), path.rbegin(), path.rend());
  return text;
}

uint16_t Running::walkFormat(uint16_t state, std::span<const int32_t> more) const {
  for (const int32_t token : more)
    state =
        input->eos && llvm::is_contained(*input->eos, token) ? automata::Automaton::Dead : format()->step(state, token);
  return state;
}

/// `position`: of the token that the row gives. Of one that is farther away than the next one nobody knows the text
/// before it.
RowEdits Machine::editsOf(const Running &r, const ReducerInput &input, int32_t position, std::vector<int32_t> text) {
  const Request &request = *r.input;
  RowEdits edits{&request.sampling, input.ahead == 0, std::move(text), request.tokens.size()};
  // Rows in front of the answer's give tokens of the prompt.
  if (r.format() && edits.knowsText && edits.text.size() >= edits.prompt) {
    edits.format = r.format();
    edits.state = r.walkFormat(edits.format->format.automaton.start, std::span(edits.text).subspan(edits.prompt));
    edits.eos = request.eos.value_or(std::vector<int32_t>());
  }
  const int64_t generated = position - std::ssize(request.tokens);
  if (generated >= 0 && generated < request.sampling.minNewTokens)
    edits.early = request.endTokens();
  return edits;
}

/// What a reducer gives for a row where it gives nothing.
static int32_t noneOf(const ReducerInput &input) {
  return !input.with.probs && ir::reducers()[size_t(input.with.reducer)].result == ir::Scalar::Token ? -1 : 0;
}

/// Makes the call's results of its rows, whose numbers in the pass are `numbers`. The first `unread` are not read.
/// `logits` has a line for each that is read. `given` is a pass whose values are taken, once they are checked.
void Machine::reduceRows(Running &r, TracePass &pass, const std::vector<size_t> &numbers, int64_t unread,
                         const RowsOfResults &of, const TracePass *given) {
  const auto rows = static_cast<int64_t>(of.at("logits").size());
  std::vector<size_t> words(rows, 0); // of each row, so far
  for (const ReducerInput &input : r.call.reducers) {
    const auto [from, to] = input.rowsRead(rows);
    Val &result = r.call.results.emplace_back();
    const auto lines = of.find(input.result);
    if (lines == of.end())
      throw NotExecutable(fmt::format("the model has no result `{}`", input.result));
    const auto &logits = lines->second;
    const bool isArgMax = input.with.reducer == Reducer::ArgMax && input.result == "logits" && input.kept.empty();
    const std::vector<Running::KeptRow> *kept = input.kept.empty() ? nullptr : &r.kept[input.kept];
    const std::vector<Running::KeptRow> *minus = input.minus.empty() ? nullptr : &r.kept[input.minus];
    for (int64_t i = 0; i < rows; ++i) {
      const Row &row = pass.rows[numbers[i]];
      const bool reads = i >= from && i < to;
      if (i < unread) // has no word
        continue;
      if (isArgMax) {
        if (reads)
          result.seq.push_back(row.result);
        continue;
      }
      std::vector<int32_t> values;
      const std::span<const float> line = kept && reads ? std::span<const float>(kept->at(i)) : logits[i];
      const bool nan = input.result == "logits"
                           ? row.result == RowIsNan
                           : reads && llvm::any_of(line, [](float value) { return std::isnan(value); });
      if (reads && !nan) { // else the request ends
        RowReduction with = input.of(i - from, row);
        if (minus && i - from < input.minusRows)
          with.minus = minus->at(i - from);
        if (input.edited) {
          with.edits = editsOf(r, input, with.position, kept ? kept->at(i).text : r.textOf(row.kvSlot));
          if (!with.minus.empty())
            with.minusEdits = editsOf(r, input, with.position, minus->at(i - from).text);
        }
        for (RowEdits *edits : {&with.edits, &with.minusEdits})
          input.changeByHand(*edits, i - from);
        values = valuesOf(with, row, numbers[i], line, words[i], given);
      }
      if (reads && input.table)
        result.rows.push_back(values);
      else if (reads)
        result.seq.push_back(values.empty() ? noneOf(input) : values[0]);
      std::vector<int32_t> &out = pass.reduced[numbers[i]];
      out.insert(out.end(), values.begin(), values.end());
      out.resize(words[i] += input.with.n, -1);
    }
  }
}

/// Rows of the call that fields of the request keep from now on.
void Machine::keepRows(Running &r, const RowsOfResults &of) {
  const auto &logits = of.at("logits");
  for (const ReducerInput &input : r.call.reducers) {
    if (input.keep.empty())
      continue;
    const auto [from, to] = input.rowsRead(static_cast<int64_t>(logits.size()));
    std::vector<Running::KeptRow> &rows = r.kept[input.keep];
    rows.resize(input.at);
    for (int64_t i = from; i < to; ++i)
      rows.push_back({{logits[i].begin(), logits[i].end()}, r.textOf(r.call.begin + i)});
  }
}

/// With injected drafts, the models after the first one guess these: the tokens that the call's rows gave are
/// replaced. Of several tokens of a row the first one is. The trace has what the model gave.
void Machine::putDrafts(Running &r, const TracePass &pass, const std::vector<size_t> &numbers) {
  if (r.call.pool == 0 || static_cast<size_t>(r.number) >= options.oracleDrafts.size())
    return;
  const std::vector<int32_t> &drafts = options.oracleDrafts[r.number];
  for (size_t k = 0; k < r.call.reducers.size(); ++k) {
    const ReducerInput &input = r.call.reducers[k];
    if (input.with.probs || ir::reducers()[size_t(input.with.reducer)].result != ir::Scalar::Token)
      continue;
    Val &result = r.call.results[k];
    const auto rows = static_cast<int64_t>(numbers.size());
    const auto [from, to] = input.rowsRead(rows);
    // The best token of a kept row is said with it.
    const auto isKept = [&](int64_t row) {
      return input.with.reducer == Reducer::ArgMax && llvm::any_of(r.call.reducers, [&](const ReducerInput &other) {
               const auto [first, last] = other.rowsRead(rows);
               return !other.keep.empty() && row >= first && row < last;
             });
    };
    for (int64_t i = from; i < to; ++i) {
      const int64_t at =
          int64_t(pass.rows[numbers[i]].position) + 1 + input.ahead - (std::ssize(r.tokens) - r.generated());
      if (isKept(i) || pass.rows[numbers[i]].result < 0 || at < 0 || at >= std::ssize(drafts) || drafts[at] < 0)
        continue;
      if (!input.table) {
        result.seq[i - from] = drafts[at];
      } else if (std::vector<int32_t> &tokens = result.rows[i - from]; !tokens.empty()) {
        std::replace(tokens.begin() + 1, tokens.end(), drafts[at], tokens[0]);
        tokens[0] = drafts[at];
      }
    }
  }
}

/// What a reducer gives for row number `number` of the pass, or what `given` has from its word `word` on.
std::vector<int32_t> Machine::valuesOf(const RowReduction &with, const Row &row, size_t number,
                                       std::span<const float> logits, size_t word, const TracePass *given) {
  if (!given)
    return reduceRow(with, logits);
  std::vector<int32_t> values;
  if (number < given->reduced.size())
    for (size_t k = word; k < std::min(given->reduced[number].size(), word + with.n); ++k)
      values.push_back(given->reduced[number][k]);
  while (!values.empty() && values.back() == -1) // of a row that gives fewer, or is dead
    values.pop_back();
  const std::string wrong = whyNotReduced(with, logits, values, errorOfLogits(logits, options.replayError));
  if (!wrong.empty())
    out.mismatches.push_back({current.tick, static_cast<int32_t>(number), 0, 0, 0,
                              fmt::format("`{}{}` is {}", ir::reducers()[size_t(with.reducer)].name.str(),
                                          with.probs ? ".prob" : "", wrong)});
  return values;
}

/// Runs the model on the rows of a pass. Of those that only the host wants it tells the host; what it gives is of the
/// others.
PassOutput Machine::runModel(int pool, const std::vector<Row> &rows, const std::vector<PageTable> &tables) {
  std::vector<Row> asked = rows;
  const auto isOfPrompt = [&](const Row &row) {
    const Running &r = *slots[row.slot];
    return pool == 0 && r.keepPrompt && !(row.flags & RowIsDraft) && row.position + 1 < std::ssize(r.input->tokens);
  };
  for (Row &row : asked)
    row.flags |= isOfPrompt(row) ? unsigned(RowWantsLogits) : 0u;
  PassOutput output = models[pool]->run(asked, tables);
  if (std::none_of(rows.begin(), rows.end(), isOfPrompt))
    return output;
  std::vector<int64_t> kept;
  int64_t line = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!(asked[i].flags & RowWantsLogits))
      continue;
    if (isOfPrompt(rows[i]))
      options.live->promptRow(slots[rows[i].slot]->number, rows[i].position + 1,
                              {output.logits.row(line), static_cast<size_t>(output.logits.cols)});
    if (rows[i].flags & RowWantsLogits)
      kept.push_back(line);
    ++line;
  }
  output.keep(kept);
  return output;
}

void Machine::runRows(int pool, const std::map<int32_t, int64_t> &taken, const std::vector<RowsOfSlot> &order) {
  TracePass pass;
  pass.model = program.pools[pool].name;
  std::vector<PageTable> tables(slots.size());
  std::vector<std::vector<int32_t>> parents(slots.size()); // of the rows that a run has fed
  for (auto [slot, rows] : taken) {
    const Running &r = *slots[slot];
    const KvShare &kv = r.kv[pool];
    for (int64_t place = kv.len; place < r.call.begin; ++place)
      parents[slot].push_back(kv.fed[place].parent);
    tables[slot] = {kv.first, &kv.pages, kv.len, &parents[slot]};
  }
  std::map<int32_t, std::vector<size_t>> numbers; // of each slot's rows in the pass
  for (auto [slot, from, to] : order) {
    const Running &r = *slots[slot];
    const std::vector<bool> read = rowsRead(r, taken.at(slot));
    const uint32_t draft = r.call.op->get<ir::attr::kv>() == ir::KvUse::Draft ? uint32_t(RowIsDraft) : 0;
    for (int64_t i = from; i < to; ++i) {
      numbers[slot].push_back(pass.rows.size());
      const uint32_t flags = draft | (read[i] ? uint32_t(RowWantsLogits) : 0);
      const FedRow &fed = r.call.feed[i];
      pass.rows.push_back({slot, fed.token, fed.position, static_cast<int32_t>(r.call.begin + i), fed.visible,
                           fed.parent, flags, RowNotWanted});
    }
  }

  PassOutput output = runModel(pool, pass.rows, tables);
  size_t line = 0;
  for (Row &row : pass.rows)
    if (row.flags & RowWantsLogits)
      row.result = output.argmax[line++];
  const TracePass *given = replaying ? replayResults(pass, output) : nullptr;
  if (options.hashKv)
    for (const Row &row : pass.rows) {
      int64_t pageTokens = program.pools[pool].pageTokens;
      pass.kvHash.push_back(
          models[pool]->kv().hash(tables[row.slot].at(row.kvSlot / pageTokens), row.kvSlot % pageTokens));
    }

  line = 0;
  pass.reduced.resize(pass.rows.size());
  for (auto [slot, from, rows] : order) {
    if (rows < taken.at(slot))
      continue; // the call goes on behind the rows that are not read
    const std::vector<size_t> &ofCall = numbers[slot];
    Running &r = *slots[slot];
    KvShare &kv = r.kv[pool];
    kv.end = r.call.begin + rows;
    kv.fed.resize(r.call.begin);
    kv.fed.insert(kv.fed.end(), r.call.feed.begin(), r.call.feed.begin() + rows);
    ++r.result.passes;
    ++kv.passes;
    r.result.rows += rows;
    RowsOfResults of;
    std::vector<std::span<const float>> &logits = of["logits"];
    logits.resize(rows);
    for (const auto &[name, matrix] : output.others)
      of[name].resize(rows);
    bool nan = false, first = true;
    for (int64_t i = 0; i < rows; ++i) {
      const Row &row = pass.rows[ofCall[i]];
      if (!(row.flags & RowWantsLogits))
        continue;
      for (auto &[name, matrix] : output.others)
        of[name][i] = {matrix.row(static_cast<int64_t>(line)), static_cast<size_t>(matrix.cols)};
      logits[i] = {output.logits.row(static_cast<int64_t>(line++)), static_cast<size_t>(output.logits.cols)};
      nan |= row.result == RowIsNan;
      if ((options.keepLogits || r.keepLogits) && pool == 0) { // of several models those of the first
        if (first && r.call.begin == kv.len)
          r.logits.clear();
        first = false;
        r.logits[row.kvSlot].assign(logits[i].begin(), logits[i].end());
      }
    }
    for (const ReducerInput &input : r.call.reducers)
      if (input.result != "logits")
        if (const auto lines = of.find(input.result); lines != of.end()) {
          const auto [from, to] = input.rowsRead(rows);
          for (int64_t i = from; i < to; ++i)
            nan |= llvm::any_of(lines->second[i], [](float value) { return std::isnan(value); });
        }
    reduceRows(r, pass, ofCall, from, of, given);
    keepRows(r, of);
    putDrafts(r, pass, ofCall);
    serve(r);
    if (nan)
      fail(r, Fault::Numeric);
  }
  if (std::all_of(pass.reduced.begin(), pass.reduced.end(), [](const auto &row) { return row.empty(); }))
    pass.reduced.clear();
  ++out.passes;
  out.rows += static_cast<int64_t>(pass.rows.size());
  current.passes.push_back(std::move(pass));
}

/// Puts the trace's results into the rows, after checking each against the
/// logits; stops replaying where the rows are not the trace's.
const TracePass *Machine::replayResults(TracePass &pass, const PassOutput &output) {
  int64_t line = 0;
  const TracePass *given = checkReplay(
      *options.replay, current.tick, current.passes.size(), pass, options.replayEpsilon,
      [&](size_t) { return std::span(output.logits.row(line++), static_cast<size_t>(output.logits.cols)); },
      out.mismatches);
  replaying = given != nullptr;
  if (!replaying)
    return nullptr;
  for (size_t i = 0; i < pass.rows.size(); ++i)
    if (pass.rows[i].flags & RowWantsLogits)
      pass.rows[i].result = given->rows[i].result;
  return given;
}

const std::vector<float> *Running::nextLogits() const {
  const KvShare &share = kv[0];
  for (const auto &[place, line] : logits) {
    // What a live session is told of stands on rows that were kept, or may still be.
    if (place >= (keepLogits ? share.end : std::ssize(share.fed)))
      continue;
    // The row of the last token, on a path of the tokens before it.
    int64_t on = place, position = static_cast<int64_t>(tokens.size()) - 1;
    while (on >= share.len && share.fed[on].position == position && share.fed[on].token == tokens[position]) {
      on = share.fed[on].parent;
      --position;
    }
    if (on < share.len && on == position)
      return &line;
  }
  return nullptr;
}

void Machine::moveRows(Running &r, int pool, const std::vector<int32_t> &path, SourceLoc loc) {
  KvShare &kv = r.kv[pool];
  std::vector<int32_t> from;
  std::vector<FedRow> rows;
  std::map<int64_t, std::vector<float>> logits;
  for (int32_t row : path) {
    const auto place = static_cast<int32_t>(kv.len + from.size());
    from.push_back(static_cast<int32_t>(kv.len + row));
    const int64_t sealed = kv.sealed * program.pools[pool].pageTokens;
    if (place < sealed && from.back() != place)
      throw FaultSignal{Fault::SealedPage, loc, {place, static_cast<int32_t>(sealed)}};
    rows.push_back(kv.fed[from.back()]);
    // A row that does not hang on the one before is none of its path, wherever it stands.
    FedRow &moved = rows.back();
    const int32_t before = rows.size() > 1 ? from[from.size() - 2] : place - 1;
    moved.parent = moved.parent == before ? place - 1 : -2;
    if (auto line = r.logits.find(from.back()); line != r.logits.end())
      logits[place] = line->second;
  }
  PageTable table;
  table.first = kv.first;
  table.pages = &kv.pages;
  models[pool]->move(table, kv.len, from);
  std::copy(rows.begin(), rows.end(), kv.fed.begin() + kv.len);
  if (pool == 0)
    r.logits = std::move(logits);
}
