//===- Profiles.cpp - the devices that plans are made for -----------------===//
#include "megalith/Plan/Plan.h"

namespace megalith::plan {

// Times of the stream are those of whole chunks on an H200 (5 and 4 copies under way) and an H100 (3 and 2), see
// docs/performance-log.md. Those of wide tiles were measured there, too.
static const DeviceProfile profiles[] = {
    {"h200", "sm_90a", 132, 232448, 4800, 128, true}, {"h100", "sm_90a", 132, 232448, 3350, 128, true},
    {"a100", "sm_80", 108, 166912, 1555, 64},         {"b200", "sm_100a", 148, 232448, 8000, 64},
    {"cpu", "", 4, 232448, 145, 128, true}, // the CPU executor: as many CTAs as show how they work together, with as
                                            // many copies as on an H200
};

const DeviceProfile *findProfile(llvm::StringRef name) {
  for (const DeviceProfile &p : profiles)
    if (name == p.name)
      return &p;
  return nullptr;
}

const DeviceProfile *findProfileOfArch(llvm::StringRef arch) {
  const auto capability = [](llvm::StringRef of) { return of.rtrim("af"); };
  for (const DeviceProfile &p : profiles)
    if (!p.arch.empty() && capability(arch) == capability(p.arch))
      return &p;
  return nullptr;
}

std::vector<std::string> profileNames() {
  std::vector<std::string> names;
  for (const DeviceProfile &p : profiles)
    names.push_back(p.name);
  return names;
}

} // namespace megalith::plan
