#include "TempDir.h"
#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include <filesystem>
#include <gtest/gtest.h>
#include <numeric>

using namespace megalith;

static std::string fileText(const std::string &header, size_t dataBytes) {
  std::string text;
  uint64_t length = header.size();
  for (int i = 0; i < 8; ++i)
    text.push_back(static_cast<char>(length >> (8 * i)));
  text += header;
  for (size_t i = 0; i < dataBytes; ++i)
    text.push_back(static_cast<char>(i));
  return text;
}

/// The error of a file, as `kind: message`.
static std::string errorOf(const std::string &content) {
  TempDir dir;
  dir.write("model.safetensors", content);
  auto file = SafetensorsFile::load(dir.path());
  if (file)
    return "no error";
  EXPECT_EQ(file.error.file, dir.path() + "/model.safetensors");
  return file.error.kind + ": " + file.error.message;
}

static std::string tensor(const std::string &dtype, const std::string &shape, const std::string &offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

static std::string errorOfTensor(const std::string &dtype, const std::string &shape, const std::string &offsets,
                                 size_t dataBytes) {
  return errorOf(fileText("{\"a\":" + tensor(dtype, shape, offsets) + "}", dataBytes));
}

TEST(Safetensors, ReadsTensors) {
  TempDir dir;
  dir.write("model.safetensors",
            fileText("{\"__metadata__\":{\"format\":\"pt\"},\"b\":" + tensor("F32", "[]", "[12,16]") + ",\"a\":" +
                         tensor("BF16", "[2,3]", "[0,12]") + ",\"empty\":" + tensor("U8", "[0,7]", "[12,12]") + "}",
                     16));
  auto file = SafetensorsFile::load(dir.path());
  ASSERT_TRUE(file) << file.error.message;
  EXPECT_EQ(file->tensors().size(), 3u);
  const TensorView *a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::BF16);
  EXPECT_EQ(dtypeName(a->dtype), "BF16");
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a->shapeText(), "[2, 3]");
  EXPECT_EQ(a->size, 12u);
  EXPECT_EQ(a->data[11], 11);
  EXPECT_EQ(file->find("b")->data[0], 12);
  EXPECT_EQ(file->find("b")->size, 4u);
  EXPECT_EQ(file->find("empty")->size, 0u);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(Safetensors, ViewsSurviveMoves) {
  TempDir dir;
  dir.write("model.safetensors", fileText("{\"a\":" + tensor("U8", "[2]", "[0,2]") + "}", 2));
  auto file = SafetensorsFile::load(dir.path());
  const uint8_t *data = file->find("a")->data;
  SafetensorsFile moved = std::move(*file);
  EXPECT_EQ(moved.find("a")->data, data);
  EXPECT_EQ(data[1], 1);
}

TEST(Safetensors, Missing) {
  TempDir dir;
  auto file = SafetensorsFile::load(dir.path());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error.kind, "safetensors-missing");
  EXPECT_EQ(file.error.message,
            "there are no weights: neither this file nor `model.safetensors.index.json`; download them, too");
  EXPECT_EQ(file.error.file, dir.path() + "/model.safetensors");
  EXPECT_EQ(SafetensorsFile::load(dir.write("file", "")).error.message, "cannot read the weights: Not a directory");
  EXPECT_EQ(SafetensorsFile::open(dir.path()).error.message, "cannot read the weights: not a regular file");
}

TEST(Safetensors, Truncated) {
  EXPECT_EQ(errorOf("1234567"), "safetensors-truncated: the file has 7 bytes, but the length of "
                                "the header alone takes 8");
  EXPECT_EQ(errorOf(fileText("{}  ", 0).substr(0, 10)),
            "safetensors-truncated: the header claims 4 bytes, but the file "
            "ends 2 bytes after its length");
  EXPECT_EQ(errorOfTensor("BF16", "[4]", "[0,8]", 7),
            "safetensors-truncated: tensor `a` ends at byte 8 of the data, but "
            "the file holds only 7");
}

