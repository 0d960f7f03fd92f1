#include "megalith/Jit/CacheFolder.h"
#include "CacheFiles.h"
#include "megalith/Os/Temporary.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

namespace json = llvm::json;

namespace megalith::jit {

using Clock = std::chrono::system_clock;

/// Its time says when the folder was cleaned last.
static constexpr const char *stampName = "cleaned";
static constexpr const char *codeSuffixes[] = {".cubin", ".so", ".o"};
static constexpr const char *otherSuffixes[] = {".json", ".cu"};
static constexpr size_t keyDigits = 64;

//===----------------------------------------------------------------------===//
// Limits
//===----------------------------------------------------------------------===//

/// `4G`, `500M`, `1000`.
static bool parseSize(llvm::StringRef text, uint64_t &bytes) {
  unsigned shift = 0;
  if (!text.empty() && !llvm::isDigit(text.back())) {
    const size_t unit = llvm::StringRef("KMGT").find(llvm::toUpper(text.back()));
    if (unit == llvm::StringRef::npos)
      return false;
    shift = 10 * unsigned(unit + 1);
    text = text.drop_back();
  }
  uint64_t number = 0;
  if (text.empty() || !llvm::all_of(text, llvm::isDigit) || text.getAsInteger(10, number) ||
      number > UINT64_MAX >> shift)
    return false;
  bytes = number << shift;
  return true;
}

CacheLimits CacheLimits::ofEnvironment(Diagnostics &diags) {
  constexpr int64_t mostDays = 36500;
  CacheLimits limits;
  const auto read = [&](const char *name, auto parse, const char *expected, const std::string &otherwise) {
    const char *value = std::getenv(name);
    if (value && *value && !parse(llvm::StringRef(value)))
      diags.reportOnce(Diag::CacheLimit, SourceLoc(), name, value, expected, otherwise);
  };
  const auto parseDays = [&](llvm::StringRef text) {
    int64_t days = 0;
    if (!llvm::all_of(text, llvm::isDigit) || text.getAsInteger(10, days) || days > mostDays)
      return false;
    limits.days = days;
    return true;
  };
  read("MEGALITH_CACHE_DAYS", parseDays, "a whole number of days up to 36500", fmt::format("{} days", limits.days));
  read(
      "MEGALITH_CACHE_SIZE", [&](llvm::StringRef text) { return parseSize(text, limits.bytes); },
      "a number of bytes such as `4G` or `500M`", fmt::format("{}G", limits.bytes >> 30));
  return limits;
}

//===----------------------------------------------------------------------===//
// What lies there
//===----------------------------------------------------------------------===//

static CacheTime timeOf(const struct stat &info) {
  // Times that the clock cannot hold are nobody's.
  constexpr int64_t most = int64_t(1) << 33;
  const int64_t seconds = std::clamp<int64_t>(info.st_mtim.tv_sec, -most, most);
  return CacheTime(std::chrono::duration_cast<Clock::duration>(std::chrono::seconds(seconds) +
                                                               std::chrono::nanoseconds(info.st_mtim.tv_nsec)));
}

/// Whether `name` is a regular file of this user's in the folder.
static bool look(int folder, const char *name, struct stat &info) {
  return fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
}

/// Takes `KEY` off the front.
static bool consumeKey(llvm::StringRef &name, llvm::StringRef &key) {
  key = name.take_while([](char c) { return llvm::isDigit(c) || (c >= 'a' && c <= 'f'); });
  name = name.drop_front(key.size());
  return key.size() == keyDigits;
}

static bool consumeSuffix(llvm::StringRef &name) {
  const auto consume = [&](const char *suffix) {
    // Not `.cu` of `.cubin`.
    return name.starts_with(suffix) &&
           (name.size() == llvm::StringRef(suffix).size() || name[llvm::StringRef(suffix).size()] == '.') &&
           name.consume_front(suffix);
  };
  return llvm::any_of(codeSuffixes, consume) || llvm::any_of(otherSuffixes, consume);
}

/// os::TemporaryFile's `.PID-NUMBER`, and nothing after it.
static bool isTemporaryEnd(llvm::StringRef text) {
  auto [pid, number] = text.split('-');
  return pid.consume_front(".") && !pid.empty() && !number.empty() && llvm::all_of(pid, llvm::isDigit) &&
         llvm::all_of(number, llvm::isDigit);
}

/// Of one entry's file `key` is the key; of a leftover it is empty.
static bool hasOurForm(llvm::StringRef name, llvm::StringRef &key) {
  llvm::StringRef rest = name;
  if (consumeKey(rest, key)) {
    if (!consumeSuffix(rest))
      return false;
    if (rest.empty())
      return true;
  } else {
    rest = name;
    if (!rest.consume_front(secretName) && !rest.consume_front(stampName))
      return false;
  }
  key = {};
  return isTemporaryEnd(rest);
}

/// The entry's own parts, of which its files tell.
static void complete(CacheEntry &entry) {
  const auto has = [&](llvm::StringRef suffix) {
    return llvm::any_of(entry.files, [&](const CacheFile &file) { return file.name == entry.key + suffix.str(); });
  };
  for (const char *suffix : codeSuffixes)
    if (has(suffix) && has(".json"))
      entry.suffix = suffix;
  // Without its code it is no entry for anybody who looks while it goes.
  llvm::stable_sort(entry.files, [](const CacheFile &a, const CacheFile &b) {
    const auto isCode = [](const CacheFile &file) {
      return llvm::any_of(codeSuffixes,
                          [&](llvm::StringRef suffix) { return llvm::StringRef(file.name).ends_with(suffix); });
    };
    return isCode(a) && !isCode(b);
  });
  for (const CacheFile &file : entry.files) {
    entry.bytes += file.bytes;
    entry.used = std::max(entry.used, file.time);
  }
}

/// What it is, as it says itself, for people.
static void describe(int folder, CacheEntry &entry) {
  const std::optional<json::Object> info = readInfo(folder, entry.key);
  if (entry.suffix != ".cubin") {
    entry.kind = entry.suffix == ".so" ? cacheCpuKernel : cacheCpuObject;
    if (const auto number = info ? info->getInteger("arch") : std::nullopt)
      entry.arch = fmt::format("sm_{}", *number / 10);
    return;
  }
  const llvm::StringRef said = info ? info->getString("kind").value_or("") : "";
  entry.kind = llvm::is_contained(cacheKinds, said) ? said.str() : cacheOtherKind;
  const llvm::StringRef arch = info ? info->getString("arch").value_or("") : "";
  if (arch.size() <= 16)
    entry.arch = arch.str();
}

CacheContents CacheFolder::contents(bool withKinds) const {
  CacheContents contents;
  const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *const all = again < 0 ? nullptr : fdopendir(again);
  if (!all) {
    if (again >= 0)
      close(again);
    return contents;
  }
  std::map<std::string, CacheEntry> entries;
  struct stat info;
  while (const dirent *found = readdir(all)) {
    llvm::StringRef key;
    if (!hasOurForm(found->d_name, key) || !look(folder, found->d_name, info))
      continue;
    CacheFile file{found->d_name, uint64_t(info.st_size), timeOf(info)};
    if (key.empty()) {
      contents.leftovers.push_back(std::move(file));
      continue;
    }
    CacheEntry &entry = entries[key.str()];
    entry.key = key.str();
    entry.files.push_back(std::move(file));
  }
  closedir(all);
  for (auto &[key, entry] : entries) {
    complete(entry);
    if (withKinds && !entry.suffix.empty())
      describe(folder, entry);
    contents.entries.push_back(std::move(entry));
  }
  llvm::stable_sort(contents.entries, [](const CacheEntry &a, const CacheEntry &b) { return a.used < b.used; });
  if (look(folder, stampName, info))
    contents.cleaned = timeOf(info);
  return contents;
}

//===----------------------------------------------------------------------===//
// What goes
//===----------------------------------------------------------------------===//

bool CacheFolder::remove(const CacheFile &file, bool onlyUnchanged, CacheCleaning &done) const {
  struct stat info;
  if (!look(folder, file.name.c_str(), info)) // another process was quicker, or put something else there
    return false;
  if (onlyUnchanged && timeOf(info) != file.time)
    return false;
  if (unlinkat(folder, file.name.c_str(), 0) == 0)
    return true;
  if (errno != ENOENT && done.failed++ == 0)
    done.why = std::strerror(errno);
  return false;
}

/// Whether its first file, the code, is gone by this; what is left of it goes another time at the latest.
bool CacheFolder::remove(const CacheEntry &entry, bool onlyUnused, CacheCleaning &done) const {
  if (!remove(entry.files.front(), onlyUnused, done))
    return false;
  for (const CacheFile &file : llvm::drop_begin(entry.files))
    remove(file, onlyUnused, done);
  return true;
}

/// Whether something of this time may be in use; clocks of two machines differ a little.
static bool isInUse(CacheTime time, CacheTime now) { return time > now - cacheInUse && time < now + cacheInUse; }

static void count(CacheCleaning::Group &group, uint64_t bytes) {
  ++group.count;
  group.bytes += bytes;
}

CacheCleaning CacheFolder::clean(const CacheLimits &limits, bool all) const {
  CacheCleaning done;
  const CacheContents found = contents(/*withKinds=*/false);
  const CacheTime now = Clock::now();
  for (const CacheFile &file : found.leftovers)
    if (file.time < now - cacheLeftoverAge && remove(file, /*onlyUnchanged=*/true, done))
      count(done.incomplete, file.bytes);
  std::vector<const CacheEntry *> kept;
  uint64_t bytes = 0;
  for (const CacheEntry &entry : found.entries) {
    CacheCleaning::Group *group = nullptr;
    if (all || !isInUse(entry.used, now)) {
      if (entry.suffix.empty())
        group = &done.incomplete;
      else if (all)
        group = &done.cleared;
      else if (entry.used < now - std::chrono::hours(24 * limits.days))
        group = &done.old;
    }
    if (group && remove(entry, /*onlyUnused=*/!all, done)) {
      count(*group, entry.bytes);
      continue;
    }
    bytes += entry.bytes;
    if (!group)
      kept.push_back(&entry);
  }
  for (const CacheEntry *entry : kept) {
    if (bytes <= limits.bytes)
      break;
    if (isInUse(entry->used, now) || !remove(*entry, /*onlyUnused=*/true, done))
      continue;
    count(done.crowded, entry->bytes);
    bytes -= entry->bytes;
  }
  stamp();
  return done;
}

bool CacheFolder::stamp() const {
  os::TemporaryFile file(folder, std::string(stampName) + ".", 0600);
  return file.descriptor() >= 0 && file.renameTo(stampName);
}

void CacheFolder::cleanSometimes(const CacheLimits &limits) const {
  struct stat info;
  if (look(folder, stampName, info)) {
    const auto since = Clock::now() - timeOf(info);
    if (since < cacheCleaningPause && since > -cacheCleaningPause) // else the clock was wrong once
      return;
  }
  // First the stamp, so that other processes leave the work to this one. Where none can be made, everything that is
  // stored would be followed by a look at everything.
  if (stamp())
    clean(limits, /*all=*/false);
}

} // namespace megalith::jit
