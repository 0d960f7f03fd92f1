//===- Knobs.cpp - `--plan key=value` -------------------------------------===//
#include "Layout.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::plan {

bool applyKnob(Knobs &knobs, llvm::StringRef setting, Diagnostics &diags) {
  auto [key, value] = setting.split('=');
  struct {
    const char *name, *off, *on;
    bool *target;
  } choices[] = {{"order", "ascending", "descending", &knobs.descending}, {"edges", "barrier", "words", &knobs.words}};
  for (auto &entry : choices)
    if (key == entry.name) {
      if (value != entry.off && value != entry.on) {
        diags.report(Diag::BadPlanValue, {}, key.str(), value.str(), fmt::format("`{}` or `{}`", entry.off, entry.on));
        return false;
      }
      *entry.target = value == entry.on;
      return true;
    }
  struct {
    const char *name;
    int64_t *target;
    int64_t low, high;
  } integers[] = {{"ctas", &knobs.ctas, 1, 1024},
                  {"ring", &knobs.ring, 2, kMostStages},
                  {"flight", &knobs.flight, 1, 16},
                  {"operands", &knobs.operands, kBlockBytes, 131072},
                  {"chunk", &knobs.chunk, kBlockBytes, 65536},
                  {"spare", &knobs.spare, 0, 1},
                  {"stamps", &knobs.stamps, 0, 1},
                  {"wide", &knobs.wide, 0, 2}};
  for (auto &entry : integers)
    if (key == entry.name) {
      int64_t number;
      if (value.getAsInteger(10, number) || number < entry.low || number > entry.high) {
        diags.report(Diag::BadPlanValue, {}, key.str(), value.str(),
                     fmt::format("a number from {} to {}", entry.low, entry.high));
        return false;
      }
      *entry.target = number;
      return true;
    }
  std::vector<std::string> known = {"chunk", "ctas", "edges", "flight", "operands",
                                    "order", "ring", "spare", "stamps", "wide"};
  diags.report(Diag::UnknownPlanKey, {}, key.str());
  diags.suggest(key, known);
  diags.note("known keys: " + llvm::join(known, ", "));
  return false;
}

} // namespace megalith::plan
