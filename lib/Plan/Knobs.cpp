//===- Knobs.cpp - `--plan key=value` -------------------------------------===//
#include "Layout.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::plan {

bool applyKnob(Knobs &knobs, llvm::StringRef setting, Diagnostics &diags) {
  auto [key, value] = setting.split('=');
  std::vector<std::string> known;
  std::string allowed; // of `key`, where it is known but the value is not
#define NUMBER_KNOB(Key, Default, Least, Most)                                                                         \
  if (int64_t number; key == #Key) {                                                                                   \
    if (!value.getAsInteger(10, number) && number >= Least && number <= Most)                                          \
      return knobs.Key = number, true;                                                                                 \
    allowed = fmt::format("a number from {} to {}", Least, Most);                                                      \
  }                                                                                                                    \
  known.push_back(#Key);
#define CHOICE_KNOB(Key, Member, Off, On, Default)                                                                     \
  if (key == #Key) {                                                                                                   \
    if (value == Off || value == On)                                                                                   \
      return knobs.Member = value == On, true;                                                                         \
    allowed = "`" Off "` or `" On "`";                                                                                 \
  }                                                                                                                    \
  known.push_back(#Key);
#include "megalith/Plan/Knobs.def"
  if (!allowed.empty()) {
    diags.report(Diag::BadPlanValue, {}, key.str(), value.str(), allowed);
    return false;
  }
  diags.report(Diag::UnknownPlanKey, {}, key.str());
  diags.suggest(key, known);
  diags.note("known keys: " + llvm::join(known, ", "));
  return false;
}

} // namespace megalith::plan
