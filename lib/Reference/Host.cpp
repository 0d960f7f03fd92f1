//===- Host.cpp - arrivals, cancellations, deadlines ------------------------===//
//
// All of them happen at a tick's start, before anything else: docs/ir.md, "The host's side".
//===----------------------------------------------------------------------===//
#include "Machine.h"
#include <algorithm>

using namespace megalith;
using namespace megalith::reference;

/// Where nothing is left to do, the next arrival's tick comes next. False: the run is cut off before.
bool Machine::skipIdle() {
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
  nowMs = static_cast<int32_t>(current.tick);
  if (!host.clock.empty())
    nowMs = host.clock[std::min(samples++, host.clock.size() - 1)];
  current.nowMs = nowMs;
  for (int taken = 0; taken < MostHostEvents && nextEvent < host.events.size(); ++taken) {
    const HostEvent &event = host.events[nextEvent];
    if (event.when.tick > current.tick || event.when.ms > nowMs)
      break;
    ++nextEvent;
    current.events.push_back({event.cancels, event.request});
    Running &r = requests.at(event.request);
    if (!event.cancels) {
      --coming;
      arrive(r);
    } else if (r.arrived >= 0 && !program.states[r.state].terminal) {
      endByHost(r, Fault::Cancelled);
    }
  }
  endByDeadlines();
}

void Machine::arrive(Running &r) {
  r.arrived = r.result.arrivedTick = out.ticks;
  r.arrivedMs = nowMs;
  if (r.input->deadlineMs > 0)
    deadlines.insert({int64_t(nowMs) + r.input->deadlineMs, r.number});
  enqueue(r);
}

/// Ends a request in any state. A call that it waits at is withdrawn; what it holds is reclaimed in this tick.
void Machine::endByHost(Running &r, Fault fault) {
  r.fault = fault;
  r.faultState = r.state;
  r.call = {};
  moveTo(r, fault == Fault::Cancelled ? program.cancelState : program.deadlineState);
  current.faults.push_back({r.number, faultName(fault)});
}

void Machine::endByDeadlines() {
  for (int ended = 0; ended < MostHostEvents && !deadlines.empty() && deadlines.begin()->first <= nowMs; ++ended)
    endByHost(requests[deadlines.begin()->second], Fault::Deadline);
}
