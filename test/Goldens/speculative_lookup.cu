//===- control unit -------------------------------------------------------===//
//
// Pipeline `speculative_lookup`, made by megalith. Linked with the tensor unit
// (target.tensors.cu), it is one resident kernel. Units.cuh says what crosses.
//
// model    target (llama)
// source   pipelines/speculative_lookup.yaml
// params   slots = 8, rows_per_pass = 2048, rows_beside = 1920, block = 8, ngram = 3,
// prefill_chunk = 2048, kv_pages = 512, page_tokens = 128
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
  static constexpr int watermark = 100; // percent of the pages
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
  static constexpr int gauges = 0;
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
};
struct Request : megalith::abi::RequestOf<1>, megalith::abi::IndexedRequest<1> {
  Fields fields;
  __device__ bool fieldsInRange() const { return fields.draft.inRange() && fields.best.inRange(); }
};
static_assert(sizeof(Request) == 208, "the manifest gives the host this layout");

// Counters of the run.
enum class Metric : int { tokens_committed, tokens_proposed, tokens_accepted };

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

// Stage admit of QUEUED (speculative_lookup.yaml:34).
static __device__ void admit(Activation &t) {
  // goto: COMPLETE if finished else PREFILL
#line 37 "pipelines/speculative_lookup.yaml"
  t.goTo(t.finished() ? State::COMPLETE : State::PREFILL);
#line 116 "speculative_lookup.control.cu"
} // admit

// Stage prefill of PREFILL (speculative_lookup.yaml:39), up to its call.
static __device__ void prefillIssue(Activation &t) {
  // - target(tokens[kv.target.len:-1], chunk=prefill_chunk, keep=none)
#line 42 "pipelines/speculative_lookup.yaml"
  const auto tokens = t.tokens();
#line 42 "pipelines/speculative_lookup.yaml"
  t.issue<calls::Prefill>(t.slice(tokens, t.kvLen(), tokens.size() - 1));
#line 126 "speculative_lookup.control.cu"
} // prefillIssue

// Stage propose of PROPOSE (speculative_lookup.yaml:45).
static __device__ void propose(Activation &t) {
  Fields &r = t.r.fields;
  // - draft: ngram_lookup(tokens, width=min(block, budget - 1), ngram=ngram)
#line 48 "pipelines/speculative_lookup.yaml"
  t.set(r.draft, t.ngramLookup<3, 8>(t.tokens(), t.min(8, t.budget() - 1)));
  // goto: VERIFY
#line 49 "pipelines/speculative_lookup.yaml"
  t.goTo(State::VERIFY);
#line 138 "speculative_lookup.control.cu"
} // propose

// Stage verify of VERIFY (speculative_lookup.yaml:51), up to its call.
static __device__ void verifyIssue(Activation &t) {
  Fields &r = t.r.fields;
  // - best: sample(target([last] + draft, kv=draft), sampling)
#line 54 "pipelines/speculative_lookup.yaml"
  const auto tokens = t.tokens();
#line 54 "pipelines/speculative_lookup.yaml"
  t.issue<calls::Verify>(t.concat(t.list(t.at(tokens, tokens.size() - 1)), r.draft), LogitsQuery<calls::Verify::Sample0>{.settings = t.sampling()});
#line 149 "speculative_lookup.control.cu"
} // verifyIssue

// Stage prefill of PREFILL (speculative_lookup.yaml:39), after its call.
static __device__ void prefillResume(Activation &t) {
  // goto: PROPOSE if kv.target.lag == 1 else PREFILL
#line 43 "pipelines/speculative_lookup.yaml"
  t.goTo(t.kvLag() == 1 ? State::PROPOSE : State::PREFILL);
#line 157 "speculative_lookup.control.cu"
} // prefillResume

// Stage verify of VERIFY (speculative_lookup.yaml:51), after its call.
static __device__ void verifyResume(Activation &t) {
  Fields &r = t.r.fields;
  // - best: sample(target([last] + draft, kv=draft), sampling)
#line 54 "pipelines/speculative_lookup.yaml"
  const auto best = t.results<calls::Verify::Sample0>();
#line 54 "pipelines/speculative_lookup.yaml"
  t.set(r.best, best);
  // - accepted: prefix_while(i in 0..len(draft), draft[i] == best[i])
#line 55 "pipelines/speculative_lookup.yaml"
  const int accepted = t.prefixWhile(r.draft.size(), [&](int i) { return t.at(r.draft, i) == t.at(best, i); });
#line 55 "pipelines/speculative_lookup.yaml"
  t.set(r.accepted, accepted);
  // goto: COMMIT
#line 56 "pipelines/speculative_lookup.yaml"
  t.goTo(State::COMMIT);
#line 176 "speculative_lookup.control.cu"
} // verifyResume

