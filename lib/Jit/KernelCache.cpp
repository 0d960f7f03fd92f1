#include "megalith/Jit/KernelCache.h"
#include "CacheFiles.h"
#include "megalith/Os/ReadFile.h"
#include "megalith/Os/Temporary.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;
namespace json = llvm::json;

namespace megalith::jit {

/// Part of every key: counts up when the form of an entry changes.
static constexpr int formatVersion = 1;

/// Bytes that a file of an entry may have: code; KEY.json, most of which is the log.
static constexpr uint64_t codeBytes = 1ull << 30, infoBytes = 64ull << 20;
/// Levels of KEY.json; we write three.
static constexpr unsigned infoDepth = 16;
static constexpr size_t secretBytes = 32;
static constexpr const char *lockName = "locks";
static constexpr std::chrono::minutes longestCompilation(2);

static std::string hexDigest(llvm::BLAKE3 &hasher) {
  auto digest = hasher.final();
  return llvm::toHex(digest, /*LowerCase=*/true);
}

/// Each part is preceded by its length, so that no two lists read the same.
static void addPart(llvm::BLAKE3 &hasher, llvm::StringRef part) {
  hasher.update(std::to_string(part.size()) + ":");
  hasher.update(part);
}

/// Why an open directory cannot hold code that we will run; "" if it can.
static std::string whyUnsafe(int folder) {
  struct stat info;
  if (fstat(folder, &info) != 0)
    return std::strerror(errno);
  if (info.st_uid != geteuid())
    return fmt::format("it belongs to user {}, not to you", info.st_uid);
  if (info.st_mode & (S_IWGRP | S_IWOTH)) {
    unlinkat(folder, secretName, 0); // nothing that lies there now is taken later
    return fmt::format("others can write to it (mode {:o}), and may have; remove it", info.st_mode & 07777);
  }
  return "";
}

/// The directory, open until the process ends; -1: it cannot be opened, and errno says why.
static int openFolder(const std::string &path) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  static std::map<std::pair<dev_t, ino_t>, int> open; // an inode in use is no other's
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat info;
  if (folder < 0 || fstat(folder, &info) != 0)
    return folder;
  const auto [entry, isNew] = open.insert({{info.st_dev, info.st_ino}, folder});
  if (!isNew)
    close(folder);
  return entry->second;
}

std::optional<std::string> readOurs(int folder, const std::string &name, uint64_t most) {
  // A link would lead elsewhere, and a pipe would be waited for.
  const int file = openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (file < 0)
    return std::nullopt;
  std::optional<std::string> text;
  struct stat info;
  std::string unused;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
      !(info.st_mode & (S_IWGRP | S_IWOTH)))
    text = os::readDescriptor(file, most, unused);
  close(file);
  return text;
}

std::string KernelCache::findSecret() {
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (auto found = readOurs(folder, secretName, secretBytes); found && found->size() == secretBytes) {
      secret = *found;
      return "";
    }
    std::string made(secretBytes, '\0');
    if (getentropy(made.data(), made.size()) != 0)
      return std::string("no random numbers: ") + std::strerror(errno);
    os::TemporaryFile file(folder, "secret.", 0600);
    if (file.descriptor() < 0 || !os::writeAll(file.descriptor(), made.data(), made.size()))
      return std::string("cannot write to it: ") + std::strerror(errno);
    // Another process may make one at this moment: whichever is there first is the secret.
    if (file.linkTo(secretName))
      continue;
    const int error = errno;
    if (auto other = readOurs(folder, secretName, secretBytes); other && other->size() == secretBytes)
      continue;
    if ((error == EPERM || error == EOPNOTSUPP) && file.renameTo(secretName)) // a disk without links
      continue;
    // What is there is none.
    if (error != EEXIST || (unlinkat(folder, secretName, 0) != 0 && errno != ENOENT))
      return fmt::format("cannot replace its file `{}`: {}", secretName, std::strerror(errno));
  }
  return fmt::format("its file `{}` changes", secretName);
}

std::string KernelCache::judge(bool &missing) {
  missing = false;
  const int opened = openFolder(dir);
  if (opened < 0) {
    const int error = errno;
    struct stat info;
    if (error == ENOENT && lstat(dir.c_str(), &info) == 0)
      return "it is a link that leads nowhere";
    missing = error == ENOENT;
    return error == ENOTDIR ? "it is not a directory" : std::strerror(error);
  }
  std::string why = whyUnsafe(opened);
  if (why.empty())
    folder = opened;
  return why;
}

