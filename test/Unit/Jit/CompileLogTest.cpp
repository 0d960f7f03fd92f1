#include "JitTestHelper.h"
#include "megalith/Jit/HostCompiler.h"

using namespace megalith;
using namespace megalith::jit;

namespace {

struct CompileLogTest : ::testing::Test {
  SourceFiles files;
  Diagnostics diags{files};
};

TEST_F(CompileLogTest, placesAnErrorAtTheYamlLine) {
  files.add("foo.yaml", "a: 1\n  target: x + y\n");
  unsigned count = reportErrors("foo.yaml(2): error: identifier \"y\" is undefined\n"
                                "    int t = x + y;\n"
                                "                ^\n"
                                "\n"
                                "1 error detected in the compilation of \"m.cu\".\n",
                                diags);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(diags.render(), "foo.yaml:2:3: error: the CUDA compiler rejected the code: identifier \"y\" is "
                            "undefined [cuda-compile]\n"
                            "    2 |   target: x + y\n"
                            "      |   ^~~~~~~~~~~~~\n"
                            "note: in the generated code: `int t = x + y;`\n");
}

TEST_F(CompileLogTest, findsFilesOfAnyName) {
  for (const char *name : {"q\"uote", "new\nline", "x: error: y(12)", "caf\xe9", "\""})
    files.add(name, "one\n  two\n");
  for (const char *said : {"q\"uote", "new\\x0aline", "x: error: y(12)", "caf\\xe9", "\""}) {
    EXPECT_EQ(reportErrors(std::string(said) + "(2): error: no such thing\n    t = x;\n        ^\n", diags), 1u)
        << said;
    EXPECT_EQ(reportHostErrors(std::string(said) + ":2:3: error: no such other\n", diags), 1u) << said;
  }
  const std::string text = diags.render();
  for (const char *thing : {":2:3: error: the CUDA compiler rejected the code: no such thing [",
                            ":2:3: error: cannot compile the code for the CPU: no such other ["}) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(thing, at)) != std::string::npos; ++at)
      ++count;
    EXPECT_EQ(count, 5u) << text;
  }
}

TEST_F(CompileLogTest, namesTheFileThatIsNotASource) {
  reportErrors("m.cu(12): error: a value of type \"float *\" cannot be used\n"
               "            argument types are: (int)\n"
               "    over(a);\n"
               "         ^\n",
               diags);
  EXPECT_EQ(diags.render(), "error: the CUDA compiler rejected the code: m.cu:12: a value of type "
                            "\"float *\" cannot be used; argument types are: (int) [cuda-compile]\n"
                            "note: in the generated code: `over(a);`\n");
}

TEST_F(CompileLogTest, readsTheOtherForms) {
  files.add("edited.cu", "one\n\ttwo\n");
  unsigned count = reportErrors("\"edited.cu\", line 2: error: no such thing\n"
                                "edited.cu(1): warning #174-D: expression has no effect\n"
                                "edited.cu(1): catastrophic error: cannot open source file \"x\"\n"
                                "\n"
                                "ptxas application ptx input, line 25; error   : Unknown '.instr'\n"
                                "ptxas error   : Entry function 'k' uses too much shared data\n"
                                "nvrtc: error: unrecognized option --nope found\n"
                                "ptxas info    : Used 8 registers\n",
                                diags);
  EXPECT_EQ(count, 5u);
  std::string text = diags.render();
  EXPECT_NE(text.find("edited.cu:2:2: error: the CUDA compiler rejected the code: no such thing ["), std::string::npos)
      << text;
  EXPECT_NE(text.find("edited.cu:1:1: error: the CUDA compiler rejected the code: cannot open"), std::string::npos)
      << text;
  EXPECT_NE(text.find("ptxas: Unknown '.instr' (line 25 of the PTX)"), std::string::npos) << text;
  EXPECT_NE(text.find("ptxas: Entry function 'k' uses too much shared data ["), std::string::npos) << text;
  EXPECT_NE(text.find("unrecognized option --nope found"), std::string::npos) << text;
  EXPECT_EQ(text.find("expression has no effect"), std::string::npos) << text;
}

TEST(ParseResources, addsWhatAKernelCalls) {
  auto kernels =
      parseResources("ptxas info    : Overriding maximum register limit 256 for 'z' with  24 of maxrregcount\n"
                     "ptxas info    : 0 bytes gmem\n"
                     "ptxas info    : Compiling entry function 'z' for 'sm_90a'\n"
                     "ptxas info    : Function properties for z\n"
                     "ptxas         .     16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
                     "ptxas info    : Used 24 registers, used 1 barriers, 400 bytes smem\n"
                     "ptxas info    : Function properties for _Z1hPfi\n"
                     "    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n"
                     "ptxas info    : Compiling entry function 'a' for 'sm_90a'\n"
                     "ptxas info    : Function properties for a\n"
                     "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                     "ptxas info    : Used 8 registers\n");
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0], (KernelResources{"a", 8, 0, 0, 0, 0}));
  EXPECT_FALSE(kernels[0].spills());
  EXPECT_EQ(kernels[1], (KernelResources{"z", 24, 16, 12, 24, 400}));
  EXPECT_TRUE(kernels[1].spills());
}

} // namespace
