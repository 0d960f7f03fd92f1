#include "Machine.h"
#include "megalith/IR/Calls.h"
#include <algorithm>
#include <tuple>

using namespace megalith;
using namespace megalith::reference;

// Passes are those of the model that a request waits for.
bool Machine::waitsBefore(const Running *a, const Running *b) {
  auto key = [](const Running *r) {
    return std::tuple(r->call.since, -int64_t(r->input->priority), r->kv[r->call.pool].passes, r->number);
  };
  return key(a) < key(b);
}

void Machine::runPass(int pool) {
  std::map<int32_t, int64_t> taken; // rows by slot, ascending
  int64_t left = program.rowsPerPass;
  bool blocked = false; // a call waits for pages
  for (Running *r : waitingFor(pool))
    takeRows(*r, pool, left, blocked, taken);
  if (!taken.empty())
    runRows(pool, taken);
}

/// The requests whose call waits for a pass of the model, in the order of serving.
std::vector<Running *> Machine::waitingFor(int pool) const {
  std::vector<Running *> waiting;
  for (Running *r : slots)
    if (r && r->call.op && !r->call.served && r->call.pool == pool)
      waiting.push_back(r);
  std::sort(waiting.begin(), waiting.end(), waitsBefore);
  return waiting;
}

/// Free pages that no request in a slot was promised.
int64_t Machine::unpromised(int pool) const {
  auto pages = static_cast<int64_t>(pools[pool].free.size());
  for (const Running *r : slots)
    if (r)
      pages -= std::max<int64_t>(0, r->kv[pool].promised - static_cast<int64_t>(r->kv[pool].pages.size()));
  return pages;
}

/// Serves one call: gives it rows, of which `left` are left in the pass, and the pages for
/// them. A call that cannot have both gets neither, so that those behind it can.
void Machine::takeRows(Running &r, int pool, int64_t &left, bool &blocked, std::map<int32_t, int64_t> &taken) {
  KvShare &kv = r.kv[pool];
  const PoolInfo &info = program.pools[pool];
  auto rows = static_cast<int64_t>(r.call.feed.size());
  if (rows == 0) { // needs no pass
    kv.end = kv.len;
    serve(r, {});
    return;
  }
  if (const int64_t chunk = r.call.op->get<ir::attr::chunk>())
    rows = std::min({rows, chunk, left});
  if (rows < 1 || rows > left)
    return;
  if (Fault fault = checkFeed(r, pool, rows); fault != Fault::None)
    return fail(r, fault);

  std::vector<int32_t> &free = pools[pool].free;
  auto held = static_cast<int64_t>(kv.pages.size());
  int64_t need = (kv.len + rows + info.pageTokens - 1) / info.pageTokens - kv.first - held;
  if (info.wait) {
    // What was promised is there. Beyond that nobody takes a page behind one who waits for some.
    int64_t beyond = need - std::max<int64_t>(0, kv.promised - held);
    if (beyond > 0 && (blocked || beyond > unpromised(pool))) {
      blocked = true;
      return;
    }
  } else if (need > static_cast<int64_t>(free.size())) {
    return fail(r, Fault::PoolExhausted);
  }
  for (; need > 0; --need) {
    kv.pages.push_back(free.back());
    free.pop_back();
  }
  taken[r.slot] = rows;
  left -= rows;
}

/// Every row must lie in the vocabulary and, below the end of the request's
/// tokens, be the token that stands there.
Fault Machine::checkFeed(const Running &r, int pool, int64_t rows) const {
  int64_t len = r.kv[pool].len;
  for (int64_t i = 0; i < rows; ++i) {
    int32_t token = r.call.feed[i];
    if (token < 0 || token >= models[pool]->vocab())
      return Fault::TokenRange;
    if (len + i < static_cast<int64_t>(r.tokens.size()) && token != r.tokens[len + i])
      return Fault::FeedMismatch;
  }
  return Fault::None;
}

