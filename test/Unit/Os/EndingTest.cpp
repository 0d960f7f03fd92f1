// What a process leaves when it ends in all kinds of ways. Each test ends a child of its own.
#include "megalith/Os/Ending.h"
#include "../Checkpoint/TempDir.h"
#include "../Waiting.h"
#include "megalith/Os/MappedFile.h"
#include "megalith/Os/Process.h"
#include "megalith/Os/Temporary.h"
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <stdexcept>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace megalith;
namespace fs = std::filesystem;

namespace {

/// How a child ended, and what it said.
struct End {
  int status = 0;
  std::string said;
  int exit() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
  int signal() const { return WIFSIGNALED(status) ? WTERMSIG(status) : 0; }
};

struct EndingTest : testing::Test {
  /// Runs `body` in a child whose $TMPDIR is ours. `meanwhile` gets its number.
  End child(const std::function<void()> &body, const std::function<void(pid_t)> &meanwhile = nullptr) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(ends[1], STDERR_FILENO);
      setenv("TMPDIR", temporary().c_str(), 1);
      os::endCleanly();
      body();
      _exit(77);
    }
    close(ends[1]);
    if (meanwhile)
      meanwhile(pid);
    End end;
    char buffer[4096];
    for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
      end.said.append(buffer, size_t(count));
    close(ends[0]);
    waitpid(pid, &end.status, 0);
    return end;
  }
  std::string temporary() const { return dir.path() + "/tmp"; }
  bool nothingLeft() const { return fs::is_empty(temporary()); }
  static bool runs(const std::string &numberFile) {
    pid_t pid = 0;
    std::ifstream(numberFile) >> pid;
    std::string word;
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    stat >> word >> word >> word;
    return pid && stat && word != "Z";
  }

  void SetUp() override { fs::create_directory(temporary()); }
  TempDir dir;
};

/// A folder with something in it, a file, and a tool that never ends and has a child.
void busy(const std::string &dir) {
  os::TemporaryDirectory folder;
  fs::create_directories(folder / "a/b");
  std::ofstream(folder / "a/b/c") << "text";
  os::TemporaryFile file(AT_FDCWD, dir + "/tmp/file-", 0600);
  const std::string script =
      "sleep 1000 & echo $! > " + dir + "/grandchild; echo $$ > " + dir + "/child; : > " + dir + "/ready; wait";
  os::run({"/bin/sh", "-c", script});
}

TEST_F(EndingTest, BySignals) {
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    std::signal(signal, SIG_DFL); // the test may be a job in the background
    for (const char *name : {"ready", "child", "grandchild"})
      fs::remove(dir.path() + "/" + name);
    End end = child([&] { busy(dir.path()); },
                    [&](pid_t pid) {
                      waiting::waitUntil([&] { return fs::exists(dir.path() + "/ready"); });
                      EXPECT_TRUE(runs(dir.path() + "/grandchild"));
                      kill(pid, signal);
                    });
    EXPECT_EQ(end.signal(), signal) << end.said;
    EXPECT_EQ(end.said, "");
    EXPECT_TRUE(nothingLeft()) << signal;
    for (const char *name : {"/child", "/grandchild"}) // ended, and not dead yet
      waiting::waitUntil([&] { return !runs(dir.path() + name); });
  }
}

TEST_F(EndingTest, SignalsThatAreIgnoredStaySo) {
  End end = child([] {}, nullptr);
  EXPECT_EQ(end.exit(), 77);
  std::signal(SIGHUP, SIG_IGN);
  end = child([] { kill(getpid(), SIGHUP); });
  std::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(end.exit(), 77);
}

TEST_F(EndingTest, ByAReaderThatHasGone) {
  End end = child([] {
    os::TemporaryDirectory folder;
    int ends[2];
    if (pipe(ends) == 0 && close(ends[0]) == 0 && write(ends[1], "x", 1) < 0)
      _exit(1);
  });
  EXPECT_EQ(end.signal(), SIGPIPE);
  EXPECT_TRUE(nothingLeft());
}

