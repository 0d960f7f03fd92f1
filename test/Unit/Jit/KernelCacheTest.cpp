#include "megalith/Jit/KernelCache.h"
#include "JitTestHelper.h"
#include <fstream>
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
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache.directory()),
                          std::filesystem::directory_iterator()),
            4); // and the secret
  EXPECT_EQ(diags.render(), "");
}

TEST_F(KernelCacheTest, everyInputChangesTheKey) {
  std::string key = KernelCache::key(request, "13.0");
  EXPECT_EQ(key, KernelCache::key(request, "13.0"));
  EXPECT_NE(key, KernelCache::key(request, "13.1"));
  for (auto change : {+[](CompileRequest &r) { r.source += " "; },
                      +[](CompileRequest &r) { r.arch = "sm_80"; },
                      +[](CompileRequest &r) { r.fileName = "l.cu"; },
                      +[](CompileRequest &r) { r.options = {"--fmad=false"}; },
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
    EXPECT_EQ(own.render(),
              fmt::format("warning: the kernel cache `{}` is not used: others can write to it "
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
  EXPECT_LT(second->milliseconds, first->milliseconds);

  std::string key = KernelCache::key(request, nvrtc->version());
  std::filesystem::resize_file(cache.path(key, ".cubin"), 100);
  auto third = compileCached(*nvrtc, cache, request, diags);
  ASSERT_TRUE(third);
  EXPECT_FALSE(third->cacheHit);
  EXPECT_EQ(third->cubin.substr(1, 3), "ELF");
  EXPECT_TRUE(compileCached(*nvrtc, cache, request, diags)->cacheHit);

  // A compilation that fails leaves nothing behind.
  request.source = "error";
  EXPECT_FALSE(compileCached(*nvrtc, cache, request, diags));
  EXPECT_FALSE(std::filesystem::exists(
      cache.path(KernelCache::key(request, nvrtc->version()), ".cu")));
}

} // namespace
