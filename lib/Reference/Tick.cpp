#include "Machine.h"
#include "megalith/Requests/Inputs.h"
#include "megalith/Requests/PageOrder.h"
#include <algorithm>
#include <new>
#include <stdexcept>

using namespace megalith;
using namespace megalith::reference;

const char *reference::faultName(Fault fault) {
  switch (fault) {
#define FAULT(Enum, Code, Name, Text, Numbers)                                                                         \
  case Fault::Enum:                                                                                                    \
    return Name;
#include "megalith/Contract/Faults.def"
  }
  return "";
}

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

Machine::Machine(const ir::Module &module, WeightSource &weights, const std::vector<Request> &inputs,
                 const Options &options)
    : program(module), options(options), slots(program.slots, nullptr), queues(program.states.size()),
      replaying(options.replay != nullptr) {
  for (size_t i = 0; i < program.pools.size(); ++i) {
    const PoolInfo &info = program.pools[i];
    auto seed = options.shufflePages;
    std::vector<int32_t> order = pageOrder(info.pages, seed ? std::optional(*seed + i) : std::nullopt);
    pools.emplace_back().free = {order.rbegin(), order.rend()};
    const ir::Operation *model = module.find(ir::Op::Model, info.name);
    if (!model)
      throw NotExecutable("pool `" + info.name + "` has no model of that name");
    models.push_back(std::make_unique<TensorModel>(module, *model, weights, info.pages, info.pageTokens));
  }
  for (const ir::Operation *op : module.all(ir::Op::Metric)) {
    metrics[op->name] = 0;
    increments[op->name].resize(LiveIncrements);
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    add(static_cast<int64_t>(i), inputs[i]);
  out.trace.pipeline = module.root.name;
  HostScript events = options.replay ? hostScript(*options.replay, inputs.size()) : hostScript(inputs);
  // A trace of a live session has a clock, whatever its requests are.
  if (!options.live && (program.readsHost || hasHostSide(inputs) || !events.clock.empty()))
    script = scriptedHost(std::move(events), inputs);
  host = options.live ? options.live : script.get();
  for (auto &[number, r] : requests)
    if (!host)
      arrive(r);
}

Running &Machine::add(int64_t number, const Request &input) {
  const auto [place, isNew] = requests.try_emplace(number);
  Running &r = place->second;
  if (!isNew)
    return r;
  r.number = number;
  r.input = &input;
  r.tokens = input.tokens;
  if (r.format())
    r.formatState = r.format()->format.automaton.start;
  r.state = r.before = program.initialState;
  r.kv.resize(program.pools.size());
  for (const FieldInfo &field : program.fields)
    r.fields.push_back(field.init);
  for (const Input &declared : program.inputs)
    r.inputs.push_back(valueOfInput(declared, input));
  for (const ir::Operation *policy : program.module.all(ir::Op::Policy))
    for (const ir::Operation &state : policy->region().ops)
      if (state.op == ir::Op::PolicyState) {
        bool real = state.get<ir::attr::type>() == ir::Scalar::F32;
        r.policyState[policy->name + "." + state.name] =
            constantValue(state.get<ir::attr::init>(), ir::Type::scalar(real ? ir::Scalar::F32 : ir::Scalar::I32));
      }
  ++open;
  ++coming;
  return r;
}

RunResult Machine::run() {
  while (!cut && out.ticks < options.maxTicks) {
    if (options.interrupted && open > 0 && options.interrupted()) {
      out.interrupted = true;
      break;
    }
    beginTick();
    if (!skipIdle())
      break;
    if (!tick())
      continue;
    ++out.ticks;
    if (host && !progress)
      host->pause();
    if (options.progress)
      options.progress({out.ticks, out.passes, out.rows, std::ssize(requests) - open, std::ssize(requests)});
  }
  return finish();
}

/// What the tick before noted of itself is forgotten.
void Machine::beginTick() {
  current = {};
  progress = refused = false;
  for (Running *r : touched) {
    r->before = r->state;
    r->gauges.clear();
    r->touched = false;
  }
  touched.clear();
}

/// One tick; false when it does not count: nothing is left to do.
bool Machine::tick() {
  current.tick = out.ticks;
  if (host)
    sampleHost();
  if (cut)
    return false;
  corruptFields();
  reclaim();
  dropEnded();
  snapshot();
  if (open == 0 && !(host && progress)) // a tick in which the host ended the last one counts
    return false;
  for (auto next = program.parts.begin(); next != program.parts.end();) {
    const auto first = next++;
    if (first->loop < 0) {
      runEntry(*first);
      continue;
    }
    // Rounds, until one serves nobody, and nobody begins one of a loop in it.
    next = std::find_if(first, program.parts.end(), [&](const PartInfo &part) { return part.loop != first->loop; });
    for (int64_t before = -1; before != servedCalls + entered;) {
      before = servedCalls + entered;
      std::for_each(first, next, [this](const PartInfo &part) { runEntry(part); });
    }
  }
  breakStandstill();
  checkPages();
  publish();
  return true;
}

void Machine::runEntry(const PartInfo &part) {
  if (part.kind == PartInfo::Admit)
    admit(part);
  else if (part.kind == PartInfo::Slot)
    runSlots(part);
  else
    runPass(part.pool, part.callSite);
}

void Machine::corruptFields() {
  for (const Corruption &c : options.corruptions)
    if (Running &r = requests.at(c.request); c.tick == current.tick && !program.states[r.state].terminal)
      corrupt(r, c);
}

/// Overwrites a field; what is out of its range ends the request.
void Machine::corrupt(Running &r, const Corruption &how) {
  if (how.field == "state") {
    r.stateLost = how.value < 0 || how.value >= static_cast<int64_t>(program.states.size());
    if (!r.stateLost)
      setState(r, static_cast<int>(how.value));
    if (r.stateLost || (r.slot < 0 && program.states[r.state].slot))
      fail(r, Fault::CorruptField);
    return;
  }
  int index = program.field(how.field);
  const ir::Type &type = program.fields[index].type;
  Val &val = r.fields[index];
  if (type.isList()) {
    if (how.value >= 0 && how.value <= type.size)
      type.kind == ir::Type::Table ? val.rows.resize(how.value) : val.seq.resize(how.value);
    else
      fail(r, Fault::CorruptField);
  } else if (type.is(ir::Scalar::F32)) {
    val.f = static_cast<float>(how.value);
  } else {
    val.i = static_cast<int32_t>(how.value);
  }
}

int64_t reference::firstPageSeen(const PoolInfo &pool, int64_t position) {
  return pool.window > 0 ? std::max<int64_t>(0, position - pool.window + 1) / pool.pageTokens : 0;
}

void Machine::reclaim() {
  auto shrink = [this](KvShare &kv, int pool, int64_t pages) {
    while (static_cast<int64_t>(kv.pages.size()) > pages - kv.first && !kv.pages.empty()) {
      letGo(pool, kv.pages.back());
      kv.pages.pop_back();
    }
    // No row to come stands below `len`. Drafts after it do not count: they may not be kept.
    const int64_t seen = firstPageSeen(program.pools[pool], kv.len);
    const auto kept = kv.pages.begin() + std::max<int64_t>(0, seen - kv.first);
    std::for_each(kv.pages.begin(), kept, [&](int32_t page) { letGo(pool, page); });
    kv.pages.erase(kv.pages.begin(), kept);
    kv.first = seen;
  };
  for (Running *&slot : slots) {
    if (!slot)
      continue;
    Running &r = *slot;
    bool leaves = !program.states[r.state].slot;
    for (size_t i = 0; i < r.kv.size(); ++i) {
      KvShare &kv = r.kv[i];
      // Of a faulted request nothing enters: its KV may be what was found wrong.
      if (r.fault == Fault::None)
        enterPages(r, static_cast<int>(i), leaves ? INT64_MAX : std::ssize(r.input->tokens));
      if (leaves)
        kv.len = kv.end = kv.reserved = kv.sealed = kv.found = 0;
      // Up to `end`, not `len`: drafts may wait for their `kv.keep`. Sealed pages stay, so that what is reserved for
      // the others is there.
      shrink(kv, static_cast<int>(i), std::max(kv.sealed, ceilDiv(kv.end, program.pools[i].pageTokens)));
    }
    if (leaves) {
      r.slot = -1;
      r.env = {};
      r.kept.clear(); // rows of logits are the slot's
      for (size_t i = 0; i < r.fields.size(); ++i)
        if (program.fields[i].keepsLogits)
          r.fields[i].seq.clear();
      slot = nullptr;
      enqueue(r);
    }
  }
}

void Machine::snapshot() {
  seated = static_cast<int32_t>(slots.size() - std::count(slots.begin(), slots.end(), nullptr));
  for (size_t i = 0; i < pools.size(); ++i) {
    const PoolInfo &info = program.pools[i];
    Pool &pool = pools[i];
    pool.live = info.pages - available(static_cast<int>(i));
    pool.pressure = 100 * pool.live > info.watermark * info.pages;
    current.live[info.name] = pool.live;
    if (info.index)
      current.cached[info.name] = std::ssize(pool.cached);
  }
}

static int64_t mostPositions(const Running &r, const PoolInfo &pool) {
  return static_cast<int64_t>(r.input->tokens.size()) + r.input->maxNewTokens + pool.rowsBeyond;
}

/// The most pages that the request's positions can fill.
int64_t Machine::worstPages(const Running &r, const PoolInfo &pool) const {
  return ceilDiv(mostPositions(r, pool), pool.pageTokens);
}

/// The most pages that a request holds at once: of what the first row of a pass sees, of drafts that were
/// written after it before, and of a pass.
int64_t Machine::mostHeld(const PoolInfo &pool) const {
  return pool.window > 0 ? ceilDiv(pool.window + 2 * program.rowsPerPass - 2, pool.pageTokens) + 1 : INT64_MAX;
}

/// The pages that are reserved for the request while it holds a slot.
int64_t Machine::pagesToReserve(const Running &r, const PoolInfo &pool) const {
  if (!pool.wait)
    return 0;
  const int64_t most = std::min(worstPages(r, pool), mostHeld(pool));
  if (pool.reserve < 0)
    return most;
  int64_t tokens = static_cast<int64_t>(r.tokens.size()) + pool.reserve;
  return std::min(most, ceilDiv(tokens + pool.rowsBeyond, pool.pageTokens));
}

/// A pool that could not hold the request if it were alone; null when all could.
const PoolInfo *Machine::tooSmallFor(const Running &r) const {
  for (const PoolInfo &pool : program.pools)
    if (worstPages(r, pool) > pool.pages)
      return &pool;
  return nullptr;
}

/// Whether each pool can still reserve what the request needs beside the pages that were found for it.
bool Machine::canReserve(const Running &r, const std::vector<std::vector<int32_t>> &found) const {
  for (size_t i = 0; i < program.pools.size(); ++i) {
    const int pool = static_cast<int>(i);
    const int64_t beyond = std::max<int64_t>(0, pagesToReserve(r, program.pools[i]) - std::ssize(found[i]));
    if (program.pools[i].wait && beyond > unreserved(pool) - cachedOf(pool, found[i]))
      return false;
  }
  return true;
}

void Machine::admit(const PartInfo &part) {
  // A request that stays in the state is not visited again.
  const std::set<Rank> &queue = queues[part.state];
  int64_t looked = 0;
  for (auto next = queue.begin(); next != queue.end() && looked < part.limit; ++looked) {
    const Rank rank = *next;
    Running *r = &requests.at(rank.back());
    if (stillFeeds(*r)) {
      --looked; // it is not visited
      next = queue.upper_bound(rank);
      continue;
    }
    auto free = std::find(slots.begin(), slots.end(), nullptr);
    // Nobody overtakes a request that waits for pages.
    if (free == slots.end() || refused)
      return;
    if (const PoolInfo *pool = tooSmallFor(*r)) {
      const auto number = [](int64_t n) { return static_cast<int32_t>(std::min<int64_t>(n, INT32_MAX)); };
      fail(*r, Fault::KvTooLarge, pool->loc,
           {number(mostPositions(*r, *pool)), number(int64_t(pool->pages) * pool->pageTokens)});
    } else {
      std::vector<std::vector<int32_t>> found;
      for (size_t i = 0; i < r->kv.size(); ++i) {
        found.push_back(findPages(*r, static_cast<int>(i)));
        r->kv[i].found = std::ssize(found[i]) * program.pools[i].pageTokens;
      }
      if (waitsForFeeder(*r, found)) {
        next = queue.upper_bound(rank);
        continue;
      }
      if (!canReserve(*r, found)) {
        refused = true;
        return;
      }
      runPart(part, *r);
      if (program.states[r->state].slot) {
        r->slot = static_cast<int32_t>(free - slots.begin());
        *free = r;
        for (size_t i = 0; i < r->kv.size(); ++i) {
          r->kv[i].reserved = pagesToReserve(*r, program.pools[i]);
          graft(*r, static_cast<int>(i), found[i]);
        }
        if (!r->kv.empty() && r->result.passes == 0) // of its first slot
          r->result.found = r->kv[0].len;
      } else {
        r->env = {};
      }
    }
    next = queue.upper_bound(rank);
  }
}

void Machine::runSlots(const PartInfo &part) {
  for (Running *r : slots) {
    if (!r)
      continue;
    bool runs = part.afterSite >= 0 ? r->call.op && r->call.served && r->call.site == part.afterSite
                                    : !r->call.op && r->state == part.state;
    if (runs)
      runPart(part, *r);
  }
}

void Machine::runPart(const PartInfo &part, Running &r) {
  touch(r);
  // At the pipe level the call itself has the results.
  if (part.afterSite >= 0 && r.call.op->op == ir::Op::Call) {
    for (size_t i = 0; i < r.call.op->results.size(); ++i)
      r.env[r.call.op->results[i].id] = r.call.results.at(i);
  }
  try {
    int target = runControl(*this, r, *part.region, part.first, current.tick);
    if (target < 0) {
      entered += r.call.op && r.call.op->op == ir::Op::Enter;
      return;
    }
    r.call = {};
    for (KvShare &kv : r.kv)
      kv.drafts = 0;
    if (const auto numbers = foreignKv(r))
      throw FaultSignal{Fault::KvInvariant, r.leftAt, *numbers};
    moveTo(r, target);
  } catch (const FaultSignal &signal) {
    fail(r, signal);
  }
}

/// Where a position that counts as valid is not one of the request's tokens before its last, or was fed another token
/// than stands there now: how many are kept, how many of them lead that may, and how many tokens there are but one.
std::optional<FaultNumbers> Machine::foreignKv(const Running &r) const {
  const auto most = std::max<int64_t>(0, static_cast<int64_t>(r.tokens.size()) - 1);
  for (size_t i = 0; i < r.kv.size(); ++i) {
    const int64_t len = r.kv[i].len, own = r.known(static_cast<int>(i));
    if (len > most || own < len)
      return FaultNumbers{static_cast<int32_t>(len), static_cast<int32_t>(own), static_cast<int32_t>(most)};
  }
  return std::nullopt;
}

void Machine::moveTo(Running &r, int state) {
  if (r.state != state)
    progress = true;
  setState(r, state);
}

void Machine::setState(Running &r, int state) {
  touch(r);
  if (r.slot < 0)
    queues[r.state].erase(r.rank);
  if (program.states[state].terminal && r.input->deadlineMs > 0)
    deadlines.erase({r.arrivedMs + r.input->deadlineMs, r.number});
  open += int(program.states[r.state].terminal) - int(program.states[state].terminal);
  r.state = state;
  if (r.slot < 0)
    enqueue(r);
}

void Machine::touch(Running &r) {
  if (!r.touched)
    touched.push_back(&r);
  r.touched = true;
}

/// Lets a request without slot wait for the admission of its state.
void Machine::enqueue(Running &r) {
  const StateInfo &state = program.states[r.state];
  if (state.terminal || state.slot)
    return;
  r.rank = rankOf(r);
  queues[r.state].insert(r.rank);
}

std::vector<int64_t> Machine::rankOf(Running &r) {
  std::vector<int64_t> rank{-int64_t(r.input->priority)};
  for (const PartInfo &part : program.parts)
    if (part.kind == PartInfo::Admit && part.state == r.state && part.order)
      rank = orderKeys(*this, r, *part.order, out.ticks);
  rank.push_back(r.number);
  return rank;
}

/// Ends the request; what it holds is reclaimed at the start of the next tick.
void Machine::fail(Running &r, Fault fault, SourceLoc loc, const FaultNumbers &numbers) {
  r.fault = fault;
  r.faultNumbers = numbers;
  if (!r.stateLost)
    r.faultState = r.state;
  if (!loc && r.call.op)
    loc = r.call.op->loc;
  if (!loc && r.faultState >= 0)
    loc = program.states[r.faultState].loc;
  r.faultLoc = loc;
  r.call = {};
  moveTo(r, program.faultState);
  current.faults.push_back({static_cast<int32_t>(r.number), faultName(fault)});
}

/// Calls wait, and nothing happened in this tick and the one before: nothing can. The
/// request that waits longest makes room for the others. (One tick is not enough: pages
/// that were let go in it are free in the next.)
void Machine::breakStandstill() {
  Running *first = nullptr;
  for (Running *r : slots)
    if (r && r->call.op && !r->call.served && (!first || waitsBefore(r, first)))
      first = r;
  still = first && !progress ? still + 1 : 0;
  if (still < 2)
    return;
  still = 0;
  fail(*first, Fault::PoolExhausted);
}

void Machine::publish() {
  std::sort(touched.begin(), touched.end(), [](const Running *a, const Running *b) { return a->number < b->number; });
  if (options.live) {
    if (options.live->traces())
      options.live->traced(recordTick());
    return tellNews();
  }
  out.trace.ticks.push_back(recordTick());
}

/// What the trace says of this tick.
TraceTick Machine::recordTick() {
  auto record = [this](const Running &r) {
    TraceSlot entry;
    entry.slot = r.slot;
    entry.request = static_cast<int32_t>(r.number);
    entry.before = program.states[r.before].name;
    entry.after = program.states[r.state].name;
    for (size_t i = 0; i < r.kv.size(); ++i)
      entry.kv.push_back({program.pools[i].name, r.kv[i].len, r.kv[i].first, r.kv[i].pages});
    entry.gauges = r.gauges;
    current.slots.push_back(std::move(entry));
  };
  for (Running *r : slots) {
    if (!r)
      continue;
    if (r->result.firstTick < 0)
      r->result.firstTick = current.tick;
    r->result.lastTick = current.tick;
    record(*r);
  }
  for (const Running *r : touched)
    if (r->slot < 0 && r->before != r->state)
      record(*r);
  std::sort(current.faults.begin(), current.faults.end(),
            [](const TraceFault &a, const TraceFault &b) { return a.request < b.request; });
  return std::move(current);
}

RequestEnd Machine::endOf(const Running &r) const {
  RequestEnd end;
  const StateInfo &state = program.states[r.state];
  const bool faulted = r.fault != Fault::None;
  end.finish = finishOf(faulted ? faultName(r.fault) : "", state.terminal, r.sawEos, r.budget() <= 0);
  end.state = state.name;
  if (end.finish == "fault") {
    end.fault = faultName(r.fault);
    if (r.faultState >= 0)
      end.faultState = program.states[r.faultState].name;
    end.place = program.module.place(r.faultLoc);
    end.faultDetail = faultDetail(end.fault, r.faultNumbers);
  }
  if (r.format())
    end.format = r.format()->endOf(r.formatState);
  end.passes = r.result.passes;
  end.rows = r.result.rows;
  end.found = r.result.found;
  return end;
}

RunResult Machine::finish() {
  if (options.live) {
    const double at = options.live->now();
    for (auto &[number, r] : requests)
      if (!r.isOver)
        tellEnd(r, at);
    return {};
  }
  for (auto &[number, r] : requests) {
    RequestResult &result = r.result;
    result.tokens.assign(r.tokens.begin() + static_cast<int64_t>(r.input->tokens.size()), r.tokens.end());
    static_cast<RequestEnd &>(result) = endOf(r);
    TraceRequest &ended =
        out.trace.requests.emplace_back(TraceRequest{result, r.input->id, result.tokens, r.input->sampling});
    for (const Input &input : program.inputs)
      ended.inputs[input.name] = inputValue(input, *r.input);
    out.requests.push_back(std::move(result));
  }
  out.trace.metrics = out.metrics = metrics;
  out.trace.seed = options.seed;
  if (options.replay)
    out.replayDifference = compareTraces(out.trace, *options.replay);
  return std::move(out);
}

RunResult reference::run(const ir::Module &module, WeightSource &weights, const std::vector<Request> &requests,
                         const Options &options) {
  try {
    return Machine(module, weights, requests, options).run();
  } catch (const NotExecutable &e) {
    RunResult result;
    result.error = e.what();
    return result;
  } catch (const std::bad_alloc &) {
    RunResult result;
    result.error = "there is not enough memory; make the KV pool smaller";
    return result;
  } catch (const std::length_error &) {
    RunResult result;
    result.error = "the KV pool is larger than any memory; make it smaller";
    return result;
  }
}
