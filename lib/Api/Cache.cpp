//===- Cache.cpp - what lies in the kernel cache, and cleaning it ---------===//
#include "State.h"
#include "megalith/Jit/KernelCache.h"
#include "megalith/Tools.h"

namespace megalith {

using namespace api;

static const char *const unfinished = "interrupted write";

Expected<tools::CacheState> tools::lookAtCache() {
  return guarded<CacheState>([]() -> Expected<CacheState> {
    SourceFiles none;
    Diagnostics diags(none);
    const jit::KernelCache cache = jit::KernelCache::openToLook(diags);
    CacheState state;
    state.messages = diags.messages();
    state.directory = cache.directory();
    state.exists = cache.hasFolder();
    state.limitDays = cache.limits().days;
    state.limitBytes = cache.limits().bytes;
    if (cache.isRefused())
      return state.messages;
    if (!cache.hasFolder())
      return state;
    const jit::CacheContents contents = cache.contents().contents(/*withKinds=*/true);
    state.cleaned = contents.cleaned;
    std::map<std::string, CacheState::Kind> kinds;
    const auto add = [&](const std::string &kind, uint64_t bytes, CacheTime used) -> CacheState::Kind & {
      CacheState::Kind &found = kinds[kind];
      found.oldest = found.entries ? std::min(found.oldest, used) : used;
      found.newest = found.entries ? std::max(found.newest, used) : used;
      ++found.entries;
      found.bytes += bytes;
      return found;
    };
    for (const jit::CacheEntry &entry : contents.entries) {
      CacheState::Kind &kind = add(entry.suffix.empty() ? unfinished : entry.kind, entry.bytes, entry.used);
      if (!entry.arch.empty())
        kind.architectures.insert(entry.arch);
    }
    for (const jit::CacheFile &file : contents.leftovers)
      add(unfinished, file.bytes, file.time);
    std::vector<const char *> names(std::begin(jit::cacheKinds), std::end(jit::cacheKinds));
    names.push_back(unfinished);
    for (const char *name : names)
      if (const auto found = kinds.find(name); found != kinds.end()) {
        found->second.name = name;
        state.kinds.push_back(std::move(found->second));
      }
    return state;
  });
}

Expected<tools::CacheCleaning> tools::cleanCache(bool all) {
  return guarded<CacheCleaning>([&]() -> Expected<CacheCleaning> {
    SourceFiles none;
    Diagnostics diags(none);
    const jit::KernelCache cache = jit::KernelCache::openToLook(diags);
    if (cache.isRefused())
      return diags.messages();
    CacheCleaning out;
    if (cache.hasFolder()) {
      const jit::CacheCleaning done = cache.contents().clean(cache.limits(), all);
      const auto group = [](const jit::CacheCleaning::Group &from) {
        return CacheCleaning::Group{from.count, from.bytes};
      };
      out.old = group(done.old);
      out.crowded = group(done.crowded);
      out.interrupted = group(done.incomplete);
      out.cleared = group(done.cleared);
      if (done.failed)
        diags.report(Diag::CacheNotCleaned, {}, fmt::format("{} file{}", done.failed, done.failed == 1 ? "" : "s"),
                     cache.directory(), done.why);
    }
    out.messages = diags.messages();
    return out;
  });
}

} // namespace megalith
