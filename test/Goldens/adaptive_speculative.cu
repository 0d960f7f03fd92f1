//===- control unit -------------------------------------------------------===//
//
// Pipeline `adaptive_speculative`, made by megalith. Linked with the tensor unit
// (target.tensors.cu), it is one resident kernel. Units.cuh says what crosses.
//
// model    target (llama)
// source   pipelines/adaptive_speculative.yaml
// params   slots = 8, rows_per_pass = 2048, rows_beside = 1920, max_block = 8, mid_block = 4,
// min_block = 1, pressure_block = 2, high_ema = 0.8, mid_ema = 0.5, ema_alpha = 0.2, initial_ema =
// 0.8, observe_empty = 1, ngram = 3, prefill_chunk = 2048, kv_pages = 512, page_tokens = 128
//
// Reading order: the request and its states, one function per stage, and last the ticks, which the
// resident loop calls.

#include "megalith/ControlUnit.cuh"

namespace abi = megalith::abi;
using namespace megalith::device;

struct Config {
  static constexpr int slots = 8;
  static constexpr int rowsPerPass = 2048;
  static constexpr bool wide = true; // unread rows of a large pass may run as a wide one
  static constexpr bool late = true; // and a pass behind it may begin with the last layer
  static constexpr int rowsBeside = 1920; // of calls with chunk, while another request holds a slot
  static constexpr int model = 0; // its number in LaunchParams::models
  static constexpr int vocab = 260;
  static constexpr int pages = 512;
  static constexpr int pageTokens = 128;
  static constexpr bool index = true; // requests find pages of others by their tokens
  static constexpr int sparePages = 1; // after these, for rows of pages that others may read
  static constexpr int watermark = 85; // percent of the pages
  static constexpr bool failWhenFull = true;
  static constexpr int reserve = 0; // a pool that fails reserves nothing
  static constexpr int rowsBeyond = 9; // that calls write after all of a request's tokens
  static constexpr int callTokens = 2048; // that the calls of one stage feed
  static constexpr bool asksMore = true; // the models' code can do more than best tokens of chains
  static constexpr int queries = 1; // reducers of a call
  static constexpr int queryWords = 1; // that they give for a row, in LaunchParams::reduced
  static constexpr bool edits = true; // settings of requests may change rows of logits
  static constexpr int textPath = 0; // tokens on the path of a row of a tree, or of a kept row, at most
  static constexpr int keptTexts = 0; // rows that requests keep
  static constexpr int requestVocab = 260; // tokens of the first model, which requests have
  static constexpr int states = 7;
  static constexpr int faultState = 6; // FAILED
  static constexpr unsigned long long slotStates = 0x1e; // PREFILL PROPOSE VERIFY COMMIT
  static constexpr unsigned long long terminalStates = 0x60; // COMPLETE FAILED
  static constexpr int sites = 2; // where stages call the model
  static constexpr int gauges = 1;
  static constexpr int controlBegin = 218112; // byte of shared memory at which Control stands
  static constexpr int controlRoom = 3600; // bytes of it
};

//   state     flags     next
//   QUEUED    initial   PREFILL COMPLETE
//   PREFILL   slot      PREFILL PROPOSE
//   PROPOSE   slot      VERIFY
//   VERIFY    slot      COMMIT
//   COMMIT    slot      PROPOSE COMPLETE
//   COMPLETE  terminal
//   FAILED    terminal
enum class State : int {
  QUEUED = 0,
  PREFILL = 1,
  PROPOSE = 2,
  VERIFY = 3,
  COMMIT = 4,
  COMPLETE = 5,
  FAILED = 6,
};

// What the pipeline keeps of a request.
struct Fields {
  ::megalith::device::Sequence<8> draft;
  int accepted;
  ::megalith::device::Sequence<9> best;
  float block_size_ema; // block_size.ema
};
struct Request : megalith::abi::RequestOf<1>, megalith::abi::IndexedRequest<1> {
  Fields fields;
  __device__ bool fieldsInRange() const { return fields.draft.inRange() && fields.best.inRange(); }
};
static_assert(sizeof(Request) == 216, "the manifest gives the host this layout");

// Counters of the run.
enum class Metric : int { tokens_committed, tokens_proposed, tokens_accepted };

// Values in the trace.
enum class Gauge : int { block_size_block };

