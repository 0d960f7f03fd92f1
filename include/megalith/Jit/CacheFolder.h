//===- CacheFolder.h - what lies in a kernel cache, and what goes of it ---===//
//
// An edit of a pipeline leaves an entry, so that old ones have to go: those that nothing has
// used for some days, and of the others the longest unused, until the rest is small enough.
//
// * An entry's last use is the time of its newest file. Who takes the code sets that of the
//   code (KernelCache::use).
// * Only files go that have the name of an entry's file, or of what writes to the cache leave
//   when they are interrupted. Each is a regular file of this user's in the folder itself.
//   Links, folders, other users' files and other names stay.
// * Other processes may use the cache at the same time. What was used a moment ago stays, and
//   so does an entry that is used between the look at it and its removal. Code that was taken
//   is in memory, or open. An entry that is half there is none for whoever looks for it.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_JIT_CACHEFOLDER_H
#define MEGALITH_JIT_CACHEFOLDER_H

#include "megalith/Jit/Compile.h"
#include "megalith/Support/Diagnostics.h"
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace megalith::jit {

using CacheTime = std::chrono::system_clock::time_point;

/// When an entry goes.
struct CacheLimits {
  int64_t days = 30;           ///< without use
  uint64_t bytes = 4ull << 30; ///< of all entries

  /// $MEGALITH_CACHE_DAYS and $MEGALITH_CACHE_SIZE; reports `cache-limit` for one that is no such number.
  static CacheLimits ofEnvironment(Diagnostics &diags);
};

/// CacheEntry::kind, in the order in which people read them.
constexpr const char *cacheCpuKernel = "CPU kernel", *cacheCpuObject = "CPU object", *cacheOtherKind = "other kernel";
constexpr const char *cacheKinds[] = {kind::linked, kind::control,  kind::tensors,  kind::wide,    kind::tool,
                                      kind::whole,  cacheCpuKernel, cacheCpuObject, cacheOtherKind};

struct CacheFile {
  std::string name;
  uint64_t bytes = 0;
  CacheTime time;
};

struct CacheEntry {
  std::string key;
  std::vector<CacheFile> files; ///< that of the code first
  std::string suffix;           ///< of its code; empty: a part of it is missing
  std::string kind;             ///< one of cacheKinds; cacheOtherKind: it does not say
  std::string arch;             ///< "sm_90a"; empty: unknown
  uint64_t bytes = 0;
  CacheTime used; ///< last
};

struct CacheContents {
  std::vector<CacheEntry> entries;  ///< the longest unused first
  std::vector<CacheFile> leftovers; ///< what writes have under way, or left when they were interrupted
  std::optional<CacheTime> cleaned; ///< last
};

/// What was removed.
struct CacheCleaning {
  struct Group {
    uint64_t count = 0, bytes = 0;
  };
  Group old;           ///< entries that were not used for so long
  Group crowded;       ///< the longest unused of those that together were too large
  Group incomplete;    ///< entries of which a part was missing, and leftovers of writes (files)
  Group cleared;       ///< entries, whatever their age
  uint64_t failed = 0; ///< files that are still there
  std::string why;     ///< of the first of them
};

/// What was used within so long may be in use, and stays.
constexpr std::chrono::minutes cacheInUse(10);
/// A file of an interrupted write stays for so long.
constexpr std::chrono::hours cacheLeftoverAge(24);
/// The folder is cleaned when something is stored, but not more often.
constexpr std::chrono::hours cacheCleaningPause(1);

/// The folder of a cache, which is open and has been judged.
class CacheFolder {
public:
  explicit CacheFolder(int descriptor) : folder(descriptor) {}

  /// Without kinds and architectures, for which each entry is read, where they are not asked for.
  CacheContents contents(bool withKinds) const;
  /// Removes what is beyond the limits; with `all` every entry.
  CacheCleaning clean(const CacheLimits &limits, bool all) const;
  /// Cleans by the limits unless that was done a short time ago.
  void cleanSometimes(const CacheLimits &limits) const;

private:
  bool remove(const CacheFile &file, bool onlyUnchanged, CacheCleaning &done) const;
  bool remove(const CacheEntry &entry, bool onlyUnused, CacheCleaning &done) const;
  bool stamp() const;
  int folder;
};

} // namespace megalith::jit
#endif
