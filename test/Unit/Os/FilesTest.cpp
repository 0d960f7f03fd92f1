#include "../Checkpoint/TempDir.h"
#include "megalith/Os/MappedFile.h"
#include "megalith/Os/Temporary.h"
#include "megalith/Os/WriteFile.h"
#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace megalith;
namespace fs = std::filesystem;

namespace {

struct FilesTest : testing::Test {
  std::string read(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t entries() { return size_t(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator())); }
  mode_t modeOf(const std::string &path) {
    struct stat info;
    return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  }
  TempDir dir;
};

TEST_F(FilesTest, WritesAFile) {
  const std::string path = dir.path() + "/out";
  const mode_t before = umask(027);
  EXPECT_EQ(os::writeFile(path, std::string("a\0b", 3)), "");
  umask(before);
  EXPECT_EQ(read(path), std::string("a\0b", 3));
  EXPECT_EQ(modeOf(path), 0640u);
  // What is there keeps its mode.
  chmod(path.c_str(), 0755);
  EXPECT_EQ(os::writeFile(path, "other"), "");
  EXPECT_EQ(read(path), "other");
  EXPECT_EQ(modeOf(path), 0755u);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FilesTest, Appends) {
  const std::string path = dir.path() + "/out";
  EXPECT_EQ(os::appendFile(path, "one\n"), "");
  EXPECT_EQ(os::appendFile(path, "two\n"), "");
  EXPECT_EQ(read(path), "one\ntwo\n");
  EXPECT_EQ(os::appendFile("/dev/full", "x"), "No space left on device");
  EXPECT_EQ(os::appendFile(dir.path() + "/none/file", "x"), "No such file or directory");
}

TEST_F(FilesTest, WritesThroughLinks) {
  dir.write("target", "old");
  fs::create_symlink("target", dir.path() + "/link");
  EXPECT_EQ(os::writeFile(dir.path() + "/link", "new"), "");
  EXPECT_TRUE(fs::is_symlink(dir.path() + "/link"));
  EXPECT_EQ(read(dir.path() + "/target"), "new");
  fs::create_symlink("absent", dir.path() + "/dangling");
  EXPECT_EQ(os::writeFile(dir.path() + "/dangling", "made"), "");
  EXPECT_EQ(read(dir.path() + "/absent"), "made");
  fs::create_hard_link(dir.path() + "/target", dir.path() + "/second");
  EXPECT_EQ(os::writeFile(dir.path() + "/target", "both"), "");
  EXPECT_EQ(read(dir.path() + "/second"), "both");
}

TEST_F(FilesTest, SaysWhyItCannotWrite) {
  EXPECT_EQ(os::writeFile("/dev/full", "x"), "No space left on device");
  EXPECT_EQ(os::writeFile("/dev/null", "x"), "");
  EXPECT_EQ(os::writeFile(dir.path(), "x"), "Is a directory");
  EXPECT_EQ(os::writeFile(dir.path() + "/none/file", "x"), "No such file or directory");
  EXPECT_EQ(os::writeFile(std::string("a\0b", 3), "x"), "a NUL byte in the path");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(os::writeFile("/proc/self/fd/" + std::to_string(ends[1]), "x"), "Broken pipe");
  close(ends[1]);
}

/// What was there stays when the disk is full, here at the limit of a file's size.
TEST_F(FilesTest, AllOrNothing) {
  const std::string path = dir.write("out", "precious");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string said = os::writeFile(path, std::string(10000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(said, "File too large");
  EXPECT_EQ(read(path), "precious");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FilesTest, TemporaryFoldersAreOurs) {
  setenv("TMPDIR", dir.path().c_str(), 1);
  {
    os::TemporaryDirectory folder;
    ASSERT_EQ(folder.error(), "");
    EXPECT_EQ(modeOf(folder.path()), 0700u);
    EXPECT_EQ(entries(), 1u);
    dir.write(fs::path(folder / "x").lexically_relative(dir.path()), "x");
  }
  EXPECT_EQ(entries(), 0u);
  // Whoever may rename it could put his own in its place.
  auto isHere = [&] { return os::TemporaryDirectory().path().starts_with(fs::canonical(dir.path()).string() + "/"); };
  EXPECT_TRUE(isHere());
  chmod(dir.path().c_str(), 0777);
  EXPECT_FALSE(isHere());
  fs::create_directory(dir.path() + "/below");
  setenv("TMPDIR", (dir.path() + "/below").c_str(), 1);
  EXPECT_FALSE(isHere());
  chmod(dir.path().c_str(), 01777);
  EXPECT_TRUE(isHere());
  unsetenv("TMPDIR");
}

TEST_F(FilesTest, MapsAFile) {
  std::string reason;
  const std::string path = dir.write("data", "content");
  auto file = os::MappedFile::open(path, reason);
  ASSERT_TRUE(file);
  EXPECT_EQ(std::string(reinterpret_cast<const char *>(file->data()), file->size()), "content");
  EXPECT_EQ(file->whyChanged(), "");
  // Another file of that name is another file.
  fs::rename(path, dir.path() + "/moved");
  dir.write("data", "other");
  EXPECT_EQ(file->whyChanged(), "");
  dir.write("moved", "CONTENT");
  EXPECT_EQ(file->whyChanged(), "it changed while it was read");

  EXPECT_EQ(os::MappedFile::open(dir.write("empty", ""), reason)->size(), 0u);
  EXPECT_FALSE(os::MappedFile::open(dir.path() + "/none", reason));
  EXPECT_EQ(reason, "No such file or directory");
  ASSERT_EQ(mkfifo((dir.path() + "/fifo").c_str(), 0600), 0);
  for (const std::string &path : {dir.path() + "/fifo", dir.path(), std::string("/dev/zero")}) {
    EXPECT_FALSE(os::MappedFile::open(path, reason));
    EXPECT_EQ(reason, "not a regular file") << path;
  }
}

} // namespace