namespace calls {
// Stage prefill calls the model.
struct Prefill {
  static constexpr int site = 0, chunk = 2048;
  static constexpr bool draft = false, wantsLogits = false;
};
// Stage verify calls the model.
struct Verify {
  static constexpr int site = 1, chunk = 0; // indivisible
  static constexpr bool draft = true, wantsLogits = true;
  struct Sample0 {
    static constexpr ReducerKind reducer = ReducerKind::Sample;
    static constexpr int index = 0, place = 0, count = 1, part = 0;
    static constexpr bool edited = true; // settings of requests may change its rows
    using Value = int;
  };
};
} // namespace calls
using Control = ControlState<Config, Request>;
static_assert(sizeof(Control) <= Config::controlRoom, "the plan reserves this much");
using Activation = ActivationOf<Control>;

namespace stages {

// Stage admit of QUEUED (adaptive_speculative.yaml:54).
static __device__ void admit(Activation &t) {
  // goto: COMPLETE if finished else PREFILL
#line 57 "pipelines/adaptive_speculative.yaml"
  t.goTo(t.finished() ? State::COMPLETE : State::PREFILL);
#line 121 "adaptive_speculative.control.cu"
} // admit

// Stage prefill of PREFILL (adaptive_speculative.yaml:59), up to its call.
static __device__ void prefillIssue(Activation &t) {
  // - target(tokens[kv.target.len:-1], chunk=prefill_chunk, keep=none)
#line 62 "pipelines/adaptive_speculative.yaml"
  const auto tokens = t.tokens();
#line 62 "pipelines/adaptive_speculative.yaml"
  t.issue<calls::Prefill>(t.slice(tokens, t.kvLen(), tokens.size() - 1));
#line 131 "adaptive_speculative.control.cu"
} // prefillIssue

// Stage propose of PROPOSE (adaptive_speculative.yaml:65).
static __device__ void propose(Activation &t) {
  Fields &r = t.r.fields;
  // tier: tiers(ema, [[high_ema, max_block], [mid_ema, mid_block], [0.0, min_block]])
#line 50 "pipelines/adaptive_speculative.yaml"
  const int tier = r.block_size_ema >= 0.8f ? 8 : r.block_size_ema >= 0.5f ? 4 : 1;
  // - draft: ngram_lookup(tokens, width=min(block_size.block, budget - 1), ngram=ngram)
#line 68 "pipelines/adaptive_speculative.yaml"
  const auto draft = t.ngramLookup<3, 8>(t.tokens(), t.min(t.pressure() ? t.min(tier, 2) : tier, t.budget() - 1));
#line 68 "pipelines/adaptive_speculative.yaml"
  t.set(r.draft, draft);
  // goto: VERIFY
#line 69 "pipelines/adaptive_speculative.yaml"
  t.goTo(State::VERIFY);
#line 148 "adaptive_speculative.control.cu"
} // propose

// Stage verify of VERIFY (adaptive_speculative.yaml:71), up to its call.
static __device__ void verifyIssue(Activation &t) {
  Fields &r = t.r.fields;
  // - best: sample(target([last] + draft, kv=draft), sampling)
#line 74 "pipelines/adaptive_speculative.yaml"
  const auto tokens = t.tokens();
#line 74 "pipelines/adaptive_speculative.yaml"
  t.issue<calls::Verify>(t.concat(t.list(t.at(tokens, tokens.size() - 1)), r.draft), LogitsQuery<calls::Verify::Sample0>{.settings = t.sampling()});
#line 159 "adaptive_speculative.control.cu"
} // verifyIssue

// Stage prefill of PREFILL (adaptive_speculative.yaml:59), after its call.
static __device__ void prefillResume(Activation &t) {
  // goto: PROPOSE if kv.target.lag == 1 else PREFILL
#line 63 "pipelines/adaptive_speculative.yaml"
  t.goTo(t.kvLag() == 1 ? State::PROPOSE : State::PREFILL);
#line 167 "adaptive_speculative.control.cu"
} // prefillResume

// Stage verify of VERIFY (adaptive_speculative.yaml:71), after its call.
static __device__ void verifyResume(Activation &t) {
  Fields &r = t.r.fields;
  // - best: sample(target([last] + draft, kv=draft), sampling)
#line 74 "pipelines/adaptive_speculative.yaml"
  const auto best = t.results<calls::Verify::Sample0>();
#line 74 "pipelines/adaptive_speculative.yaml"
  t.set(r.best, best);
  // - accepted: prefix_while(i in 0..len(draft), draft[i] == best[i])
#line 75 "pipelines/adaptive_speculative.yaml"
  const int length = r.draft.size();
#line 75 "pipelines/adaptive_speculative.yaml"
  const int accepted = t.prefixWhile(length, [&](int i) { return t.at(r.draft, i) == t.at(best, i); });
#line 75 "pipelines/adaptive_speculative.yaml"
  t.set(r.accepted, accepted);
  // - ema: ema_alpha * ratio(accepted, proposed) + (1 - ema_alpha) * ema
#line 48 "pipelines/adaptive_speculative.yaml"
  t.set(r.block_size_ema, __fadd_rn(__fmul_rn(0.2f, t.ratio(accepted, length)), __fmul_rn(0.8f, r.block_size_ema)));
  // goto: COMMIT
#line 79 "pipelines/adaptive_speculative.yaml"
  t.goTo(State::COMMIT);
#line 191 "adaptive_speculative.control.cu"
} // verifyResume

// Stage commit of COMMIT (adaptive_speculative.yaml:81).
static __device__ void commit(Activation &t) {
  Fields &r = t.r.fields;
  // - appended: append(draft[:accepted] + [best[accepted]])
#line 84 "pipelines/adaptive_speculative.yaml"
  const int appended = t.append(t.concat(t.slice(r.draft, 0, r.accepted), t.list(t.at(r.best, r.accepted))));
  // - kv.target.keep: len(tokens) - 1
#line 85 "pipelines/adaptive_speculative.yaml"
  t.keepKv(t.tokens().size() - 1);
  // - count: tokens_committed += appended
#line 86 "pipelines/adaptive_speculative.yaml"
  t.count(Metric::tokens_committed, appended);
  // - count: tokens_proposed += len(draft)
#line 87 "pipelines/adaptive_speculative.yaml"
  t.count(Metric::tokens_proposed, r.draft.size());
  // - count: tokens_accepted += min(accepted, appended)
#line 88 "pipelines/adaptive_speculative.yaml"
  t.count(Metric::tokens_accepted, t.min(r.accepted, appended));
  // tier: tiers(ema, [[high_ema, max_block], [mid_ema, mid_block], [0.0, min_block]])
#line 50 "pipelines/adaptive_speculative.yaml"
  const int tier = r.block_size_ema >= 0.8f ? 8 : r.block_size_ema >= 0.5f ? 4 : 1;
  // - trace: block_size.block
#line 89 "pipelines/adaptive_speculative.yaml"
  t.trace(Gauge::block_size_block, t.pressure() ? t.min(tier, 2) : tier);
  // goto: COMPLETE if finished else PROPOSE
#line 90 "pipelines/adaptive_speculative.yaml"
  t.goTo(t.finished() ? State::COMPLETE : State::PROPOSE);
#line 221 "adaptive_speculative.control.cu"
} // commit
} // namespace stages

