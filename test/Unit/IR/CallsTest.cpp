#include "megalith/IR/Calls.h"
#include "megalith/IR/Text.h"
#include <gtest/gtest.h>

using namespace megalith;

namespace {

/// Rows of the first call of a stage that feeds the request's tokens from the first on, or `[:20]` of them.
int64_t rowsOf(const std::string &fed, const std::string &chunk, int64_t rowsPerPass) {
  SourceFiles files;
  Diagnostics diags(files);
  const uint32_t file = files.add("test.ir", fmt::format(R"(
module @m {{after = "lower", fault = "F"}} {{
  param @rows_per_pass {{value = {}}}
  stage @s {{on = "A"}} {{
    %tokens = tokens : token<>
    %some = tokens : token<20>
    call @target(%{}) {{{}kv = "commit", site = 0}}
  }}
}}
)",
                                                         rowsPerPass, fed, chunk));
  const std::optional<ir::Module> module = ir::parse(diags, file);
  EXPECT_TRUE(module) << diags.render();
  if (!module)
    return -1;
  int64_t rows = -1;
  ir::walk(module->root.region(), [&](const ir::Operation &op) {
    if (op.op == ir::Op::Call)
      rows = ir::mostRows(*module, op);
  });
  return rows;
}

TEST(Calls, FeedAtMostTheirTokensTheirChunkAndAPass) {
  EXPECT_EQ(rowsOf("some", "", 64), 20);
  EXPECT_EQ(rowsOf("some", "", 16), 16);
  EXPECT_EQ(rowsOf("some", "chunk = 8, ", 64), 8);
  EXPECT_EQ(rowsOf("some", "chunk = 32, ", 64), 20);
  EXPECT_EQ(rowsOf("tokens", "", 64), 64); // all of the request
  EXPECT_EQ(rowsOf("tokens", "chunk = 8, ", 64), 8);
  EXPECT_EQ(rowsOf("tokens", "chunk = 100, ", 64), 64);
}

} // namespace