// Stage commit of COMMIT (speculative_lookup.yaml:58).
static __device__ void commit(Activation &t) {
  Fields &r = t.r.fields;
  // - appended: append(draft[:accepted] + [best[accepted]])
#line 61 "pipelines/speculative_lookup.yaml"
  const int appended = t.append(t.concat(t.slice(r.draft, 0, r.accepted), t.list(t.at(r.best, r.accepted))));
  // - kv.target.keep: len(tokens) - 1
#line 62 "pipelines/speculative_lookup.yaml"
  t.keepKv(t.tokens().size() - 1);
  // - count: tokens_committed += appended
#line 63 "pipelines/speculative_lookup.yaml"
  t.count(Metric::tokens_committed, appended);
  // - count: tokens_proposed += len(draft)
#line 64 "pipelines/speculative_lookup.yaml"
  t.count(Metric::tokens_proposed, r.draft.size());
  // - count: tokens_accepted += min(accepted, appended)
#line 65 "pipelines/speculative_lookup.yaml"
  t.count(Metric::tokens_accepted, t.min(r.accepted, appended));
  // goto: COMPLETE if finished else PROPOSE
#line 66 "pipelines/speculative_lookup.yaml"
  t.goTo(t.finished() ? State::COMPLETE : State::PROPOSE);
#line 200 "speculative_lookup.control.cu"
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
//===- tensor unit --------------------------------------------------------===//
//
// The models, made by megalith. Linked with the control unit of a pipeline, it is one resident
// kernel. Nothing here is a pipeline's own: all that plan the same models alike share it.
//
// model    target (llama)
// source   pipelines/models/llama.yaml
// plan     h200: 132 CTAs of 12 warps, a ring of 16 x 8192 bytes
//
// Reading order: constants, the models' segments, and last what the resident loop (Resident.cuh)
// calls.

#include "megalith/TensorUnit.cuh"
#include "megalith/WidePass.cuh"

namespace abi = megalith::abi;
using namespace megalith::device;

using WeightRing = Ring<16, 8192, 4, 4, 4, 4, 8, 64, true>;
using Stream = Consumer<WeightRing, 49152, 128>;

// What the control unit must take for true, too (Units.cuh).
struct Facts {
  static constexpr int controlBegin = 218112; // byte of shared memory at which its state stands
  static constexpr int rowsPerPass = 128;
  static constexpr int vocab[] = {260};
  static constexpr int pages[] = {512};
  static constexpr int pageTokens[] = {128};
  static constexpr bool wide = true; // unread rows of a large pass may run as a wide one
  static constexpr bool asksMore = true; // than the best token of each row of a chain
};

// Shared memory of a CTA. The control unit's state comes after it.
struct Shared {
  abi::LaunchParams params; // here paramsOfCta() finds them
  TreePass pass;
  RingShared sync;
  GridEdges grid;
  StreamPlace places[kConsumerWarps]; // of the warps, between two phases
  wide::Sync wideSync; // of passes that run whole
  // From here on passes that run whole have their own: no other pass needs again what stands here.
  alignas(128) PassDraws<Facts::rowsPerPass> draws;
  alignas(128) float scratch[12288]; // lent stages go on where it ends
  alignas(128) char ring[WeightRing::stages * WeightRing::stageBytes];

  __device__ __forceinline__ wide::Shared wide() { return wide::sharedFrom(this, &draws, wideSync, pass); }
  __device__ __forceinline__ Stream stream() { return {ring, &sync, scratch, &places[warpId()]}; }
};
static_assert(sizeof(Shared) <= Facts::controlBegin, "the plan reserves this much");
static_assert(wide::endFrom(sizeof(Shared) - sizeof(Shared::scratch) - sizeof(Shared::ring) - sizeof(Shared::draws)) <= Facts::controlBegin);
__device__ __forceinline__ Shared &sharedOfCta() { return *reinterpret_cast<Shared *>(dynamicShared()); }
extern "C" __device__ void megalith_wide_deal();
extern "C" __device__ void megalith_wide_multiply();
extern "C" __device__ void megalith_wide_work();
extern "C" __device__ void megalith_wide_attend(int layer);
extern "C" __device__ void megalith_wide_weights(wide::Range range, int half);
extern "C" __device__ void megalith_wide_keys(int layer, int half);
extern "C" __device__ void megalith_wide_rows(wide::Range range);
extern "C" __device__ void megalith_wide_queries(int layer);
extern "C" __device__ void megalith_wide_signal(wide::Range range);

// The KV pool of the model, and the shape of its attention.
namespace pools {
struct Target {
  static constexpr int model = 0; // its number in LaunchParams::models
  static constexpr int heads = 8, kvHeads = 4, headDim = 32;
  static constexpr int layers = 6, pages = 512, pageTokens = 128;
  static constexpr int sparePages = 1; // after these, for rows of pages that others may read
  static constexpr int rows = 128;
  static constexpr bool trees = true; // rows of a slot need not be a chain
  static constexpr long long paths = 6400; // in the flagged words
  static constexpr int pathPlaces = 64; // of rows of earlier calls of a run, at most
  static constexpr long long sums = 579840;
  static constexpr int wideUnits = 1056, wideLevels = 1; // of attention of many rows of a slot
  static constexpr int wideRound = 55, wideUnit = 22, wideParts = 40; // times of it, as planRanges counts them
  static constexpr long long wideSums = 16379392;
};
} // namespace pools

// Activations of a pass: for each row a record, in which every value has a place of its own.
struct Workspace {
  static constexpr long long rowBytes = 30976, narrowBytes = 24320, setBytes = 3964928;
  static constexpr int wideBegin = 11520, wideEnd = 24320; // of a record, what passes of more than 16 rows write there
  char *set;
  const GridEdges *grid;

  template <int Columns> __device__ __forceinline__ auto bf16(long long at, long long instance, int edge) const {
    return Bf16Rows<ByWords, Columns, rowBytes>{set + at + instance, {grid, edge}};
  }
  template <int Columns> __device__ __forceinline__ auto f32(long long at, long long instance, int edge) const {
    return FloatRows<ByWords, Columns, rowBytes>{set + at + instance, {grid, edge}};
  }
};
struct Buffers : Workspace {
  __device__ __forceinline__ auto x(int instance) const { return Workspace::bf16<256>(11520, instance * 512, 8); }
  __device__ __forceinline__ auto wq_wk_wv_operand(int instance) const { return Workspace::bf16<256>(24320, instance * 512, 2); }
  __device__ __forceinline__ auto q(int instance) const { return Workspace::bf16<256>(15104, instance * 512, 3); }
  __device__ __forceinline__ auto new_keys(int instance) const { return Workspace::bf16<128>(18176, instance * 256, 3); }
  __device__ __forceinline__ auto new_values(int instance) const { return Workspace::bf16<128>(19712, instance * 256, 3); }
  __device__ __forceinline__ auto attention(int instance) const { return Workspace::bf16<256>(0, instance * 512, 4); }
  __device__ __forceinline__ auto x2(int instance) const { return Workspace::bf16<256>(21248, instance * 512, 5); }
  __device__ __forceinline__ auto gate_up_operand(int instance) const { return Workspace::bf16<256>(27392, instance * 512, 6); }
  __device__ __forceinline__ auto gate_up(int instance) const { return Workspace::bf16<704>(3072, instance * 1408, 7); }
  __device__ __forceinline__ auto head_operand(int instance) const { return Workspace::bf16<256>(30464, instance * 512, 9); }
};

namespace matrices {

// wq, wk, wv (llama.yaml:46): 64 groups of 1 tiles in 1 rounds of 131 CTAs.
struct WqWkWv {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 1, groups = 64, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 0; // of more than 16 rows
  static constexpr int partsEdge = 12;
  static constexpr long long parts = 5105920, partsDone = 7203072;
  static constexpr long long offset = 0, layerBytes = 262144;
};

// wo (llama.yaml:49): 32 groups of 1 tiles in 1 rounds of 131 CTAs.
struct Wo {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 1, groups = 32, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 64; // of more than 16 rows
  static constexpr int partsEdge = 13;
  static constexpr long long parts = 7203328, partsDone = 8251904;
  static constexpr long long offset = 1572864, layerBytes = 131072;
};

// gate with up (llama.yaml:51): 88 groups of 2 tiles in 1 rounds of 131 CTAs.
struct GateUp {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 2, groups = 88, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 96; // of more than 16 rows
  static constexpr int partsEdge = 14;
  static constexpr long long parts = 8252160, partsDone = 14019328;
  static constexpr long long offset = 2359296, layerBytes = 720896;
};

// down (llama.yaml:51): 32 groups of 1 tiles in 1 rounds of 131 CTAs.
struct Down {
  static constexpr int k = 704, kPadded = 768, blocks = 3, chunkBlocks = 1;
  static constexpr int group = 1, groups = 32, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 52; // of more than 16 rows
  static constexpr int partsEdge = 15;
  static constexpr long long parts = 14019584, partsDone = 15068160;
  static constexpr long long offset = 6684672, layerBytes = 393216;
};

// head (llama.yaml:52): 33 groups of 1 tiles in 1 rounds of 132 CTAs.
struct Head {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 1, groups = 33, firstCta = 0, ctas = 132;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 84; // of more than 16 rows
  static constexpr int partsEdge = 16;
  static constexpr long long parts = 15068416, partsDone = 16379136;
  static constexpr long long offset = 9043968, layerBytes = 135168;
};
} // namespace matrices

// Edges that the resident loop waits at, and places in the flagged words: the logits' maxima, and
// a counter for each operand that passes of many rows have as an image.
struct Edges { static constexpr int best = 10; };
struct Flagged { static constexpr long long best = 39168, drawn = 309504; };
using Kept = KeptLogits<unsigned short, 260, 260>; // that queries read
struct Counters {
  static constexpr long long wq_wk_wv_operand = 85585408;
  static constexpr long long attention = 85979392;
  static constexpr long long gate_up_operand = 86373376;
  static constexpr long long gate_up = 86767360;
  static constexpr long long head_operand = 89127424;
};
static_assert(AttentionShape<pools::Target>::scratchBytes(1) <= sizeof(Shared::scratch) &&
              AttentionShape<pools::Target>::scratchBytes(pools::Target::rows) <= sizeof(Shared::scratch) + WeightRing::lent * WeightRing::stageBytes,
              "room for attention");

// Operands of products in passes of more than 16 rows, in the flagged words.
struct FlaggedWords {
  char *flagged;
  int numRows; // of the pass

  template <int Columns> __device__ __forceinline__ auto image(long long at, long long instance) const {
    return OperandImage<Columns, Stream>(flagged + at + instance, numRows);
  }
};
struct Images : FlaggedWords {
  __device__ __forceinline__ auto wq_wk_wv_operand(int instance) const { return FlaggedWords::image<256>(85586176, instance * 65536ll); }
  __device__ __forceinline__ auto attention(int instance) const { return FlaggedWords::image<256>(85980160, instance * 65536ll); }
  __device__ __forceinline__ auto gate_up_operand(int instance) const { return FlaggedWords::image<256>(86374144, instance * 65536ll); }
  __device__ __forceinline__ auto gate_up(int instance) const { return FlaggedWords::image<704>(86768128, instance * 393216ll); }
  __device__ __forceinline__ auto head_operand(int instance) const { return FlaggedWords::image<256>(89127680, instance * 65536ll); }
};

// Chunks that the producer of a CTA copies before it knows the pass, at most, when the pass before
// was of this model.
__device__ __forceinline__ int chunksAhead() { return chunksOf<matrices::WqWkWv>(); }

namespace phases {

// x (llama.yaml:42): row by row.
__device__ __forceinline__ void targetBodyX() {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const WeightRows<256> embed_{weightAt(p.models[0], 0)};
  spreadRows(numRows, 4, [&](int row, int part) {
    quarterOfRow<256>(part, [&](int c) {
#line 42 "pipelines/models/llama.yaml"
      b.x(0).store8(row, c, embed_.load8(lineOfToken(pass.rows[row].token, 260), c));
#line 217 "target.tensors.cu"
    });
  });
} // targetBodyX

// wq_wk_wv operand (llama.yaml:46): once, where each CTA would make it for itself.
template <int Rows>
__device__ __noinline__ void targetBodyWqWkWvOperand(int layer) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const WeightVector<256> attn_norm_{packedVector(p.models[0], 9179136 + layer * 512ll)};
  rowsOfCtas(numRows, [&](int row) {
#line 45 "pipelines/models/llama.yaml"
    const float sum = ctaReduce<false, 256>(shared.scratch, [&](int c) {
#line 45 "pipelines/models/llama.yaml"
      const auto x_ = b.x(layer).load8(row, c);
      return mul(x_, x_);
    });
#line 238 "target.tensors.cu"
    for (int c = partBegin<256>() + laneId() * 8; c < partEnd<256>(); c += 256) {
      const auto x_ = b.x(layer).load8(row, c);
#line 45 "pipelines/models/llama.yaml"
      const auto t = toBf16(mul(x_, reciprocalSqrt(add(mul(sum, 0.00390625f), 1e-05f))));
#line 45 "pipelines/models/llama.yaml"
      const auto h_ = toBf16(mul(attn_norm_.load8(c), t));
#line 46 "pipelines/models/llama.yaml"
      forRows<Rows>(b.wq_wk_wv_operand(layer), Images{p.flagged, pass.numRows}.wq_wk_wv_operand(layer)).store8(row, c, h_);
#line 247 "target.tensors.cu"
    }
  });
} // targetBodyWqWkWvOperand

// Streams wq_wk_wv (llama.yaml:46) into q.
template <int Rows>
__device__ __noinline__ void targetBodyWqWkWv(int layer, int unit = 0, int firstRow = 0) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const Rope<32> rope32{p.models[0].ropeCosSin};
  const WeightVector<256> attn_norm_{packedVector(p.models[0], 9179136 + layer * 512ll)};
  const auto early = [&](int row, int pair) {
    Beside<0, 2> beside = {};
    if (pair < 128) {
      const int c0 = pair / 16 * 32 + pair % 16, c1 = c0 + 16;
      const int position = pass.rows[row].position;
      beside.values[0] = rope32.cosPair(position, c0, c1);
      beside.values[1] = rope32.sinPair(position, c0, c1);
    } // wq
    if (pair >= 128 && pair < 192) {
      const int c0 = (pair - 128) / 16 * 32 + (pair - 128) % 16, c1 = c0 + 16;
      const int position = pass.rows[row].position;
      beside.values[0] = rope32.cosPair(position, c0, c1);
      beside.values[1] = rope32.sinPair(position, c0, c1);
    } // wk
    return beside;
  };
  const KvRows<pools::Target> keys(p.models[0].kCache, layer, pass);
  const KvRows<pools::Target> values(p.models[0].vCache, layer, pass);
  const auto epilogue = [&](int tile, int row, int pair, float y0, float y1, const Beside<0, 2> &beside) {
    if (pair < 128) {
      const int c0 = pair / 16 * 32 + pair % 16, c1 = c0 + 16;
#line 46 "pipelines/models/llama.yaml"
      const auto t = toBf16(Floats<2>{{y0, y1}});
#line 46 "pipelines/models/llama.yaml"
      const auto t2 = add(toBf16(mul(t, beside.values[0])), toBf16(mul(rotatePair(t), beside.values[1])));
#line 46 "pipelines/models/llama.yaml"
      b.q(layer).storePair(row, c0, c1, toBf16(t2));
#line 289 "target.tensors.cu"
    } // wq
    if (pair >= 128 && pair < 192) {
      const int c0 = (pair - 128) / 16 * 32 + (pair - 128) % 16, c1 = c0 + 16;
#line 47 "pipelines/models/llama.yaml"
      const auto t = toBf16(Floats<2>{{y0, y1}});
#line 47 "pipelines/models/llama.yaml"
      const auto t2 = add(toBf16(mul(t, beside.values[0])), toBf16(mul(rotatePair(t), beside.values[1])));
#line 49 "pipelines/models/llama.yaml"
      keys.storePair(row, c0, c1, toBf16(t2));
#line 49 "pipelines/models/llama.yaml"
      b.new_keys(layer).storePair(row, c0, c1, toBf16(t2));
#line 301 "target.tensors.cu"
    } // wk
    if (pair >= 192 && pair < 256) {
      const int c0 = 2 * (pair - 192), c1 = c0 + 1;
#line 49 "pipelines/models/llama.yaml"
      values.storePair(row, c0, c1, toBf16(Floats<2>{{y0, y1}}));
#line 49 "pipelines/models/llama.yaml"
      b.new_values(layer).storePair(row, c0, c1, toBf16(Floats<2>{{y0, y1}}));
#line 309 "target.tensors.cu"
    } // wv
  };
  if constexpr (Rows == kUnitEnd) {
    endOfUnit<matrices::WqWkWv>(shared, unit, firstRow, early, epilogue);
  }
  else if constexpr (Rows > kTileRows) {
    wideProduct<matrices::WqWkWv>(shared, layer, (pass.wide.passes - 1) * 6 + layer, [](int layer, int unit, int firstRow) { targetBodyWqWkWv<kUnitEnd>(layer, unit, firstRow); });
  }
  else if constexpr (Rows > kOneRow) {
    if (!CtaGroups<matrices::WqWkWv>().some())
      return;
    auto operand = operandOf<matrices::WqWkWv, Rows>(shared.stream(), pass, b.wq_wk_wv_operand(layer), NoAside{}, early);
    const Unchanged finish;
    streamProduct<false>(operand, finish, epilogue);
  }
  else {
    if (!CtaGroups<matrices::WqWkWv>().some())
      return;
    const auto aside = [&](int c) { return Aside<1>{{attn_norm_.words(c)}}; };
    auto operand = operandOf<matrices::WqWkWv, Rows>(shared.stream(), pass, b.x(layer), aside, early);
#line 45 "pipelines/models/llama.yaml"
    operand.begin();
#line 332 "target.tensors.cu"
    const auto terms = [&](int row, int c, Words4 words) {
#line 45 "pipelines/models/llama.yaml"
      return mul(unpack8(words), unpack8(words));
#line 336 "target.tensors.cu"
    };
    const auto then = [&](int row, float result) {
#line 45 "pipelines/models/llama.yaml"
      return reciprocalSqrt(add(mul(result, 0.00390625f), 1e-05f));
#line 341 "target.tensors.cu"
    };
#line 45 "pipelines/models/llama.yaml"
    operand.template reduce<0, false, 256>(terms, then);
#line 345 "target.tensors.cu"
    const auto finish = [&](int row, int c, Words4 words, const Aside<1> &beside) -> Words4 {
#line 45 "pipelines/models/llama.yaml"
      const auto t = mul(unpack8(beside.words[0]), toBf16(mul(unpack8(words), operand.scalarOf(0, row))));
#line 45 "pipelines/models/llama.yaml"
      const auto h_ = toBf16(t);
      return keepBelow<256>(pack8(h_), c);
#line 352 "target.tensors.cu"
    };
    streamProduct<true>(operand, finish, epilogue);
  }
} // targetBodyWqWkWv

