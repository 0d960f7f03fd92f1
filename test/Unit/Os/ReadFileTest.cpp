#include "megalith/Os/ReadFile.h"
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace megalith;

namespace {

class ReadFile : public testing::Test {
protected:
  void SetUp() override {
    char pattern[] = "/tmp/megalith-read-XXXXXX";
    ASSERT_TRUE(mkdtemp(pattern));
    dir = pattern;
  }
  void TearDown() override { std::system(("rm -rf " + dir).c_str()); }
  std::string write(const std::string &name, const std::string &text) {
    const std::string path = dir + "/" + name;
    FILE *file = std::fopen(path.c_str(), "wb");
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
    return path;
  }
  /// Why a file cannot be read; "read: TEXT" if it can.
  static std::string outcome(const std::string &path, uint64_t most = os::sourceBytes) {
    std::string reason;
    auto text = os::readFile(path, most, reason);
    return text ? "read: " + *text : reason;
  }
  std::string dir;
};

TEST_F(ReadFile, GivesAllBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i)
    all += static_cast<char>(i);
  EXPECT_EQ(outcome(write("all", all)), "read: " + all);
  EXPECT_EQ(outcome(write("empty", "")), "read: ");
  EXPECT_EQ(outcome("/dev/null"), "read: ");
  std::string reason;
  auto version = os::readFile("/proc/version", os::sourceBytes, reason);
  ASSERT_TRUE(version) << reason;
  EXPECT_EQ(version->substr(0, 5), "Linux");
}

TEST_F(ReadFile, SaysWhyNot) {
  EXPECT_EQ(outcome(dir + "/none"), "No such file or directory");
  EXPECT_EQ(outcome(dir), "Is a directory");
  EXPECT_EQ(outcome(write("file", "x") + "/below"), "Not a directory");
  EXPECT_EQ(outcome(std::string("a\0b", 3)), "a NUL byte in the path");
  EXPECT_EQ(outcome("/proc/self/mem"), "Input/output error");
}

TEST_F(ReadFile, TakesNoPipeWhereAFileMustBe) {
  const std::string path = dir + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string reason;
  EXPECT_FALSE(os::readRegularFile(path, os::jsonBytes, reason)); // nobody writes: it does not wait
  EXPECT_EQ(reason, "not a regular file");
  EXPECT_FALSE(os::readRegularFile(dir, os::jsonBytes, reason));
  EXPECT_EQ(reason, "Is a directory");
  EXPECT_EQ(os::readRegularFile(write("file", "x"), os::jsonBytes, reason), "x");
}

TEST_F(ReadFile, HasALimit) {
  const std::string full(1 << 20, 'x'), over = full + "x";
  EXPECT_EQ(outcome(write("full", full), 1 << 20), "read: " + full);
  EXPECT_EQ(outcome(write("over", over), 1 << 20), "it has more than 1 MiB, the most that is read of such a file");
  // A hole: nothing of it is read.
  const std::string huge = write("huge", "");
  ASSERT_EQ(truncate(huge.c_str(), off_t(os::dataBytes) + 1), 0);
  EXPECT_EQ(outcome(huge, os::dataBytes), "it has more than 4 GiB, the most that is read of such a file");
}

TEST_F(ReadFile, EndlessOnesEndAtTheLimit) {
  EXPECT_EQ(outcome("/dev/zero", 1 << 20), "it has more than 1 MiB, the most that is read of a stream");
  EXPECT_EQ(outcome("/dev/zero", os::dataBytes), "it has more than 256 MiB, the most that is read of a stream");
}

TEST_F(ReadFile, TakesAPipe) {
  const std::string path = dir + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const std::string text(300000, 'p'); // more than a pipe holds
  std::thread writer([&] {
    const int descriptor = open(path.c_str(), O_WRONLY);
    for (size_t at = 0; at < text.size();)
      at += size_t(std::max<ssize_t>(0, ::write(descriptor, text.data() + at, text.size() - at)));
    close(descriptor);
  });
  EXPECT_EQ(outcome(path), "read: " + text);
  writer.join();
}

/// Where memory ends before the limit does, that is what is said.
TEST_F(ReadFile, SaysThatMemoryIsShort) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself needs address space";
#endif
  const std::string path = write("large", "");
  ASSERT_EQ(truncate(path.c_str(), 3ll << 30), 0);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit small = before;
  small.rlim_cur = 2ull << 30;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &small), 0);
  const std::string said = outcome(path, os::dataBytes);
  setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(said, "it does not fit into memory");
}

TEST_F(ReadFile, SeesAChange) {
  // The writer goes on until the reader has seen one of its writes.
  const std::string path = write("changing", std::string(8 << 20, 'x'));
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    const int descriptor = open(path.c_str(), O_WRONLY);
    while (!stop)
      if (pwrite(descriptor, "y", 1, 0) != 1)
        break;
    close(descriptor);
  });
  bool seen = false;
  for (int i = 0; i < 1000 && !seen; ++i)
    seen = outcome(path) == "it changed while it was read";
  stop = true;
  writer.join();
  EXPECT_TRUE(seen);
}

} // namespace
