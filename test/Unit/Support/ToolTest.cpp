// Each test ends a child of its own.
#include "megalith/Support/Tool.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace megalith;

namespace {

/// Ends this process as a tool with that body does.
[[noreturn]] void tool(llvm::function_ref<int()> body) { std::exit(runTool(body)); }

void sendOutputTo(const char *path) { dup2(open(path, O_WRONLY), STDOUT_FILENO); }

const testing::ExitedWithCode failed(1);
constexpr const char *bug =
    "this is a fault of megalith: please report it with the command and its files \\[internal-error\\]\n$";
constexpr const char *memory =
    "^error: there is not enough memory; ask for less, or raise the limit \\(`ulimit -v`\\) \\[out-of-memory\\]\n$";

std::string internal(const std::string &what) { return "^error: internal error: " + what + "; " + bug; }

TEST(ToolDeathTest, PassesTheStatusOn) {
  EXPECT_EXIT(tool([] { return 0; }), testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(tool([] { return 2; }), testing::ExitedWithCode(2), "^$");
}

TEST(ToolDeathTest, NoExceptionGetsOut) {
  EXPECT_EXIT(tool([]() -> int { throw std::runtime_error("a\nb"); }), failed, internal("a\\\\x0ab"));
  EXPECT_EXIT(tool([]() -> int { throw 5; }), failed, internal("an exception of an unknown kind"));
#ifndef __SANITIZE_ADDRESS__ // which reports it itself
  EXPECT_EXIT(tool([] { return int(std::vector<char>(size_t(1) << 62)[0]); }), failed, memory);
#endif
  EXPECT_EXIT(tool([] { return int(std::vector<char>(SIZE_MAX)[0]); }), failed, memory);
  // Where nothing can catch it.
  EXPECT_EXIT(tool([] {
                std::thread([] { throw std::runtime_error("in a thread"); }).join();
                return 0;
              }),
              failed, internal("in a thread"));
  EXPECT_EXIT(tool([] {
                [](auto fails) noexcept { fails(); }([] { throw std::bad_alloc(); });
                return 0;
              }),
              failed, memory);
}

TEST(ToolDeathTest, NorAnErrorOfLlvm) {
  EXPECT_EXIT(tool([]() -> int { llvm::report_fatal_error("of LLVM"); }), failed, internal("of LLVM"));
  EXPECT_EXIT(tool([]() -> int { llvm::report_bad_alloc_error("of LLVM"); }), failed, memory);
}

TEST(ToolDeathTest, OutputThatIsLostIsAnError) {
  constexpr const char *full =
      "^error: cannot write to the standard output: No space left on device \\[cannot-write-output\\]\n$";
  EXPECT_EXIT(tool([] {
                sendOutputTo("/dev/full");
                llvm::outs() << "text";
                return 0;
              }),
              failed, full);
  // As LLVM's option parser does after `--help`.
  EXPECT_EXIT(tool([]() -> int {
                sendOutputTo("/dev/full");
                llvm::outs() << "text";
                std::exit(0);
              }),
              failed, full);
  EXPECT_EXIT(tool([] {
                llvm::outs() << "";
                return 0;
              }),
              testing::ExitedWithCode(0), "^$");
  // Nobody can be told that nobody can be told.
  EXPECT_EXIT(tool([] {
                dup2(open("/dev/full", O_WRONLY), STDERR_FILENO);
                llvm::errs() << "text";
                return 0;
              }),
              testing::ExitedWithCode(0), "^$");
}

} // namespace
