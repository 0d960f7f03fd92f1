// The plan's verifier, on plans of a shipped pipeline in which one thing is broken.
#include "megalith/Driver/Compilation.h"
#include <filesystem>
#include <gtest/gtest.h>

using namespace megalith;

namespace {

class PlanTest : public ::testing::Test {
protected:
  void SetUp() override {
    options.file = MEGALITH_SOURCE_DIR "/pipelines/autoregressive.yaml";
    options.models = {{"", MEGALITH_SOURCE_DIR "/models/demo"}};
    makePlan();
  }
  void makePlan() {
    compiled = driver::compile(options, diags);
    ASSERT_TRUE(compiled) << diags.render();
    auto made = driver::makePlan(compiled->module, options, diags);
    ASSERT_TRUE(made) << diags.render();
    plan = std::move(*made);
  }

  /// The message of the verifier; empty when it is content.
  std::string verify() {
    Diagnostics own(files);
    bool ok = plan::verify(plan, own);
    EXPECT_EQ(ok, !own.hasErrors());
    std::string text = own.render();
    return text.substr(0, text.find('\n'));
  }
  plan::Phase &phase(const std::string &name) {
    for (plan::Segment &segment : plan.models[0].segments)
      for (auto *phases : {&segment.before, &segment.repeated, &segment.after})
        for (plan::Phase &p : *phases)
          if (p.name == name)
            return p;
    ADD_FAILURE() << "no phase " << name;
    return plan.models[0].segments[0].before[0];
  }
  int buffer(const std::string &name) {
    for (size_t i = 0; i < plan.models[0].buffers.size(); ++i)
      if (plan.models[0].buffers[i].name == name)
        return static_cast<int>(i);
    ADD_FAILURE() << "no buffer " << name;
    return 0;
  }

