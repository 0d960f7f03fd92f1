//===- Host.cpp - arrivals, cancellations, deadlines ------------------------===//
//
// All of them happen at a tick's start, before anything else: docs/ir.md, "The host's side". The host is asked for what
// it wants. That of a batch has a script.
//===----------------------------------------------------------------------===//
#include "Machine.h"
#include <algorithm>

using namespace megalith;
using namespace megalith::reference;

namespace {

class ScriptedHost : public Host {
public:
  ScriptedHost(HostScript script, const std::vector<Request> &requests)
      : script(std::move(script)), requests(requests) {
    for (const HostEvent &event : this->script.events)
      coming += !event.cancels;
  }

  News news(int64_t tick, int most) override {
    News out;
    out.ms = script.clock.empty() ? tick : script.clock[std::min(samples++, script.clock.size() - 1)];
    for (; std::ssize(out.orders) < most && next < script.events.size(); ++next) {
      const HostEvent &event = script.events[next];
      if (event.when.tick > tick || event.when.ms > out.ms)
        break;
      const Request *request = event.cancels ? nullptr : &requests[event.request];
      out.orders.push_back({event.request, {std::shared_ptr<void>(), request}});
      coming -= !event.cancels;
    }
    return out;
  }

  std::optional<int64_t> wait(int64_t tick) override {
    if (coming == 0)
      return std::nullopt;
    const When &when = script.events[next].when;
    return std::max({tick, when.tick, when.ms}); // a tick is a millisecond of this clock
  }

private:
  const HostScript script;
  const std::vector<Request> &requests;
  size_t next = 0;    ///< event
  size_t samples = 0; ///< of the clock
  int64_t coming = 0; ///< requests that have not arrived
};

} // namespace

std::unique_ptr<Host> reference::scriptedHost(HostScript script, const std::vector<Request> &requests) {
  return std::make_unique<ScriptedHost>(std::move(script), requests);
}

/// Where nothing is left to do, the tick of the next arrival comes next, however late that is. False: the run is over,
/// or cut off before.
bool Machine::skipIdle() {
  if (open > coming)
    return true;
  if (!host)
    return false;
  reclaim(); // what the last ones held does not wait for the next one
  dropEnded();
  if (options.live)
    tellStanding(out.ticks);
  const std::optional<int64_t> next = host->wait(out.ticks);
  if (!next || *next >= options.maxTicks)
    return false;
  out.ticks = *next;
  return true;
}

void Machine::sampleHost() {
  Host::News news = host->news(current.tick, MostHostEvents);
  current.nowMs = nowMs = std::min<int64_t>(news.ms, INT32_MAX);
  cut = news.stop;
  if (cut)
    return;
  for (Host::Order &order : news.orders) {
    current.events.push_back({!order.request, static_cast<int32_t>(order.number)});
    if (!order.request) {
      cancel(order.number);
      continue;
    }
    Running &r = add(order.number, *order.request);
    r.owned = std::move(order.request);
    r.keepLogits = order.keepLogits;
    r.keepPrompt = order.keepPrompt;
    arrive(r);
  }
  endByDeadlines();
}

void Machine::arrive(Running &r) {
  --coming;
  r.arrived = r.result.arrivedTick = out.ticks;
  r.arrivedMs = nowMs;
  if (r.input->deadlineMs > 0)
    deadlines.insert({nowMs + r.input->deadlineMs, r.number});
  enqueue(r);
}

/// Ends a request that has arrived and not ended.
void Machine::cancel(int64_t number) {
  const auto found = requests.find(number);
  if (found != requests.end() && found->second.arrived >= 0 && !program.states[found->second.state].terminal)
    endByHost(found->second, Fault::Cancelled);
}

/// Ends a request in any state. A call that it waits at is withdrawn; what it holds is reclaimed in this tick.
void Machine::endByHost(Running &r, Fault fault) {
  r.fault = fault;
  r.faultState = r.state;
  r.call = {};
  moveTo(r, fault == Fault::Cancelled ? program.cancelState : program.deadlineState);
  current.faults.push_back({static_cast<int32_t>(r.number), faultName(fault)});
}

void Machine::endByDeadlines() {
  for (int ended = 0; ended < MostHostEvents && !deadlines.empty() && deadlines.begin()->first <= nowMs; ++ended)
    endByHost(requests.at(deadlines.begin()->second), Fault::Deadline);
}

/// Drops requests of a live run that ended before this tick: nothing is left that has to do with them.
void Machine::dropEnded() {
  for (const Running *r : ended)
    requests.erase(r->number);
  ended.clear();
}

/// Tells the host of a live run what happened in the tick.
void Machine::tellNews() {
  options.live->tickEnds();
  tellStanding(out.ticks + 1); // before all else, so that nobody hears of more than stands here
  const double at = options.live->now();
  for (Running *r : slots)
    if (r && r->admitted < 0)
      r->admitted = at;
  for (Running *r : touched) {
    if (r->admitted < 0 && r->result.rows > 0) // it ended in the tick that admitted it
      r->admitted = at;
    const std::span<const int32_t> made = std::span(r->tokens).subspan(r->input->tokens.size());
    if (made.size() > r->told || r->before != r->state)
      options.live->tell(r->number, made.subspan(r->told), r->result.logits, program.states[r->state].name,
                         r->result.found, at);
    r->told = made.size();
    r->result.logits.clear();
    if (program.states[r->state].terminal) {
      tellEnd(*r, at);
      ended.push_back(r);
    }
  }
}

void Machine::tellEnd(Running &r, double at) {
  r.isOver = true;
  options.live->end(r.number, endOf(r), r.admitted, at);
}

void Machine::tellStanding(int64_t ticks) {
  LiveHost::Standing standing;
  for (const Running *r : slots) {
    LiveHost::Standing::Slot &slot = standing.slots.emplace_back();
    if (r && !program.states[r->state].terminal)
      slot = {r->number, program.states[r->state].name, std::ssize(r->input->tokens), r->generated(),
              r->kv.empty() ? 0 : r->kv[0].len};
  }
  for (size_t i = 0; i < pools.size(); ++i)
    standing.pools.push_back({program.pools[i].name, program.pools[i].pages,
                              program.pools[i].pages - available(static_cast<int>(i)),
                              program.pools[i].index ? std::ssize(pools[i].cached) : -1});
  standing.metrics = metrics;
  standing.increments = increments;
  standing.ticks = ticks;
  standing.passes = out.passes;
  standing.rows = out.rows;
  options.live->stands(std::move(standing));
}
