#include "megalith/Jit/KernelCache.h"
#include "JitTestHelper.h"
#include <fstream>
#include <functional>
#include <iterator>
#include <sys/stat.h>

using namespace megalith;
using namespace megalith::jit;

namespace {

struct KernelCacheTest : ::testing::Test {
  TemporaryDirectory tmp;
  SourceFiles files;
  Diagnostics diags{files};
  CompileRequest request{"extern \"C\" __global__ void k() {}\n", "k.cu", {}, "sm_90a", {}};
  CompileResult result;

  KernelCacheTest() {
    result.cubin = std::string("\0ELF cubin", 10);
    result.log = "said \xff something";
    result.kernels = {{"k", 1, 2, 3, 4, 5}};
  }
};

TEST_F(KernelCacheTest, keepsAnEntry) {
  KernelCache cache(tmp / "cache", diags);
  ASSERT_TRUE(cache.enabled()) << diags.render();
  struct stat info;
  ASSERT_EQ(stat(cache.directory().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);

  std::string key = KernelCache::key(request, "13.0");
  EXPECT_EQ(key.size(), 64u);
  EXPECT_FALSE(cache.load(key));
  cache.store(key, request, result, diags);
  auto hit = cache.load(key);
  ASSERT_TRUE(hit);
  EXPECT_TRUE(hit->cacheHit);
  EXPECT_EQ(hit->cubin, result.cubin);
  EXPECT_EQ(hit->kernels, result.kernels);
  EXPECT_EQ(hit->log.substr(0, 5), "said ");

  std::ifstream in(cache.path(key, ".cu"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), request.source);
  // Nothing temporary stays.
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(cache.directory()), std::filesystem::directory_iterator()),
      5); // and the secret, and when it was cleaned
  EXPECT_EQ(diags.render(), "");
}

TEST_F(KernelCacheTest, numbersOfTwoSpellings) {
  KernelCache cache(tmp / "cache", diags);
  const std::string key = KernelCache::key(request, "13.0");
  ASSERT_TRUE(cache.storeEntry(key, ".so", {"code", llvm::json::Object{{"milliseconds", -0.0}}}, "", diags));
  auto entry = cache.loadEntry(key, ".so");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->code, "code");
}

TEST_F(KernelCacheTest, everyInputChangesTheKey) {
  std::string key = KernelCache::key(request, "13.0");
  EXPECT_EQ(key, KernelCache::key(request, "13.0"));
  EXPECT_NE(key, KernelCache::key(request, "13.1"));
  for (auto change :
       {+[](CompileRequest &r) { r.source += " "; }, +[](CompileRequest &r) { r.arch = "sm_80"; },
        +[](CompileRequest &r) { r.fileName = "l.cu"; }, +[](CompileRequest &r) { r.options = {"--fmad=false"}; },
        +[](CompileRequest &r) { r.headers = {{"a", "b"}}; }}) {
    CompileRequest other = request;
    change(other);
    EXPECT_NE(key, KernelCache::key(other, "13.0"));
  }
  CompileRequest one = request, two = request;
  one.headers = {{"ab", "c"}};
  two.headers = {{"a", "bc"}};
  EXPECT_NE(KernelCache::key(one, "13.0"), KernelCache::key(two, "13.0"));
}

TEST_F(KernelCacheTest, tornAndChangedEntriesAreMisses) {
  KernelCache cache(tmp / "cache", diags);
  std::string key = KernelCache::key(request, "13.0");
  auto spoil = [&](const char *suffix, auto edit) {
    cache.store(key, request, result, diags);
    ASSERT_TRUE(cache.load(key));
    std::string path = cache.path(key, suffix), text;
    {
      std::ifstream in(path, std::ios::binary);
      text.assign(std::istreambuf_iterator<char>(in), {});
    }
    edit(text);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    EXPECT_FALSE(cache.load(key)) << suffix;
  };
  spoil(".cubin", [](std::string &text) { text.pop_back(); });
  spoil(".cubin", [](std::string &text) { text[5] ^= 1; });
  spoil(".cubin", [](std::string &text) { text.clear(); });
  spoil(".json", [](std::string &text) { text.resize(text.size() / 2); });
  spoil(".json", [](std::string &text) { text = "[]"; });
  spoil(".json", [](std::string &text) { text.replace(text.find("registers"), 9, "r"); });
  std::filesystem::remove(cache.path(key, ".json"));
  EXPECT_FALSE(cache.load(key));
}

