// The plan's verifier, on plans of a shipped pipeline in which one thing is broken.
#include "megalith/Driver/Compilation.h"
#include <gtest/gtest.h>

using namespace megalith;

namespace {

class PlanTest : public ::testing::Test {
protected:
  void SetUp() override {
    options.file = MEGALITH_SOURCE_DIR "/pipelines/autoregressive.yaml";
    options.models = {{"", MEGALITH_SOURCE_DIR "/models/demo"}};
    compiled = driver::compile(options, diags);
    ASSERT_TRUE(compiled) << diags.render();
    auto made = driver::makePlan(compiled->module, options, diags);
    ASSERT_TRUE(made) << diags.render();
    plan = std::move(*made);
  }

  /// The message of the verifier; empty when it is content.
  std::string verify() {
    Diagnostics own(files);
    bool ok = plan::verify(plan, compiled->module, own);
    EXPECT_EQ(ok, !own.hasErrors());
    std::string text = own.render();
    return text.substr(0, text.find('\n'));
  }
  plan::Phase &phase(const std::string &name) {
    for (plan::Segment &segment : plan.segments)
      for (auto *phases : {&segment.before, &segment.repeated, &segment.after})
        for (plan::Phase &p : *phases)
          if (p.name == name)
            return p;
    ADD_FAILURE() << "no phase " << name;
    return plan.segments[0].before[0];
  }
  int buffer(const std::string &name) {
    for (size_t i = 0; i < plan.buffers.size(); ++i)
      if (plan.buffers[i].name == name)
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
  for (plan::Segment &segment : plan.segments)
    segment.before.clear();
  EXPECT_TRUE(contains(verify(), "which nothing wrote [plan-invalid]")) << verify();
}

TEST_F(PlanTest, buffersDoNotOverlap) {
  ASSERT_GT(plan.buffers.size(), 1u);
  plan.buffers[1].offset = plan.buffers[0].offset + plan.buffers[0].bytes - 1;
  EXPECT_TRUE(contains(verify(), "overlap [plan-invalid]")) << verify();
}

TEST_F(PlanTest, aValueStaysUntilItsLastReader) {
  // The residual is read behind the attention.
  plan.bufferOf[phase("attention").op->result().id] = buffer("x");
  EXPECT_TRUE(contains(verify(), "phase `wo` reads buffer `x`, which holds another value by then [plan-invalid]"))
      << verify();
}

TEST_F(PlanTest, theNextLayerFindsWhatThisOneYields) {
  plan.bufferOf[phase("down").op->result().id] = buffer("q");
  EXPECT_TRUE(contains(verify(), "the loop or segment reads buffer `x`, which holds another value by then"))
      << verify();
}

TEST_F(PlanTest, nothingOverwritesAnOperand) {
  plan.bufferOf[phase("wq_wk_wv").op->result().id] = buffer("x");
  EXPECT_TRUE(contains(verify(), "phase `wq_wk_wv` overwrites buffer `x` while other CTAs read it")) << verify();
}

TEST_F(PlanTest, resultsHaveBuffersOfTheirOwn) {
  const ir::Operation &op = *phase("wq_wk_wv").op;
  ASSERT_EQ(op.results.size(), 2u);
  plan.bufferOf[op.results[1].id] = plan.bufferOf.at(op.results[0].id);
  EXPECT_TRUE(contains(verify(), "two results of phase `wq_wk_wv` share a buffer")) << verify();
}

TEST_F(PlanTest, copiesReadWhatIsThere) {
  plan::Segment &body = plan.segments[0];
  body.before.insert(body.before.begin(), {plan::Phase::Copy, "copy q", nullptr, -1, buffer("q"), buffer("x"),
                                           static_cast<int>(plan.edges.size())});
  plan.edges.push_back({"copy q", {}});
  EXPECT_TRUE(contains(verify(), "phase `copy q` reads what nothing wrote")) << verify();
}

TEST_F(PlanTest, chunksFitTheRing) {
  plan.stageBytes = 1024;
  EXPECT_TRUE(contains(verify(), "do not fit the ring [plan-invalid]")) << verify();
}

TEST_F(PlanTest, matricesAreLaidOutInTiles) {
  plan.matrices[0].ranges[0].pairBegin = 2;
  EXPECT_TRUE(contains(verify(), "are not laid out in tiles [plan-invalid]")) << verify();
}

} // namespace