TEST(Safetensors, Header) {
  EXPECT_EQ(errorOf("\xff\xff\xff\xff\xff\xff\xff\xff{}"),
            "safetensors-header: the header claims 18446744073709551615 bytes, "
            "more than the format's 100000000; this is not a safetensors file");
  EXPECT_EQ(errorOf(fileText("[]", 0)), "safetensors-header: the header must be a JSON object, found array");
  EXPECT_EQ(errorOf(fileText("{\"a\":", 0)).substr(0, 59),
            "safetensors-header: the header is not valid JSON at its byt");
  EXPECT_EQ(errorOf(fileText("{\"a\":3}", 0)), "safetensors-header: tensor `a`: expected an object, found number");
  EXPECT_EQ(errorOf(fileText("{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1)),
            "safetensors-header: tensor `a` has no `data_offsets`");
  EXPECT_EQ(errorOfTensor("U8", "[-1]", "[0,1]", 1),
            "safetensors-header: tensor `a`: `shape` must be a list of numbers "
            "that are not negative, found `[-1]`");
  EXPECT_EQ(errorOfTensor("U8", "[1.5]", "[0,1]", 1),
            "safetensors-header: tensor `a`: `shape` must be a list of numbers "
            "that are not negative, found `[1.5]`");
  EXPECT_EQ(errorOfTensor("BF16", "[4294967296,4294967296]", "[0,0]", 0),
            "safetensors-header: tensor `a`: the size of shape "
            "[4294967296,4294967296] does not fit in 64 bits");
  EXPECT_EQ(errorOfTensor("U8", "[1]", "[0]", 1), "safetensors-header: tensor `a`: `data_offsets` must be two numbers "
                                                  "that are not negative, found `[0]`");
  EXPECT_EQ(errorOfTensor("U8", "[1]", "[-1,0]", 1),
            "safetensors-header: tensor `a`: `data_offsets` must be two numbers "
            "that are not negative, found `[-1,0]`");
  std::string one = "\"a\":" + tensor("U8", "[1]", "[0,1]");
  EXPECT_EQ(errorOf(fileText("{" + one + "," + one + "}", 1)),
            "safetensors-header: the header is not valid JSON at its byte 53: "
            "key `a` occurs twice in one object");
}

TEST(Safetensors, Offsets) {
  EXPECT_EQ(errorOfTensor("U8", "[1]", "[1,0]", 1), "safetensors-offsets: tensor `a` begins at byte 1 and ends before "
                                                    "it, at 0");
  EXPECT_EQ(errorOfTensor("BF16", "[2,3]", "[0,10]", 10),
            "safetensors-offsets: tensor `a` has 10 bytes, but BF16 [2, 3] "
            "needs 12");
  EXPECT_EQ(errorOfTensor("U8", "[2]", "[0,2]", 3), "safetensors-offsets: the tensors end at byte 2 of the data, but "
                                                    "the file holds 3");
  EXPECT_EQ(errorOfTensor("U8", "[1]", "[1,2]", 2), "safetensors-offsets: bytes 0 to 1 before tensor `a` belong to no "
                                                    "tensor");
  EXPECT_EQ(
      errorOf(fileText("{\"a\":" + tensor("U8", "[3]", "[0,3]") + ",\"b\":" + tensor("U8", "[2]", "[2,4]") + "}", 4)),
      "safetensors-offsets: tensor `b` begins at byte 2 and overlaps "
      "`a`, which ends at 3");
}

TEST(Safetensors, Dtype) {
  EXPECT_EQ(errorOfTensor("BF17", "[1]", "[0,2]", 2),
            "safetensors-dtype: tensor `a` has the unknown dtype `BF17`; weights may be "
            "BF16, F16 or F32: take a checkpoint that is not quantised");
}

static std::string shard(const std::string &name) {
  return fileText("{\"" + name + "\":" + tensor("U8", "[1]", "[0,1]") + "}", 1);
}

TEST(Safetensors, Shards) {
  TempDir dir;
  dir.write("s1.safetensors", shard("a"));
  dir.write("s2.safetensors", shard("b"));
  auto index = [&](const std::string &map) {
    dir.write("model.safetensors.index.json", "{\"weight_map\":" + map + "}");
    return SafetensorsFile::load(dir.path());
  };
  auto file = index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})");
  ASSERT_TRUE(file) << file.error.message;
  EXPECT_NE(file->find("a"), nullptr);
  EXPECT_NE(file->find("b"), nullptr);
  EXPECT_EQ(file->path(), dir.path() + "/model.safetensors.index.json");

  // What the index does not list is there all the same; what no shard holds is not.
  auto loose = index(R"({"a": "s1.safetensors", "c": "s2.safetensors"})");
  ASSERT_TRUE(loose) << loose.error.message;
  EXPECT_NE(loose->find("b"), nullptr);
  EXPECT_EQ(loose->find("c"), nullptr);
  ASSERT_NE(loose->listedIn("c"), nullptr);
  EXPECT_EQ(*loose->listedIn("c"), "s2.safetensors");
  EXPECT_EQ(loose->listedIn("a"), nullptr);
  std::filesystem::create_directory(dir.path() + "/sub");
  dir.write("sub/s3.safetensors", shard("d"));
  auto below = index(R"({"a": "s1.safetensors", "d": "sub/s3.safetensors"})");
  ASSERT_TRUE(below) << below.error.message;
  EXPECT_NE(below->find("d"), nullptr);

  // One file, in two spellings; the order in the map, and what else the index has, mean nothing.
  dir.write("model.safetensors.index.json",
            R"({"weight_map": {"b": "./s2.safetensors", "a": "s1.safetensors", "c": "s2.safetensors"},
                "metadata": {"format": "pt", "total_parameters": 2}, "version": 7})");
  ASSERT_TRUE(SafetensorsFile::load(dir.path()));
  EXPECT_EQ(SafetensorsFile::load(dir.path())->files().size(), 2u);
  ASSERT_TRUE(index(R"({"a": "s1.safetensors"})")) << "one shard";
  EXPECT_EQ(index(R"({"a": "s3.safetensors", "b": "s3.safetensors"})").error.message,
            "cannot read the weights: No such file or directory; the index puts 2 tensors into this file, so "
            "download it, too");
  for (const char *path : {"../s1.safetensors", "sub/../../x", "/tmp/x", "", "s1\\u0000.safetensors"})
    EXPECT_EQ(index("{\"a\": \"" + std::string(path) + "\"}").error.message.substr(0, 74),
              "tensor `a`: expected the name of a file in the checkpoint's folder, found ")
        << path;
  EXPECT_EQ(index(R"({"a": 3})").error.message,
            "tensor `a`: expected the name of a file in the checkpoint's folder, found `3`");
  EXPECT_EQ(index("[]").error.message, "the index has no object `weight_map`");
  // Of a tensor that is in two shards the index names one, whichever is read first.
  const std::string other = fileText("{\"a\":" + tensor("U8", "[2]", "[0,2]") + "}", 2);
  for (const std::string first : {"s1", "s2"}) {
    dir.write(first + ".safetensors", shard("a"));
    dir.write((first == "s1" ? "s2" : "s1") + std::string(".safetensors"), other);
    auto twice =
        index("{\"a\": \"" + first + ".safetensors\", \"b\": \"" + (first == "s1" ? "s2" : "s1") + ".safetensors\"}");
    ASSERT_TRUE(twice) << twice.error.message;
    EXPECT_EQ(twice->find("a")->size, 1u) << first;
  }
  dir.write("s1.safetensors", shard("c"));
  dir.write("s2.safetensors", fileText("{\"c\":" + tensor("U8", "[2]", "[0,2]") + "}", 2));
  EXPECT_EQ(index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})").error.message,
            "tensor `c` is in more than one file");
  dir.write("s1.safetensors", shard("a"));
  dir.write("s2.safetensors", shard("b").substr(0, 20));
  EXPECT_EQ(index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})").error.kind, "safetensors-truncated");
}

