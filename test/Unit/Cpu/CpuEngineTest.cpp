// Kernels that are made here by hand, with the system's compiler.
#include "runtime/cpu/CpuEngine.h"
#include "test/Unit/Checkpoint/TempDir.h"
#include "test/Unit/Runtime/TinyManifest.h"
#include <gtest/gtest.h>

using namespace megalith;
using namespace megalith::cpu;
using megalith::Request;
using runtime::RunOptions;

namespace {

/// What Hooks.cpp gives to every kernel, and thread 0 of CTA 0.
const char *const prelude = R"(
#include "device/Abi.h"
#include "device/cpu/Host.h"
using namespace megalith;
static const cpu::Host *host;
static bool first() { return (*host->current)->cta == 0 && (*host->current)->thread == 0; }
extern "C" {
extern const int megalith_cpu_version;
const int megalith_cpu_version = cpu::kHostVersion;
struct Facts { int abi, paramsBytes, others[21]; };
extern const Facts megalith_control_facts, megalith_tensor_facts;
const Facts megalith_control_facts = {abi::kAbiVersion, sizeof(abi::LaunchParams), {1, 0, 0, 0, 0, 0, 0, 0, 1}};
#ifdef MISFIT
const Facts megalith_tensor_facts = {abi::kAbiVersion, sizeof(abi::LaunchParams), {2, 0, 0, 0, 0, 0, 0, 0, 1}};
#else
const Facts megalith_tensor_facts = megalith_control_facts;
#endif
void megalith_cpu_bind(const cpu::Host *bound) { host = bound; }
)";

const char *const pack = R"(
void megalith_pack(abi::LaunchParams p, const abi::RawTensor *raw, char *stream) {
  if (first())
    stream[0] = static_cast<const char *>(raw[1].data)[2]; // of the second layer
}
)";

/// One token per request, made of everything that must be as it was before each run.
const char *const run = R"(
void megalith_run(abi::LaunchParams p) {
  if (!first())
    return;
  for (int i = 0; i < p.numRequests; ++i) {
    auto &r = *reinterpret_cast<abi::RequestHeader *>(p.requests + i * 112);
    r.state = 0;
    r.passes += 1;
    p.tokens[r.tokenBegin + r.promptLen] =
        p.models[0].stream[0] + 10 * (1 + p.models[0].freeList[0]) + 100 * r.passes + 1000 * (*host->current)->ctas + 10000 * r.generated;
    r.generated += 1;
    *p.models[0].freeList -= 1;
    p.metrics[0] += p.tokens[r.tokenBegin];
  }
  p.stats->ticks += 1;
  p.stats->rows += p.delaySeed;
}
)";

class CpuEngineTest : public ::testing::Test {
protected:
  CpuEngineTest() {
    std::string header = R"({"layers.0.w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
                             "layers.1.w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [12, 24]}})";
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size() & 255);
    file[1] = static_cast<char>(header.size() >> 8);
    file += header;
    for (char c = 0; c < 24; ++c)
      file += c;
    auto opened = SafetensorsFile::open(dir.write("model.safetensors", file));
    EXPECT_TRUE(opened);
    weights.emplace(std::move(*opened.value));
  }

  /// A shared object of these pieces of C++; its path.
  std::string compile(const std::string &source) {
    std::string from = dir.write("kernel.cpp", source), to = dir.path() + "/" + std::to_string(++kernels) + ".so";
    std::string command = "c++ -std=c++20 -shared -fPIC -O1 -I '" MEGALITH_SOURCE_DIR "' -I '" MEGALITH_SOURCE_DIR
                          "/include' -o '" +
                          to + "' '" + from + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return to;
  }
  std::string kernel(const std::string &runs = run) { return compile(prelude + std::string(pack) + runs + "}"); }

  std::string errorOf(const std::string &path) {
    auto engine = CpuEngine::load(path, runtime::tinyManifest(), *weights);
    EXPECT_FALSE(engine);
    return engine.error.message + " [" + engine.error.kind + "]";
  }
  std::unique_ptr<CpuEngine> load(const std::string &path) {
    auto engine = CpuEngine::load(path, runtime::tinyManifest(), *weights);
    EXPECT_TRUE(engine) << engine.error.message;
    return std::move(*engine.value);
  }

  TempDir dir;
  std::optional<SafetensorsFile> weights;
  int kernels = 0;
};

