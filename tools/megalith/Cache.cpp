//===- Cache.cpp - megalith cache -----------------------------------------===//
#include "Common.h"
#include "Report.h"
#include "megalith/Text/Json.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "llvm/Support/raw_ostream.h"
#include <ctime>
#include <fmt/ranges.h>

namespace megalith::tool {

namespace {

using tools::CacheCleaning;
using tools::CacheState;
using tools::CacheTime;
using Json = nlohmann::ordered_json;

std::string sizeText(uint64_t bytes) {
  const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024)
    return fmt::format("{} B", bytes);
  double number = double(bytes) / 1024;
  size_t unit = 0;
  for (; number >= 1023.95 && unit + 1 < std::size(units); ++unit)
    number /= 1024;
  return fmt::format("{:.1f} {}", number, units[unit]);
}

/// "3 days ago".
std::string agoText(CacheTime time, CacheTime now) {
  const int64_t minutes = std::chrono::duration_cast<std::chrono::minutes>(now - time).count();
  if (minutes < 1)
    return "just now";
  return (minutes < 60        ? counted(uint64_t(minutes), "minute", "minutes")
          : minutes < 48 * 60 ? counted(uint64_t(minutes / 60), "hour", "hours")
                              : counted(uint64_t(minutes / (24 * 60)), "day", "days")) +
         " ago";
}

/// "2026-03-01T12:30:00Z".
std::string dateText(CacheTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  char text[64];
  if (!gmtime_r(&seconds, &parts) || std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return "";
  return text;
}

/// Of all kinds together.
CacheState::Kind sum(const CacheState &state) {
  CacheState::Kind all;
  all.name = "all";
  for (const CacheState::Kind &kind : state.kinds) {
    all.oldest = all.entries ? std::min(all.oldest, kind.oldest) : kind.oldest;
    all.newest = all.entries ? std::max(all.newest, kind.newest) : kind.newest;
    all.entries += kind.entries;
    all.bytes += kind.bytes;
  }
  return all;
}

std::string stateText(const CacheState &state) {
  const CacheTime now = std::chrono::system_clock::now();
  std::string out =
      fmt::format("folder   {}{}\n", text::printable(state.directory), state.exists ? "" : " (not there)");
  out += fmt::format("limits   {} without use, {} in all\n", counted(uint64_t(state.limitDays), "day", "days"),
                     sizeText(state.limitBytes));
  if (state.exists)
    out += fmt::format("cleaned  {}\n", state.cleaned ? agoText(*state.cleaned, now) : "never");
  const CacheState::Kind all = sum(state);
  if (all.entries == 0)
    return out + "\nno entries\n";
  out += fmt::format("\n{:<17} {:>7} {:>10} {:>15} {:>15}  {}\n", "kind", "entries", "size", "longest unused",
                     "last used", "architectures");
  const auto line = [&](const CacheState::Kind &kind) {
    out += fmt::format("{:<17} {:>7} {:>10} {:>15} {:>15}  {}", kind.name, kind.entries, sizeText(kind.bytes),
                       agoText(kind.oldest, now), agoText(kind.newest, now),
                       text::printable(fmt::format("{}", fmt::join(kind.architectures, ", "))));
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  };
  for (const CacheState::Kind &kind : state.kinds)
    line(kind);
  line(all);
  return out;
}

std::string cleaningText(const CacheCleaning &done, const CacheState &state) {
  std::vector<std::string> parts;
  uint64_t entries = 0, bytes = 0;
  const auto add = [&](const CacheCleaning::Group &group, const std::string &what) {
    if (group.entries)
      parts.push_back(fmt::format("{} {}", group.entries, what));
    entries += group.entries;
    bytes += group.bytes;
  };
  add(done.old, fmt::format("not used for {}", counted(uint64_t(state.limitDays), "day", "days")));
  add(done.crowded, fmt::format("longest unused above {}", sizeText(state.limitBytes)));
  add(done.cleared, "cleared");
  add(done.interrupted, done.interrupted.entries == 1 ? "interrupted write" : "interrupted writes");
  if (entries == 0)
    return "removed nothing\n\n";
  return fmt::format("removed {}, {}: {}\n\n", counted(entries, "entry", "entries"), sizeText(bytes),
                     fmt::join(parts, ", "));
}

Json toJson(const CacheState &state, const std::optional<CacheCleaning> &done) {
  const CacheState::Kind all = sum(state);
  Json j = {{"directory", text::utf8(state.directory)},
            {"exists", state.exists},
            {"limits", {{"days", state.limitDays}, {"bytes", state.limitBytes}}},
            {"entries", all.entries},
            {"bytes", all.bytes},
            {"kinds", Json::array()}};
  if (state.cleaned)
    j["cleaned"] = dateText(*state.cleaned);
  for (const CacheState::Kind &kind : state.kinds)
    j["kinds"].push_back({{"kind", kind.name},
                          {"entries", kind.entries},
                          {"bytes", kind.bytes},
                          {"longest_unused", dateText(kind.oldest)},
                          {"last_used", dateText(kind.newest)},
                          {"architectures", kind.architectures}});
  if (done) {
    const std::pair<const char *, CacheCleaning::Group> groups[] = {
        {"old", done->old}, {"crowded", done->crowded}, {"cleared", done->cleared}, {"interrupted", done->interrupted}};
    for (const auto &[name, group] : groups)
      j["removed"][name] = {{"entries", group.entries}, {"bytes", group.bytes}};
  }
  return j;
}

class CacheCommand : public Command {
public:
  CacheCommand()
      : Command({.name = "cache",
                 .description = "Show what lies in the cache of compiled kernels, and clean it",
                 .operand = "",
                 .least = 0,
                 .most = 0,
                 .examples = R"(megalith cache --clean
  removes old kernels from the cache, and shows what lies there)"}) {
    add("clean", flag(clean),
        "Remove now what was not used for longer than $MEGALITH_CACHE_DAYS (30), and the longest unused entries above "
        "$MEGALITH_CACHE_SIZE (4G) in all; that happens by itself, too, when a kernel is stored");
    add("clear", flag(clear), "Remove all entries");
    add("json", flag(json), "Print a JSON object");
  }

  bool run(Diagnostics &diags) override;

private:
  bool clean = false, clear = false; ///< by the limits; of everything
  bool json = false;
};

bool CacheCommand::run(Diagnostics &diags) {
  if (clean && clear)
    return badOption(diags, "--clean", "`--clear` removes everything; give one of the two");
  std::optional<CacheCleaning> done;
  if (clean || clear) {
    auto cleaned = tools::cleanCache(/*all=*/clear);
    if (!got(cleaned, diags))
      return false;
    done = std::move(*cleaned);
  }
  auto state = tools::lookAtCache();
  if (!got(state, diags))
    return false;
  // Warnings are the same ones.
  diags.adopt(done ? done->messages : state->messages);
  if (json)
    llvm::outs() << text::dump(toJson(*state, done), 2) << "\n";
  else
    llvm::outs() << (done ? cleaningText(*done, *state) : "") << stateText(*state);
  return true;
}

} // namespace

Command &cacheCommand() {
  static CacheCommand command;
  return command;
}

} // namespace megalith::tool
