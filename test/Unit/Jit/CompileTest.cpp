#include "JitTestHelper.h"

using namespace megalith;
using namespace megalith::jit;

namespace {

/// 64 live values and 400 bytes of static shared memory.
const char *const fullKernel = R"(#include "megalith/Values.cuh"
extern "C" __global__ void full(float *p, int n) {
  __shared__ float s[100];
  float a[valueCount];
#pragma unroll
  for (int i = 0; i < valueCount; i++)
    a[i] = p[i * n + threadIdx.x];
  s[threadIdx.x % 100] = a[3];
  __syncthreads();
  for (int j = 0; j < n; j++)
#pragma unroll
    for (int i = 0; i < valueCount; i++)
      a[i] = a[i] * a[(i + 7) % valueCount] + s[i];
#pragma unroll
  for (int i = 0; i < valueCount; i++)
    p[i] = a[i];
}
extern "C" __global__ void empty() {}
)";

struct CompileTest : ::testing::Test {
  SourceFiles files;
  Diagnostics diags{files};
  CompileRequest request{
      fullKernel, "full.cu", {{"megalith/Values.cuh", "constexpr int valueCount = 64;\n"}}, "sm_80", {}};
};

TEST_F(CompileTest, compilesForEveryArchitecture) {
  MEGALITH_NVRTC_OR_SKIP(nvrtc, diags);
  for (const char *arch : {"sm_80", "sm_90a", "sm_100a"}) {
    request.arch = arch;
    auto result = compileCuda(*nvrtc, request, diags);
    ASSERT_TRUE(result) << diags.render();
    EXPECT_EQ(result->cubin.substr(1, 3), "ELF") << arch;
    EXPECT_NE(result->ptx.find(std::string(".target ") + arch), std::string::npos) << arch;
    EXPECT_FALSE(result->cacheHit);
    EXPECT_GT(result->milliseconds, 0);
    ASSERT_EQ(result->kernels.size(), 2u) << result->log;
    EXPECT_EQ(result->kernels[0].kernel, "empty");
    EXPECT_EQ(result->kernels[1].kernel, "full");
    EXPECT_GE(result->kernels[1].registers, 64);
    EXPECT_EQ(result->kernels[1].sharedBytes, 400);
    EXPECT_FALSE(result->kernels[1].spills());
  }
}

TEST_F(CompileTest, compilesSeveralSideBySide) {
  MEGALITH_NVRTC_OR_SKIP(nvrtc, diags);
  std::vector<CompileRequest> requests = {request, request, request};
  requests[1].arch = "sm_90a";
  const auto make = [&](size_t i, Diagnostics &own) { return compileCuda(*nvrtc, requests[i], own); };
  auto all = sideBySide(2, make, diags);
  ASSERT_TRUE(all) << diags.render();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_NE((*all)[0].ptx.find(".target sm_80"), std::string::npos);
  EXPECT_NE((*all)[1].ptx.find(".target sm_90a"), std::string::npos);
  requests[0].source = requests[2].source = "error"; // told once
  EXPECT_FALSE(sideBySide(3, make, diags));
  EXPECT_EQ(diags.errors(), 1u) << diags.render();
  EXPECT_THROW((void)sideBySide(
                   2,
                   [](size_t i, Diagnostics &) -> std::optional<CompileResult> {
                     return i ? throw std::bad_alloc() : std::optional<CompileResult>(CompileResult());
                   },
                   diags),
               std::bad_alloc);
  EXPECT_TRUE(sideBySide(0, make, diags)->empty());
}

TEST_F(CompileTest, reportsSpills) {
  MEGALITH_NVRTC_OR_SKIP(nvrtc, diags);
  request.options = {"--maxrregcount=24"};
  auto result = compileCuda(*nvrtc, request, diags);
  ASSERT_TRUE(result) << diags.render();
  const KernelResources &full = result->kernels.at(1);
  EXPECT_EQ(full.registers, 24);
  EXPECT_GT(full.spillStores, 0);
  EXPECT_GT(full.spillLoads, 0);
  EXPECT_GT(full.stackBytes, 0);
  EXPECT_TRUE(full.spills());
}

