#include "megalith/Requests/HostEvents.h"
#include <algorithm>
#include <fmt/format.h>

using namespace megalith;

bool megalith::hasHostSide(const std::vector<Request> &requests) {
  return std::any_of(requests.begin(), requests.end(),
                     [](const Request &r) { return r.arrives != When() || r.cancelled || r.deadlineMs > 0; });
}

HostScript megalith::hostScript(const std::vector<Request> &requests) {
  HostScript script;
  for (size_t i = 0; i < requests.size(); ++i)
    script.events.push_back({requests[i].arrives, false, static_cast<int32_t>(i)});
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].cancelled)
      script.events.push_back({*requests[i].cancelled, true, static_cast<int32_t>(i)});
  std::stable_sort(script.events.begin(), script.events.end(),
                   [](const HostEvent &a, const HostEvent &b) { return a.when < b.when; });
  return script;
}

HostScript megalith::hostScript(const Trace &trace, size_t requests) {
  HostScript script;
  std::vector<bool> arrived(requests);
  for (const TraceTick &tick : trace.ticks) {
    for (const TraceEvent &event : tick.events) {
      const auto number = static_cast<size_t>(event.request);
      if (number >= requests || event.cancels != arrived[number])
        continue;
      arrived[number] = true;
      script.events.push_back({{tick.tick, 0}, event.cancels, event.request});
    }
    if (tick.nowMs)
      script.clock.push_back(static_cast<int32_t>(*tick.nowMs));
  }
  const When last = script.events.empty() ? When() : script.events.back().when;
  for (size_t i = 0; i < requests; ++i)
    if (!arrived[i])
      script.events.push_back({last, false, static_cast<int32_t>(i)});
  return script;
}

std::string megalith::whyNotThen(const std::vector<Request> &requests, size_t number) {
  const Request &r = requests[number];
  const auto shown = [](const When &when) {
    return when.ms ? fmt::format("millisecond {}", when.ms) : fmt::format("tick {}", when.tick);
  };
  for (const When &when : {r.arrives, r.cancelled.value_or(When())})
    if (when.tick < 0 || when.ms < 0 || when.tick > INT32_MAX || when.ms > INT32_MAX)
      return fmt::format("{} is none: a time is from 0 to {}", shown(when), INT32_MAX);
  if (r.deadlineMs < 0)
    return fmt::format("`deadline_ms` must be 0 (none) or above, found {}", r.deadlineMs);
  if (r.cache < 0)
    return fmt::format("`cache` must be 0 (the common one) or above, found {}", r.cache);
  // One kind of time for all, so that it is known what comes first.
  bool ticks = false, milliseconds = false;
  for (size_t i = number ? number - 1 : 0; i <= number; ++i)
    for (const When &when : {requests[i].arrives, requests[i].cancelled.value_or(When())}) {
      ticks |= when.tick > 0;
      milliseconds |= when.ms > 0;
    }
  if (ticks && milliseconds)
    return "times are in ticks or in milliseconds, of all requests of a run alike";
  if (r.cancelled && *r.cancelled < r.arrives)
    return fmt::format("it is cancelled at {}, and arrives at {}; a request is cancelled when it has arrived",
                       shown(*r.cancelled), shown(r.arrives));
  if (number > 0 && r.arrives < requests[number - 1].arrives)
    return fmt::format("it arrives at {}, before request `{}` (at {}), which stands in front of it; requests arrive in "
                       "their order",
                       shown(r.arrives), requests[number - 1].id.text, shown(requests[number - 1].arrives));
  return "";
}