// Attention (llama.yaml:49): 8 heads over 4 KV heads.
template <int Rows>
__device__ __noinline__ void targetBodyAttention(int layer) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const auto own = ownRows(b.new_keys(layer), b.new_values(layer));
  const auto query = b.q(layer);
  if constexpr (Rows > kTileRows) {
#line 49 "pipelines/models/llama.yaml"
    attendWide<pools::Target>(shared.grid, pass, layer, 0.17677669f, shared.stream(), own, query);
#line 371 "target.tensors.cu"
    // Again: no register is kept for it until here.
    const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
#line 49 "pipelines/models/llama.yaml"
    mergeWide<pools::Target>(shared.grid, 4, pass, layer, Images{p.flagged, pass.numRows}.attention(layer));
#line 376 "target.tensors.cu"
  }
  else {
    const auto out = lateRows([layer] {
      const abi::LaunchParams &p = sharedOfCta().params;
      const PassShared &pass = sharedOfCta().pass;
      const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &sharedOfCta().grid};
      return rowsOrImage(b.attention(layer), Images{p.flagged, pass.numRows}.attention(layer), pass.numRows);
    });
#line 49 "pipelines/models/llama.yaml"
    attend<pools::Target, Rows>(shared.grid, 4, pass, layer, 0.17677669f, shared.stream(), own, query, out);