KernelCache::KernelCache(std::string directory, Diagnostics &diags) : dir(std::move(directory)) {
  std::error_code error;
  fs::path parent = fs::path(dir).parent_path();
  if (!parent.empty())
    fs::create_directories(parent, error);
  // An existing directory is judged like a new one.
  const bool made = mkdir(dir.c_str(), 0700) == 0;
  const int whyNotMade = made ? 0 : errno;
  bool missing;
  std::string why = judge(missing);
  if (missing) // why is told by what should have made it
    why = error ? error.message() : std::strerror(whyNotMade);
  if (why.empty())
    why = findSecret();
  usable = why.empty();
  if (usable)
    cleaning = CacheLimits::ofEnvironment(diags);
  else
    refuse(why, diags);
}

void KernelCache::refuse(const std::string &why, Diagnostics &diags) {
  diags.report(Diag::CacheUnsafe, SourceLoc(), dir, why);
  folder = -1;
  refused = true;
}

/// Where the cache is, by the environment; nothing if that does not say it.
static std::optional<std::string> findPlace() {
  auto env = [](const char *name) {
    const char *value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (std::string dir = env("MEGALITH_CACHE_DIR"); !dir.empty())
    return dir;
  if (std::string dir = env("XDG_CACHE_HOME"); !dir.empty())
    return dir + "/megalith";
  if (std::string home = env("HOME"); !home.empty())
    return home + "/.cache/megalith";
  return std::nullopt;
}

KernelCache KernelCache::noPlace(Diagnostics &diags) {
  KernelCache cache;
  cache.dir = "~/.cache/megalith";
  cache.refuse("`HOME` is not set; name a folder in `MEGALITH_CACHE_DIR`", diags);
  return cache;
}

KernelCache KernelCache::open(Diagnostics &diags) {
  const std::optional<std::string> dir = findPlace();
  return dir ? KernelCache(*dir, diags) : noPlace(diags);
}

KernelCache KernelCache::openToLook(Diagnostics &diags) {
  const std::optional<std::string> dir = findPlace();
  if (!dir)
    return noPlace(diags);
  KernelCache cache;
  cache.dir = *dir;
  bool missing;
  const std::string why = cache.judge(missing);
  if (!why.empty() && !missing)
    cache.refuse(why, diags);
  else
    cache.cleaning = CacheLimits::ofEnvironment(diags);
  return cache;
}

std::string KernelCache::key(llvm::ArrayRef<std::string> parts) {
  llvm::BLAKE3 hasher;
  for (const std::string &part : parts)
    addPart(hasher, part);
  return hexDigest(hasher);
}

std::string KernelCache::key(const CompileRequest &request, llvm::StringRef nvrtcVersion) {
  std::vector<std::string> parts = {
      std::to_string(formatVersion),         nvrtcVersion.str(), request.arch, request.fileName, request.source,
      std::to_string(request.headers.size())};
  for (const Header &header : request.headers)
    parts.insert(parts.end(), {header.name, header.text});
  for (const std::string &option : defaultOptions(request.arch))
    parts.push_back(option);
  parts.insert(parts.end(), request.options.begin(), request.options.end());
  return key(parts);
}

std::string KernelCache::path(llvm::StringRef key, llvm::StringRef suffix) const {
  return dir + "/" + key.str() + suffix.str();
}

std::string KernelCache::loadPath(llvm::StringRef key, llvm::StringRef suffix) const {
  const std::string through = fmt::format("/proc/{}/fd/{}", getpid(), folder);
  if (access(through.c_str(), X_OK) != 0) // a system without /proc
    return path(key, suffix);
  return fmt::format("{}/{}{}", through, key.str(), suffix.str());
}

bool KernelCache::write(llvm::StringRef name, llvm::StringRef bytes) const {
  os::TemporaryFile file(folder, name.str() + ".", 0600);
  return file.descriptor() >= 0 && os::writeAll(file.descriptor(), bytes.data(), bytes.size()) &&
         file.renameTo(name.str());
}

std::string KernelCache::sealOf(llvm::StringRef key, llvm::StringRef suffix, llvm::StringRef code,
                                const json::Object &info) const {
  llvm::BLAKE3 hasher;
  // Members are printed in the order of their names.
  for (const std::string &part :
       {secret, key.str(), suffix.str(), std::string(llvm::formatv("{0}", json::Value(json::Object(info))))})
    addPart(hasher, part);
  addPart(hasher, code);
  return hexDigest(hasher);
}

/// Whether the text nests so little that LLVM's parser, which calls itself, can have it.
static bool isShallow(llvm::StringRef text) {
  unsigned depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inString) {
      i += c == '\\';
      inString = c != '"';
    } else if (c == '"') {
      inString = true;
    } else if (c == '[' || c == '{') {
      if (++depth > infoDepth)
        return false;
    } else if (c == ']' || c == '}') {
      depth -= depth > 0;
    }
  }
  return true;
}