/// What stands in the place of an entry's file, whatever it is, is no entry, and is replaced.
TEST_F(KernelCacheTest, anythingElseIsAMissAndIsReplaced) {
  KernelCache cache(tmp / "cache", diags);
  const std::string key = KernelCache::key(request, "13.0"), other(64, 'b');
  CompileResult another = result;
  another.cubin = "another's code";
  cache.store(other, request, another, diags);
  using Path = std::string;
  const std::pair<const char *, std::function<void(const Path &, const char *)>> ways[] = {
      {"fifo", [](const Path &path, const char *) { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); }},
      {"link",
       [&](const Path &path, const char *suffix) {
         std::ofstream(tmp / "elsewhere") << "x";
         std::filesystem::create_symlink(tmp / "elsewhere", path);
       }},
      {"endless link", [](const Path &path, const char *) { std::filesystem::create_symlink("/dev/zero", path); }},
      {"dangling link", [](const Path &path, const char *) { std::filesystem::create_symlink("none", path); }},
      {"another's",
       [&](const Path &path, const char *suffix) { std::filesystem::copy_file(cache.path(other, suffix), path); }},
      {"empty", [](const Path &path, const char *) { std::ofstream out(path); }},
      {"deep", [](const Path &path, const char *) { std::ofstream(path) << std::string(1'000'000, '['); }},
      {"deep in an object",
       [](const Path &path, const char *) {
         std::string text = "{\"key\": \"\\\"\", \"x\": ";
         for (int i = 0; i < 300'000; ++i)
           text += "{\"x\": ";
         std::ofstream(path) << text;
       }},
      {"huge",
       [](const Path &path, const char *) {
         {
           std::ofstream out(path);
         }
         ASSERT_EQ(truncate(path.c_str(), 1ll << 40), 0);
       }},
  };
  for (const auto &[name, make] : ways)
    for (const char *suffix : {".cubin", ".json"}) {
      cache.store(key, request, result, diags);
      ASSERT_TRUE(cache.load(key));
      std::filesystem::remove(cache.path(key, suffix));
      make(cache.path(key, suffix), suffix);
      EXPECT_FALSE(cache.load(key)) << name << suffix;
    }
  cache.store(key, request, result, diags);
  EXPECT_TRUE(cache.load(key));
  // Another kernel's whole pair.
  for (const char *suffix : {".cubin", ".json"})
    std::filesystem::copy_file(cache.path(other, suffix), cache.path(key, suffix),
                               std::filesystem::copy_options::overwrite_existing);
  EXPECT_FALSE(cache.load(key));
  EXPECT_EQ(diags.render(), "");
}

/// A folder cannot be replaced: the run goes on without the cache, and says so once.
TEST_F(KernelCacheTest, aFolderInThePlaceOfAFile) {
  const std::string key = KernelCache::key(request, "13.0");
  for (const char *suffix : {".cu", ".json", ".cubin"}) {
    Diagnostics own(files);
    KernelCache cache(tmp / suffix, own);
    std::filesystem::create_directories(cache.path(key, suffix) + "/full");
    EXPECT_FALSE(cache.load(key));
    cache.store(key, request, result, own);
    EXPECT_FALSE(cache.load(key));
    EXPECT_EQ(own.render(),
              fmt::format("warning: the kernel cache `{}` is not used: cannot write to it: Is a directory "
                          "[cache-unsafe]\n",
                          tmp / suffix));
    for (const auto &entry : std::filesystem::directory_iterator(cache.directory()))
      EXPECT_TRUE(entry.path().string().find(std::string(suffix) + ".") == std::string::npos) << entry.path();
  }
}

TEST_F(KernelCacheTest, takesOnlyWhatThisUserWrote) {
  KernelCache cache(tmp / "cache", diags);
  const std::string key = KernelCache::key(request, "13.0");
  for (const char *suffix : {".cubin", ".json"})
    for (mode_t mode : {0620, 0602, 0666}) {
      cache.store(key, request, result, diags);
      ASSERT_EQ(chmod(cache.path(key, suffix).c_str(), mode), 0);
      EXPECT_FALSE(cache.load(key)) << suffix << std::oct << mode;
      ASSERT_EQ(chmod(cache.path(key, suffix).c_str(), 0644), 0);
      EXPECT_TRUE(cache.load(key));
    }
  if (geteuid() != 0)
    return; // only root can give files away
  for (const char *suffix : {".cubin", ".json", "secret"}) {
    cache.store(key, request, result, diags);
    const std::string path = *suffix == '.' ? cache.path(key, suffix) : tmp / "cache/secret";
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
    Diagnostics own(files);
    KernelCache again(tmp / "cache", own);
    EXPECT_TRUE(again.enabled());
    EXPECT_FALSE(again.load(key)) << suffix;
    again.store(key, request, result, own);
    EXPECT_TRUE(again.load(key)) << suffix;
    EXPECT_EQ(own.render(), "");
  }
  ASSERT_EQ(chown((tmp / "cache").c_str(), 65534, 65534), 0);
  Diagnostics own(files);
  EXPECT_FALSE(KernelCache(tmp / "cache", own).enabled());
  EXPECT_EQ(own.render(), fmt::format("warning: the kernel cache `{}` is not used: it belongs to user 65534, not to "
                                      "you [cache-unsafe]\n",
                                      tmp / "cache"));
}

