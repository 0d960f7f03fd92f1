#include "megalith/IR/Reducers.h"
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace megalith::ir;

/// The list as docs/ir.md has it.
static std::string reducerTable() {
  std::string text = "| reducer | result | arguments | state | merge | order of summation | meaning |\n"
                     "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const ReducerInfo &info : reducers()) {
    std::string arguments;
    for (char letter : info.arguments) {
      const char *name = letter == 's'   ? "settings"
                         : letter == 'd' ? "`noise`, `ahead`"
                         : letter == 'm' ? "`minus`"
                         : letter == 'n' ? "`n`"
                                         : "`tokens`";
      arguments += (arguments.empty() ? "" : ", ") + std::string(name);
    }
    text += "| `" + info.name.str() + "` | " + word(info.result) + " | " + arguments + " | " + info.state.str() +
            " | " + info.merge.str() + " | " + info.order.str() + " | " + info.text.str() + " |\n";
  }
  return text;
}

TEST(Reducers, TheDocumentHasTheList) {
  std::ifstream file(MEGALITH_SOURCE_DIR "/docs/ir.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string document = text.str();
  const size_t begin = document.find("| reducer | result |"), end = document.find("\n\n", begin);
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(document.substr(begin, end + 1 - begin), reducerTable()) << "docs/ir.md, section Reducers, must have:\n"
                                                                     << reducerTable();
}