const std::vector<Request> one = {{"a", {1, 2}, 1, {}, 0}};

TEST_F(CpuEngineTest, NotASharedObject) {
  const std::string path = dir.write("text.so", "no code");
  EXPECT_EQ(errorOf(path), "the kernel cannot be loaded: " + path + ": file too short [cpu-kernel]");
  EXPECT_EQ(errorOf(dir.path() + "/none.so"),
            "the kernel cannot be loaded: " + dir.path() +
                "/none.so: cannot open shared object file: No such file or directory [cpu-kernel]");
}

TEST_F(CpuEngineTest, SharedObjectOfAnother) {
  std::string path = compile("int x;");
  EXPECT_EQ(errorOf(path), "`" + path +
                               "` is no kernel for the CPU: it has no symbol `megalith_cpu_version` "
                               "[cpu-kernel]");
  path = compile("extern \"C\" { extern const int megalith_cpu_version; const int megalith_cpu_version = 77; }");
  EXPECT_EQ(errorOf(path), "`" + path + "` was compiled for version 77 of the CPU executor, this is version " +
                               std::to_string(kHostVersion) + "; compile the pipeline again [cpu-kernel]");
  path = compile(prelude + std::string(pack) + "}");
  EXPECT_EQ(errorOf(path), "`" + path + "` is no kernel for the CPU: it has no symbol `megalith_run` [cpu-kernel]");
  path = compile(prelude + std::string(run) + "}");
  EXPECT_EQ(errorOf(path), "`" + path + "` is no kernel for the CPU: it has no symbol `megalith_pack` [cpu-kernel]");
  path = compile("#define MISFIT\n" + std::string(prelude) + run + pack + "}");
  EXPECT_EQ(errorOf(path), "the units of the kernel do not fit: first byte of control's state in shared memory: 1 in "
                           "the control unit, 2 in the tensor unit; compile both again [kernel-units]");
}

TEST_F(CpuEngineTest, PackingThatNeverEnds) {
  std::string path = compile(prelude + std::string(run) + R"(
void megalith_pack(abi::LaunchParams p, const abi::RawTensor *raw, char *stream) {
  if (first())
    host->barrier(0, 256); // the others have returned
} })");
  std::string text = errorOf(path);
  EXPECT_TRUE(text.starts_with("packing the weights ended in deadlock: ") && text.ends_with(" [cpu-kernel]")) << text;
}

TEST_F(CpuEngineTest, WeightMissing) {
  std::string manifest = runtime::tinyManifest();
  manifest.replace(manifest.find("layers.{i}"), 10, "layer.{i}");
  auto engine = CpuEngine::load(kernel(), manifest, *weights);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error.message + " [" + engine.error.kind + "]",
            "tensor `layer.0.w` of the manifest is not in " + weights->path() + " [weight-missing]");
}

/// Results of weights that are partly others are none.
TEST_F(CpuEngineTest, WeightsThatChangedMeanwhile) {
  std::ofstream(weights->path(), std::ios::app | std::ios::binary) << "more";
  EXPECT_EQ(errorOf(kernel()), weights->path() + ": it changed while it was read [input-changed]");
}

