#include "megalith/Jit/KernelCache.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;
namespace json = llvm::json;

namespace megalith::jit {

/// Part of every key: counts up when the form of an entry changes.
static constexpr int formatVersion = 1;

static std::string hexDigest(llvm::BLAKE3 &hasher) {
  auto digest = hasher.final();
  return llvm::toHex(digest, /*LowerCase=*/true);
}

static std::string checksum(llvm::StringRef bytes) {
  llvm::BLAKE3 hasher;
  hasher.update(bytes);
  return hexDigest(hasher);
}

/// Why a directory cannot hold code that we will run; "" if it can.
static std::string whyUnsafe(const std::string &dir) {
  struct stat info;
  if (stat(dir.c_str(), &info) != 0)
    return std::strerror(errno);
  if (!S_ISDIR(info.st_mode))
    return "it is not a directory";
  if (info.st_uid != geteuid())
    return fmt::format("it belongs to user {}, not to you", info.st_uid);
  if (info.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("others can write to it (mode {:o}); run `chmod 700` on it",
                       info.st_mode & 07777);
  return "";
}

KernelCache::KernelCache(std::string directory, Diagnostics &diags) : dir(std::move(directory)) {
  std::error_code error;
  fs::path parent = fs::path(dir).parent_path();
  if (!parent.empty())
    fs::create_directories(parent, error);
  mkdir(dir.c_str(), 0700); // an existing directory is judged like a new one
  std::string why = whyUnsafe(dir);
  if (!why.empty())
    diags.report(Diag::CacheUnsafe, SourceLoc(), dir, why);
  usable = why.empty();
}

KernelCache KernelCache::open(Diagnostics &diags) {
  auto env = [](const char *name) {
    const char *value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (std::string dir = env("MEGALITH_CACHE_DIR"); !dir.empty())
    return KernelCache(dir, diags);
  if (std::string dir = env("XDG_CACHE_HOME"); !dir.empty())
    return KernelCache(dir + "/megalith", diags);
  return KernelCache(env("HOME") + "/.cache/megalith", diags);
}

std::string KernelCache::key(llvm::ArrayRef<std::string> parts) {
  llvm::BLAKE3 hasher;
  // Each part is preceded by its length, so that no two lists read the same.
  for (const std::string &part : parts) {
    hasher.update(std::to_string(part.size()) + ":");
    hasher.update(part);
  }
  return hexDigest(hasher);
}

std::string KernelCache::key(const CompileRequest &request, llvm::StringRef nvrtcVersion) {
  std::vector<std::string> parts = {std::to_string(formatVersion), nvrtcVersion.str(), request.arch,
                                    request.fileName, request.source,
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

static std::optional<std::string> readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

/// Writes beside `path`, then renames, so that nobody sees half a file.
static bool writeAtomically(const std::string &path, llvm::StringRef bytes) {
  std::string temporary = path + ".XXXXXX";
  int fd = mkstemp(temporary.data());
  if (fd < 0)
    return false;
  bool ok = true;
  while (ok && !bytes.empty()) {
    ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    ok = written > 0;
    if (ok)
      bytes = bytes.drop_front(written);
  }
  ok = close(fd) == 0 && ok;
  ok = ok && rename(temporary.c_str(), path.c_str()) == 0;
  if (!ok) {
    int error = errno;
    unlink(temporary.c_str());
    errno = error;
  }
  return ok;
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

std::optional<KernelCache::Entry> KernelCache::loadEntry(llvm::StringRef key, llvm::StringRef suffix) const {
  if (!usable)
    return std::nullopt;
  std::optional<std::string> code = readFile(path(key, suffix));
  std::optional<std::string> text = readFile(path(key, ".json"));
  if (!code || !text)
    return std::nullopt;
  llvm::Expected<json::Value> parsed = json::parse(*text);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return std::nullopt;
  }
  json::Object *info = parsed->getAsObject();
  if (!info || info->getString("checksum") != checksum(*code))
    return std::nullopt;
  return Entry{std::move(*code), std::move(*info)};
}

bool KernelCache::storeEntry(llvm::StringRef key, llvm::StringRef suffix, Entry entry, llvm::StringRef source,
                             Diagnostics &diags) const {
  if (!usable)
    return false;
  entry.info["checksum"] = checksum(entry.code);
  std::string text = llvm::formatv("{0:2}\n", json::Value(std::move(entry.info)));
  if (writeAtomically(path(key, ".cu"), source) && writeAtomically(path(key, ".json"), text) &&
      writeAtomically(path(key, suffix), entry.code))
    return true;
  diags.report(Diag::CacheUnsafe, SourceLoc(), dir,
               std::string("cannot write to it: ") + std::strerror(errno));
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
  return result;
}

void KernelCache::store(llvm::StringRef key, const CompileRequest &request,
                        const CompileResult &result, Diagnostics &diags) const {
  json::Array kernels, options;
  for (const KernelResources &kernel : result.kernels)
    kernels.push_back(toJson(kernel));
  for (const std::string &option : request.options)
    options.push_back(json::fixUTF8(option));
  json::Object info{{"arch", request.arch},
                    {"options", std::move(options)},
                    {"kernels", std::move(kernels)},
                    {"milliseconds", result.milliseconds},
                    {"log", json::fixUTF8(result.log)}};
  storeEntry(key, ".cubin", {result.cubin, std::move(info)}, request.source, diags);
}

std::optional<CompileResult> compileCached(const Nvrtc &nvrtc, const KernelCache &cache,
                                           const CompileRequest &request, Diagnostics &diags) {
  auto start = std::chrono::steady_clock::now();
  std::string key = KernelCache::key(request, nvrtc.version());
  if (std::optional<CompileResult> hit = cache.load(key)) {
    hit->milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return hit;
  }
  std::optional<CompileResult> result = compileCuda(nvrtc, request, diags);
  if (result)
    cache.store(key, request, *result, diags);
  return result;
}

} // namespace megalith::jit
