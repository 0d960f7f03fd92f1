#include "megalith/Support/CodeWriter.h"
#include "megalith/Support/Diagnostics.h"
#include "llvm/ADT/SmallVector.h"
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
  {
    auto record = w.record("struct S");
  }
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

TEST(CodeWriter, aLineStaysOneLine) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string c(1, char(byte));
    CodeWriter w;
    w.line("a(); // {}", c);
    w.comment("x" + c + "y");
    w.quote(c + "\\");
    {
      auto scope = w.scope("f()", c);
    }
    w.sourceLine(3, c + "\"" + c);
    llvm::SmallVector<llvm::StringRef> lines;
    llvm::StringRef(w.text()).split(lines, '\n');
    ASSERT_EQ(lines.size(), 7u) << byte << "\n" << w.text();
    for (llvm::StringRef line : lines) {
      EXPECT_FALSE(line.rtrim().ends_with("\\")) << line.str();
      for (unsigned char of : line.bytes())
        EXPECT_TRUE(of >= 0x20 && of < 0x7f) << byte << ": " << line.str();
    }
  }
}

TEST(CodeWriter, filesAreFoundByTheNameOfTheirLines) {
  SourceFiles files;
  const std::string names[] = {"p.yaml",  "q\"uote",     "new\nline",   "back\\slash",
                               "caf\xe9", "caf\xc3\xa9", "\xe2\x80\xae"};
  for (const std::string &name : names)
    files.add(name, "");
  EXPECT_EQ(CodeWriter::spelled("q\"uote"), "\"q\\\"uote\"");
  EXPECT_EQ(CodeWriter::spelled("new\nline"), "\"new\\\\x0aline\""); // compilers print it on one line
  EXPECT_EQ(CodeWriter::spelled("caf\xc3\xa9"), "\"caf\xc3\xa9\"");
  EXPECT_EQ(files.named("q\"uote"), 1u);
  EXPECT_EQ(files.named("new\\x0aline"), 2u);
  EXPECT_EQ(files.named("back\\slash"), 3u);
  EXPECT_EQ(files.named("caf\\xe9"), 4u);
  EXPECT_EQ(files.named("caf\xc3\xa9"), 5u);
  EXPECT_EQ(files.named("other"), std::nullopt);
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
