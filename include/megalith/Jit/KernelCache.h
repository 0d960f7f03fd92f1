//===- KernelCache.h - compiled kernels on disk ---------------------------===//
//
// A unit of a kernel is an entry, and so is what they were linked to. An entry is three
// files: KEY.cu (the text, to read), KEY.json (key, log, resources and a seal) and the code,
// which is renamed into place last: KEY.cubin or, for the CPU, KEY.o of a unit and KEY.so of
// the linked kernel. The files are code that we will run, so that an entry is taken only when nobody
// else can have made it:
//
// * The folder belongs to this user, and nobody else can write to it. It is opened once,
//   and everything goes through that descriptor: what happens to the folders above it, or
//   to its name, does not matter. Shared objects are loaded through it, too.
// * Each file is a regular one of this user's that nobody else can write, and no link.
//   It is judged through the descriptor that it is read through.
// * The seal is a hash of the key, the code, the rest of KEY.json and a secret: 32 random
//   bytes that the file `secret` holds and only this user can read. So what was put in the
//   place of an entry fails, be it a torn file, another kernel's pair, a file of ours that
//   others could write once, or what somebody planted while the folder was open to him and
//   that now bears our name and a good mode (`chown -R`, `chmod -R`).
// * A folder that is found open to others loses its secret: no entry that lies there then
//   is ever taken. It is to be removed.
//
// An entry that fails, whatever it is, is made anew and replaced. Where that cannot be
// done (a folder in the place of a file), the run goes on without the cache.
//
// Old entries go when a new one is stored: CacheFolder.h.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_JIT_KERNELCACHE_H
#define MEGALITH_JIT_KERNELCACHE_H

#include "megalith/Jit/CacheFolder.h"
#include "megalith/Jit/Compile.h"
#include "megalith/Jit/Linker.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/JSON.h"

namespace megalith::jit {

class KernelCache {
public:
  /// A cache in `directory`, made with mode 0700 if it is absent. Reports the
  /// warning `cache-unsafe`, and is disabled, if it cannot be made, belongs to
  /// another user, or is writable by group or others. The folder stays open until the
  /// process ends, so that loadPath() stays good.
  KernelCache(std::string directory, Diagnostics &diags);
  /// A cache in $MEGALITH_CACHE_DIR, else $XDG_CACHE_HOME/megalith, else
  /// ~/.cache/megalith.
  static KernelCache open(Diagnostics &diags);
  /// The same, to look at and to clean: nothing is made, taken or stored. Reports `cache-unsafe` for a folder that
  /// is there and would not be used.
  static KernelCache openToLook(Diagnostics &diags);

  bool enabled() const { return usable; }
  const std::string &directory() const { return dir; }
  /// Whether there is a folder, and a safe one.
  bool hasFolder() const { return folder >= 0; }
  /// Whether there is none that could be used: `cache-unsafe` was reported.
  bool isRefused() const { return refused; }
  /// Of a folder that is there: what lies in it.
  CacheFolder contents() const { return CacheFolder(folder); }
  const CacheLimits &limits() const { return cleaning; }

  /// 64 hex digits: BLAKE3 of everything that the code depends on.
  static std::string key(const CompileRequest &request, llvm::StringRef nvrtcVersion);
  /// The same of any list of parts; no two lists have the same key.
  static std::string key(llvm::ArrayRef<std::string> parts);
  /// Path of the entry's file with this suffix (".cubin", ".o", ".so", ".cu", ".json"), for people.
  std::string path(llvm::StringRef key, llvm::StringRef suffix) const;
  /// The path to load it by: it leads to the folder that was judged, whatever bears that
  /// name now. Good for tools that we start, too.
  std::string loadPath(llvm::StringRef key, llvm::StringRef suffix) const;

  /// The entry if it is there and ours.
  std::optional<CompileResult> load(llvm::StringRef key) const;
  /// Writes an entry; reports `cache-unsafe` if the disk refuses.
  void store(llvm::StringRef key, const CompileRequest &request, const CompileResult &result, Diagnostics &diags) const;

  /// An entry of any kind of code.
  struct Entry {
    std::string code;
    llvm::json::Object info; ///< the .json
  };
  /// The entry whose code has this suffix, if it is there and ours. Who takes it uses it.
  std::optional<Entry> loadEntry(llvm::StringRef key, llvm::StringRef suffix) const;
  /// Writes it beside `source`; key and seal join its `info`. False: the cache is off, or
  /// the disk refuses, which is reported as `cache-unsafe`.
  bool storeEntry(llvm::StringRef key, llvm::StringRef suffix, Entry entry, llvm::StringRef source,
                  Diagnostics &diags) const;
  /// Notes that this code is of use now, so that it stays. load() and loadEntry() have done it.
  void use(llvm::StringRef key, llvm::StringRef suffix) const;

  /// Held while an entry is made: another process, or thread, that wants it too waits, and finds it then. Without a
  /// cache, and where files cannot be locked, nobody waits. Nor does anybody wait longer than the longest compilation
  /// takes: an entry that is made twice does no harm.
  class Making {
  public:
    Making(const KernelCache &cache, llvm::StringRef key);
    ~Making();
    Making(const Making &) = delete;

  private:
    int file = -1; ///< the folder's `locks`, of which a byte is locked
  };

private:
  KernelCache() = default;
  /// One that is refused, since the environment names no place.
  static KernelCache noPlace(Diagnostics &diags);
  /// Opens the folder and judges it. Returns why it is not used, or ""; `missing`: it is not there.
  std::string judge(bool &missing);
  void refuse(const std::string &why, Diagnostics &diags);
  /// What the seal of the entry is; `info` without it.
  std::string sealOf(llvm::StringRef key, llvm::StringRef suffix, llvm::StringRef code,
                     const llvm::json::Object &info) const;
  bool write(llvm::StringRef name, llvm::StringRef bytes) const;
  /// Reads the secret, or makes it. Returns why it cannot, or "".
  std::string findSecret();

  std::string dir, secret;
  CacheLimits cleaning;
  int folder = -1; ///< descriptor; -1: it is not there, or not used
  bool usable = false, refused = false;
};

/// Takes the code from the cache or compiles and stores it; the result's
/// `cacheHit` and `milliseconds` say which and how long it took.
std::optional<CompileResult> compileCached(const Nvrtc &nvrtc, const KernelCache &cache, const CompileRequest &request,
                                           Diagnostics &diags);

/// The same for a kernel of several units: those that the cache does not have compile side by side, and are linked.
/// nullopt after an error, or with `linkError` when they cannot be linked. The result's `kernels` are those of the
/// units, whose code is all that they call but for what other units have.
std::optional<CompileResult> compileLinked(const Nvrtc &nvrtc, const KernelCache &cache, const Linker &linker,
                                           llvm::ArrayRef<CompileRequest> units, std::string &linkError,
                                           Diagnostics &diags);

} // namespace megalith::jit
#endif
