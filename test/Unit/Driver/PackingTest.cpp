// How weights come into the kernel's order: megalith_pack on the CPU executor.
#include "megalith/Driver/Compilation.h"
#include "runtime/Fill.h"
#include "runtime/cpu/CpuEngine.h"
#include "test/Unit/Checkpoint/TempDir.h"
#include <fstream>
#include <gtest/gtest.h>

using namespace megalith;

namespace {

std::string readSource(const std::string &path) {
  std::ifstream file(MEGALITH_SOURCE_DIR "/" + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class PackingTest : public ::testing::Test {
protected:
  struct Compiled {
    std::string path, manifest;
  };
  Compiled compile(const std::string &tied, const std::string &file = "pipelines/autoregressive.yaml") {
    driver::CompileOptions options;
    options.file = file[0] == '/' ? file : MEGALITH_SOURCE_DIR "/" + file;
    options.models = {{"", dir.write("shape.json", R"({"model_type": "llama", "hidden_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 50,
        "vocab_size": 70, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": )" +
                                                       tied + "}")}};
    options.sets = {{"slots", "2"}, {"kv_pages", "20"}, {"page_tokens", "4"}, {"rows_per_pass", "16"}};
    options.profile = "cpu";
    auto compiled = driver::compile(options, diags);
    EXPECT_TRUE(compiled) << diags.render();
    auto plan = driver::makePlan(compiled->module, options, diags);
    EXPECT_TRUE(plan) << diags.render();
    const auto source = driver::emitSource(compiled->module, *plan, diags);
    emit::Units units = source.units;
    units.more = {"bench.cu", "#include \"megalith/Bench.cuh\"\n"};
    auto kernel = driver::assembleHost(units, {.arch = 900}, diags);
    EXPECT_TRUE(kernel) << diags.render();
    return {kernel->path, source.manifest};
  }

  TempDir dir;
  SourceFiles sources;
  Diagnostics diags{sources};
};

/// Byte for byte what one launch made when all tensors lay on the device at once.
TEST_F(PackingTest, TheStreamDoesNotDependOnHowWeightsAreBrought) {
  for (const bool tied : {false, true}) {
    const Compiled kernel = compile(tied ? "true" : "false");
    // One batch; many; pieces that end within the 16 bytes of a lane; no more than a lane's 16 bytes at a time.
    for (const size_t most : {32 << 20, 20000, 1034, 16}) {
      uint64_t batches = 0, last = 0;
      runtime::LoadOptions how;
      how.batchBytes = most;
      how.progress = [&](uint64_t done, uint64_t total) {
        ++batches;
        EXPECT_GT(done, last);
        EXPECT_LE(last = done, total);
      };
      if (most == 16 && tied)
        continue; // thousands of launches
      auto engine = cpu::CpuEngine::loadRandom(kernel.path, kernel.manifest, how);
      ASSERT_TRUE(engine) << engine.error.message;
      EXPECT_EQ((*engine)->packedWeights().size(), 316032u);
      EXPECT_EQ(runtime::crc32((*engine)->packedWeights()), tied ? 0xa1e33ab6u : 0xad9ac2b5u) << most << tied;
      EXPECT_EQ(batches == 1, most == 32 << 20) << batches;
      // The tokens' table alone stays as it is.
      EXPECT_EQ((*engine)->weightBytes().byRow, 70 * 40 * 2u);
    }
  }
}

/// Rows, columns and single elements of one tensor, which may lie in different batches.
TEST_F(PackingTest, NorDoesThatOfViews) {
  const auto replaced = [](std::string text, const std::string &from, const std::string &to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  std::string model = readSource("pipelines/models/llama.yaml");
  for (const char *name : {"attn_norm", "mlp_norm", "wq", "wk", "wv", "wo", "gate", "up"}) {
    const size_t at = model.find(std::string("\n    ") + name + ": ");
    model.erase(at, model.find('\n', at + 1) - at);
  }
  model =
      replaced(model, "    down: ", R"(    wqkv: {shape: '[(heads + 2 * kv_heads) * head_dim, hidden]', from: '{i}.qkv'}
    wo: {shape: '[hidden, heads * head_dim]', transposed: true, from: '{i}.o'}
    gate_up: {shape: '[ffn, 2, hidden]', transposed: true, from: '{i}.gate_up'}
    norms: {shape: '[2, hidden]', transposed: true, from: '{i}.norms'}
    down: )");
  model = replaced(model, "attn_norm,", "norms[0],");
  model = replaced(model, "mlp_norm,", "norms[1],");
  model = replaced(model, "wq)", "wqkv[:heads * head_dim])");
  model = replaced(model, "wk)", "wqkv[heads * head_dim:(heads + kv_heads) * head_dim])");
  model = replaced(model, "wv)", "wqkv[(heads + kv_heads) * head_dim:])");
  model = replaced(model, "gate)", "gate_up[:, 0])");
  model = replaced(model, "matmul(h, up)", "matmul(h, gate_up[:, 1])");
  model = replaced(model, "shared: harmless.yaml", "shared: " MEGALITH_SOURCE_DIR "/pipelines/models/harmless.yaml");
  const std::string graph = dir.write("views.yaml", model);
  const std::string pipeline =
      replaced(readSource("pipelines/autoregressive.yaml"), "target: {}", "target: {graph: " + graph + "}");
  const Compiled kernel = compile("false", dir.write("pipeline.yaml", pipeline));
  std::optional<unsigned> first;
  for (const size_t most : {32 << 20, 1034, 200}) {
    auto engine = cpu::CpuEngine::loadRandom(kernel.path, kernel.manifest, {.batchBytes = most});
    ASSERT_TRUE(engine) << engine.error.message;
    EXPECT_EQ((*engine)->packedWeights().size(), 316032u); // as of weights that have tensors of their own
    const unsigned crc = runtime::crc32((*engine)->packedWeights());
    EXPECT_EQ(crc, first.value_or(crc)) << most;
    first = crc;
    EXPECT_EQ((*engine)->weightBytes().byRow, 70 * 40 * 2u);
  }
}

/// Codes, scales and zero points of one matrix may lie in different batches, and words of codes end within one.
TEST_F(PackingTest, NorDoesThatOfCodes) {
  const std::string plain = dir.path() + "/plain", tools = MEGALITH_SOURCE_DIR "/tools/";
  const std::string shape =
      R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 96, "vocab_size": 70, "tie_word_embeddings": true})";
  const auto python = [&](const std::string &command) { return std::system(("python3 -B " + command).c_str()); };
  ASSERT_EQ(python(tools + "make_random_model.py --shape '" + shape + "' --out " + plain + " > /dev/null"), 0);
  for (const char *format : {"awq", "ct-int8-asym"}) {
    const std::string model = dir.path() + "/" + format;
    ASSERT_EQ(python(tools + "quantise_checkpoint.py " + plain + " --group 32 --block 32 32 --format " + format +
                     " --out " + model),
              0);
    driver::CompileOptions options;
    options.file = MEGALITH_SOURCE_DIR "/pipelines/autoregressive.yaml";
    options.models = {{"", model}};
    options.needWeights = true;
    options.sets = {{"slots", "2"}, {"kv_pages", "20"}, {"page_tokens", "4"}, {"rows_per_pass", "16"}};
    options.profile = "cpu";
    auto compiled = driver::compile(options, diags);
    ASSERT_TRUE(compiled) << diags.render();
    auto plan = driver::makePlan(compiled->module, options, diags);
    ASSERT_TRUE(plan) << diags.render();
    const auto source = driver::emitSource(compiled->module, *plan, diags);
    auto kernel = driver::assembleHost(source.units, {.arch = 900}, diags);
    ASSERT_TRUE(kernel) << diags.render();
    const driver::LoadedModel &loaded = compiled->models.front();
    const runtime::Checkpoints weights({&*loaded.weights}, {loaded.checked.quantisation.get()});
    std::optional<unsigned> first;
    for (const size_t most : {32 << 20, 9000, 2500}) {
      auto engine = cpu::CpuEngine::load(kernel->path, source.manifest, weights, {.batchBytes = most});
      ASSERT_TRUE(engine) << engine.error.message;
      const unsigned crc = runtime::crc32((*engine)->packedWeights());
      EXPECT_EQ(crc, first.value_or(crc)) << format << " " << most;
      first = crc;
    }
  }
}

} // namespace
