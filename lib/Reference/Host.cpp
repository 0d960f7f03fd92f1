//===- Host.cpp - arrivals, cancellations, deadlines ------------------------===//
//
// All of them happen at a tick's start, before anything else: docs/ir.md, "The host's side". What a script has of them
// is known before the run; in a live run the host is asked.
//===----------------------------------------------------------------------===//
#include "Machine.h"
#include <algorithm>

using namespace megalith;
using namespace megalith::reference;

/// Where nothing is left to do, the next arrival's tick comes next, however late that is. False: the run is over, or
/// cut off before.
bool Machine::skipIdle() {
  if (options.live) {
    if (open > 0)
      return true;
    reclaim(); // what the last ones held does not wait for the next one
    dropEnded();
    tellStanding(out.ticks);
    return options.live->wait();
  }
  if (hasHost && coming > 0 && open == coming && nextEvent < host.events.size()) {
    const When &when = host.events[nextEvent].when;
    const int64_t next = std::max({out.ticks, when.tick, when.ms}); // a tick is a millisecond of this clock
    if (next >= options.maxTicks)
      return false;
    out.ticks = next;
  }
  return true;
}

void Machine::sampleHost() {
  if (options.live)
    sampleLive();
  else
    sampleScript();
  if (!cut)
    endByDeadlines();
}

void Machine::sampleScript() {
  nowMs = current.tick;
  if (!host.clock.empty())
    nowMs = host.clock[std::min(samples++, host.clock.size() - 1)];
  current.nowMs = nowMs;
  for (int taken = 0; taken < MostHostEvents && nextEvent < host.events.size(); ++taken) {
    const HostEvent &event = host.events[nextEvent];
    if (event.when.tick > current.tick || event.when.ms > nowMs)
      break;
    ++nextEvent;
    current.events.push_back({event.cancels, event.request});
    if (event.cancels) {
      cancel(event.request);
    } else {
      --coming;
      arrive(requests.at(event.request));
    }
  }
}

void Machine::sampleLive() {
  LiveHost::News news = options.live->news(MostHostEvents);
  nowMs = std::min<int64_t>(static_cast<int64_t>(options.live->now()), INT32_MAX);
  current.nowMs = nowMs;
  cut = news.stop;
  if (cut)
    return;
  for (int64_t number : news.cancels) {
    current.events.push_back({true, static_cast<int32_t>(number)});
    cancel(number);
  }
  for (LiveHost::Arrival &arrival : news.arrivals) {
    current.events.push_back({false, static_cast<int32_t>(arrival.number)});
    Running &r = add(arrival.number, *arrival.request);
    r.owned = std::move(arrival.request);
    r.keepLogits = arrival.keepLogits;
    r.keepPrompt = arrival.keepPrompt;
    arrive(r);
  }
}

void Machine::arrive(Running &r) {
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
    const std::span<const int32_t> made = std::span(r->tokens).subspan(r->input->tokens.size());
    if (made.size() > r->told || r->before != r->state)
      options.live->tell(r->number, made.subspan(r->told), r->result.logits, program.states[r->state].name, at);
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
    standing.pools.push_back(
        {program.pools[i].name, program.pools[i].pages, program.pools[i].pages - std::ssize(pools[i].free)});
  standing.metrics = metrics;
  standing.increments = increments;
  standing.ticks = ticks;
  standing.passes = out.passes;
  standing.rows = out.rows;
  options.live->stands(std::move(standing));
}
