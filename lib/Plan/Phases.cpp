//===- Phases.cpp - what follows from a plan's phases ---------------------===//
#include "megalith/Plan/Plan.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::plan {

std::vector<const Buffer *> ModelPlan::imagesOf(const Phase &phase) const {
  std::vector<const Buffer *> images;
  const auto add = [&](const Place &place) {
    if (buffers[place.buffer].windows)
      images.push_back(&buffers[place.buffer]);
  };
  if (phase.kind == Phase::Operand || phase.kind == Phase::Order || phase.kind == Phase::Copy) {
    add(phase.to);
    return images;
  }
  for (ir::Value v : phase.op->results)
    if (auto it = placeOf.find(v.id); it != placeOf.end())
      add(it->second);
  return images;
}

bool ModelPlan::readsWeightsAlone(const Phase &phase) const {
  return phase.kind == Phase::Map &&
         llvm::none_of(phase.op->operands, [&](ir::Value v) { return placeOf.count(v.id) != 0; });
}

AheadOfPlan Segment::ahead() const {
  // Up to the first attention, for whose keys and values the producer has to know the pass.
  bool attends = false;
  const auto matrices = [&](const std::vector<Phase> &phases) {
    std::vector<int> found;
    for (const Phase &phase : phases) {
      attends = attends || phase.kind == Phase::Attention;
      if (!attends && phase.kind == Phase::Stream)
        found.push_back(phase.matrix);
    }
    return found;
  };
  AheadOfPlan ahead;
  ahead.before = matrices(before);
  ahead.repeated = matrices(repeated);
  ahead.repeatCount = attends ? 1 : repeatCount;
  ahead.after = matrices(after);
  return ahead;
}

std::vector<StampEvent> stampEvents(const ModelPlan &planned) {
  std::vector<StampEvent> events = {{"control", -1}};
  for (const Segment &segment : planned.segments) {
    for (const Phase &phase : segment.before)
      events.push_back({phase.name, -1, &phase});
    for (int64_t layer = 0; layer < segment.repeatCount; ++layer)
      for (const Phase &phase : segment.repeated)
        events.push_back({phase.name, layer, &phase});
    for (const Phase &phase : segment.after)
      events.push_back({phase.name, -1, &phase});
  }
  events.push_back({"results", -1});
  return events;
}

size_t firstStamp(const Plan &plan, int number) {
  size_t first = 0;
  for (int i = 0; i < number; ++i)
    first += stampEvents(plan.models[i]).size();
  return first;
}

StampNumber stampOf(const Plan &plan, int number, const Phase &phase) {
  const std::vector<StampEvent> events = stampEvents(plan.models[number]);
  const auto isOfPhase = [&](const StampEvent &event) { return event.phase == &phase; };
  const auto first = llvm::find_if(events, isOfPhase), next = std::find_if(first + 1, events.end(), isOfPhase);
  return {int64_t(firstStamp(plan, number)) + (first - events.begin()), next == events.end() ? 0 : next - first};
}

} // namespace megalith::plan
