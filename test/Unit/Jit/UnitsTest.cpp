// Kernels of several units: which of them is compiled, linked or taken from the cache.
#include "../Waiting.h"
#include "HostTestHelper.h"
#include "megalith/Jit/KernelCache.h"

namespace megalith::jit {
namespace {

struct UnitsTest : ::testing::Test {
  TemporaryDirectory tmp;
  SourceFiles files;
  Diagnostics diags{files};
  KernelCache cache{tmp / "cache", diags};

  std::vector<CompileRequest> units() {
    CompileRequest called{"extern \"C\" __device__ int called() { return 1; }\n",  "called.cu", {}, "sm_90a",
                          {"--relocatable-device-code=true", "--maxrregcount=64"}, "one unit"};
    CompileRequest entry{"extern \"C\" __device__ int called();\n"
                         "extern \"C\" __global__ void k(int *p) { *p = called(); }\n",
                         "entry.cu",
                         {},
                         "sm_90a",
                         {"--ptxas-options=-ewp"},
                         "other unit"};
    return {called, entry};
  }
};

/// Puts its parts one after the other.
struct FakeLinker : Linker {
  std::string version = "fake 1";
  bool fails = false;
  mutable int links = 0;
  std::string identity() const override { return version; }
  Result link(llvm::StringRef, llvm::ArrayRef<Part> parts) const override {
    ++links;
    Result result;
    for (const Part &part : parts)
      result.cubin += part.name + " ";
    return fails ? Result{"", "no way"} : result;
  }
};

TEST(Headers, AreThoseThatASourceIncludes) {
  const std::vector<Header> all = {{"a.h", "#pragma once\n  #include \"b.h\"\n"},
                                   {"b.h", "#include \"a.h\"\n// #include \"c.h\"\n"},
                                   {"c.h", ""},
                                   {"d.h", "int d;\n"}};
  const auto names = [&](const char *source) {
    std::string text;
    for (const Header &header : headersOf(source, all))
      text += header.name + " ";
    return text;
  };
  EXPECT_EQ(names("int x;\n#include \"a.h\"\n"), "a.h b.h ");
  EXPECT_EQ(names("#include \"d.h\" // once\n#include \"d.h\"\n#include \"unknown.h\"\n#include <e.h>"), "d.h ");
  EXPECT_EQ(names("# include \"d.h\"\n#  include <a.h>\n#include  <b.h>\n"), "d.h a.h b.h ");
  EXPECT_EQ(names(""), "");
}

TEST_F(UnitsTest, OnlyWhatChangedIsCompiled) {
  MEGALITH_NVRTC_OR_SKIP(nvrtc, diags);
  FakeLinker linker;
  std::string why;
  std::vector<CompileRequest> both = units();
  const auto how = [&] {
    auto result = compileLinked(*nvrtc, cache, linker, both, why, diags);
    return result ? result->how : "not: " + why + diags.render();
  };
  EXPECT_EQ(how(), "compiled");
  EXPECT_EQ(how(), "taken from the kernel cache");
  EXPECT_EQ(linker.links, 1);
  both[0].source += "// edited\n";
  EXPECT_EQ(how(), "one unit compiled");
  both[1].source += "// edited\n";
  EXPECT_EQ(how(), "other unit compiled");
  both[0] = units()[0]; // as it was at first, with the other one as it is now
  EXPECT_EQ(how(), "linked");
  linker.version = "fake 2";
  EXPECT_EQ(how(), "linked");
  both[0].options[1] = "--maxrregcount=32";
  EXPECT_EQ(how(), "one unit compiled");
  for (CompileRequest &unit : both)
    unit.headers.push_back({"h.h", "1"});
  EXPECT_EQ(how(), "compiled");

  // A unit that is there and was changed by somebody is made anew.
  std::filesystem::resize_file(cache.path(KernelCache::key(both[1], nvrtc->identity()), ".cubin"), 100);
  linker.version = "fake 3";
  EXPECT_EQ(how(), "other unit compiled");

  // What cannot be linked is told each time, and nothing of it is kept.
  linker.version = "fake 4";
  linker.fails = true;
  EXPECT_EQ(how(), "not: no way");
  EXPECT_EQ(how(), "not: no way");
  linker.fails = false;
  EXPECT_EQ(how(), "linked");
  EXPECT_EQ(diags.render(), "");

  // An error in one of them is an error, and the other one is not linked.
  const int links = linker.links;
  both[0].source = "error";
  EXPECT_EQ(how().substr(0, 5), "not: ");
  EXPECT_TRUE(diags.hasErrors());
  EXPECT_EQ(linker.links, links);
}

TEST_F(UnitsTest, NvJitLinkLinksThem) {
  MEGALITH_NVRTC_OR_SKIP(nvrtc, diags);
  std::string why;
  const std::unique_ptr<Linker> linker = openNvJitLink(nvrtc->path(), why);
  if (!linker)
    GTEST_SKIP() << why;
  EXPECT_EQ(linker->identity().substr(0, 10), "nvJitLink ");
  std::vector<CompileRequest> both = units();
  auto result = compileLinked(*nvrtc, cache, *linker, both, why, diags);
  ASSERT_TRUE(result) << why << diags.render();
  EXPECT_EQ(result->cubin.substr(1, 3), "ELF");
  ASSERT_EQ(result->kernels.size(), 1u);
  EXPECT_EQ(result->kernels[0].kernel, "k");
  // Without the function that it calls.
  both.erase(both.begin());
  EXPECT_FALSE(compileLinked(*nvrtc, cache, *linker, both, why, diags));
  EXPECT_NE(why.find("called"), std::string::npos) << why;
  EXPECT_EQ(diags.render(), "");
  ScopedEnv none("MEGALITH_NVJITLINK", "/nonexistent/libnvJitLink.so");
  EXPECT_FALSE(openNvJitLink(nvrtc->path(), why));
  EXPECT_NE(why.find("/nonexistent/libnvJitLink.so"), std::string::npos) << why;
}

TEST_F(UnitsTest, OneWhoMakesAnEntryIsWaitedFor) {
  const std::string a = KernelCache::key({"a"}), b = KernelCache::key({"b"});
  std::atomic<bool> made = false, seen = false;
  auto making = std::make_unique<KernelCache::Making>(cache, a);
  {
    KernelCache::Making another(cache, b);
  } // of another entry: at once
  waiting::Waiter waits([&] {
    KernelCache::Making same(cache, a);
    seen = made.load();
  });
  waits.waitUntilAsleep();
  made = true;
  making.reset();
  waits.join();
  EXPECT_TRUE(seen);
}

TEST_F(UnitsTest, ObjectsOfTheHostAreTakenFromTheCacheToo) {
  ScopedEnv cxx("MEGALITH_HOST_CXX", hostCompilers().at(0));
  auto compiler = HostCompiler::open(diags);
  ASSERT_TRUE(compiler) << diags.render();
  HostCompileRequest request = hostRequest("extern \"C\" int called() { return 1; }\n");
  request.units[0].name = "one unit";
  request.units.push_back(request.units[0]);
  request.units[1].name = "other unit";
  request.units[1].source = "#include \"megalith/Device.cuh\"\nextern \"C\" int called();\n"
                            "extern \"C\" __global__ int k() { return called(); }\n";
  const auto run = [&] {
    auto result = compileHostCached(*compiler, cache, request, diags);
    if (!result)
      return "not: " + diags.render();
    return fmt::format("{}, {}", result->how, Library(result->path).get<int()>("k")());
  };
  EXPECT_EQ(run(), "compiled, 1");
  EXPECT_EQ(run(), "taken from the kernel cache, 1");
  const std::string first = request.units[0].source;
  request.units[0].source = "extern \"C\" int called() { return 2; }\n";
  EXPECT_EQ(run(), "one unit compiled, 2");
  request.units[1].source += "// edited\n";
  EXPECT_EQ(run(), "other unit compiled, 2");
  request.units[0].source = first;
  EXPECT_EQ(run(), "linked, 1");
  // A header that nobody includes changes nothing; one that a unit includes changes this unit.
  request.headers.push_back({"megalith/Other.h", "1"});
  EXPECT_EQ(run(), "taken from the kernel cache, 1");
  request.units[0].source += "#include \"megalith/Other.h\"\n";
  request.headers.back().text = "// nothing\n";
  EXPECT_EQ(run(), "one unit compiled, 1");
  request.headers.back().text = "// edited\n";
  EXPECT_EQ(run(), "one unit compiled, 1");
  EXPECT_EQ(diags.render(), "");
  request.units[0].source = "";
  EXPECT_NE(run().find("called"), std::string::npos);
}

} // namespace
} // namespace megalith::jit