TEST_F(CpuEngineTest, SaysWhatDoesNotFit) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself reports what does not fit";
#endif
  const std::string code = kernel();
  auto outcome = [&](const std::string &pages, int64_t newTokens, const RunOptions &options) {
    std::string manifest = runtime::tinyManifest();
    manifest.replace(manifest.find("\"pages\": 4"), 10, "\"pages\": " + pages);
    auto engine = CpuEngine::load(code, manifest, *weights);
    if (!engine)
      return engine.error.message + " [" + engine.error.kind + "]";
    auto out = (*engine)->run({{"a", {1, 2}, newTokens, {}, 0}}, options);
    return out ? "it fits" : out.error.message + " [" + out.error.kind + "]";
  };
  EXPECT_EQ(outcome("4", 1, {}), "it fits");
  const char *advice =
      "all buffers may have 32.0 GiB; make the KV pool (`pages`, `page_tokens`), the slots or the model "
      "smaller [out-of-memory]";
  EXPECT_EQ(outcome("2147483647", 1, {}),
            std::string("the CPU executor has no room for 64.0 GiB of `kCache`: ") + advice);
  // A product beyond 64 bits.
  EXPECT_EQ(outcome("4611686018427387904", 1, {}),
            std::string("the CPU executor has no room for 4.0 EiB of `kCache`: ") + advice);
  RunOptions traced;
  traced.trace = true;
  traced.traceBytes = size_t(1) << 40;
  EXPECT_EQ(outcome("4", 1, traced), std::string("the CPU executor has no room for 1.0 TiB of `trace`: ") + advice);
  // What the host itself needs.
  EXPECT_EQ(outcome("4", int64_t(1) << 58, {}), "there is not enough memory for this run; make the KV pool (`pages`, "
                                                "`page_tokens`), the slots or `rows_per_pass` "
                                                "smaller, or run fewer requests at a time [out-of-memory]");
}

TEST_F(CpuEngineTest, EveryRunStartsAnew) {
  auto engine = load(kernel());
  const std::vector<Request> two = {{"b", {3}, 2, {}, 0}, {"c", {4}, 2, {}, 0}};
  // Checked and not, the same requests and others: nothing of a run is left in the next.
  for (bool check : {false, true, true, false})
    for (int times = 0; times < 2; ++times) {
      LaunchOptions how;
      how.check = check;
      RunOptions options;
      options.delaySeed = times + 5;
      auto out = engine->run(one, options, how);
      ASSERT_TRUE(out) << out.error.message;
      ASSERT_FALSE(out->launch.finding) << out->launch.finding->what;
      ASSERT_EQ(out->run.requests.size(), 1u);
      EXPECT_EQ(out->run.requests[0].id, "a");
      EXPECT_EQ(out->run.requests[0].tokens, std::vector<int32_t>{14 + 40 + 100 + 3000});
      EXPECT_EQ(out->run.requests[0].finish, "length");
      EXPECT_EQ(out->run.metrics.at("hits"), 1);
      EXPECT_EQ(out->run.ticks, 1);
      EXPECT_EQ(out->run.rows, times + 5) << "the seed is not that of the run before";
      auto other = engine->run(two, {}, how);
      ASSERT_TRUE(other);
      EXPECT_EQ(other->run.requests[0].tokens, std::vector<int32_t>{14 + 40 + 100 + 3000});
      EXPECT_EQ(other->run.requests[1].tokens, std::vector<int32_t>{14 + 30 + 100 + 3000});
      EXPECT_EQ(other->run.metrics.at("hits"), 7);
    }
  RunOptions wrong;
  wrong.corruptions = {{1, 0, "none", 1}};
  EXPECT_EQ(engine->run(one, wrong).error.kind, "corrupt-field");
  EXPECT_TRUE(engine->run(one, {}));
}

/// Two engines of one shared object, which the loader loads once.
TEST_F(CpuEngineTest, EnginesShareACode) {
  const std::string path = kernel();
  auto a = load(path), b = load(path);
  EXPECT_TRUE(a->run(one, {}));
  EXPECT_TRUE(b->run(one, {}));
  b.reset();
  auto out = a->run(one, {});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->run.requests[0].tokens, std::vector<int32_t>{14 + 40 + 100 + 3000});
}

