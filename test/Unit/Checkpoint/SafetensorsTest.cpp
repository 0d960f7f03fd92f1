#include "TempDir.h"
#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include <filesystem>
#include <gtest/gtest.h>

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
  EXPECT_EQ(file.error.message, "cannot read the weights: No such file or directory");
  EXPECT_EQ(SafetensorsFile::open(dir.path()).error.message, "cannot read the weights: not a regular file");
}

TEST(Safetensors, Truncated) {
  EXPECT_EQ(errorOf("1234567"), "safetensors-truncated: the file has 7 bytes, but the length of "
                                "the header alone takes 8");
  EXPECT_EQ(errorOf(fileText("{}  ", 0).substr(0, 10)),
            "safetensors-truncated: the header claims 4 bytes, but the file "
            "ends 2 bytes behind its length");
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
  EXPECT_EQ(errorOfTensor("BF17", "[1]", "[0,2]", 2), "safetensors-dtype: tensor `a` has the unknown dtype `BF17`");
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

  EXPECT_EQ(index(R"({"a": "s3.safetensors"})").error.kind, "safetensors-missing");
  for (const char *path : {"../s1.safetensors", "sub/../../x", "/tmp/x", "", "s1\\u0000.safetensors"})
    EXPECT_EQ(index("{\"a\": \"" + std::string(path) + "\"}").error.message.substr(0, 74),
              "tensor `a`: expected the name of a file in the checkpoint's folder, found ")
        << path;
  EXPECT_EQ(index(R"({"a": 3})").error.message,
            "tensor `a`: expected the name of a file in the checkpoint's folder, found `3`");
  EXPECT_EQ(index("[]").error.message, "the index has no object `weight_map`");
  dir.write("s2.safetensors", shard("a"));
  EXPECT_EQ(index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})").error.message,
            "tensor `a` is in more than one file");
  dir.write("s2.safetensors", shard("b").substr(0, 20));
  EXPECT_EQ(index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})").error.kind, "safetensors-truncated");
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