#line 387 "target.tensors.cu"
  }
} // targetBodyAttention

// Streams wo (llama.yaml:49) into x2.
template <int Rows>
__device__ __noinline__ void targetBodyWo(int layer, int unit = 0, int firstRow = 0) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const auto early = [&](int row, int pair) {
    Beside<1, 0> beside = {};
    const int c0 = 2 * pair, c1 = c0 + 1;
    beside.words[0] = b.x(layer).peekPair(row, c0, c1);
    return beside;
  };
  const auto epilogue = [&](int tile, int row, int pair, float y0, float y1, const Beside<1, 0> &beside) {
    const int c0 = 2 * pair, c1 = c0 + 1;
#line 49 "pipelines/models/llama.yaml"
    const auto t = add(b.x(layer).takePair(row, c0, c1, beside.words[0]), toBf16(Floats<2>{{y0, y1}}));
#line 49 "pipelines/models/llama.yaml"
    b.x2(layer).storePair(row, c0, c1, toBf16(t));
#line 411 "target.tensors.cu"
  };
  if constexpr (Rows == kUnitEnd) {
    endOfUnit<matrices::Wo>(shared, unit, firstRow, early, epilogue);
  }
  else if constexpr (Rows > kTileRows) {
    wideProduct<matrices::Wo>(shared, layer, (pass.wide.passes - 1) * 6 + layer, [](int layer, int unit, int firstRow) { targetBodyWo<kUnitEnd>(layer, unit, firstRow); });
  }
  else {
    if (!CtaGroups<matrices::Wo>().some())
      return;
    auto operand = operandOf<matrices::Wo, Rows>(shared.stream(), pass, b.attention(layer), NoAside{}, early);
    const Unchanged finish;
    streamProduct<false>(operand, finish, epilogue);
  }
} // targetBodyWo

// gate_up operand (llama.yaml:51): once, where each CTA would make it for itself.
template <int Rows>
__device__ __noinline__ void targetBodyGateUpOperand(int layer) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const WeightVector<256> mlp_norm_{packedVector(p.models[0], 9182208 + layer * 512ll)};
  rowsOfCtas(numRows, [&](int row) {
#line 50 "pipelines/models/llama.yaml"
    const float sum = ctaReduce<false, 256>(shared.scratch, [&](int c) {
#line 50 "pipelines/models/llama.yaml"
      const auto x_ = b.x2(layer).load8(row, c);
      return mul(x_, x_);
    });
#line 444 "target.tensors.cu"
    for (int c = partBegin<256>() + laneId() * 8; c < partEnd<256>(); c += 256) {
      const auto x_ = b.x2(layer).load8(row, c);
#line 50 "pipelines/models/llama.yaml"
      const auto t = toBf16(mul(x_, reciprocalSqrt(add(mul(sum, 0.00390625f), 1e-05f))));
#line 50 "pipelines/models/llama.yaml"
      const auto h_ = toBf16(mul(mlp_norm_.load8(c), t));
#line 51 "pipelines/models/llama.yaml"
      forRows<Rows>(b.gate_up_operand(layer), Images{p.flagged, pass.numRows}.gate_up_operand(layer)).store8(row, c, h_);
#line 453 "target.tensors.cu"
    }
  });
} // targetBodyGateUpOperand