TEST_F(CompileTest, errorsComeBackAtTheLineOfTheYaml) {
  MEGALITH_NVRTC_OR_SKIP(nvrtc, diags);
  files.add("foo.yaml", "state:\n  next: seen + 1\n");
  request.source = "extern \"C\" __global__ void k(int *p) {\n"
                   "#line 2 \"foo.yaml\"\n"
                   "  *p = seen + 1;\n"
                   "}\n";
  EXPECT_FALSE(compileCuda(*nvrtc, request, diags));
  EXPECT_EQ(diags.render(), "foo.yaml:2:3: error: the CUDA compiler rejected the code: identifier "
                            "\"seen\" is undefined [cuda-compile]\n"
                            "    2 |   next: seen + 1\n"
                            "      |   ^~~~~~~~~~~~~~\n"
                            "note: in the generated code: `*p = seen + 1;`\n");
}

TEST_F(CompileTest, optionsAndTheAssemblerCanFailToo) {
  MEGALITH_NVRTC_OR_SKIP(nvrtc, diags);
  request.arch = "sm_1";
  EXPECT_FALSE(compileCuda(*nvrtc, request, diags));
  request.arch = "sm_80";
  request.source = "extern \"C\" __global__ void k(float *a) {\n"
                   "  __shared__ float b[100000];\n"
                   "  b[threadIdx.x] = *a; __syncthreads(); *a = b[threadIdx.x + 1];\n}\n";
  EXPECT_FALSE(compileCuda(*nvrtc, request, diags));
  EXPECT_EQ(diags.errors(), 2u);
  EXPECT_NE(diags.render().find("gpu-architecture"), std::string::npos) << diags.render();
  EXPECT_NE(diags.render().find("kernel `k` has 400000 bytes of static shared"), std::string::npos) << diags.render();
}

TEST_F(CompileTest, saysThatNvrtcIsMissing) {
  ScopedEnv env("MEGALITH_NVRTC", "/nonexistent/libnvrtc.so");
  EXPECT_EQ(Nvrtc::candidates(), std::vector<std::string>{"/nonexistent/libnvrtc.so"});
  EXPECT_FALSE(Nvrtc::open(diags));
  EXPECT_NE(diags.render().find("[nvrtc-not-found]"), std::string::npos) << diags.render();
  EXPECT_NE(diags.render().find("/nonexistent/libnvrtc.so"), std::string::npos);
}

TEST_F(CompileTest, saysThatNvrtcIsTooOld) {
  TemporaryDirectory dir;
  // A library with NVRTC's symbols that says it is 11.8.
  std::string command = "printf '%s' 'int nvrtcVersion(int *a, int *b) { *a = 11; *b = 8; return 0; }";
  for (const char *name : {"GetErrorString", "CreateProgram", "DestroyProgram", "CompileProgram", "GetProgramLogSize",
                           "GetProgramLog", "GetPTXSize", "GetPTX", "GetCUBINSize", "GetCUBIN"})
    command += std::string(" int nvrtc") + name + "(void) { return 1; }";
  command += "' | cc -shared -fPIC -x c - -o " + (dir / "libnvrtc.so");
  ASSERT_EQ(std::system(command.c_str()), 0);
  ScopedEnv env("MEGALITH_NVRTC", dir / "libnvrtc.so");
  EXPECT_FALSE(Nvrtc::open(diags));
  EXPECT_NE(diags.render().find("NVRTC 12.8 or newer is needed, found 11.8 in `" + (dir / "libnvrtc.so") +
                                "` [nvrtc-too-old]"),
            std::string::npos)
      << diags.render();
}

TEST_F(CompileTest, searchesToolkitsAndThePythonPackage) {
  TemporaryDirectory dir;
  std::string toolkit = dir / "cuda/targets/x86_64-linux/lib";
  std::string package = dir / "venv/lib/python3.12/site-packages/nvidia/cu13/lib";
  for (const std::string &lib : {toolkit, package}) {
    std::filesystem::create_directories(lib);
    std::system(("touch " + lib + "/libnvrtc.so.13").c_str());
  }
  ScopedEnv none("MEGALITH_NVRTC", ""), home("CUDA_HOME", dir / "cuda"), venv("VIRTUAL_ENV", dir / "venv");
  std::vector<std::string> found = Nvrtc::candidates();
  auto place = [&](const std::string &path) { return std::find(found.begin(), found.end(), path) - found.begin(); };
  EXPECT_EQ(place("libnvrtc.so.13"), 0);
  EXPECT_LT(place(toolkit + "/libnvrtc.so.13"), place(package + "/libnvrtc.so.13"));
  EXPECT_LT(place(package + "/libnvrtc.so.13"), long(found.size()));
  // Not where the program was built: whoever has that folder now is somebody else, perhaps.
  for (const std::string &path : found)
    EXPECT_EQ(path.find(MEGALITH_SOURCE_DIR "/"), std::string::npos) << path;
}

} // namespace
