#include "TinyManifest.h"
#include <gtest/gtest.h>

using namespace megalith::runtime;

static std::string messageOf(const std::string &json) {
  auto manifest = Manifest::parse(json);
  return manifest ? "" : manifest.error.message + " [" + manifest.error.kind + "]";
}

TEST(Manifest, errorsSayWhatIsWrong) {
  EXPECT_EQ(messageOf(R"({"abi": 0})"), "the manifest has ABI version 0, this runtime has " +
                                            std::to_string(megalith::abi::kAbiVersion) +
                                            "; compile the pipeline "
                                            "again [manifest]");
  EXPECT_TRUE(messageOf("{").starts_with("the manifest cannot be read: "));
  EXPECT_TRUE(messageOf("{\"abi\": " + std::to_string(megalith::abi::kAbiVersion) + "}")
                  .find("the manifest has no `pipeline`") != std::string::npos);
}

TEST(Manifest, readsStrictly) {
  ASSERT_EQ(messageOf(tinyManifest()), "");
  const auto with = [](const std::string &from, const std::string &to) {
    std::string text = tinyManifest();
    const size_t at = text.find(from);
    EXPECT_LT(at, text.size()) << from;
    return messageOf(text.replace(at, from.size(), to));
  };
  EXPECT_EQ(
      with("\"slots\": 2", "\"slots\": 2.5"),
      "the manifest cannot be read: `slots` must be an integer from 0 to 9223372036854775807, found `2.5` [manifest]");
  EXPECT_EQ(with("\"abi\": ", "\"abi\": 0."), "the manifest cannot be read: `abi` must be an integer, found `0." +
                                                  std::to_string(megalith::abi::kAbiVersion) + "` [manifest]");
  const std::string deep(200'000, '[');
  EXPECT_EQ(messageOf(deep), "the manifest cannot be read: lists and objects are nested more than 100 deep [manifest]");
  EXPECT_NE(messageOf(tinyManifest() + "x"), "");
}

TEST(Manifest, tensorNamesCountLayers) {
  Manifest::Weight weight{"wq", "layers.{i}.q{i}", 4, 0, {2, 2}};
  EXPECT_EQ(Manifest::tensorName(weight, 3), "layers.3.q3");
}