// Streams gate_up (llama.yaml:51) into gate_up.
template <int Rows>
__device__ __noinline__ void targetBodyGateUp(int layer, int unit = 0, int firstRow = 0) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const WeightVector<256> mlp_norm_{packedVector(p.models[0], 9182208 + layer * 512ll)};
  const auto early = [](int, int) { return Nothing{}; };
  const auto epilogue = [&](int tile, RowOfWarp row, int pair, float y0, float y1, Nothing) {
    const int c0 = pair;
#line 51 "pipelines/models/llama.yaml"
    const auto t = mul(toBf16(silu(toBf16(Floats<1>{{y0}}))), toBf16(Floats<1>{{y1}}));
#line 51 "pipelines/models/llama.yaml"
    forRows<Rows>(b.gate_up(layer), Images{p.flagged, pass.numRows}.gate_up(layer)).storeOne(row, c0, toBf16(t));
#line 474 "target.tensors.cu"
  };
  if constexpr (Rows == kUnitEnd) {
    endOfUnit<matrices::GateUp>(shared, unit, firstRow, early, epilogue);
  }
  else if constexpr (Rows > kTileRows) {
    wideProduct<matrices::GateUp>(shared, layer, (pass.wide.passes - 1) * 6 + layer, [](int layer, int unit, int firstRow) { targetBodyGateUp<kUnitEnd>(layer, unit, firstRow); });
  }
  else if constexpr (Rows > kOneRow) {
    if (!CtaGroups<matrices::GateUp>().some())
      return;
    auto operand = operandOf<matrices::GateUp, Rows>(shared.stream(), pass, b.gate_up_operand(layer), NoAside{}, early);
    const Unchanged finish;
    streamProduct<false>(operand, finish, epilogue);
  }
  else {
    if (!CtaGroups<matrices::GateUp>().some())
      return;
    const auto aside = [&](int c) { return Aside<1>{{mlp_norm_.words(c)}}; };
    auto operand = operandOf<matrices::GateUp, Rows>(shared.stream(), pass, b.x2(layer), aside, early);
#line 50 "pipelines/models/llama.yaml"
    operand.begin();
#line 496 "target.tensors.cu"
    const auto terms = [&](int row, int c, Words4 words) {
#line 50 "pipelines/models/llama.yaml"
      return mul(unpack8(words), unpack8(words));
#line 500 "target.tensors.cu"
    };
    const auto then = [&](int row, float result) {
#line 50 "pipelines/models/llama.yaml"
      return reciprocalSqrt(add(mul(result, 0.00390625f), 1e-05f));
#line 505 "target.tensors.cu"
    };
#line 50 "pipelines/models/llama.yaml"
    operand.template reduce<0, false, 256>(terms, then);
#line 509 "target.tensors.cu"
    const auto finish = [&](int row, int c, Words4 words, const Aside<1> &beside) -> Words4 {
#line 50 "pipelines/models/llama.yaml"
      const auto t = mul(unpack8(beside.words[0]), toBf16(mul(unpack8(words), operand.scalarOf(0, row))));
#line 50 "pipelines/models/llama.yaml"
      const auto h_ = toBf16(t);
      return keepBelow<256>(pack8(h_), c);
#line 516 "target.tensors.cu"
    };
    streamProduct<true>(operand, finish, epilogue);
  }
} // targetBodyGateUp

// Streams down (llama.yaml:51) into x.
template <int Rows>
__device__ __noinline__ void targetBodyDown(int layer, int unit = 0, int firstRow = 0) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const auto early = [&](int row, int pair) {
    Beside<1, 0> beside = {};
    const int c0 = 2 * pair, c1 = c0 + 1;
    beside.words[0] = b.x2(layer).peekPair(row, c0, c1);
    return beside;
  };
  const auto epilogue = [&](int tile, int row, int pair, float y0, float y1, const Beside<1, 0> &beside) {
    const int c0 = 2 * pair, c1 = c0 + 1;
#line 51 "pipelines/models/llama.yaml"
    const auto t = add(b.x2(layer).takePair(row, c0, c1, beside.words[0]), toBf16(Floats<2>{{y0, y1}}));
#line 51 "pipelines/models/llama.yaml"
    b.x(layer + 1).storePair(row, c0, c1, toBf16(t));
#line 542 "target.tensors.cu"
  };
  if constexpr (Rows == kUnitEnd) {
    endOfUnit<matrices::Down>(shared, unit, firstRow, early, epilogue);
  }
  else if constexpr (Rows > kTileRows) {
    wideProduct<matrices::Down>(shared, layer, (pass.wide.passes - 1) * 6 + layer, [](int layer, int unit, int firstRow) { targetBodyDown<kUnitEnd>(layer, unit, firstRow); });
  }
  else {
    if (!CtaGroups<matrices::Down>().some())
      return;
    auto operand = operandOf<matrices::Down, Rows>(shared.stream(), pass, b.gate_up(layer), NoAside{}, early);
    const Unchanged finish;
    streamProduct<false>(operand, finish, epilogue);
  }
} // targetBodyDown

// The window warp: the operands of the products of segment `body`, in a pass of more than 16 rows.
__device__ __noinline__ bool targetBodyWindows(WindowProducer<Stream> &producer) {
  const abi::LaunchParams &p = sharedOfCta().params;
  const WidePlan &pass = sharedOfCta().sync.wide;
#pragma unroll 1
  for (int layer = 0; layer < 6; ++layer) {
    if (!producer.bring(windowSteps<matrices::WqWkWv>(Images{p.flagged, pass.numRows}.wq_wk_wv_operand(layer), counterAt(p, Counters::wq_wk_wv_operand + layer * 128ll), pass.wide.passes - 1, 2)))
      return false;
    if (!producer.bring(windowSteps<matrices::Wo>(Images{p.flagged, pass.numRows}.attention(layer), counterAt(p, Counters::attention + layer * 128ll), pass.wide.passes - 1, 4)))
      return false;
    if (!producer.bring(windowSteps<matrices::GateUp>(Images{p.flagged, pass.numRows}.gate_up_operand(layer), counterAt(p, Counters::gate_up_operand + layer * 128ll), pass.wide.passes - 1, 6)))
      return false;
    if (!producer.bring(windowSteps<matrices::Down>(Images{p.flagged, pass.numRows}.gate_up(layer), counterAt(p, Counters::gate_up + layer * 128ll), pass.wide.passes - 1, 7)))
      return false;
  } // layer
  return true;
} // targetBodyWindows