// Ticks up to the model's next pass, or to the end of the loop. After a pass: first the rest of
// its tick.
__device__ __noinline__ void controlTicks(bool afterPass) {
  Control &c = controlOfCta<Control>();
  if (afterPass && nextPiece(c)) // of the same pass
    return;
  for (;; afterPass = true) {
    if (afterPass) {
      everySlot(c, [&](Activation &t) {
        completeCall(t);
        if (t.resumes<calls::Prefill>())
          stages::prefillResume(t);
        if (t.resumes<calls::Verify>())
          stages::verifyResume(t);
        if (t.in(State::COMMIT))
          stages::commit(t);
      });
      endTick(c);
    }
    beginTick(c);
    if (c.done)
      return;
    admission(c, State::QUEUED, [&](Activation &t) { stages::admit(t); });
    everySlot(c, [&](Activation &t) {
      if (t.in(State::PREFILL))
        stages::prefillIssue(t);
      if (t.in(State::PROPOSE))
        stages::propose(t);
      if (t.in(State::VERIFY))
        stages::verifyIssue(t);
    });
    formPass(c);
    if (c.numRows > 0)
      return;
    // A tick without rows: no other CTA hears of it.
  } // tick
} // controlTicks

// Before the first tick.
__device__ void controlStart(PassShared &pass) {
  startControl(controlOfCta<Control>(), paramsOfCta(), pass);
} // controlStart

// After the last tick of a launch that another one follows.
__device__ void controlKeep() {
  keepControl(controlOfCta<Control>(), paramsOfCta());
} // controlKeep

extern "C" __device__ const UnitFacts megalith_control_facts = factsOfUnit<Config>();