/// The attack: entries are planted while others can write, and then the folder is made safe.
TEST_F(KernelCacheTest, whatLayInAnOpenFolderIsNeverTaken) {
  const std::string key = KernelCache::key(request, "13.0");
  {
    KernelCache cache(tmp / "cache", diags);
    cache.store(key, request, result, diags);
    ASSERT_TRUE(cache.load(key));
  }
  ASSERT_EQ(chmod((tmp / "cache").c_str(), 0777), 0);
  Diagnostics own(files);
  EXPECT_FALSE(KernelCache(tmp / "cache", own).enabled());
  ASSERT_EQ(chmod((tmp / "cache").c_str(), 0700), 0);
  KernelCache cache(tmp / "cache", diags);
  EXPECT_TRUE(cache.enabled());
  EXPECT_FALSE(cache.load(key));
  cache.store(key, request, result, diags);
  EXPECT_TRUE(cache.load(key));
  // Nor what lay in another cache, and bears our name and a good mode.
  KernelCache another(tmp / "another", diags);
  for (const char *suffix : {".cubin", ".json"})
    std::filesystem::copy_file(cache.path(key, suffix), another.path(key, suffix));
  EXPECT_FALSE(another.load(key));
  EXPECT_EQ(diags.render(), "");
}

TEST_F(KernelCacheTest, makesItsSecretAnew) {
  const std::string key = KernelCache::key(request, "13.0"), secret = tmp / "cache/secret";
  const std::function<void()> spoil[] = {[&] { std::filesystem::remove(secret); },
                                         [&] { std::filesystem::resize_file(secret, 31); },
                                         [&] { std::ofstream(secret, std::ios::app) << "x"; },
                                         [&] { ASSERT_EQ(chmod(secret.c_str(), 0620), 0); },
                                         [&] {
                                           std::filesystem::remove(secret);
                                           ASSERT_EQ(mkfifo(secret.c_str(), 0600), 0);
                                         },
                                         [&] {
                                           std::filesystem::remove(secret);
                                           std::filesystem::create_symlink("/dev/zero", secret);
                                         }};
  for (const auto &way : spoil) {
    KernelCache(tmp / "cache", diags).store(key, request, result, diags);
    ASSERT_TRUE(KernelCache(tmp / "cache", diags).load(key));
    way();
    KernelCache cache(tmp / "cache", diags);
    EXPECT_TRUE(cache.enabled());
    EXPECT_FALSE(cache.load(key));
  }
  EXPECT_EQ(diags.render(), "");
  std::filesystem::remove(secret);
  std::filesystem::create_directory(secret);
  Diagnostics own(files);
  EXPECT_FALSE(KernelCache(tmp / "cache", own).enabled());
  EXPECT_EQ(own.render(),
            fmt::format("warning: the kernel cache `{}` is not used: cannot replace its file `secret`: Is "
                        "a directory [cache-unsafe]\n",
                        tmp / "cache"));
}

/// What is loaded is what was judged, though somebody renames the folder.
TEST_F(KernelCacheTest, staysInTheFolderThatItOpened) {
  KernelCache cache(tmp / "cache", diags);
  const std::string key = KernelCache::key(request, "13.0");
  cache.store(key, request, result, diags);
  std::filesystem::rename(tmp / "cache", tmp / "moved");
  std::filesystem::create_directory(tmp / "cache");
  std::ofstream(cache.path(key, ".cubin")) << "planted";
  EXPECT_TRUE(cache.load(key));
  std::ifstream in(cache.loadPath(key, ".cubin"), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), result.cubin);
}

TEST_F(KernelCacheTest, saysWhyThereIsNone) {
  auto why = [&](const std::string &dir) {
    Diagnostics own(files);
    EXPECT_FALSE(KernelCache(dir, own).enabled());
    const std::string text = own.render(), front = "warning: the kernel cache `" + dir + "` is not used: ";
    EXPECT_EQ(text.substr(0, front.size()), front);
    return text.substr(std::min(text.size(), front.size()));
  };
  EXPECT_EQ(why("/proc/none/cache"), "No such file or directory [cache-unsafe]\n");
  std::filesystem::create_symlink("none", tmp / "link");
  EXPECT_EQ(why(tmp / "link"), "it is a link that leads nowhere [cache-unsafe]\n");
  EXPECT_EQ(why("/dev/null/cache"), "it is not a directory [cache-unsafe]\n");
  std::filesystem::permissions(tmp.path, std::filesystem::perms(0755));
  const bool root = geteuid() == 0; // who may do everything
  if (root) {
    ASSERT_EQ(chmod(std::filesystem::path(tmp.path).parent_path().c_str(), 0755), 0);
    ASSERT_EQ(seteuid(65534), 0);
  } else {
    std::filesystem::permissions(tmp.path, std::filesystem::perms(0555));
  }
  EXPECT_EQ(why(tmp / "home/.cache/megalith"), "Permission denied [cache-unsafe]\n");
  EXPECT_EQ(why(tmp / "cache"), "Permission denied [cache-unsafe]\n");
  if (root)
    ASSERT_EQ(seteuid(0), 0);
  else
    std::filesystem::permissions(tmp.path, std::filesystem::perms(0755));
  ScopedEnv home("HOME", ""), xdg("XDG_CACHE_HOME", ""), own("MEGALITH_CACHE_DIR", "");
  EXPECT_FALSE(KernelCache::open(diags).enabled());
  EXPECT_EQ(diags.render(),
            "warning: the kernel cache `~/.cache/megalith` is not used: `HOME` is not set; name a folder "
            "in `MEGALITH_CACHE_DIR` [cache-unsafe]\n");
}