// Behind a wide pass: what the last layer takes of rows that ran there.
__device__ __noinline__ void targetBodyLate() {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const wide::ImageRows<256> x_(p.flagged + 95648768ll);
  spreadRows(numRows, 4, [&](int row, int part) {
    const int there = rowOfWidePass(p, row);
    quarterOfRow<256>(part, [&](int c) {
      b.x(5).store8(row, c, x_.load8(there, c));
    });
  });
} // targetBodyLate

// Segment `body` of model `target`. Rows: at most so many does this variant handle. False when the
// kernel stops.
template <int Rows>
__device__ __noinline__ bool targetBody() {
  Shared &shared = sharedOfCta();
  shared.stream().beginPass(shared.pass.numRows, shared.pass.products.lentBefore);
  const bool late = Rows <= kTileRows && (shared.pass.wantLogits & kLastLayer);
  if (late)
    targetBodyLate();
  if (!late) {
    targetBodyX();
  }
  consumerSync(); // the pass is planned
  if (Rows > kTileRows) // what the producer copies before it knows that
    dropAhead(shared.stream(), chunksOf<matrices::WqWkWv>(), shared.pass.products.lent, shared.pass.products.lentBefore);
#pragma unroll 1
  for (Layer<Rows, Shared> layer(late ? 5 : 0); layer < 6; ++layer) {
    if (Rows > kOneRow) {
      targetBodyWqWkWvOperand<Rows>(layer);
      if (Rows > kTileRows)
        countOperand(counterAt(shared.params, Counters::wq_wk_wv_operand + layer * 128ll));
    }
    targetBodyWqWkWv<Rows>(layer);
    if (Rows > kTileRows && shared.pass.attention.wideTiles)
      targetBodyAttention<kMaxRows>(layer);
    else
      Rows == kOneRow || shared.pass.attention.oneRowEach ? targetBodyAttention<kOneRow>(layer) : targetBodyAttention<kTileRows>(layer);
    if (Rows > kTileRows)
      countOperand(counterAt(shared.params, Counters::attention + layer * 128ll));
    targetBodyWo<Rows>(layer);
    if (Rows > kOneRow) {
      targetBodyGateUpOperand<Rows>(layer);
      if (Rows > kTileRows)
        countOperand(counterAt(shared.params, Counters::gate_up_operand + layer * 128ll));
    }
    targetBodyGateUp<Rows>(layer);
    if (Rows > kTileRows)
      countOperand(counterAt(shared.params, Counters::gate_up + layer * 128ll));
    targetBodyDown<Rows>(layer);
  } // layer
  return true;
} // targetBody

// head operand (llama.yaml:52): once, where each CTA would make it for itself.
template <int Rows>
__device__ __noinline__ void targetHeadHeadOperand() {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const WeightVector<256> norm_{packedVector(p.models[0], 9185280)};
  rowsOfCtas(numRows, [&](int row) {
#line 52 "pipelines/models/llama.yaml"
    const float sum = ctaReduce<false, 256>(shared.scratch, [&](int c) {
#line 52 "pipelines/models/llama.yaml"
      const auto x_ = b.x(6).load8(row, c);
      return mul(x_, x_);
    });
#line 652 "target.tensors.cu"
    for (int c = partBegin<256>() + laneId() * 8; c < partEnd<256>(); c += 256) {
      const auto x_ = b.x(6).load8(row, c);
#line 52 "pipelines/models/llama.yaml"
      const auto t = toBf16(mul(x_, reciprocalSqrt(add(mul(sum, 0.00390625f), 1e-05f))));
#line 52 "pipelines/models/llama.yaml"
      forRows<Rows>(b.head_operand(0), Images{p.flagged, pass.numRows}.head_operand(0)).store8(row, c, toBf16(mul(norm_.load8(c), t)));
#line 659 "target.tensors.cu"
    }
  });
} // targetHeadHeadOperand

// Streams head (llama.yaml:52).
template <int Rows>
__device__ __noinline__ void targetHeadHead(int unit = 0, int firstRow = 0, Best *best = nullptr, Best *drawn = nullptr) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const WeightVector<256> norm_{packedVector(p.models[0], 9185280)};
  const auto early = [](int, int) { return Nothing{}; };
  const Kept kept{{p.selection}};
  Best own[bestsOf(Rows)], ownDrawn[bestsOf(Rows)];
  if constexpr (Rows == kUnitEnd)
    assumeLocal(best), assumeLocal(drawn);
  else
    best = own, drawn = ownDrawn;
  const auto epilogue = [&](int tile, int row, int pair, float y0, float y1, Nothing) {
    const int c0 = 2 * pair, c1 = c0 + 1;
#line 52 "pipelines/models/llama.yaml"
    const auto logit = toBf16(Floats<2>{{y0, y1}});
#line 684 "target.tensors.cu"
    if (c0 < 260) {
      best[tile].take(logit.v[0], c0);
      best[tile].take(logit.v[1], c1);
      takeDraws(kept, shared.draws.rows[row], drawn[tile], c0, logit);
      storeLogits(p, pass.logitsOf[row], c0, logit, 260);
    }
  };
  if constexpr (Rows == kUnitEnd) {
    endOfUnit<matrices::Head>(shared, unit, firstRow, early, epilogue);
  }
  else if constexpr (Rows > kTileRows) {
    wideProduct<matrices::Head>(shared, 0, pass.wide.heads - 1, [&own, &ownDrawn](int, int unit, int firstRow) { targetHeadHead<kUnitEnd>(unit, firstRow, own, ownDrawn); });
  }
  else if constexpr (Rows > kOneRow) {
    auto operand = operandOf<matrices::Head, Rows>(shared.stream(), pass, b.head_operand(0), NoAside{}, early);
    const Unchanged finish;
    streamProduct<false>(operand, finish, epilogue);
  }
  else {
    const auto aside = [&](int c) { return Aside<1>{{norm_.words(c)}}; };
    auto operand = operandOf<matrices::Head, Rows>(shared.stream(), pass, b.x(6), aside, early);
#line 52 "pipelines/models/llama.yaml"
    operand.begin();
#line 708 "target.tensors.cu"
    const auto terms = [&](int row, int c, Words4 words) {
#line 52 "pipelines/models/llama.yaml"
      return mul(unpack8(words), unpack8(words));
#line 712 "target.tensors.cu"
    };
    const auto then = [&](int row, float result) {
#line 52 "pipelines/models/llama.yaml"
      return reciprocalSqrt(add(mul(result, 0.00390625f), 1e-05f));
#line 717 "target.tensors.cu"
    };
#line 52 "pipelines/models/llama.yaml"
    operand.template reduce<0, false, 256>(terms, then);
#line 721 "target.tensors.cu"
    const auto finish = [&](int row, int c, Words4 words, const Aside<1> &beside) -> Words4 {
#line 52 "pipelines/models/llama.yaml"
      const auto t = mul(unpack8(beside.words[0]), toBf16(mul(unpack8(words), operand.scalarOf(0, row))));
      return keepBelow<256>(pack8(toBf16(t)), c);
#line 726 "target.tensors.cu"
    };
    streamProduct<true>(operand, finish, epilogue);
  }
  if constexpr (Rows != kUnitEnd) {
    publishBest<Rows>(own, p, pass, shared.scratch, reinterpret_cast<Words4 *>(p.flagged + Flagged::best));
    consumerSync(); // a CTA without a group of the matrix has met no barrier since takeQueries
    if (shared.draws.draws)
      publishBest<Rows>(ownDrawn, p, pass, shared.scratch, reinterpret_cast<Words4 *>(p.flagged + Flagged::drawn));
  }
} // targetHeadHead

