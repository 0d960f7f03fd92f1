#include "runtime/Manifest.h"
#include <gtest/gtest.h>

using namespace megalith::runtime;

static std::string messageOf(const std::string &json) {
  auto manifest = Manifest::parse(json);
  return manifest ? "" : manifest.error.message + " [" + manifest.error.kind + "]";
}

TEST(Manifest, errorsSayWhatIsWrong) {
  EXPECT_EQ(messageOf(R"({"abi": 0})"), "the manifest has ABI version 0, this runtime has 5; compile the pipeline "
                                        "again [manifest]");
  EXPECT_TRUE(messageOf("{").starts_with("the manifest cannot be read: "));
  EXPECT_TRUE(messageOf(R"({"abi": 5})").find("'pipeline' not found") != std::string::npos);
}

TEST(Manifest, tensorNamesCountLayers) {
  Manifest::Weight weight{"wq", "layers.{i}.q{i}", 4, 0, {2, 2}};
  EXPECT_EQ(Manifest::tensorName(weight, 3), "layers.3.q3");
}