  SourceFiles files;
  Diagnostics diags{files};
  driver::CompileOptions options;
  std::optional<driver::Compilation> compiled;
  plan::Plan plan;
};

bool contains(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

TEST_F(PlanTest, isValidAsMade) { EXPECT_EQ(verify(), ""); }

TEST_F(PlanTest, everyPhaseHasAnEdgeOfItsOwn) {
  phase("attention").edge = phase("wo").edge;
  EXPECT_TRUE(contains(verify(), "error: the plan is not valid: phase `wo` has no edge of its own [plan-invalid]"))
      << verify();
}

TEST_F(PlanTest, nothingReadsWhatNothingWrote) {
  for (plan::Segment &segment : plan.models[0].segments)
    segment.before.clear();
  EXPECT_TRUE(contains(verify(), "which nothing wrote [plan-invalid]")) << verify();
}

TEST_F(PlanTest, buffersDoNotOverlap) {
  ASSERT_GT(plan.models[0].buffers.size(), 1u);
  plan.models[0].buffers[1].offset =
      plan.models[0].buffers[0].offset + plan.models[0].buffers[0].bytes * plan.models[0].buffers[0].instances - 1;
  EXPECT_TRUE(contains(verify(), "overlap [plan-invalid]")) << verify();
}

TEST_F(PlanTest, buffersStayInTheRecord) {
  plan.models[0].records.rowBytes -= 1;
  EXPECT_TRUE(contains(verify(), "leaves the row's record [plan-invalid]")) << verify();
}

TEST_F(PlanTest, nothingIsWrittenTwice) {
  // Attention's output in the place of its queries.
  plan.models[0].placeOf[phase("attention").op->result().id] = {buffer("q"), plan::Place::Layer};
  EXPECT_TRUE(contains(verify(), "phase `attention` writes buffer `q` a second time in a pass [plan-invalid]"))
      << verify();
}

TEST_F(PlanTest, layersDoNotShareAPlace) {
  plan.models[0].placeOf[phase("attention").op->result().id].instance = plan::Place::First;
  EXPECT_TRUE(contains(verify(), "phase `attention` writes buffer `attention` a second time in a pass")) << verify();
}

TEST_F(PlanTest, instancesAreCounted) {
  plan.models[0].placeOf[phase("attention").op->result().id].instance = plan::Place::Next;
  EXPECT_TRUE(contains(verify(), "phase `attention` writes after the last instance of buffer `attention`")) << verify();
}

TEST_F(PlanTest, readersFindTheirValue) {
  const ir::Operation &op = *phase("attention").op;
  plan.models[0].placeOf[op.operands[0].id] = plan.models[0].placeOf.at(phase("wo").op->result().id);
  EXPECT_NE(verify(), "");
}

TEST_F(PlanTest, theNextLayerFindsWhatThisOneYields) {
  plan.models[0].placeOf[phase("down").op->result().id] = {buffer("gate_up"), plan::Place::Last};
  EXPECT_NE(verify(), "");
}

TEST_F(PlanTest, copiesReadWhatIsThere) {
  plan::Segment &body = plan.models[0].segments[0];
  plan::Phase copy{plan::Phase::Copy, "copy q"};
  copy.from = {buffer("q"), plan::Place::First};
  copy.to = {buffer("x"), plan::Place::First};
  copy.edge = static_cast<int>(plan.edges.size());
  body.before.insert(body.before.begin(), copy);
  plan.edges.push_back({"copy q", {}});
  EXPECT_TRUE(contains(verify(), "phase `copy q` reads what nothing wrote")) << verify();
}

TEST_F(PlanTest, chunksFitTheRing) {
  plan.ring.stageBytes = 1024;
  EXPECT_TRUE(contains(verify(), "do not fit the ring [plan-invalid]")) << verify();
}

TEST_F(PlanTest, matricesAreLaidOutInTiles) {
  plan.models[0].matrices[0].ranges[0].pairBegin = 2;
  EXPECT_TRUE(contains(verify(), "are not laid out in tiles [plan-invalid]")) << verify();
}

TEST_F(PlanTest, tilesHoldAllRows) {
  plan.models[0].matrices[0].groups -= 1;
  EXPECT_TRUE(contains(verify(), "has more rows than its tiles [plan-invalid]")) << verify();
}

TEST_F(PlanTest, passesOfManyRowsHaveUnits) {
  const auto broken = [&](auto breakIt) {
    plan::Matrix before = plan.models[0].matrices[0];
    breakIt(plan.models[0].matrices[0]);
    EXPECT_TRUE(contains(verify(), "has no units for the rows of a pass [plan-invalid]")) << verify();
    plan.models[0].matrices[0] = before;
  };
  ASSERT_EQ(verify(), "");
  broken([](plan::Matrix &m) { m.unitParts = 0; });
  broken([](plan::Matrix &m) { m.unitParts = m.unitParts == 1 ? 8 : 1; }); // with the edge of the other
}

TEST_F(PlanTest, sumsOfUnitsDoNotOverlap) {
  std::vector<plan::Matrix *> split;
  for (plan::Matrix &m : plan.models[0].matrices)
    if (m.unitParts == 1)
      split.push_back(&m);
  ASSERT_GE(split.size(), 2u);
  const auto broken = [&](int64_t &offset, int64_t by) {
    offset += by;
    EXPECT_TRUE(contains(verify(), "error: the plan is not valid: in the flagged words the ")) << verify();
    EXPECT_TRUE(contains(verify(), " overlap [plan-invalid]")) << verify();
    offset -= by;
  };
  broken(split[0]->partsOffset, -256); // sums of attention stand in front
  broken(split[1]->partsOffset, -256);
  broken(split[0]->partsDone, -256);
  ASSERT_EQ(verify(), "");
  split[0]->firstUnitCta = plan.ctas;
  EXPECT_TRUE(contains(verify(), "has no units for the rows of a pass [plan-invalid]")) << verify();
}

TEST_F(PlanTest, imagesHavePlacesOfTheirOwn) {
  std::vector<plan::Buffer *> images;
  for (plan::Buffer &b : plan.models[0].buffers)
    if (b.windows)
      images.push_back(&b);
  ASSERT_EQ(images.size(), 5u); // operands of wq_wk_wv, gate_up and head, outputs of attention and gate_up
  const auto broken = [&](int64_t &what, int64_t value, const char *message) {
    const int64_t before = std::exchange(what, value);
    EXPECT_TRUE(contains(verify(), message)) << verify();
    what = before;
  };
  broken(images[0]->imageOffset, images[1]->imageOffset, "overlap [plan-invalid]");
  broken(images[0]->counterOffset, images[0]->imageOffset, "overlap [plan-invalid]");
  broken(images[1]->counterOffset, images[1]->counterOffset - 64, "[plan-invalid]");
  broken(images[2]->imageBytes, images[2]->imageBytes - 16, "the image of `");
  broken(images[0]->counterOffset, plan.flaggedBytes + 4, "is no multiple of 128 [plan-invalid]");
  broken(plan.flaggedBytes, plan.flaggedBytes - 256, "leave the flagged words [plan-invalid]");
  EXPECT_EQ(verify(), "");
}

TEST_F(PlanTest, wholePassesHavePlacesOfTheirOwn) {
  ASSERT_TRUE(plan.wide());
  plan::WidePasses &wide = plan.models[0].wide;
  plan::Buffer &x = plan.models[0].buffers[buffer("x")];
  const auto broken = [&](int64_t &what, int64_t by, const char *message) {
    what += by;
    EXPECT_TRUE(contains(verify(), message)) << verify();
    what -= by;
  };
  broken(wide.doneOffset, -256, "the counters of whole passes overlap [plan-invalid]");
  broken(wide.doneOffset, 4, "where the counters of whole passes begin, is no multiple of 256 [plan-invalid]");
  broken(wide.partBytes, 256,
         "the sums of attention of whole passes and rows of whole passes of `x` overlap [plan-invalid]");
  broken(wide.partsOffset, -256, "the sums of attention of whole passes overlap [plan-invalid]");
  broken(x.wideBytes, 256, "overlap [plan-invalid]");
  broken(plan.flaggedBytes, -256, "leave the flagged words [plan-invalid]");
  EXPECT_EQ(verify(), "");
}

TEST_F(PlanTest, imagesAreForProducts) {
  plan.models[0].buffers[buffer("x")].windows = true;
  plan.models[0].buffers[buffer("x")].imageBytes = 1 << 20;
  plan.models[0].buffers[buffer("x")].imageOffset = plan.flaggedBytes;
  plan.models[0].buffers[buffer("x")].counterOffset = plan.flaggedBytes + (8 << 20);
  plan.flaggedBytes += 9 << 20;
  EXPECT_TRUE(contains(verify(), "reads buffer `x`, of which passes of many rows have an image only [plan-invalid]"))
      << verify();
}

TEST_F(PlanTest, windowsHaveRoom) {
  plan.ring.lentRows = plan.wideRows; // of which no more stages are lent than for fewer
  EXPECT_TRUE(contains(verify(), "error: the plan is not valid: passes of ")) << verify();
  EXPECT_TRUE(contains(verify(), " bytes for windows of ")) << verify();
}

/// The same with norms over each head: attention makes what the map `q` makes.
class HeadsPlanTest : public PlanTest {
protected:
  void SetUp() override {
    const std::filesystem::path root(MEGALITH_SOURCE_DIR),
        dir = std::filesystem::path(::testing::TempDir()) / "megalith-heads";
    std::filesystem::remove_all(dir);
    std::filesystem::copy(root / "pipelines", dir, std::filesystem::copy_options::recursive);
    std::string config;
    std::getline(std::ifstream(root / "test/Emit/Inputs/small/config.json"), config);
    config.replace(config.find("llama"), 5, "qwen3");
    std::ofstream(dir / "config.json") << config;
    options.file = (dir / "autoregressive.yaml").string();
    options.models = {{"", dir.string()}};
    makePlan();
    ASSERT_TRUE(!HasFailure() && phase("q").several && phase("attention").makes == phase("q").op);
  }
};

TEST_F(HeadsPlanTest, isValidAsMade) { EXPECT_EQ(verify(), ""); }

TEST_F(HeadsPlanTest, whatIsNotAlwaysMadeIsMadeAfter) {
  phase("attention").makes = nullptr;
  EXPECT_TRUE(contains(verify(),
                       "phase `q` does not run in all passes, and nothing after it makes what it makes [plan-invalid]"))
      << verify();
}

TEST_F(HeadsPlanTest, attentionMakesWhatTheMapInFrontMakes) {
  phase("attention").makes = phase("wo").op;
  phase("q").several = false;
  EXPECT_TRUE(contains(verify(), "phase `attention` makes what no map in front of it makes [plan-invalid]"))
      << verify();
}

TEST_F(HeadsPlanTest, nobodyElseReadsIt) {
  const ir::Operation &attention = *phase("attention").op;
  ir::walk(compiled->module.root.region(), [&](ir::Operation &op) {
    if (&op != &attention)
      for (ir::Value &v : op.operands)
        if (v == attention.result())
          v = attention.operands[0];
  });
  EXPECT_TRUE(contains(verify(), "phase `wo` reads what is not made in all passes [plan-invalid]")) << verify();
}

} // namespace
