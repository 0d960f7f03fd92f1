#include "PipelineBase.h"

using namespace megalith;
using namespace megalith::test;

TEST(PipelineStates, NoInitialState) {
  Check c = check({{"initial: true, ", ""}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:11:1: error: no state has `initial: true` [no-initial-state]
   11 | states:
      | ^~~~~~
)");
}

TEST(PipelineStates, TwoInitialStates) {
  Check c = check({{"DONE: {terminal: true}", "DONE: {terminal: true}\n  OTHER: {initial: true, next: [DONE]}"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:18:3: error: state `OTHER` is a second initial state; the first is `QUEUED` [second-initial-state]
   18 |   OTHER: {initial: true, next: [DONE]}
      |   ^~~~~
p.yaml:18:3: error: state `OTHER` is not terminal, but no stage is `on: OTHER` [dead-end-state]
   18 |   OTHER: {initial: true, next: [DONE]}
      |   ^~~~~
)");
}

TEST(PipelineStates, NoFaultState) {
  Check c = check({{"  fault: FAILED\n", ""}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:11:1: error: the states need `fault:` with the name of a terminal state [no-fault-state]
   11 | states:
      | ^~~~~~
)");
}

TEST(PipelineStates, TooManyStates) {
  std::string states = "DONE: {terminal: true}";
  for (int i = 0; i < 64; ++i)
    states += "\n  S" + std::to_string(i) + ": {terminal: true}";
  Check c = check({{"DONE: {terminal: true}", states}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_NE(c.messages.find("p.yaml:11:1: error: a pipeline has at most 64 states, found "), std::string::npos);
  EXPECT_NE(c.messages.find("[too-many-states]"), std::string::npos);
}

TEST(PipelineStates, FaultStateNotTerminal) {
  Check c = check({{"FAILED: {terminal: true}", "FAILED: {parked: true}"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:18:3: error: state `FAILED` is the fault state and needs `terminal: true` [bad-state-flags]
   18 |   FAILED: {parked: true}
      |   ^~~~~~
)");
}

TEST(PipelineStates, InitialStateWithSlot) {
  Check c = check({{"initial: true,", "initial: true, slot: true,"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:13:3: error: state `QUEUED` is initial and cannot have `slot: true`: a request gains its slot by a `goto` [bad-state-flags]
   13 |   QUEUED: {initial: true, slot: true, next: [PREFILL, DONE]}
      |   ^~~~~~
)");
}

TEST(PipelineStates, UnknownStateInNext) {
  Check c = check({{"next: [COMMIT]", "next: [COMIT]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:15:31: error: unknown state `COMIT` [unknown-state]
   15 |   VERIFY: {slot: true, next: [COMIT]}
      |                               ^~~~~
note: did you mean `COMMIT`?
)");
}

TEST(PipelineStates, UnknownStateInGoto) {
  Check c = check({{"goto: COMMIT", "goto: COMIT"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages, R"(p.yaml:45:11: error: unknown state `COMIT` [unknown-state]
   45 |     goto: COMIT
      |           ^~~~~
note: did you mean `COMMIT`?
)");
}

TEST(PipelineStates, UndeclaredTransition) {
  Check c = check({{"next: [VERIFY, DONE]", "next: [DONE]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:51:33: error: state `COMMIT` may not go to `VERIFY`; add it to `next` of `COMMIT` [undeclared-transition]
   51 |     goto: DONE if finished else VERIFY
      |                                 ^~~~~~
)");
}

TEST(PipelineStates, UnusedTransition) {
  Check c = check({{"next: [COMMIT]", "next: [COMMIT, DONE]"}});
  EXPECT_TRUE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:15:39: warning: state `VERIFY` declares `next: DONE`, but no stage takes it [unused-transition]
   15 |   VERIFY: {slot: true, next: [COMMIT, DONE]}
      |                                       ^~~~
)");
}

TEST(PipelineStates, UnreachableState) {
  Check c = check({{"DONE: {terminal: true}", "DONE: {terminal: true}\n  IDLE: {terminal: true}"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:18:3: error: no path leads from `QUEUED` to state `IDLE` [unreachable-state]
   18 |   IDLE: {terminal: true}
      |   ^~~~
)");
}

TEST(PipelineStates, DeadEnd) {
  Check c = check({{"DONE: {terminal: true}", "DONE: {terminal: true}\n  IDLE: {next: [DONE]}"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:18:3: error: state `IDLE` is not terminal, but no stage is `on: IDLE` [dead-end-state]
   18 |   IDLE: {next: [DONE]}
      |   ^~~~
)");
}

TEST(PipelineStates, TwoStagesOnOneState) {
  Check c = check({{"  commit:\n", "  again:\n    on: VERIFY\n    do: []\n    goto: COMMIT\n  commit:\n"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:46:3: error: stage `again` is a second stage on state `VERIFY` [duplicate-stage]
   46 |   again:
      |   ^~~~~
p.yaml:38:3: note: the first one is here
   38 |   verify:
      |   ^~~~~~
)");
}

TEST(PipelineStates, StageOnTerminal) {
  Check c = check({{"  commit:\n", "  end:\n    on: DONE\n    do: []\n    goto: DONE\n  commit:\n"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:47:9: error: state `DONE` is terminal; stage `end` would never run [stage-on-terminal]
   47 |     on: DONE
      |         ^~~~
)");
}

TEST(PipelineStates, GotoFault) {
  Check c = check({{"goto: COMMIT\n", "goto: COMMIT if len(draft) > 0 else FAILED\n"},
                   {"next: [COMMIT]", "next: [COMMIT, FAILED]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:45:41: error: a stage cannot go to the fault state `FAILED`; it is entered with a fault's code only [goto-fault]
   45 |     goto: COMMIT if len(draft) > 0 else FAILED
      |                                         ^~~~~~
)");
}

TEST(PipelineStates, CycleWithoutProgress) {
  Check c = check({{"- append(draft[:accepted] + [best[accepted]])", "- trace: best[accepted]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:51:33: error: a request can run in circles without progress: VERIFY -> COMMIT -> VERIFY; each cycle needs an `append`, a call that commits, or `progress: x` with an i32 field x that its stage assigns [cycle-without-progress]
   51 |     goto: DONE if finished else VERIFY
      |                                 ^~~~~~
)");
}

TEST(PipelineStates, WaitingIsACycle) {
  Check c = check(
      {{"goto: DONE if finished else PREFILL", "goto: QUEUED if kv.target.pressure else DONE if finished else PREFILL"},
       {"next: [PREFILL, DONE]", "next: [PREFILL, DONE, QUEUED]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(
      c.messages,
      R"(p.yaml:32:11: error: a request can run in circles without progress: QUEUED -> QUEUED; each cycle needs an `append`, a call that commits, or `progress: x` with an i32 field x that its stage assigns [cycle-without-progress]
   32 |     goto: QUEUED if kv.target.pressure else DONE if finished else PREFILL
      |           ^~~~~~
)");
}

TEST(PipelineStates, CycleHasAField) {
  Check c = check(
      {{"- append(draft[:accepted] + [best[accepted]])", "- accepted: accepted + 1\n      - trace: best[accepted]"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages.find("stage `verify`"), std::string::npos) << c.messages;
  EXPECT_NE(c.messages.find("p.yaml:46:3: note: stage `commit` changes `accepted`: if that ends the circle, write "
                            "`progress: accepted` beside its `on:`"),
            std::string::npos)
      << c.messages;
}

TEST(PipelineStates, OutOfAParkedState) {
  const std::string parked = "  PARKED: {parked: true, next: [VERIFY, PREFILL]}\n  DONE: {terminal: true}";
  const auto parkedStage = [](const std::string &to) {
    return "stages:\n  park:\n    on: PARKED\n    progress: accepted\n    do: [{accepted: accepted + 1}]\n    goto: " +
           to + "\n";
  };
  const auto said = [&](const std::string &to) {
    return check({{"next: [VERIFY, DONE]", "next: [VERIFY, DONE, PARKED]"},
                  {"DONE: {terminal: true}", parked.substr(2)},
                  {"goto: DONE if finished else VERIFY",
                   "goto: DONE if finished else PARKED if accepted > 1 else VERIFY"},
                  {"stages:\n", parkedStage(to)}})
        .messages;
  };
  EXPECT_EQ(said("PREFILL if accepted > 9 else PREFILL").find("kv-gone"), std::string::npos);
  const std::string heard = said("PREFILL if accepted > 9 else VERIFY");
  EXPECT_NE(
      heard.find("warning: a request in state `PARKED` has no slot and no KV, but state `VERIFY` feeds `target` the "
                 "last token alone [kv-gone]"),
      std::string::npos)
      << heard;
  EXPECT_NE(heard.find("note: this call; go to a state that feeds `tokens[kv.target.len:-1]` first"), std::string::npos)
      << heard;
}

TEST(PipelineStates, ProgressFieldNotAssigned) {
  Check c = check({{"  commit:\n    on: COMMIT\n", "  commit:\n    on: COMMIT\n    progress: accepted\n"}});
  EXPECT_FALSE(c.pipeline);
  EXPECT_EQ(c.messages,
            R"(p.yaml:48:15: error: `progress: accepted` must name an i32 field that this stage assigns [bad-progress]
   48 |     progress: accepted
      |               ^~~~~~~~
)");
}
