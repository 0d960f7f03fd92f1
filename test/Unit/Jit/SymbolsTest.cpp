#include "megalith/Jit/Symbols.h"
#include "HostTestHelper.h"

using namespace megalith;
using namespace megalith::jit;

namespace {

std::vector<uint64_t> places;

/// The frames of the two writes of the kernel below.
void expectChain(const std::string &so, uint64_t base, bool addr2line) {
  std::vector<uint64_t> offsets;
  for (uint64_t place : places)
    offsets.push_back(place - base);
  offsets.push_back(0x7fffffff); // outside
  auto frames = symbolize(so, offsets);
  ASSERT_EQ(frames.size(), 3u);
  ASSERT_EQ(frames[0].size(), 3u);
  auto expect = [](const Frame &frame, const std::string &function, const std::string &file, unsigned line) {
    EXPECT_EQ(frame.function.substr(0, function.size()), function);
    EXPECT_EQ(frame.file, file);
    EXPECT_EQ(frame.line, line);
  };
  expect(frames[0][0], addr2line && frames[0][0].function.empty() ? "" : "addOne", "foo.yaml", 12);
  expect(frames[0][1], "addTwice", "kernel.cu", 20);
  expect(frames[0][2], "k", "kernel.cu", 30);
  ASSERT_EQ(frames[1].size(), 1u);
  EXPECT_EQ(frames[1][0], (Frame{"k", "kernel.cu", 31}));
  EXPECT_EQ(frames[2], std::vector<Frame>{});
}

TEST(Symbols, giveTheInlinedChain) {
  TemporaryDirectory tmp;
  SourceFiles files;
  Diagnostics diags(files);
  KernelCache cache(tmp / "cache", diags);
  for (const std::string &name : hostCompilers()) {
    SCOPED_TRACE(name);
    ScopedEnv env("MEGALITH_HOST_CXX", name);
    auto compiler = HostCompiler::open(diags);
    ASSERT_TRUE(compiler) << diags.render();
    auto result = compileHostCached(*compiler, cache,
                                    hostRequest("#line 11 \"foo.yaml\"\n"
                                                "static inline void addOne(int *p) {\n"
                                                "  p[1] = 1;\n"
                                                "}\n"
                                                "#line 19 \"kernel.cu\"\n"
                                                "static inline void addTwice(int *p) {\n"
                                                "  addOne(p);\n"
                                                "}\n"
                                                "#line 29 \"kernel.cu\"\n"
                                                "extern \"C\" __global__ void k(int *p) {\n"
                                                "  addTwice(p);\n"
                                                "  p[2] = 2;\n"
                                                "}\n"),
                                    diags);
    ASSERT_TRUE(result) << diags.render();
    Library library(result->path);
    ASSERT_TRUE(library);
    megalith::cpu::Host host{};
    host.access = [](const void *, unsigned, int, const void *pc) { places.push_back(reinterpret_cast<uint64_t>(pc)); };
    library.get<void(const megalith::cpu::Host *)>("megalith_cpu_bind")(&host);
    places.clear();
    int words[4];
    library.get<void(int *)>("k")(words);
    ASSERT_EQ(places.size(), 2u);
    for (const char *tool : {"llvm-symbolizer", "addr2line"}) {
      auto program = llvm::sys::findProgramByName(tool);
      if (!program)
        continue;
      SCOPED_TRACE(tool);
      TemporaryDirectory alone;
      std::filesystem::create_symlink(*program, alone / tool);
      ScopedEnv path("PATH", alone.path);
      expectChain(result->path, library.base(), tool == std::string("addr2line"));
    }
    // None at all.
    ScopedEnv path("PATH", tmp / "cache");
    EXPECT_EQ(symbolize(result->path, {1, 2}), std::vector<std::vector<Frame>>(2));
  }
}

} // namespace
