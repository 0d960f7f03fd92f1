// `for:` of a model file: whether it is for a checkpoint, and what a check says of each key.
#include "ModelErrors.h"
#include "llvm/ADT/StringRef.h"

using namespace megalith;
using namespace megalith::modelErrors;

namespace {

/// "" when a file with this `for:` is for the checkpoint.
std::string misfit(const std::string &audience, const std::string &config, std::vector<std::string> accept = {}) {
  SourceFiles files;
  Diagnostics diags(files);
  std::string text = goodModel;
  if (!audience.empty())
    text.insert(text.find('\n') + 1, "for: {" + audience + "}\n");
  auto head = ast::parseAudience(diags, files.add("m.yaml", text));
  EXPECT_TRUE(head) << diags.render();
  Result<ConfigFile> read = ConfigFile::parse(config, "", "T/config.json");
  EXPECT_TRUE(read) << read.error.message;
  if (!head || !read)
    return "error";
  const auto found = misfitOf(*head, *read, Acceptance(std::move(accept)));
  return found ? std::to_string(found->loc.line) + ": " + found->text : "";
}

TEST(Audience, FamiliesAreToldByTypeOrClass) {
  EXPECT_EQ(misfit("model_type: a", R"({"model_type": "a"})"), "");
  EXPECT_EQ(misfit("model_type: [b, a]", R"({"model_type": "a"})"), "");
  EXPECT_EQ(misfit("model_type: b", R"({"model_type": "a"})"),
            "2: it is for `model_type` `b`, and the checkpoint has `\"a\"`");
  EXPECT_EQ(misfit("architectures: A", R"({"architectures": ["A"]})"), "");
  EXPECT_EQ(misfit("architectures: [A, B]", R"({"architectures": ["B"]})"), "");
  EXPECT_EQ(misfit("architectures: {each: [A, B]}", R"({"architectures": ["B", "A"]})"), "");
  EXPECT_EQ(misfit("architectures: A", R"({"architectures": ["A", "B"]})"),
            "2: it is for `architectures` lists of `A`, and the checkpoint has `[\"A\",\"B\"]`");
  EXPECT_EQ(misfit("architectures: A", R"({"architectures": "A"})"),
            "2: it is for `architectures` lists of `A`, and the checkpoint has `\"A\"`");
  // One of the two is enough; what is there must be right.
  EXPECT_EQ(misfit("model_type: a, architectures: A", R"({"model_type": "a"})"), "");
  EXPECT_EQ(misfit("model_type: a, architectures: A", R"({"model_type": null, "architectures": ["A"]})"), "");
  EXPECT_EQ(misfit("model_type: a, architectures: A", R"({"model_type": "a", "architectures": ["B"]})"),
            "2: it is for `architectures` lists of `A`, and the checkpoint has `[\"B\"]`");
}

TEST(Audience, WhoSaysNothingIsNobodys) {
  for (const char *config : {"{}", R"({"model_type": null})", R"({"hidden_act": "silu"})"})
    EXPECT_EQ(misfit("model_type: a, hidden_act: silu", config),
              "2: it is for `model_type` `a`, and the checkpoint has none");
  EXPECT_EQ(misfit("", R"({"model_type": "a"})"), "1: it has no `for:`, and is taken where `graph:` names it");
}

TEST(Audience, AnyKeyCanTell) {
  const std::string both = R"({"model_type": "a", "bias": true, "rope": {"type": "x"}})",
                    none = R"({"model_type": "a"})";
  EXPECT_EQ(misfit("model_type: a, bias: true", both), "");
  EXPECT_EQ(misfit("model_type: a, bias: false", both), "2: it is for `bias` `false`, and the checkpoint has `true`");
  EXPECT_EQ(misfit("model_type: a, bias: false", none), "") << "absent is right without a default";
  EXPECT_EQ(misfit("model_type: a, bias: {is: true, default: false}", none),
            "2: it is for `bias` `true`, and the checkpoint has none, which stands for `false`");
  EXPECT_EQ(misfit("model_type: a, bias: {is: false, default: false}", none), "");
  EXPECT_EQ(misfit("model_type: a, rope.type: [x, z]", both), "");
  EXPECT_EQ(misfit("model_type: a, rope.type: z", both),
            "2: it is for `rope.type` `z`, and the checkpoint has `\"x\"`");
}

TEST(Audience, OtherKeysMaySayTheSame) {
  const auto why = [](const char *rest) {
    return misfit("model_type: a, theta: {same: [base, rope.theta]}",
                  std::string(R"({"model_type": "a")") + rest + "}");
  };
  EXPECT_EQ(why(""), "");
  EXPECT_EQ(why(R"(, "base": 4)"), "");
  EXPECT_EQ(why(R"(, "theta": null)"), "");
  EXPECT_EQ(why(R"(, "theta": 4.0, "base": 4)"), "");
  EXPECT_EQ(why(R"(, "theta": 4, "base": null, "rope": {"theta": 4})"), "");
  const std::string other = "2: it is for `theta` the value of `base` or `rope.theta`, and the checkpoint has `4`";
  EXPECT_EQ(why(R"(, "theta": 4)"), other);
  EXPECT_EQ(why(R"(, "theta": 4, "base": 5)"), other);
  EXPECT_EQ(why(R"(, "theta": 4, "base": 4, "rope": {"theta": 5})"), other);
}

TEST(Audience, WhatIsAcceptedMayBeWrongButTellsNothing) {
  const std::string config = R"({"model_type": "a", "architectures": ["A"]})";
  EXPECT_EQ(misfit("model_type: b, architectures: A", config, {"model_type"}), "");
  EXPECT_EQ(misfit("model_type: a, architectures: B", config, {"architectures"}), "");
  EXPECT_NE(misfit("model_type: b, architectures: B", config, {"model_type"}), "");
  EXPECT_EQ(misfit("model_type: b, architectures: B", config, {"model_type", "architectures"}),
            "2: it is for `model_type` `b`, and the checkpoint has `\"a\"`");
}

/// "a.b: read", a line each.
std::string usesIn(const std::string &config, std::vector<std::string> accept = {}) {
  SourceFiles files;
  Diagnostics diags(files);
  std::string text = std::string(goodModel) + "harmless: {keys: [extra, group]}\n";
  text.insert(text.find('\n') + 1, "for: {model_type: a}\nrequires: {act: silu, window: {is: 1, default: 2}}\n");
  auto parsed = ast::parseModel(diags, files.add("m.yaml", text));
  Result<ConfigFile> read = ConfigFile::parse(config, "", "T/config.json");
  Acceptance acceptance(std::move(accept));
  ModelReport report;
  EXPECT_TRUE(parsed && read);
  const bool right = checkModel(*parsed, *read, acceptance, diags, &report).has_value();
  EXPECT_EQ(right, !diags.hasErrors());
  std::string out = report.model ? "shape of " + std::to_string(report.model->vocab) + "\n" : "";
  const char *const names[] = {"read", "required", "harmless", "accepted", "refused"};
  for (const KeyUse &use : report.keys) {
    out += use.key + ": " + names[use.kind] + (use.reason.empty() ? "" : ", " + use.reason) + "\n";
    EXPECT_EQ(use.kind == KeyUse::Refused, !use.reason.empty() && !use.advice.empty()) << use.key;
  }
  return out;
}

TEST(Audience, EachKeyIsReportedOnce) {
  std::string config = goodConfig;
  config.replace(0, 1, R"({"model_type": "a", "act": "silu", "window": 1, "extra": {"x": 1}, "group": 3, "odd": 1, )");
  EXPECT_EQ(usesIn(config, {"odd"}), "shape of 100\n"
                                     "model_type: required\nact: required\nwindow: required\nextra: harmless\n"
                                     "group: harmless\nodd: accepted\nhidden_size: read\nnum_hidden_layers: read\n"
                                     "num_attention_heads: read\nnum_key_value_heads: read\nvocab_size: read\n"
                                     "rms_norm_eps: read\nrope_theta: read\n");
  const std::string refused = usesIn(config);
  EXPECT_NE(refused.find("odd: refused, nothing in `m.yaml` understands it\n"), refused.npos) << refused;
}

TEST(Audience, RefusedKeysHaveReasons) {
  std::string config = goodConfig;
  config.replace(0, 1, R"({"model_type": "b", "act": "gelu", )");
  const std::string said = usesIn(config);
  // What the file lacks comes first.
  EXPECT_EQ(llvm::StringRef(said).split("hidden_size").first.str(),
            "shape of 100\n"
            "window: refused, is not given and stands for `2`, but the graph of `tiny` is right for `1` only\n"
            "model_type: refused, is `\"b\"`, but the graph of `tiny` is right for `a` only\n"
            "act: refused, is `\"gelu\"`, but the graph of `tiny` is right for `silu` only\n");
  const std::string wrong = usesIn(R"({"hidden_size": "x", "window": 1})");
  EXPECT_EQ(wrong.find("shape"), wrong.npos);
  EXPECT_EQ(wrong.find("hidden_size: refused, it must be an integer from 1 to 2147483647, found `\"x\"`\n"), 0u)
      << wrong;
  EXPECT_EQ(wrong.find("hidden_size: read"), wrong.npos) << wrong;
}

} // namespace