static json::Value toJson(const KernelResources &kernel) {
  return json::Object{{"kernel", kernel.kernel},           {"registers", kernel.registers},
                      {"spillStores", kernel.spillStores}, {"spillLoads", kernel.spillLoads},
                      {"stackBytes", kernel.stackBytes},   {"sharedBytes", kernel.sharedBytes}};
}

static bool fromJson(const json::Value &value, KernelResources &kernel, json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("kernel", kernel.kernel) && map.map("registers", kernel.registers) &&
         map.map("spillStores", kernel.spillStores) && map.map("spillLoads", kernel.spillLoads) &&
         map.map("stackBytes", kernel.stackBytes) && map.map("sharedBytes", kernel.sharedBytes);
}

std::optional<json::Object> readInfo(int folder, llvm::StringRef key) {
  std::optional<std::string> text = readOurs(folder, (key + ".json").str(), infoBytes);
  if (!text || !isShallow(*text))
    return std::nullopt;
  llvm::Expected<json::Value> parsed = json::parse(*text);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return std::nullopt;
  }
  json::Object *all = parsed->getAsObject();
  if (!all || all->getString("key") != key)
    return std::nullopt;
  return std::move(*all);
}

std::optional<KernelCache::Entry> KernelCache::loadEntry(llvm::StringRef key, llvm::StringRef suffix) const {
  if (!usable)
    return std::nullopt;
  std::optional<std::string> code = readOurs(folder, (key + suffix).str(), codeBytes);
  std::optional<json::Object> all = code ? readInfo(folder, key) : std::nullopt;
  if (!all)
    return std::nullopt;
  json::Object info;
  for (auto &[name, value] : *all)
    if (llvm::StringRef(name) != "seal")
      info[name] = std::move(value);
  if (all->getString("seal") != sealOf(key, suffix, *code, info))
    return std::nullopt;
  use(key, suffix);
  return Entry{std::move(*code), std::move(info)};
}

void KernelCache::use(llvm::StringRef key, llvm::StringRef suffix) const {
  if (!usable)
    return;
  // Where it cannot be noted, as on a disk that is only read, the entry is as good.
  const timespec times[] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  utimensat(folder, (key + suffix).str().c_str(), times, AT_SYMLINK_NOFOLLOW);
}

bool KernelCache::storeEntry(llvm::StringRef key, llvm::StringRef suffix, Entry entry, llvm::StringRef source,
                             Diagnostics &diags) const {
  if (!usable)
    return false;
  entry.info["key"] = key;
  // As it reads back: of a number there is more than one spelling (-0.0 comes back as 0).
  json::Value asRead = llvm::cantFail(json::parse(llvm::formatv("{0}", json::Value(std::move(entry.info))).str()));
  entry.info = std::move(*asRead.getAsObject());
  entry.info["seal"] = sealOf(key, suffix, entry.code, entry.info);
  std::string text = llvm::formatv("{0:2}\n", json::Value(std::move(entry.info)));
  if (write((key + ".cu").str(), source) && write((key + ".json").str(), text) &&
      write((key + suffix).str(), entry.code)) {
    contents().cleanSometimes(cleaning);
    return true;
  }
  diags.reportOnce(Diag::CacheUnsafe, SourceLoc(), dir, std::string("cannot write to it: ") + std::strerror(errno));
  return false;
}

std::optional<CompileResult> KernelCache::load(llvm::StringRef key) const {
  std::optional<Entry> entry = loadEntry(key, ".cubin");
  const json::Array *kernels = entry ? entry->info.getArray("kernels") : nullptr;
  if (!kernels)
    return std::nullopt;
  CompileResult result;
  result.cubin = std::move(entry->code);
  result.log = entry->info.getString("log").value_or("").str();
  json::Path::Root root;
  for (const json::Value &value : *kernels)
    if (!fromJson(value, result.kernels.emplace_back(), root))
      return std::nullopt;
  result.cacheHit = true;
  result.how = "taken from the kernel cache";
  return result;
}