TEST_F(KernelCacheTest, refusesADirectoryThatOthersCanWrite) {
  for (mode_t mode : {0770, 0707, 0777}) {
    std::string dir = tmp / "shared";
    std::filesystem::remove_all(dir);
    ASSERT_EQ(mkdir(dir.c_str(), 0700), 0);
    ASSERT_EQ(chmod(dir.c_str(), mode), 0);
    Diagnostics own(files);
    KernelCache cache(dir, own);
    EXPECT_FALSE(cache.enabled());
    EXPECT_FALSE(own.hasErrors());
    EXPECT_EQ(own.render(), fmt::format("warning: the kernel cache `{}` is not used: others can write to it "
                                        "(mode {:o}), and may have; remove it [cache-unsafe]\n",
                                        dir, mode));
    cache.store(std::string(64, 'a'), request, result, own);
    EXPECT_TRUE(std::filesystem::is_empty(dir));
    EXPECT_FALSE(cache.load(std::string(64, 'a')));
  }
}

TEST_F(KernelCacheTest, refusesWhatIsNotADirectory) {
  std::ofstream(tmp / "file") << "x";
  KernelCache cache(tmp / "file", diags);
  EXPECT_FALSE(cache.enabled());
  KernelCache under((tmp / "file") + "/sub", diags);
  EXPECT_FALSE(under.enabled());
  EXPECT_NE(diags.render().find("it is not a directory [cache-unsafe]"), std::string::npos);
}

TEST_F(KernelCacheTest, takesTheDirectoryFromTheEnvironment) {
  ScopedEnv home("HOME", tmp / "home"), xdg("XDG_CACHE_HOME", ""), own("MEGALITH_CACHE_DIR", "");
  EXPECT_EQ(KernelCache::open(diags).directory(), tmp / "home/.cache/megalith");
  {
    ScopedEnv xdgSet("XDG_CACHE_HOME", tmp / "xdg");
    EXPECT_EQ(KernelCache::open(diags).directory(), tmp / "xdg/megalith");
    ScopedEnv ownSet("MEGALITH_CACHE_DIR", tmp / "own");
    EXPECT_EQ(KernelCache::open(diags).directory(), tmp / "own");
  }
  EXPECT_TRUE(std::filesystem::is_directory(tmp / "home/.cache/megalith"));
  EXPECT_EQ(diags.render(), "");
}

TEST_F(KernelCacheTest, compilesOnceAndAgainWhenSpoilt) {
  MEGALITH_NVRTC_OR_SKIP(nvrtc, diags);
  KernelCache cache(tmp / "cache", diags);
  auto first = compileCached(*nvrtc, cache, request, diags);
  ASSERT_TRUE(first) << diags.render();
  EXPECT_FALSE(first->cacheHit);
  auto second = compileCached(*nvrtc, cache, request, diags);
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->cacheHit);
  EXPECT_EQ(second->cubin, first->cubin);
  EXPECT_EQ(second->kernels, first->kernels);
  EXPECT_NE(second->milliseconds, first->milliseconds); // those of this call

  std::string key = KernelCache::key(request, nvrtc->identity());
  std::filesystem::resize_file(cache.path(key, ".cubin"), 100);
  auto third = compileCached(*nvrtc, cache, request, diags);
  ASSERT_TRUE(third);
  EXPECT_FALSE(third->cacheHit);
  EXPECT_EQ(third->cubin.substr(1, 3), "ELF");
  EXPECT_TRUE(compileCached(*nvrtc, cache, request, diags)->cacheHit);

  // A compilation that fails leaves nothing after.
  request.source = "error";
  EXPECT_FALSE(compileCached(*nvrtc, cache, request, diags));
  EXPECT_FALSE(std::filesystem::exists(cache.path(KernelCache::key(request, nvrtc->identity()), ".cu")));
}

} // namespace
