#include "megalith/Checkpoint/Quantisation.h"
#include "device/Convert.h"
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace megalith;
using nlohmann::json;

namespace {

const char *const Fp8 = R"({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
  "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "layers.[01]"], "ignored_layers": null})";
const char *const Fbgemm =
    R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["proj"]})";
const char *const Awq = R"({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "GEMM",
  "modules_to_not_convert": ["visual"]})";
const char *const Gptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true, "sym": false,
  "checkpoint_format": "gptq_v2", "meta": {"quantizer": ["gptqmodel:7"]}, "pack_dtype": "int32",
  "dynamic": {"-:.*\\.down_proj": {}, "+:.*\\.up_proj": {"bits": 8, "group_size": -1, "sym": true}}})";
const char *const Compressed =
    R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head",
  "re:.*gate.*"], "kv_cache_scheme": null, "sparsity_config": {}, "transform_config": {}, "config_groups": {"group_0":
  {"targets": ["Linear"], "input_activations": null, "output_activations": null, "weights": {"num_bits": 4, "type": "int",
  "strategy": "group", "group_size": 32, "symmetric": false, "dynamic": false, "actorder": null, "observer": "minmax"}},
  "group_1": {"targets": ["re:.*o_proj"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel",
  "symmetric": true, "dynamic": false}}, "group_2": {"targets": ["model.layers.3.self_attn.o_proj"], "format":
  "float-quantized", "input_activations": {"type": "float", "dynamic": true}, "weights": {"num_bits": 8, "type": "float",
  "strategy": "block", "block_structure": [64, 96], "symmetric": true, "dynamic": false}}}})";

std::optional<Quantisation> read(const json &quantisation, std::vector<Quantisation::Problem> &problems) {
  const auto config = ConfigFile::parse(json{{"quantization_config", quantisation}}.dump());
  return Quantisation::read(*config, problems);
}
Quantisation readRight(const char *text) {
  std::vector<Quantisation::Problem> problems;
  auto found = read(json::parse(text), problems);
  EXPECT_TRUE(problems.empty()) << problems.front().key << ": " << problems.front().text;
  return found.value();
}

TEST(Quantisation, ModulesByTheirNames) {
  const WeightScheme none, blocks{WeightFormat::E4m3, 128, 128};
  const Quantisation fp8 = readRight(Fp8);
  EXPECT_EQ(fp8.schemeOf("lm_head", 256), none);
  EXPECT_EQ(fp8.schemeOf("model.layers.0.mlp.up_proj", 256), blocks);
  EXPECT_EQ(fp8.schemeOf("layers.0.up_proj", 256), none) << "an expression begins with the name";
  EXPECT_EQ(fp8.schemeOf("my.lm_head.inner", 256), none) << "parts in the middle";
  EXPECT_EQ(fp8.schemeOf("my_lm_head", 256), blocks) << "no part of a part";
  EXPECT_TRUE(fp8.quantisesActivations());
  // A skip list matched as a substring would leave out `gate_proj` for `proj`.
  EXPECT_EQ(readRight(Fbgemm).schemeOf("model.layers.0.mlp.gate_proj", 256), (WeightScheme{WeightFormat::E4m3, 1, 0}));
  EXPECT_EQ(readRight(Fbgemm).schemeOf("model.layers.0.proj", 256), none);
}

TEST(Quantisation, GroupsByHowSpecialTheirTargetsAre) {
  const Quantisation of = readRight(Compressed);
  EXPECT_EQ(of.schemeOf("model.layers.3.self_attn.q_proj", 256), (WeightScheme{WeightFormat::U4, 1, 32, true}));
  EXPECT_EQ(of.schemeOf("model.layers.2.self_attn.o_proj", 256), (WeightScheme{WeightFormat::U8, 1, 0}));
  EXPECT_EQ(of.schemeOf("model.layers.3.self_attn.o_proj", 256), (WeightScheme{WeightFormat::E4m3, 64, 96}));
  EXPECT_EQ(of.schemeOf("model.layers.3.mlp.gate_proj", 256), WeightScheme());
  const Quantisation gptq = readRight(Gptq);
  EXPECT_EQ(gptq.schemeOf("a.q_proj", 256), (WeightScheme{WeightFormat::U4, 1, 128, true, true}));
  EXPECT_EQ(gptq.schemeOf("a.q_proj", 128), (WeightScheme{WeightFormat::U4, 1, 0, true})) << "one group is none";
  EXPECT_EQ(gptq.schemeOf("a.up_proj", 256), (WeightScheme{WeightFormat::U8, 1, 0}));
  EXPECT_EQ(gptq.schemeOf("a.down_proj", 256), WeightScheme());
}

