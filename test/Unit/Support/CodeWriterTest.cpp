#include "megalith/Support/CodeWriter.h"
#include <gtest/gtest.h>

using namespace megalith;

TEST(CodeWriter, scopesCloseThemselves) {
  CodeWriter w;
  {
    auto fn = w.scope("void f()", "f");
    w.line("int {} = {};", "x", 3);
    {
      auto loop = w.scope("for (;;)");
      w.line("g({});"); // without arguments, braces are text
    }
    auto call = w.lambda("each([&](int i)");
  }
  { auto record = w.record("struct S"); }
  EXPECT_EQ(w.text(), "void f() {\n"
                      "  int x = 3;\n"
                      "  for (;;) {\n"
                      "    g({});\n"
                      "  }\n"
                      "  each([&](int i) {\n"
                      "  });\n"
                      "} // f\n"
                      "struct S {\n"
                      "};\n");
}

TEST(CodeWriter, commentsWrapAtAHundredColumns) {
  CodeWriter w;
  std::string words;
  for (int i = 0; i < 40; ++i)
    words += "word ";
  w.comment(words);
  w.comment(std::string(120, 'x')); // one long word stays whole
  size_t lines = 0;
  llvm::StringRef rest = w.text();
  while (!rest.empty()) {
    auto [line, tail] = rest.split('\n');
    EXPECT_TRUE(line.starts_with("// "));
    EXPECT_TRUE(line.size() <= 100 || line.contains("xxx"));
    EXPECT_FALSE(line.ends_with(" "));
    rest = tail;
    ++lines;
  }
  EXPECT_EQ(lines, 4u);
}

TEST(CodeWriter, resumesAtItsOwnTrueLine) {
  CodeWriter w;
  w.setFileName("k.cu");
  w.resumeLines(); // nothing to resume
  w.line("a();");
  w.sourceLine(28, "p.yaml");
  w.line("b();");
  w.resumeLines();
  w.line("c();");
  EXPECT_EQ(w.text(), "a();\n"
                      "#line 28 \"p.yaml\"\n"
                      "b();\n"
                      "#line 5 \"k.cu\"\n"
                      "c();\n");
}
