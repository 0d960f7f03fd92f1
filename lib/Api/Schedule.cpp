#include "Schedule.h"
#include "llvm/ADT/SmallVector.h"

namespace megalith::api {

std::optional<cpu::Schedule> parseSchedule(llvm::StringRef text) {
  cpu::Schedule schedule;
  auto [front, prefix] = text.split('@');
  if (front.size() != text.size() && prefix.getAsInteger(10, schedule.prefix))
    return std::nullopt;
  llvm::SmallVector<llvm::StringRef> parts;
  front.split(parts, ':');
  const llvm::StringRef name = parts[0];
  if (name == "round-robin" && parts.size() == 1)
    return schedule;
  if ((name != "random" && name != "pct") || parts.size() < 2 || parts.size() > (name == "pct" ? 3u : 2u) ||
      parts[1].getAsInteger(10, schedule.seed))
    return std::nullopt;
  if (parts.size() == 3 && parts[2].getAsInteger(10, schedule.changePoints))
    return std::nullopt;
  schedule.kind = name == "pct" ? cpu::Schedule::Pct : cpu::Schedule::Random;
  return schedule;
}

} // namespace megalith::api