void KernelCache::store(llvm::StringRef key, const CompileRequest &request, const CompileResult &result,
                        Diagnostics &diags) const {
  json::Array kernels, options;
  for (const KernelResources &kernel : result.kernels)
    kernels.push_back(toJson(kernel));
  for (const std::string &option : request.options)
    options.push_back(json::fixUTF8(option));
  json::Object info{{"kind", request.unit},
                    {"arch", request.arch},
                    {"options", std::move(options)},
                    {"kernels", std::move(kernels)},
                    {"milliseconds", result.milliseconds},
                    {"log", json::fixUTF8(result.log)}};
  storeEntry(key, ".cubin", {result.cubin, std::move(info)}, request.source, diags);
}

KernelCache::Making::Making(const KernelCache &cache, llvm::StringRef key) {
  if (!cache.enabled())
    return;
  file = openat(cache.folder, lockName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0)
    return;
  uint64_t place = 0;
  key.take_front(15).getAsInteger(16, place); // of 60 bits
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = off_t(place);
  lock.l_len = 1;
  const auto end = std::chrono::steady_clock::now() + longestCompilation;
  while (fcntl(file, F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES) &&
         std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

KernelCache::Making::~Making() {
  if (file >= 0)
    close(file); // which unlocks
}

static double millisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::optional<CompileResult> compileCached(const Nvrtc &nvrtc, const KernelCache &cache, const CompileRequest &request,
                                           Diagnostics &diags) {
  const auto start = std::chrono::steady_clock::now();
  const std::string key = KernelCache::key(request, nvrtc.identity());
  std::optional<CompileResult> result = cache.load(key);
  std::optional<KernelCache::Making> making;
  if (!result) {
    making.emplace(cache, key);
    result = cache.load(key);
  }
  if (result) {
    result->milliseconds = millisecondsSince(start);
    return result;
  }
  result = compileCuda(nvrtc, request, diags);
  if (result)
    cache.store(key, request, *result, diags);
  return result;
}

std::optional<CompileResult> compileLinked(const Nvrtc &nvrtc, const KernelCache &cache, const Linker &linker,
                                           llvm::ArrayRef<CompileRequest> units, std::string &linkError,
                                           Diagnostics &diags) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> keys;
  for (const CompileRequest &unit : units)
    keys.push_back(KernelCache::key(unit, nvrtc.identity()));
  std::vector<std::string> parts = {"linked", linker.identity()};
  parts.insert(parts.end(), keys.begin(), keys.end());
  const std::string key = KernelCache::key(parts);
  if (std::optional<CompileResult> hit = cache.load(key)) {
    // The next edit needs one of them again.
    for (const std::string &unit : keys)
      cache.use(unit, ".cubin");
    hit->milliseconds = millisecondsSince(start);
    return hit;
  }
  auto made = sideBySide(
      units.size(), [&](size_t i, Diagnostics &own) { return compileCached(nvrtc, cache, units[i], own); }, diags);
  if (!made)
    return std::nullopt;
  std::vector<Linker::Part> cubins;
  CompileRequest whole; // for the entry, which people read
  CompileResult result;
  std::vector<std::string> compiled;
  for (size_t i = 0; i < units.size(); ++i) {
    const CompileResult &unit = (*made)[i];
    cubins.push_back({units[i].fileName, unit.cubin});
    whole.source += units[i].source;
    result.log += unit.log;
    result.kernels.insert(result.kernels.end(), unit.kernels.begin(), unit.kernels.end());
    if (!unit.cacheHit)
      compiled.push_back(units[i].unit);
  }
  whole.arch = units.front().arch;
  whole.unit = kind::linked;
  Linker::Result linked = linker.link(whole.arch, cubins);
  if (linked.cubin.empty()) {
    linkError = linked.error.empty() ? "it gave no code" : linked.error;
    return std::nullopt;
  }
  result.cubin = std::move(linked.cubin);
  result.how = howMade(units.size(), compiled);
  result.milliseconds = millisecondsSince(start);
  cache.store(key, whole, result, diags);
  return result;
}

} // namespace megalith::jit
