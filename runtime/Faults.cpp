#include "runtime/Faults.h"
#include "device/Abi.h"

namespace megalith::runtime {

static unsigned codeOf(unsigned word) { return word & (abi::kFaultAtCall - 1); }

std::string faultName(unsigned word) {
  switch (codeOf(word)) {
#define FAULT(Enum, Code, Name, Text, Numbers)                                                                         \
  case Code:                                                                                                           \
    return Code ? Name : "";
#include "megalith/Contract/Faults.def"
  }
  return "UNKNOWN";
}

/// The most exact place that is known. Each part of the word may be garbage.
static std::string placeOf(unsigned word, const Manifest::State *state, const Manifest &m) {
  const unsigned place = word >> abi::kFaultPlaceShift;
  if (faultName(word) == "KV_TOO_LARGE") { // the place is the pool's number
    if (place < m.models.size())
      return m.models[place].pool.place;
  } else if (word & abi::kFaultAtCall) {
    if (place < m.callPlaces.size())
      return m.callPlaces[place];
  } else if (place && !m.pipelineFile.empty()) {
    return m.pipelineFile + ":" + std::to_string(place);
  }
  return state ? state->place : "";
}

void setFault(RequestEnd &end, const abi::RequestHeader &header, const Manifest &manifest) {
  const auto word = static_cast<unsigned>(header.fault);
  end.fault = faultName(word);
  const unsigned number = word >> abi::kFaultStateShift & abi::kFaultNoState;
  const Manifest::State *state = number < manifest.states.size() ? &manifest.states[number] : nullptr;
  end.faultState = state ? state->name : "";
  end.place = placeOf(word, state, manifest);
  // As abi::FaultNumbers has them.
  end.faultDetail = faultDetail(end.fault, {header.waitingSince, header.callCount, header.priority});
}

} // namespace megalith::runtime
