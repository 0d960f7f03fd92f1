//===- HostEvents.h - what the host's side of a run does ---------*- C++ -*-===//
//
// Requests may arrive and be cancelled while a run goes on. What happens when is known before the run, from the
// requests or from the trace of another run, so that executors can be compared.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_REQUESTS_HOSTEVENTS_H
#define MEGALITH_REQUESTS_HOSTEVENTS_H

#include "megalith/Requests/Trace.h"
#include <optional>
#include <string>
#include <vector>

namespace megalith {

/// A tick takes at most so many events, and ends at most so many requests for their deadlines.
inline constexpr int MostHostEvents = 64;

struct HostEvent {
  When when;
  bool cancels = false; ///< else the request arrives
  int32_t request = 0;
  bool operator==(const HostEvent &) const = default;
};

/// The host's side of a run.
struct HostScript {
  std::vector<HostEvent> events; ///< in the order in which they are taken: none is taken before the one in front of it
  /// Of a replay: milliseconds of the clock, of one tick after the other. Else the clock is the executor's own.
  std::vector<int32_t> clock;
  bool operator==(const HostScript &) const = default;
};

/// Whether a run has to look at the host's side: something arrives later than the rest, is cancelled or has a deadline.
bool hasHostSide(const std::vector<Request> &requests);

/// What the requests say.
HostScript hostScript(const std::vector<Request> &requests);
/// What happened in the run of a trace, to so many requests. The trace may be of others: those that it knows nothing of
/// arrive with its last event.
HostScript hostScript(const Trace &trace, size_t requests);

/// Why times of request `number` are none, looking at the one in front of it: they are negative, in ticks and in
/// milliseconds, before those of that one, or it is cancelled before it arrives. Empty: they are right.
std::string whyNotThen(const std::vector<Request> &requests, size_t number);

} // namespace megalith
#endif