/// Folders without `model.safetensors` and its index.
TEST(Safetensors, OtherNames) {
  TempDir dir;
  const auto load = [&] { return SafetensorsFile::load(dir.path()); };
  const auto error = [&] {
    auto file = load();
    return file ? "no error" : file.error.file.substr(dir.path().size()) + ": " + file.error.message;
  };
  dir.write("consolidated.safetensors", shard("a"));
  ASSERT_TRUE(load()) << error();
  EXPECT_EQ(load()->path(), dir.path() + "/consolidated.safetensors");
  dir.write("other.safetensors", shard("b"));
  EXPECT_EQ(error(), ": which weights are meant? There are `consolidated.safetensors` and `other.safetensors`, but "
                     "neither `model.safetensors` nor `model.safetensors.index.json`; leave one set there");
  dir.write("model.fp16.safetensors.index.json", R"({"weight_map": {"b": "other.safetensors"}})");
  ASSERT_TRUE(load()) << error();
  EXPECT_EQ(load()->find("a"), nullptr);
  dir.write("model.safetensors.index.bf16.json", R"({"weight_map": {"b": "other.safetensors"}})");
  EXPECT_EQ(error().substr(0, 42), ": which weights are meant? There are `mode");
  for (const char *name : {"model.fp16.safetensors.index.json", "model.safetensors.index.bf16.json",
                           "consolidated.safetensors", "other.safetensors"})
    std::filesystem::remove(dir.path() + "/" + name);

  // Parts whose index is lost.
  dir.write("model-00001-of-00002.safetensors", shard("a"));
  EXPECT_EQ(error(), "/model-00002-of-00002.safetensors: this part of the weights is missing; download it, too");
  dir.write("model-00002-of-00002.safetensors", shard("b"));
  ASSERT_TRUE(load()) << error();
  EXPECT_EQ(load()->tensors().size(), 2u);
  std::filesystem::remove(dir.path() + "/model-00001-of-00002.safetensors");
  std::filesystem::remove(dir.path() + "/model-00002-of-00002.safetensors");

  // What is none. An adapter's file is not a model's either.
  dir.write("adapter_model.safetensors", shard("a"));
  EXPECT_EQ(error().substr(0, 86),
            "/model.safetensors: there are no weights: neither this file nor `model.safetensors.ind");
  dir.write("adapter_config.json", "{}");
  EXPECT_EQ(error().substr(0, 95),
            "/adapter_config.json: there is no model.safetensors, and this belongs to an adapter (LoRA), not");
  std::filesystem::remove(dir.path() + "/adapter_config.json");
  dir.write("training_args.bin", "");
  EXPECT_EQ(error().substr(0, 41), "/model.safetensors: there are no weights:");
  dir.write("pytorch_model-00001-of-00002.bin", "PK");
  EXPECT_EQ(error().substr(0, 100),
            "/pytorch_model-00001-of-00002.bin: there is no model.safetensors, and these are weights in PyTorch's");
  dir.write("a.Q4_K_M.gguf", "GGUF");
  EXPECT_EQ(error().substr(0, 74), "/a.Q4_K_M.gguf: there is no model.safetensors, and this is a GGUF file, wh");
}

