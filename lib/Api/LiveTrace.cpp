#include "LiveTrace.h"
#include "State.h"
#include "megalith/IR/Inputs.h"
#include "megalith/Requests/Inputs.h"
#include "megalith/Requests/Requests.h"
#include <algorithm>
#include <unordered_set>

namespace megalith::api {

Trace traceHead(const Kernel::State &kernel, const LiveOptions &options) {
  Trace trace;
  trace.pipeline = kernel.program->compiled.module.root.name;
  trace.accepted = kernel.program->compiled.accepted();
  trace.seed = options.seed;
  return trace;
}

/// After its room nothing is kept: a trace without its end is none.
void LiveTrace::add(size_t &bytes, size_t more) {
  bytes += more;
  if (bytes <= most || full)
    return;
  full = true;
  kept.clear();
  recorded = {};
}

static size_t bytesOf(const Request &r) {
  size_t words = r.tokens.size() + (r.eos ? r.eos->size() : 0);
  for (const std::vector<int32_t> &sequence : r.stop)
    words += sequence.size();
  for (const auto &[name, value] : r.inputs)
    if (const auto *tokens = std::get_if<std::vector<int32_t>>(&value))
      words += tokens->size();
    else if (const auto *numbers = std::get_if<std::vector<float>>(&value))
      words += numbers->size();
  words +=
      2 * r.sampling.bias.size() + r.sampling.banned.size() + (r.sampling.allowed ? r.sampling.allowed->size() : 0);
  const size_t format = r.sampling.format.size() + (r.format.tokens ? r.format.tokens->bytes() : 0);
  return sizeof(Request) + r.id.text.size() + 4 * words + format;
}

static size_t bytesOf(const TraceTick &tick) {
  size_t bytes = sizeof(TraceTick) + tick.events.size() * sizeof(TraceEvent) + tick.faults.size() * sizeof(TraceFault);
  for (const TracePass &pass : tick.passes) {
    bytes += sizeof(TracePass) + pass.rows.size() * sizeof(Row);
    for (const std::vector<int32_t> &row : pass.reduced)
      bytes += sizeof(row) + 4 * row.size();
  }
  for (const TraceSlot &slot : tick.slots) {
    bytes += sizeof(TraceSlot) + slot.gauges.size() * 64;
    for (const TraceKv &kv : slot.kv)
      bytes += sizeof(kv) + 4 * kv.pages.size();
  }
  return bytes;
}

void LiveTrace::comes(uint64_t number, std::shared_ptr<const Request> request) {
  if (!wanted())
    return;
  add(requestBytes, bytesOf(*request) + sizeof(Kept));
  if (full)
    return;
  Kept &one = kept[number];
  one.request = std::move(request);
  one.how.finish = "limit";
}

void LiveTrace::tells(uint64_t number, std::span<const int32_t> tokens, const std::string &state) {
  const auto found = kept.find(number);
  if (found == kept.end())
    return;
  TraceRequest &how = found->second.how;
  how.tokens.insert(how.tokens.end(), tokens.begin(), tokens.end());
  how.state = state;
  add(requestBytes, 4 * tokens.size());
}

void LiveTrace::ends(uint64_t number, const RequestEnd &end) {
  const auto found = kept.find(number);
  if (found == kept.end())
    return;
  static_cast<RequestEnd &>(found->second.how) = end;
}

void LiveTrace::stands(uint64_t number, TraceRequest how) {
  if (const auto found = kept.find(number); found != kept.end())
    found->second.how = std::move(how);
}

void LiveTrace::ticks(TraceTick tick) {
  add(tickBytes, bytesOf(tick));
  if (!full)
    recorded.push_back(std::move(tick));
}

Messages LiveTrace::tooLong() const {
  return failure(Diag::LiveTrace,
                 fmt::format("it does not fit into {} bytes of memory; open the session with a greater `trace`", most));
}

/// A file of requests needs ids that differ. What a request draws stays the same.
static void makeIdsDiffer(std::vector<Request> &requests) {
  std::unordered_set<std::string> all, taken;
  for (const Request &r : requests)
    all.insert(r.id.text);
  for (Request &r : requests) {
    if (taken.insert(r.id.text).second)
      continue;
    r.sampling.seed = r.seed();
    std::string id;
    for (size_t i = 2; id.empty() || all.count(id) || !taken.insert(id).second; ++i)
      id = fmt::format("{}#{}", r.id.text, i);
    r.id = RequestId(id);
  }
}

Expected<SessionTrace> LiveTrace::texts(Trace trace, const ir::Module &module) const {
  if (full)
    return tooLong();
  if (trace.ticks.empty())
    trace.ticks = recorded;
  // Only those that arrived are of the run. They are numbered anew, in the same order.
  std::vector<Request> requests;
  std::unordered_map<int32_t, int32_t> numbers;
  const auto torn = [] {
    return failure(Diag::TraceDevice, "the kernel's trace speaks of a request that did not arrive");
  };
  for (TraceTick &tick : trace.ticks) {
    for (TraceEvent &event : tick.events) {
      const auto known = numbers.find(event.request);
      if (event.cancels) {
        if (known == numbers.end())
          return torn();
        if (!requests[known->second].cancelled)
          requests[known->second].cancelled = When{tick.tick, 0};
        event.request = known->second;
        continue;
      }
      const auto found = kept.find(static_cast<uint64_t>(event.request));
      if (found == kept.end() || known != numbers.end())
        return torn();
      const auto number = static_cast<int32_t>(requests.size());
      numbers[event.request] = number;
      Request &request = requests.emplace_back(*found->second.request);
      request.arrives = {tick.tick, 0};
      event.request = number;
      trace.requests.push_back(found->second.how);
    }
    for (TraceSlot &slot : tick.slots)
      if (const auto known = numbers.find(slot.request); known != numbers.end())
        slot.request = known->second;
      else
        return torn();
    for (TraceFault &fault : tick.faults)
      if (const auto known = numbers.find(fault.request); known != numbers.end())
        fault.request = known->second;
      else
        return torn();
    // A kernel has those without a slot in the order of its table.
    const auto seated = std::partition_point(tick.slots.begin(), tick.slots.end(),
                                             [](const TraceSlot &slot) { return slot.slot >= 0; });
    std::sort(seated, tick.slots.end(), [](const TraceSlot &a, const TraceSlot &b) { return a.request < b.request; });
    std::sort(tick.faults.begin(), tick.faults.end(),
              [](const TraceFault &a, const TraceFault &b) { return a.request < b.request; });
  }
  makeIdsDiffer(requests);
  const std::vector<Input> inputs = ir::inputsOf(module);
  for (size_t i = 0; i < requests.size(); ++i) {
    trace.requests[i].id = requests[i].id;
    trace.requests[i].sampling = requests[i].sampling;
    for (const Input &input : inputs)
      trace.requests[i].inputs[input.name] = inputValue(input, requests[i]);
  }
  return SessionTrace{formatTrace(trace), formatRequests(requests)};
}

} // namespace megalith::api