#ifndef __SANITIZE_ADDRESS__ // which reports these itself
TEST_F(EndingTest, ByFaults) {
  auto said = [](const std::string &what) {
    return "error: internal error: " + what +
           "; this is a fault of megalith: please report it with the command and its files [internal-error]\n";
  };
  const std::pair<std::function<void()>, std::string> ways[] = {
      {[] { *static_cast<volatile int *>(nullptr) = 1; }, "segmentation fault"},
      {[] { std::abort(); }, "abort"},
      {[] { __builtin_trap(); }, "illegal instruction"},
      {[] { std::thread([] { *static_cast<volatile int *>(nullptr) = 1; }).join(); }, "segmentation fault"},
  };
  for (const auto &[way, what] : ways) {
    End end = child([&, &way = way] {
      os::TemporaryDirectory folder;
      way();
    });
    EXPECT_EQ(end.exit(), 1);
    EXPECT_EQ(end.said, said(what));
    EXPECT_TRUE(nothingLeft());
  }
}

int deeper(volatile int *above, int depth) {
  volatile int here[1000];
  here[0] = *above + 1;
  return depth == 0 ? 0 : deeper(here, depth - 1) + here[0];
}

TEST_F(EndingTest, ByAFullStack) {
  End end = child([] {
    volatile int start = 0;
    deeper(&start, 1 << 30);
  });
  EXPECT_EQ(end.exit(), 1);
  EXPECT_NE(end.said.find("segmentation fault"), std::string::npos) << end.said;
}

TEST_F(EndingTest, ByAFileThatWasCut) {
  const std::string path = dir.write("weights\x1b[31m", std::string(1 << 16, 'w'));
  End end = child([&] {
    std::string reason;
    auto file = os::MappedFile::open(path, reason);
    os::TemporaryDirectory folder;
    if (!file || truncate(path.c_str(), 100) != 0)
      _exit(2);
    volatile uint8_t last = file->data()[file->size() - 1];
    (void)last;
  });
  EXPECT_EQ(end.exit(), 1);
  EXPECT_EQ(end.said, "error: " + dir.path() +
                          "/weights\\x1b[31m: it changed while it was read: it is shorter now [input-changed]\n");
  EXPECT_TRUE(nothingLeft());
}
#endif

TEST_F(EndingTest, AtOnce) {
  End end = child([] {
    static os::TemporaryDirectory folder;
    std::thread([] { os::endNow(5); }).join();
  });
  EXPECT_EQ(end.exit(), 5);
  EXPECT_TRUE(nothingLeft());
}

/// A descriptor that is closed is not given to the next file.
TEST_F(EndingTest, ClosedStandardOutput) {
  const std::string path = dir.path() + "/out";
  const pid_t pid = fork();
  if (pid == 0) {
    close(STDOUT_FILENO);
    os::endCleanly();
    const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    _exit(file != STDOUT_FILENO && write(STDOUT_FILENO, "x", 1) < 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(EndingTest, ToolsSeeTheSignalsThatWeHold) {
  End end = child([&] {
    auto result = os::run({"/bin/sh", "-c", "kill -TERM $$; sleep 10"});
    _exit(result.status == 128 + SIGTERM && result.error == "Terminated" ? 3 : 4);
  });
  EXPECT_EQ(end.exit(), 3);
}

TEST(Process, SaysHowItEnded) {
  auto result = os::run({"/bin/sh", "-c", "echo out; echo error >&2; exit 3"});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.output, "out\nerror\n");
  os::ProcessOptions quiet;
  quiet.withErrors = false;
  EXPECT_EQ(os::run({"/bin/sh", "-c", "echo out; echo error >&2"}, quiet).output, "out\n");
  EXPECT_EQ(os::run({"/none/at/all"}).status, -1);
  EXPECT_EQ(os::run({"/none/at/all"}).error, "No such file or directory");
  os::ProcessOptions nowhere;
  nowhere.directory = "/none";
  EXPECT_EQ(os::run({"/bin/true"}, nowhere).error, "No such file or directory");
}

} // namespace