/// A checked run finds what only zeroed memory hides, and gives the counts so far.
TEST_F(CpuEngineTest, ReadsNothingThatNobodyWrote) {
  for (const char *buffer : {"callTokens", "pageTable", "kCache", "vCache", "workspace"}) {
    auto engine = load(kernel("void megalith_run(abi::LaunchParams p) {\n"
                              "  if (!first()) return;\n"
                              "  p.stats->ticks = 6;\n"
                              "  if (host->access) host->access(p." +
                              std::string(buffer == std::string("callTokens") ? "" : "models[0].") + buffer +
                              ", 4, 0, __builtin_return_address(0));\n}\n"));
    LaunchOptions how;
    EXPECT_FALSE(engine->run(one, {}, how)->launch.finding) << buffer;
    how.check = true;
    auto out = engine->run(one, {}, how);
    ASSERT_TRUE(out);
    ASSERT_TRUE(out->launch.finding) << buffer;
    EXPECT_EQ(out->launch.finding->kind, FindingKind::UnwrittenRead);
    EXPECT_TRUE(out->launch.finding->what.find("`" + std::string(buffer) + "`") != std::string::npos)
        << out->launch.finding->what;
    EXPECT_EQ(out->run.ticks, 6);
    EXPECT_TRUE(out->run.requests.empty());
  }
}

TEST_F(CpuEngineTest, WeightsAreConstant) {
  std::string manifest = runtime::tinyManifest();
  manifest.replace(manifest.find("\"index\": 0"), 10, "\"index\": 0, \"by_row\": true");
  for (const auto &[what, name] : {std::pair("weights[1]", "`layers.1.w`"), std::pair("stream", "`stream`")}) {
    const std::string path =
        kernel("void megalith_run(abi::LaunchParams p) {\n  if (first()) host->access(p.models[0]." +
               std::string(what) + ", 2, 1, __builtin_return_address(0));\n}\n");
    auto engine = CpuEngine::load(path, manifest, *weights);
    ASSERT_TRUE(engine) << engine.error.message;
    EXPECT_EQ((*engine)->weightBytes().read, 24u);
    EXPECT_EQ((*engine)->weightBytes().byRow, 24u);
    LaunchOptions how;
    how.check = true;
    auto out = (*engine)->run(one, {}, how);
    ASSERT_TRUE(out);
    ASSERT_TRUE(out->launch.finding);
    EXPECT_EQ(out->launch.finding->kind, FindingKind::ReadOnlyWrite);
    EXPECT_TRUE(out->launch.finding->what.find(name) != std::string::npos) << out->launch.finding->what;
    ASSERT_FALSE(out->launch.finding->parties.empty());
    EXPECT_GT((*engine)->offsetOf(out->launch.finding->parties[0].place.pc), 0u);
  }
}

/// Ticks and rows are the progress: steps without any end in a livelock.
TEST_F(CpuEngineTest, StepsWithoutTicksAreALivelock) {
  const std::string spin = R"(
void megalith_run(abi::LaunchParams p) {
  if (!first())
    return;
  for (int i = 0; i < 1000000; ++i) {
    host->atomic(cpu::AtomicOp::Add, p.sync, 4, 1, 0, cpu::Order::Relaxed, cpu::Scope::Gpu);
    PROGRESS;
  }
}
)";
  LaunchOptions how;
  how.maxIdleSteps = 300000; // it looks every now and then
  auto moves = load(kernel("#define PROGRESS p.stats->ticks += 1\n" + spin));
  auto stands = load(kernel("#define PROGRESS p.metrics[0] += 1\n" + spin));
  auto good = moves->run(one, {}, how), bad = stands->run(one, {}, how);
  ASSERT_TRUE(good && bad);
  EXPECT_FALSE(good->launch.finding);
  ASSERT_TRUE(bad->launch.finding);
  EXPECT_EQ(bad->launch.finding->kind, FindingKind::Livelock);
}

} // namespace