// The window warp: the operands of the products of segment `head`, in a pass of more than 16 rows.
__device__ __noinline__ bool targetHeadWindows(WindowProducer<Stream> &producer) {
  const abi::LaunchParams &p = sharedOfCta().params;
  const WidePlan &pass = sharedOfCta().sync.wide;
  if (!producer.bring(windowSteps<matrices::Head>(Images{p.flagged, pass.numRows}.head_operand(0), counterAt(p, Counters::head_operand), pass.wide.heads - 1, 9)))
    return false;
  return true;
} // targetHeadWindows

// Segment `head` of model `target`. Rows: at most so many does this variant handle. False when the
// kernel stops.
template <int Rows>
__device__ __noinline__ bool targetHead() {
  Shared &shared = sharedOfCta();
  takeQueries(shared.grid, Edges::best, shared.pass, shared.draws);
  if (Rows > kOneRow) {
    targetHeadHeadOperand<Rows>();
    if (Rows > kTileRows)
      countOperand(counterAt(shared.params, Counters::head_operand));
  }
  targetHeadHead<Rows>();
  return true;
} // targetHead
} // namespace phases

// The order in which each CTA's weights arrive, the same in every pass.
__constant__ StreamStep kBodySteps[] = {
  vectorStep(9179136, 512, 512), // attn_norm
  matrixStep<matrices::WqWkWv>(true),
  kvStep(),
  matrixStep<matrices::Wo>(true),
  vectorStep(9182208, 512, 512), // mlp_norm
  matrixStep<matrices::GateUp>(true),
  matrixStep<matrices::Down>(true),
};
__device__ __noinline__ bool streamBody(Producer<WeightRing> &producer) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  const auto kv = [&](Producer<WeightRing> &inner, int layer) { return streamKv<pools::Target>(inner, p, shared.pass, layer); };
  return streamSegment<Stream::wideRows>(producer, kBodySteps, 7, 0, 7, 6, p.models[0].stream, kv);
} // streamBody

__constant__ StreamStep kHeadSteps[] = {
  vectorStep(9185280, 0, 512), // norm
  matrixStep<matrices::Head>(false),
};
__device__ __noinline__ bool streamHead(Producer<WeightRing> &producer) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  return streamSegment<Stream::wideRows>(producer, kHeadSteps, 2, 2, 2, 1, p.models[0].stream, NoKv());
} // streamHead

// Passes that run whole (WidePass.cuh). The roles' functions stand in a unit of their own.
struct Wide {
  static constexpr int layers = 6, stepsOfLast = 2;
  static constexpr wide::Part parts[] = {{wide::Work::OnRows, 0, 1}, {wide::Work::Product, 1, 2}, {wide::Work::Attention, 2, 3}, {wide::Work::Product, 3, 4}, {wide::Work::OnRows, 4, 5}, {wide::Work::Product, 5, 7}};
  __device__ __forceinline__ static void dealSteps() { megalith_wide_deal(); }
  __device__ __forceinline__ static void multiply() { megalith_wide_multiply(); }
  __device__ __forceinline__ static void workOnRows() { megalith_wide_work(); }
  __device__ __forceinline__ static void attend(int layer) { megalith_wide_attend(layer); }
  __device__ __forceinline__ static void bringWeights(wide::Range range, int half) { megalith_wide_weights(range, half); }
  __device__ __forceinline__ static void bringKeys(int layer, int half) { megalith_wide_keys(layer, half); }
  __device__ __forceinline__ static void bringRows(wide::Range range) { megalith_wide_rows(range); }
  __device__ __forceinline__ static void bringQueries(int layer) { megalith_wide_queries(layer); }
  __device__ __forceinline__ static void signal(wide::Range range) { megalith_wide_signal(range); }
};

// What the resident loop (Resident.cuh) takes of this model.
struct Model {
  using Workspace = ::Workspace;
  using Pool = pools::Target;
  static constexpr bool head = true;
  static constexpr int bestEdge = Edges::best;
  static constexpr long long best = Flagged::best;
  __device__ __forceinline__ static void start(const abi::LaunchParams &p) { startStream(sharedOfCta().sync, kBodySteps, p.models[0].stream, 0); }
  __device__ __forceinline__ static void beginWide() { wide::begin<::Wide>(sharedOfCta().wide().pass, sharedOfCta().pass.numRows, wideDone()); }
  __device__ __forceinline__ static u32 *wideDone() { return reinterpret_cast<u32 *>(sharedOfCta().params.flagged + 89193216ll); }
  __device__ __forceinline__ static void endWide() { wide::clear(wideDone(), 32); }
  __device__ __forceinline__ static bool runWide() { return wide::consume<::Wide>(sharedOfCta().wide().pass, sharedOfCta().grid); }
  __device__ __forceinline__ static void bringWide(int role) { wide::bring<::Wide>(role); }
  __device__ __forceinline__ static TokenTable tokens(const abi::LaunchParams &p) { return {weightAt(p.models[0], 0), 512, 260}; }
  static constexpr bool reduces = true;
  __device__ __forceinline__ static bool settle() { return ::settlePass<matrices::Head>(sharedOfCta().grid, Edges::best, sharedOfCta().pass, sharedOfCta().draws, Kept{sharedOfCta().params.selection}, reinterpret_cast<const Words4 *>(sharedOfCta().params.flagged + Flagged::best), reinterpret_cast<Words4 *>(sharedOfCta().params.flagged + Flagged::drawn), sharedOfCta().scratch); }
  __device__ __forceinline__ static void reduceDraws() { ::reduceDraws(sharedOfCta().grid, Edges::best, sharedOfCta().pass, sharedOfCta().draws, reinterpret_cast<const Words4 *>(sharedOfCta().params.flagged + Flagged::drawn)); }
  __device__ __forceinline__ static void finishQueries() { if (sharedOfCta().draws.queries > 0) ::finishQueries(sharedOfCta().grid, Edges::best, sharedOfCta().draws, Kept{sharedOfCta().params.selection}, sharedOfCta().scratch); }
  __device__ __forceinline__ static int chunksAhead() { return ::chunksAhead(); }
  __device__ __forceinline__ static bool streamBody(Producer<WeightRing> &producer) { return ::streamBody(producer); }
  __device__ __forceinline__ static bool bringBody(WindowProducer<Stream> &windows) { return phases::targetBodyWindows(windows); }
  __device__ __forceinline__ static bool runBody(int numRows) { return numRows == kOneRow ? phases::targetBody<kOneRow>() : numRows <= kTileRows ? phases::targetBody<kTileRows>() : phases::targetBody<kMaxRows>(); }
  __device__ __forceinline__ static bool streamHead(Producer<WeightRing> &producer) { return ::streamHead(producer); }
  __device__ __forceinline__ static bool bringHead(WindowProducer<Stream> &windows) { return phases::targetHeadWindows(windows); }
  __device__ __forceinline__ static bool runHead(int numRows) { return numRows == kOneRow ? phases::targetHead<kOneRow>() : numRows <= kTileRows ? phases::targetHead<kTileRows>() : phases::targetHead<kMaxRows>(); }
};