/// Against the values that Python's struct gives: CRC-32 of all 65,536 as 16-bit words.
TEST(Safetensors, ConvertsEveryHalf) {
  std::vector<uint16_t> halves(65536), results(65536);
  std::iota(halves.begin(), halves.end(), uint16_t(0));
  toBf16(DType::F16, halves.data(), halves.size(), results.data());
  uint32_t crc = ~0u;
  for (const uint16_t value : results)
    for (const int byte : {value & 255, value >> 8}) {
      crc ^= static_cast<unsigned>(byte);
      for (int i = 0; i < 8; ++i)
        crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
  EXPECT_EQ(~crc, 0x79cbf07bu);
  for (const auto &[half, bf16] : {std::pair(0x0000, 0x0000),
                                   {0x8000, 0x8000},
                                   {0x0001, 0x3380},
                                   {0x83ff, 0xb880},
                                   {0x0400, 0x3880},
                                   {0x3c00, 0x3f80},
                                   {0x3c04, 0x3f80},
                                   {0x3c0c, 0x3f82},
                                   {0x7bff, 0x4780},
                                   {0x7c00, 0x7f80},
                                   {0xfc00, 0xff80},
                                   {0x7e00, 0x7fff},
                                   {0xfc01, 0x7fff}})
    EXPECT_EQ(results[half], bf16) << std::hex << half;
}

TEST(Safetensors, ConvertsSingles) {
  const std::vector<std::pair<uint32_t, uint16_t>> cases = {{0, 0},
                                                            {0x80000000, 0x8000},
                                                            {1, 0},
                                                            {0x00008001, 1},
                                                            {0x3f808000, 0x3f80},
                                                            {0x3f808001, 0x3f81},
                                                            {0x3f818000, 0x3f82},
                                                            {0x7f7fffff, 0x7f80},
                                                            {0xff800000, 0xff80},
                                                            {0x7f800001, 0x7fff},
                                                            {0xffc00000, 0x7fff}};
  // At an odd address: the format does not promise alignment.
  std::vector<char> bytes(1 + 4 * cases.size());
  for (size_t i = 0; i < cases.size(); ++i)
    std::memcpy(bytes.data() + 1 + 4 * i, &cases[i].first, 4);
  std::vector<uint16_t> results(cases.size());
  toBf16(DType::F32, bytes.data() + 1, cases.size(), results.data());
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(results[i], cases[i].second) << std::hex << cases[i].first;
  toBf16(DType::BF16, bytes.data() + 1, 4, results.data());
  EXPECT_EQ(std::memcmp(results.data(), bytes.data() + 1, 8), 0);
  EXPECT_TRUE(isWeightType(DType::F16) && isWeightType(DType::F32) && isWeightType(DType::BF16));
  for (DType other : {DType::F64, DType::I8, DType::U8, DType::F8E4M3, DType::F8E8M0, DType::C64})
    EXPECT_FALSE(isWeightType(other));
  EXPECT_EQ(dtypeName(DType::F8E8M0), "F8_E8M0");
}

TEST(Safetensors, ReadsPastTheMapping) {
  TempDir dir;
  dir.write("s1.safetensors", shard("a"));
  dir.write("s2.safetensors", fileText("{\"b\":" + tensor("U8", "[200]", "[0,200]") + "}", 200));
  dir.write("model.safetensors.index.json", R"({"weight_map": {"a": "s1.safetensors", "b": "s2.safetensors"}})");
  auto file = SafetensorsFile::load(dir.path());
  ASSERT_TRUE(file);
  file->willRead();
  char bytes[200] = {};
  EXPECT_FALSE(file->read(*file->find("b"), 50, 100, bytes));
  EXPECT_EQ(std::memcmp(bytes, file->find("b")->data + 50, 100), 0);
  std::filesystem::resize_file(dir.path() + "/s2.safetensors", 150);
  auto error = file->read(*file->find("b"), 50, 150, bytes);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind + " " + error->message + " " + error->file,
            "input-changed it changed while it was read " + dir.path() + "/s2.safetensors");
}

