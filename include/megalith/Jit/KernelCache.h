//===- KernelCache.h - compiled kernels on disk ---------------------------===//
//
// An entry is three files: KEY.cu (the source, to read), KEY.json (log, resources
// and a checksum of the code) and the code, KEY.cubin or, for the CPU, KEY.so, which
// is renamed into place last. An entry that is torn or was changed fails its checksum
// and is compiled again. The files are code, so the directory must be one that only
// the user can write.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_JIT_KERNELCACHE_H
#define MEGALITH_JIT_KERNELCACHE_H

#include "megalith/Jit/Compile.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/JSON.h"

namespace megalith::jit {

class KernelCache {
public:
  /// A cache in `directory`, made with mode 0700 if it is absent. Reports the
  /// warning `cache-unsafe`, and is disabled, if it cannot be made, belongs to
  /// another user, or is writable by group or others.
  KernelCache(std::string directory, Diagnostics &diags);
  /// A cache in $MEGALITH_CACHE_DIR, else $XDG_CACHE_HOME/megalith, else
  /// ~/.cache/megalith.
  static KernelCache open(Diagnostics &diags);

  bool enabled() const { return usable; }
  const std::string &directory() const { return dir; }

  /// 64 hex digits: BLAKE3 of everything that the cubin depends on.
  static std::string key(const CompileRequest &request, llvm::StringRef nvrtcVersion);
  /// The same of any list of parts; no two lists have the same key.
  static std::string key(llvm::ArrayRef<std::string> parts);
  /// Path of the entry's file with this suffix (".cubin", ".so", ".cu", ".json").
  std::string path(llvm::StringRef key, llvm::StringRef suffix) const;

  /// The entry if it is there and intact.
  std::optional<CompileResult> load(llvm::StringRef key) const;
  /// Writes an entry; reports `cache-unsafe` if the disk refuses.
  void store(llvm::StringRef key, const CompileRequest &request, const CompileResult &result,
             Diagnostics &diags) const;

  /// An entry of any kind of code.
  struct Entry {
    std::string code;
    llvm::json::Object info; ///< the .json
  };
  /// The entry whose code has this suffix, if it is there and intact.
  std::optional<Entry> loadEntry(llvm::StringRef key, llvm::StringRef suffix) const;
  /// Writes it beside `source`; the checksum joins its `info`. False: the cache is off, or
  /// the disk refuses, which is reported as `cache-unsafe`.
  bool storeEntry(llvm::StringRef key, llvm::StringRef suffix, Entry entry, llvm::StringRef source,
                  Diagnostics &diags) const;

private:
  std::string dir;
  bool usable = false;
};

/// Takes the kernel from the cache or compiles and stores it; the result's
/// `cacheHit` and `milliseconds` say which and how long it took.
std::optional<CompileResult> compileCached(const Nvrtc &nvrtc, const KernelCache &cache,
                                           const CompileRequest &request, Diagnostics &diags);

} // namespace megalith::jit
#endif