/// Hands the call its results; `argmax` has one element per fed row.
void Machine::serve(Running &r, const std::vector<int32_t> &argmax) {
  KvShare &kv = r.kv[r.call.pool];
  for (const ir::Operation &reduce : ir::reducersOf(*r.call.op)) {
    if (reduce.name != "argmax")
      throw NotExecutable("unknown reducer `" + reduce.name + "`");
    r.call.results.emplace_back().seq = argmax;
  }
  r.call.served = true;
  progress = true;
  if (r.call.op->get<ir::attr::kv>() != "draft")
    kv.len = kv.end;
}

void Machine::runRows(int pool, const std::map<int32_t, int64_t> &taken) {
  TracePass pass;
  pass.model = program.pools[pool].name;
  std::vector<PageTable> tables(slots.size());
  for (auto [slot, rows] : taken) {
    const Running &r = *slots[slot];
    tables[slot] = {r.kv[pool].first, &r.kv[pool].pages};
    uint32_t flags = 0;
    if (!ir::reducersOf(*r.call.op).empty())
      flags |= RowWantsLogits;
    if (r.call.op->get<ir::attr::kv>() == "draft")
      flags |= RowIsDraft;
    for (int64_t i = 0; i < rows; ++i) {
      auto position = static_cast<int32_t>(r.kv[pool].len + i);
      pass.rows.push_back({slot, r.call.feed[i], position, position, position + 1, position - 1, flags, RowNotWanted});
    }
  }

  PassOutput output = models[pool]->run(pass.rows, tables);
  size_t line = 0;
  for (Row &row : pass.rows)
    if (row.flags & RowWantsLogits)
      row.result = output.argmax[line++];
  if (replaying)
    replayResults(pass, output);
  if (options.hashKv)
    for (const Row &row : pass.rows) {
      int64_t pageTokens = program.pools[pool].pageTokens;
      pass.kvHash.push_back(
          models[pool]->kv().hash(tables[row.slot].at(row.kvSlot / pageTokens), row.kvSlot % pageTokens));
    }

  size_t next = 0;
  line = 0;
  for (auto [slot, rows] : taken) {
    Running &r = *slots[slot];
    KvShare &kv = r.kv[pool];
    kv.end = kv.len + rows;
    kv.fed.resize(kv.len);
    kv.fed.insert(kv.fed.end(), r.call.feed.begin(), r.call.feed.begin() + rows);
    ++r.result.passes;
    ++kv.passes;
    r.result.rows += rows;
    std::vector<int32_t> argmax;
    bool nan = false;
    for (int64_t i = 0; i < rows; ++i) {
      const Row &row = pass.rows[next++];
      if (!(row.flags & RowWantsLogits))
        continue;
      argmax.push_back(row.result);
      nan |= row.result == RowIsNan;
      if (options.keepLogits && pool == 0) { // of several models those of the first
        if (i == 0)
          r.logits.clear();
        const float *values = output.logits.row(static_cast<int64_t>(line));
        r.logits[row.position].assign(values, values + output.logits.cols);
      }
      ++line;
    }
    serve(r, argmax);
    if (nan)
      fail(r, Fault::Numeric);
  }
  ++out.passes;
  out.rows += static_cast<int64_t>(pass.rows.size());
  current.passes.push_back(std::move(pass));
}

/// Puts the trace's results into the rows, after checking each against the
/// logits; stops replaying where the rows are not the trace's.
void Machine::replayResults(TracePass &pass, const PassOutput &output) {
  int64_t line = 0;
  const TracePass *given = checkReplay(
      *options.replay, current.tick, current.passes.size(), pass, options.replayEpsilon,
      [&](size_t) { return std::span(output.logits.row(line++), static_cast<size_t>(output.logits.cols)); },
      out.mismatches);
  replaying = given != nullptr;
  if (!replaying)
    return;
  for (size_t i = 0; i < pass.rows.size(); ++i)
    if (pass.rows[i].flags & RowWantsLogits)
      pass.rows[i].result = given->rows[i].result;
}