TEST(Safetensors, PointersOfGitLfs) {
  TempDir dir;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1"
      "258daaa5e2ca24d17e2393\nsize 12345\n";
  dir.write("model.safetensors", pointer);
  auto file = SafetensorsFile::load(dir.path());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error.kind, "safetensors-header");
  EXPECT_EQ(file.error.message,
            "this is a pointer of Git LFS, not the file itself; run `git lfs pull` in its repository, "
            "or download the file");
  std::filesystem::remove(dir.path() + "/model.safetensors");
  dir.write("model.safetensors.index.json", pointer);
  EXPECT_EQ(SafetensorsFile::load(dir.path()).error.message, file.error.message);
  dir.write("model.safetensors.index.json", R"({"weight_map": {"a": "s.safetensors"}})");
  dir.write("s.safetensors", pointer);
  EXPECT_EQ(SafetensorsFile::load(dir.path()).error.message, file.error.message);
}

TEST(Safetensors, NestingHasALimit) {
  TempDir dir;
  const std::string deep(200'000, '[');
  for (const std::string &text : {"{\"a\":{\"shape\":" + deep, "{\"__metadata__\":" + deep, deep}) {
    dir.write("model.safetensors", fileText(text, 0));
    auto file = SafetensorsFile::load(dir.path());
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error.kind, "safetensors-header");
    EXPECT_NE(file.error.message.find("nested more than 100 deep"), std::string::npos) << file.error.message;
  }
  std::filesystem::remove(dir.path() + "/model.safetensors");
  dir.write("model.safetensors.index.json", "{\"weight_map\":" + deep);
  EXPECT_NE(SafetensorsFile::load(dir.path()).error.message.find("nested more than 100 deep"), std::string::npos);
}

TEST(Safetensors, NamesWithLayers) {
  EXPECT_EQ(layerTensor("a.{i}.b{i}", 12), "a.12.b12");
  EXPECT_EQ(layerTensor("a", 12), "a");
  EXPECT_TRUE(matchesPattern("a.{i}.b{i}", "a.12.b7"));
  EXPECT_TRUE(matchesPattern("{i}", "007"));
  EXPECT_TRUE(matchesPattern("", ""));
  for (const char *name : {"a.12.b", "a..b7", "a.x.b7", "a.12.b7c", "x.12.b7", "a.12", ""})
    EXPECT_FALSE(matchesPattern("a.{i}.b{i}", name)) << name;
  EXPECT_EQ(patternOf("model.layers.10.experts.3.w1.weight"), "model.layers.{i}.experts.{i}.w1.weight");
  EXPECT_EQ(patternOf("7"), "{i}");
  EXPECT_EQ(patternOf(""), "");
  EXPECT_EQ(patternOf("a."), "a.");
}
