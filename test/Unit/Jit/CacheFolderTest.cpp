#include "JitTestHelper.h"
#include "megalith/Jit/KernelCache.h"
#include <atomic>
#include <fcntl.h>
#include <fstream>
#include <set>
#include <sys/stat.h>
#include <thread>

using namespace megalith;
using namespace megalith::jit;
using namespace std::chrono_literals;

namespace {

constexpr auto day = 24h;
constexpr CacheLimits wide{.days = 36500, .bytes = UINT64_MAX};

struct CacheFolderTest : ::testing::Test {
  TemporaryDirectory tmp;
  SourceFiles files;
  Diagnostics diags{files};
  const std::string dir = tmp / "cache";

  /// A key of one digit.
  static std::string key(char digit) { return std::string(64, digit); }

  /// Stores an entry whose code has so many bytes, and that was used so long ago.
  void store(const KernelCache &cache, char digit, std::chrono::nanoseconds ago, size_t bytes = 1000,
             const char *suffix = ".cubin", llvm::json::Object info = {}) {
    ASSERT_TRUE(cache.storeEntry(key(digit), suffix, {std::string(bytes, 'c'), std::move(info)}, "source", diags));
    age(key(digit), ago);
  }
  void setTime(const std::string &name, std::chrono::nanoseconds ago) {
    const auto since = (std::chrono::system_clock::now() - ago).time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
    const timespec time{seconds.count(), (std::chrono::nanoseconds(since) - seconds).count()};
    const timespec times[] = {time, time};
    ASSERT_EQ(utimensat(AT_FDCWD, (dir + "/" + name).c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << name;
  }
  /// All files of an entry.
  void age(const std::string &key, std::chrono::nanoseconds ago) {
    for (const std::string &name : names())
      if (llvm::StringRef(name).starts_with(key))
        setTime(name, ago);
  }
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto &entry : std::filesystem::directory_iterator(dir))
      out.insert(entry.path().filename());
    return out;
  }
  /// The keys' digits of the entries that are whole.
  std::string whole(const KernelCache &cache) const {
    std::string out;
    for (const CacheEntry &entry : cache.contents().contents(false).entries)
      if (!entry.suffix.empty())
        out += entry.key[0];
    return out;
  }
};

TEST_F(CacheFolderTest, knowsWhatLiesThere) {
  KernelCache cache(dir, diags);
  const auto object = [](const char *kind) { return llvm::json::Object{{"kind", kind}, {"arch", "sm_90a"}}; };
  store(cache, 'a', 5h, 1000, ".cubin", object("tensor unit"));
  store(cache, 'b', 4h, 1000, ".cubin", object("\x1b[2J"));
  store(cache, 'c', 3h, 1000, ".so", llvm::json::Object{{"arch", 800}});
  store(cache, 'd', 2h, 1000, ".o");
  const CacheContents found = cache.contents().contents(/*withKinds=*/true);
  std::string text;
  for (const CacheEntry &entry : found.entries)
    text += fmt::format("{} {} {} {}\n", entry.key[0], entry.kind, entry.arch, entry.files.size());
  EXPECT_EQ(text, "a tensor unit sm_90a 3\nb other kernel sm_90a 3\nc CPU kernel sm_80 3\nd CPU object  3\n");
  uint64_t bytes = 0;
  for (const std::string &name : names())
    if (name[0] == 'a')
      bytes += std::filesystem::file_size(dir + "/" + name);
  EXPECT_EQ(found.entries[0].bytes, bytes);
  EXPECT_EQ(found.leftovers.size(), 0u);
  EXPECT_TRUE(found.cleaned);
  EXPECT_EQ(diags.render(), "");
}

TEST_F(CacheFolderTest, removesWhatIsOld) {
  KernelCache cache(dir, diags);
  store(cache, 'a', 31 * day);
  store(cache, 'b', 29 * day);
  store(cache, 'c', 300 * day);
  store(cache, 'd', 1min);
  const CacheCleaning done = cache.contents().clean({.days = 30, .bytes = UINT64_MAX}, false);
  EXPECT_EQ(done.old.count, 2u);
  EXPECT_GT(done.old.bytes, 2000u);
  EXPECT_EQ(done.crowded.count + done.incomplete.count + done.cleared.count + done.failed, 0u);
  EXPECT_EQ(whole(cache), "bd");
  // All files of an entry went.
  EXPECT_EQ(names().size(), 2u * 3 + 2);
  EXPECT_TRUE(cache.loadEntry(key('b'), ".cubin"));
  // Without any patience only what may be in use stays, and that was just taken.
  cache.contents().clean({.days = 0, .bytes = 0}, false);
  EXPECT_EQ(whole(cache), "db");
}

TEST_F(CacheFolderTest, removesTheLongestUnusedOfTooMuch) {
  KernelCache cache(dir, diags);
  const struct {
    char digit;
    std::chrono::hours ago;
  } entries[] = {{'a', 2h}, {'b', 5h}, {'c', 1h}, {'d', 4h}, {'e', 3h}};
  for (const auto &[digit, ago] : entries)
    store(cache, digit, ago, 100'000);
  EXPECT_EQ(whole(cache), "bdeac");
  // Taking one is a use, of its code's file alone.
  ASSERT_TRUE(cache.loadEntry(key('d'), ".cubin"));
  EXPECT_EQ(whole(cache), "beacd");
  setTime(key('d') + ".cubin", 30min);
  // So is a look at one that is part of what is taken.
  cache.use(key('b'), ".cubin");
  EXPECT_EQ(whole(cache), "eacdb");
  const CacheCleaning done = cache.contents().clean({.days = 30, .bytes = 310'000}, false);
  EXPECT_EQ(done.crowded.count, 2u);
  EXPECT_EQ(done.old.count, 0u);
  EXPECT_EQ(whole(cache), "cdb");
  // What is used now stays, however large it is.
  EXPECT_EQ(cache.contents().clean({.days = 30, .bytes = 0}, false).crowded.count, 2u);
  EXPECT_EQ(whole(cache), "b");
  EXPECT_EQ(cache.contents().clean(wide, true).cleared.count, 1u);
  EXPECT_EQ(names(), (std::set<std::string>{"cleaned", "secret"}));
}

/// A miss is no use: not even of what lies there and is not ours.
TEST_F(CacheFolderTest, aMissIsNoUse) {
  KernelCache cache(dir, diags);
  store(cache, 'a', 5h);
  store(cache, 'b', 4h);
  std::ofstream(cache.path(key('a'), ".cubin")) << "x";
  setTime(key('a') + ".cubin", 5h);
  EXPECT_FALSE(cache.loadEntry(key('a'), ".cubin"));
  EXPECT_EQ(whole(cache), "ab");
}

/// A clock that was wrong for a while.
TEST_F(CacheFolderTest, timesThatAreStillToCome) {
  KernelCache cache(dir, diags);
  store(cache, 'a', -1000 * day);
  store(cache, 'b', 5h);
  EXPECT_EQ(cache.contents().clean({.days = 0, .bytes = UINT64_MAX}, false).old.count, 1u);
  EXPECT_EQ(whole(cache), "a");
  EXPECT_EQ(cache.contents().clean({.days = 30, .bytes = 0}, false).crowded.count, 1u);
  EXPECT_EQ(whole(cache), "");
}

TEST_F(CacheFolderTest, removesHalfEntriesAndWhatWritesLeft) {
  KernelCache cache(dir, diags);
  store(cache, 'a', 1h);
  store(cache, 'b', 1h);
  store(cache, 'c', 0s);
  store(cache, 'd', 1h);
  std::filesystem::remove(cache.path(key('a'), ".json"));
  std::filesystem::remove(cache.path(key('b'), ".cubin"));
  std::filesystem::remove(cache.path(key('c'), ".cubin")); // which somebody may be writing
  const std::string half = key('c') + ".cu", left = key('e') + ".cubin.", stamp = "cleaned.17-0";
  for (const std::string &name : {left + "17-0", left + "17-1", std::string("secret.17-2"), stamp})
    std::ofstream(dir + "/" + name) << "unfinished";
  setTime(left + "17-0", 25h);
  setTime(left + "17-1", 23h);
  setTime("secret.17-2", 25h);
  const CacheCleaning done = cache.contents().clean(wide, false);
  EXPECT_EQ(done.incomplete.count, 4u);
  EXPECT_EQ(done.old.count + done.crowded.count, 0u);
  EXPECT_EQ(names(), (std::set<std::string>{key('c') + ".cu", key('c') + ".json", key('d') + ".cu", key('d') + ".cubin",
                                            key('d') + ".json", "cleaned", stamp, left + "17-1", "secret"}));
  EXPECT_EQ(cache.contents().contents(false).leftovers.size(), 2u);
}

/// Whatever else lies there stays, and what a link leads to.
TEST_F(CacheFolderTest, leavesAloneWhatIsNotItsOwn) {
  KernelCache cache(dir, diags);
  store(cache, 'a', 40 * day);
  const std::string digits = key('b');
  const std::string others[] = {"notes.txt",
                                "secret",
                                "locks",
                                digits,
                                digits + ".txt",
                                digits + ".cubin.old",
                                digits + ".cubin.17-",
                                digits + ".cubin.17-1x",
                                digits + ".cubinx",
                                digits + "b.cubin",
                                digits.substr(1) + ".cubin",
                                std::string(64, 'B') + ".cubin",
                                "secret.old",
                                "cleaned.1-2-3"};
  for (const std::string &name : others) {
    std::ofstream(dir + "/" + name, std::ios::app) << "kept";
    setTime(name, 400 * day);
  }
  std::ofstream(tmp / "outside") << "kept";
  std::filesystem::create_directory(tmp / "folder");
  std::ofstream((tmp / "folder") + "/" + key('c') + ".cubin") << "kept";
  std::filesystem::create_symlink(tmp / "outside", cache.path(key('d'), ".cubin"));
  std::filesystem::create_symlink(tmp / "folder", dir + "/" + key('d') + ".json");
  setTime(key('d') + ".cubin", 400 * day);
  std::filesystem::create_directory(cache.path(key('e'), ".so"));
  ASSERT_EQ(mkfifo(cache.path(key('f'), ".o").c_str(), 0600), 0);
  std::set<std::string> before = names();
  if (geteuid() == 0) { // only root can give files away
    store(cache, '0', 40 * day);
    before = names();
    for (const char *suffix : {".cubin", ".json", ".cu"}) {
      ASSERT_EQ(chown(cache.path(key('0'), suffix).c_str(), 65534, 65534), 0);
      setTime(key('0') + suffix, 400 * day);
    }
  }
  for (const bool all : {false, true}) {
    const CacheCleaning done = cache.contents().clean({.days = 30, .bytes = 0}, all);
    EXPECT_EQ(done.old.count, all ? 0u : 1u);
    EXPECT_EQ(done.crowded.count + done.incomplete.count + done.cleared.count + done.failed, 0u) << done.why;
  }
  for (const char *suffix : {".cubin", ".json", ".cu"})
    before.erase(key('a') + suffix);
  EXPECT_EQ(names(), before);
  EXPECT_TRUE(std::filesystem::exists(tmp / "outside"));
  EXPECT_TRUE(std::filesystem::exists((tmp / "folder") + "/" + key('c') + ".cubin"));
}

/// The folder that was opened is cleaned, whatever bears its name now.
TEST_F(CacheFolderTest, staysInTheFolderThatWasOpened) {
  KernelCache cache(dir, diags);
  store(cache, 'a', 40 * day);
  std::filesystem::rename(dir, tmp / "moved");
  std::filesystem::create_directory(dir);
  std::ofstream(cache.path(key('a'), ".cubin")) << "kept";
  EXPECT_EQ(cache.contents().clean({}, true).cleared.count, 1u);
  EXPECT_TRUE(std::filesystem::exists(cache.path(key('a'), ".cubin")));
  EXPECT_FALSE(std::filesystem::exists((tmp / "moved") + "/" + key('a') + ".cubin"));
}

TEST_F(CacheFolderTest, cleansItselfOnceInAWhile) {
  ScopedEnv days("MEGALITH_CACHE_DAYS", "7");
  KernelCache cache(dir, diags);
  store(cache, 'a', 8 * day);
  // The first entry was followed by a cleaning.
  store(cache, 'b', 0s);
  EXPECT_EQ(whole(cache), "ab");
  setTime("cleaned", 59min);
  store(cache, 'b', 0s);
  EXPECT_EQ(whole(cache), "ab");
  setTime("cleaned", 61min);
  store(cache, 'b', 0s);
  EXPECT_EQ(whole(cache), "b");
  // A look does nothing, nor does a hit.
  store(cache, 'a', 8 * day);
  setTime("cleaned", 61min);
  EXPECT_TRUE(cache.loadEntry(key('b'), ".cubin"));
  EXPECT_EQ(whole(cache), "ab");
  // A stamp of the future, and none, hold nothing up.
  setTime("cleaned", -2h);
  store(cache, 'b', 0s);
  EXPECT_EQ(whole(cache), "b");
  store(cache, 'a', 8 * day);
  std::filesystem::remove(dir + "/cleaned");
  std::filesystem::create_symlink("none", dir + "/cleaned");
  store(cache, 'b', 0s);
  EXPECT_EQ(whole(cache), "b");
  EXPECT_FALSE(std::filesystem::is_symlink(dir + "/cleaned"));
  // Where none can be made, entries are stored as ever.
  std::filesystem::remove(dir + "/cleaned");
  std::filesystem::create_directories(dir + "/cleaned/full");
  store(cache, 'a', 8 * day);
  store(cache, 'b', 0s);
  EXPECT_EQ(whole(cache), "ab");
  EXPECT_EQ(diags.render(), "");
}

/// The entry that was stored last is there, however little may lie there.
TEST_F(CacheFolderTest, keepsWhatWasJustStored) {
  ScopedEnv days("MEGALITH_CACHE_DAYS", "0"), size("MEGALITH_CACHE_SIZE", "0");
  KernelCache cache(dir, diags);
  ASSERT_TRUE(cache.storeEntry(key('a'), ".so", {"code", {}}, "", diags));
  EXPECT_TRUE(cache.loadEntry(key('a'), ".so"));
}

TEST_F(CacheFolderTest, readsItsLimits) {
  const auto limits = [&](const char *days, const char *size) {
    ScopedEnv daysSet("MEGALITH_CACHE_DAYS", days), sizeSet("MEGALITH_CACHE_SIZE", size);
    const CacheLimits read = KernelCache(dir, diags).limits();
    return std::pair(read.days, read.bytes);
  };
  const std::pair<int64_t, uint64_t> defaults(30, 4ull << 30);
  EXPECT_EQ(limits("", ""), defaults);
  EXPECT_EQ(limits("7", "500M"), std::pair(int64_t(7), uint64_t(500) << 20));
  EXPECT_EQ(limits("0", "0"), std::pair(int64_t(0), uint64_t(0)));
  EXPECT_EQ(limits("36500", "12345"), std::pair(int64_t(36500), uint64_t(12345)));
  EXPECT_EQ(limits("1", "2k").second, 2048u);
  EXPECT_EQ(limits("1", "16777215T").second, 16777215ull << 40);
  EXPECT_EQ(diags.render(), "");
  for (const char *wrong : {"x", "-1", "1.5", " 7", "36501", "99999999999999999999"}) {
    Diagnostics own(files);
    ScopedEnv set("MEGALITH_CACHE_DAYS", wrong);
    EXPECT_EQ(KernelCache(dir, own).limits().days, 30);
    EXPECT_EQ(own.render(), fmt::format("warning: `MEGALITH_CACHE_DAYS={}`: expected a whole number of days up to "
                                        "36500; the limit is 30 days, as without it [cache-limit]\n",
                                        wrong));
  }
  for (const char *wrong : {"x", "-1", "1.5G", "G", "4 G", "4GB", "16777216T", "99999999999999999999"}) {
    Diagnostics own(files);
    ScopedEnv set("MEGALITH_CACHE_SIZE", wrong);
    EXPECT_EQ(KernelCache(dir, own).limits().bytes, 4ull << 30);
    EXPECT_EQ(own.render(), fmt::format("warning: `MEGALITH_CACHE_SIZE={}`: expected a number of bytes such as `4G` or "
                                        "`500M`; the limit is 4G, as without it [cache-limit]\n",
                                        wrong));
  }
}

/// Looking makes nothing, and changes no time.
TEST_F(CacheFolderTest, looksWithoutMaking) {
  ScopedEnv place("MEGALITH_CACHE_DIR", dir);
  {
    const KernelCache absent = KernelCache::openToLook(diags);
    EXPECT_FALSE(absent.hasFolder());
    EXPECT_FALSE(absent.isRefused());
    EXPECT_EQ(absent.directory(), dir);
    EXPECT_FALSE(std::filesystem::exists(dir));
  }
  {
    std::filesystem::create_directory(dir);
    ASSERT_EQ(chmod(dir.c_str(), 0700), 0);
    const KernelCache empty = KernelCache::openToLook(diags);
    EXPECT_TRUE(empty.hasFolder());
    EXPECT_TRUE(std::filesystem::is_empty(dir));
    EXPECT_FALSE(empty.enabled());
    EXPECT_FALSE(empty.storeEntry(key('a'), ".so", {"code", {}}, "", diags));
  }
  store(KernelCache(dir, diags), 'a', 5h);
  const KernelCache cache = KernelCache::openToLook(diags);
  EXPECT_FALSE(cache.loadEntry(key('a'), ".cubin"));
  cache.use(key('a'), ".cubin");
  const CacheContents found = cache.contents().contents(true);
  ASSERT_EQ(found.entries.size(), 1u);
  EXPECT_LT(found.entries[0].used, std::chrono::system_clock::now() - 4h);
  EXPECT_EQ(diags.render(), "");
  ASSERT_EQ(chmod(dir.c_str(), 0777), 0);
  const KernelCache open = KernelCache::openToLook(diags);
  EXPECT_FALSE(open.hasFolder());
  EXPECT_TRUE(open.isRefused());
  EXPECT_NE(diags.render().find("others can write to it (mode 777), and may have; remove it [cache-unsafe]"),
            std::string::npos);
}

/// Others store, take and remove at the same time: whoever looks finds an entry as it was stored, or none.
TEST_F(CacheFolderTest, isUsedWhileItIsCleaned) {
  KernelCache cache(dir, diags);
  std::atomic<bool> stop = false;
  std::thread cleaner([&] {
    for (bool all = false; !stop; all = !all)
      cache.contents().clean({.days = 0, .bytes = 0}, all);
  });
  unsigned hits = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string code(10'000, char('a' + i % 26));
    EXPECT_TRUE(cache.storeEntry(key('a'), ".cubin", {code, {}}, "source", diags));
    if (auto entry = cache.loadEntry(key('a'), ".cubin")) {
      EXPECT_EQ(entry->code, code);
      ++hits;
    }
  }
  stop = true;
  cleaner.join();
  EXPECT_GT(hits, 0u);
  EXPECT_EQ(diags.render(), "");
}

/// What cannot be removed is told, and counts as being there.
TEST_F(CacheFolderTest, tellsWhatCannotBeRemoved) {
  KernelCache cache(dir, diags);
  store(cache, 'a', 40 * day);
  store(cache, 'b', 5h);
  const bool root = geteuid() == 0; // who may do everything
  if (root) {
    for (const std::string &name : names())
      ASSERT_EQ(chown((dir + "/" + name).c_str(), 65534, 65534), 0);
    ASSERT_EQ(chown(dir.c_str(), 65534, 65534), 0);
  }
  ASSERT_EQ(chmod(dir.c_str(), 0500), 0);
  ASSERT_TRUE(!root || seteuid(65534) == 0);
  const CacheCleaning done = cache.contents().clean({.days = 30, .bytes = 0}, false);
  ASSERT_TRUE(!root || seteuid(0) == 0);
  ASSERT_EQ(chmod(dir.c_str(), 0700), 0);
  EXPECT_EQ(done.failed, 2u);
  EXPECT_EQ(done.why, "Permission denied");
  EXPECT_EQ(done.old.count + done.crowded.count, 0u);
}

} // namespace