/// Puts each of some values in the place of each value below `object`, and calls `look` with the whole.
void replaceEach(json &whole, json &object, const std::function<void()> &look) {
  static const json odd[] = {nullptr,       true, -7, 1e300, "x", json::array(), json::object(), json::array({1, "a"}),
                             json{{"a", 1}}};
  for (json &inner : object) {
    const json kept = inner;
    for (const json &value : odd) {
      inner = value;
      look();
    }
    inner = kept;
    if (inner.is_structured())
      replaceEach(whole, inner, look);
  }
}

TEST(Quantisation, OddValuesAreProblems) {
  for (const char *text : {Fp8, Fbgemm, Awq, Gptq, Compressed}) {
    json whole = json::parse(text);
    replaceEach(whole, whole, [&] {
      std::vector<Quantisation::Problem> problems;
      const auto found = read(whole, problems);
      EXPECT_EQ(found.has_value(), problems.empty()) << whole;
      if (found)
        (void)found->schemeOf("model.layers.0.self_attn.o_proj", 256);
      for (const Quantisation::Problem &problem : problems)
        EXPECT_TRUE(problem.key.starts_with("quantization_config") && !problem.text.empty()) << whole;
    });
  }
}

TEST(Quantisation, EachE4m3IsABf16) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float value = std::bit_cast<float>(uint32_t(convert::bf16OfE4m3(static_cast<unsigned char>(code))) << 16);
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const double size = exponent ? std::ldexp(1 + mantissa / 8.0, exponent - 7) : std::ldexp(mantissa / 8.0, -6);
    EXPECT_EQ(value, code & 128 ? -size : size) << code;
    EXPECT_EQ(std::signbit(value), (code & 128) != 0) << code;
  }
}

TensorView view(DType dtype, std::vector<int64_t> shape, const void *data, uint64_t size) {
  return {dtype, std::move(shape), static_cast<const uint8_t *>(data), size};
}

TEST(Quantisation, CodesInWords) {
  // Two rows of eight columns: rows 0 and 1 have codes 0 to 7 and 8 to 15.
  const auto codesOf = [](CodeLayout layout, const TensorView &codes, int64_t rows) {
    QuantisedTensor of;
    of.scheme = {WeightFormat::U4, 1, 0};
    of.layout = layout;
    of.rows = rows;
    of.columns = 8;
    of.codes = &codes;
    std::vector<int> found;
    std::vector<uint8_t> row(8);
    for (int64_t r = 0; r < 2; ++r) {
      of.readCodes(r, row.data());
      found.insert(found.end(), row.begin(), row.end());
    }
    return found;
  };
  const std::vector<int> wanted = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const uint32_t rows[] = {0x76543210, 0xfedcba98};
  const TensorView packed = view(DType::I32, {2, 1}, rows, sizeof(rows));
  EXPECT_EQ(codesOf(CodeLayout::PackedRows, packed, 2), wanted);
  const TensorView turned = view(DType::I32, {1, 2}, rows, sizeof(rows));
  EXPECT_EQ(codesOf(CodeLayout::PackedGptq, turned, 2), wanted);
  uint32_t awq[8]; // of eight rows: row 0 is nibble 0, row 1 nibble 4
  for (uint32_t k = 0; k < 8; ++k)
    awq[k] = k | (8 + k) << 16;
  const TensorView columns = view(DType::I32, {8, 1}, awq, sizeof(awq));
  EXPECT_EQ(codesOf(CodeLayout::PackedAwq, columns, 8), wanted);
}

TEST(Quantisation, ZeroPointsOfVersionOneAreLessInTheWholeWord) {
  QuantisedTensor of;
  of.scheme = {WeightFormat::U4, 1, 0, true};
  of.layout = CodeLayout::PackedGptq1;
  of.rows = of.columns = 8;
  // Zero points 8, 0, 3, ...: the writer takes 0x11111111 away, and the second one borrows.
  const uint32_t word = 0x00000308u - 0x11111111u + 0x00fedc00u * 0x1000u;
  const TensorView zeros = view(DType::I32, {1, 1}, &word, sizeof(word));
  of.zeroPoints = &zeros;
  const auto found = of.readZeroPoints();
  EXPECT_EQ(std::vector<int>(found.begin(), found.begin() + 3), (std::vector<int>{8, 0, 3}));
}

TEST(Quantisation, AnOrderSortsColumnsByTheirGroups) {
  QuantisedTensor of;
  of.columns = 6;
  const int32_t groups[] = {1, 0, 2, 0, 2, 1};
  const TensorView order = view(DType::I32, {6}, groups, sizeof(groups));
  of.order = &order;
  EXPECT_EQ(of.readOrder(), (std::vector<int32_t>{1, 3, 0, 5, 2, 4}));
}

} // namespace