// Lays the weights out as the kernel streams them. Packed rows 2j and 2j+1 are the two output
// columns that one thread receives together. A launch packs what is there (Packing.cuh).
extern "C" __global__ void __launch_bounds__(256, 4)
megalith_pack(const __grid_constant__ abi::LaunchParams p, const abi::RawTensor *raw, char *stream) {
  for (int layer = 0; layer < 6; ++layer) {
    if (!someHere(raw, 8 + layer, 14 + layer, 20 + layer))
      continue;
    packMatrix<matrices::WqWkWv>(stream + matrices::WqWkWv::offset + layer * matrices::WqWkWv::layerBytes, [&](int packedRow) -> RawRow {
      const int pair = packedRow / 2, odd = packedRow % 2;
      if (pair >= 0 && pair < 128) {
        const int j = pair - 0;
        const int c0 = j / 16 * 32 + j % 16, c1 = c0 + 16;
        const int row = odd ? c1 : c0;
        return row < 256 ? RawRow{raw + 8 + layer, (long long)row * 256} : RawRow();
      } // wq
      if (pair >= 128 && pair < 192) {
        const int j = pair - 128;
        const int c0 = j / 16 * 32 + j % 16, c1 = c0 + 16;
        const int row = odd ? c1 : c0;
        return row < 128 ? RawRow{raw + 14 + layer, (long long)row * 256} : RawRow();
      } // wk
      if (pair >= 192 && pair < 256) {
        const int j = pair - 192;
        const int c0 = 2 * j, c1 = c0 + 1;
        const int row = odd ? c1 : c0;
        return row < 128 ? RawRow{raw + 20 + layer, (long long)row * 256} : RawRow();
      } // wv
      return RawRow();
    });
  }
  for (int layer = 0; layer < 6; ++layer) {
    if (!someHere(raw, 26 + layer))
      continue;
    packMatrix<matrices::Wo>(stream + matrices::Wo::offset + layer * matrices::Wo::layerBytes, [&](int packedRow) -> RawRow {
      const int pair = packedRow / 2, odd = packedRow % 2;
      if (pair >= 0 && pair < 128) {
        const int j = pair - 0;
        const int c0 = 2 * j, c1 = c0 + 1;
        const int row = odd ? c1 : c0;
        return row < 256 ? RawRow{raw + 26 + layer, (long long)row * 256} : RawRow();
      } // wo
      return RawRow();
    });
  }
  for (int layer = 0; layer < 6; ++layer) {
    if (!someHere(raw, 38 + layer, 44 + layer))
      continue;
    packMatrix<matrices::GateUp>(stream + matrices::GateUp::offset + layer * matrices::GateUp::layerBytes, [&](int packedRow) -> RawRow {
      const int pair = packedRow / 2, odd = packedRow % 2;
      if (pair >= 0 && pair < 704) {
        const int j = pair - 0;
        const int c0 = j;
        if (odd) {
          return c0 < 704 ? RawRow{raw + 44 + layer, (long long)c0 * 256} : RawRow();
        }
        return c0 < 704 ? RawRow{raw + 38 + layer, (long long)c0 * 256} : RawRow();
      } // gate
      return RawRow();
    });
  }
  for (int layer = 0; layer < 6; ++layer) {
    if (!someHere(raw, 50 + layer))
      continue;
    packMatrix<matrices::Down>(stream + matrices::Down::offset + layer * matrices::Down::layerBytes, [&](int packedRow) -> RawRow {
      const int pair = packedRow / 2, odd = packedRow % 2;
      if (pair >= 0 && pair < 128) {
        const int j = pair - 0;
        const int c0 = 2 * j, c1 = c0 + 1;
        const int row = odd ? c1 : c0;
        return row < 256 ? RawRow{raw + 50 + layer, (long long)row * 704} : RawRow();
      } // down
      return RawRow();
    });
  }
  for (int layer = 0; layer < 1; ++layer) {
    if (!someHere(raw, 0))
      continue;
    packMatrix<matrices::Head>(stream + matrices::Head::offset + layer * matrices::Head::layerBytes, [&](int packedRow) -> RawRow {
      const int pair = packedRow / 2, odd = packedRow % 2;
      if (pair >= 0 && pair < 130) {
        const int j = pair - 0;
        const int c0 = 2 * j, c1 = c0 + 1;
        const int row = odd ? c1 : c0;
        return row < 260 ? RawRow{raw + 0, (long long)row * 256} : RawRow();
      } // head
      return RawRow();
    });
  }
  for (int layer = 0; layer < 6; ++layer) {
    packVector(stream + 9179136 + layer * 512ll, raw[2 + layer]);
  } // attn_norm
  for (int layer = 0; layer < 6; ++layer) {
    packVector(stream + 9182208 + layer * 512ll, raw[32 + layer]);
  } // mlp_norm
  for (int layer = 0; layer < 1; ++layer) {
    packVector(stream + 9185280 + layer * 512ll, raw[1]);
  } // norm
  for (int layer = 0; layer < 1; ++layer) {
    keepTensor(p.models[0], 0 + layer, raw);
  } // embed
} // megalith_pack

// What the resident loop (Resident.cuh) takes of this kernel.
struct Kernel {
  using Shared = ::Shared;
  using Ring = WeightRing;
  using Stream = ::Stream;
  using Models = ModelList<Model>; // by their numbers
  static constexpr bool many = true, words = true, stamps = false, queries = true;
  static constexpr bool wide = true; // passes run whole
  static constexpr int passEdge = 11;
  __device__ __forceinline__ static Shared &shared() { return sharedOfCta(); }
  __device__ __forceinline__ static void start(const abi::LaunchParams &p) { Model::start(p); wide::startSync(sharedOfCta().wideSync); }
};

// The resident kernel: one CTA per SM, launched once.
extern "C" __global__ void __launch_bounds__(kWideCtaThreads, 1)
megalith_run(const __grid_constant__ abi::LaunchParams p) {
  startResident<Kernel>(p);
  if (warpId() >= kConsumerWarps)
    return runBeside<Kernel>();
  runTicks<Kernel>(p);
} // megalith_run

extern "C" __device__ const UnitFacts megalith_tensor_facts = factsOfUnit<Facts>();
