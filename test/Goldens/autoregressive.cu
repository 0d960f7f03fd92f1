//===- control unit -------------------------------------------------------===//
//
// Pipeline `autoregressive`, made by megalith. Linked with the tensor unit (target.tensors.cu), it
// is one resident kernel. Units.cuh says what crosses.
//
// model    target (llama)
// source   pipelines/autoregressive.yaml
// params   slots = 8, rows_per_pass = 2048, rows_beside = 1920, prefill_chunk = 2048, kv_pages =
// 512, page_tokens = 128
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
  static constexpr int watermark = 100; // percent of the pages
  static constexpr bool failWhenFull = true;
  static constexpr int reserve = 0; // a pool that fails reserves nothing
  static constexpr int rowsBeyond = 0; // that calls write after all of a request's tokens
  static constexpr int callTokens = 2048; // that the calls of one stage feed
  static constexpr int requestVocab = 260; // tokens of the first model, which requests have
  static constexpr int states = 5;
  static constexpr int faultState = 4; // FAILED
  static constexpr unsigned long long slotStates = 0x6; // PREFILL DECODE
  static constexpr unsigned long long terminalStates = 0x18; // COMPLETE FAILED
  static constexpr int sites = 2; // where stages call the model
  static constexpr int gauges = 0;
  static constexpr int controlBegin = 217088; // byte of shared memory at which Control stands
  static constexpr int controlRoom = 2880; // bytes of it
};

//   state     flags     next
//   QUEUED    initial   PREFILL COMPLETE
//   PREFILL   slot      PREFILL DECODE
//   DECODE    slot      DECODE COMPLETE
//   COMPLETE  terminal
//   FAILED    terminal
enum class State : int {
  QUEUED = 0,
  PREFILL = 1,
  DECODE = 2,
  COMPLETE = 3,
  FAILED = 4,
};

struct Request : megalith::abi::RequestOf<1> {
  __device__ bool fieldsInRange() const { return true; }
};
static_assert(sizeof(Request) == 96, "the manifest gives the host this layout");

// Counters of the run.
enum class Metric : int { tokens_committed };

namespace calls {
// Stage prefill calls the model.
struct Prefill {
  static constexpr int site = 0, chunk = 2048;
  static constexpr bool draft = false, wantsLogits = false;
};
// Stage decode calls the model.
struct Decode {
  static constexpr int site = 1, chunk = 0; // indivisible
  static constexpr bool draft = false, wantsLogits = true;
};
} // namespace calls
using Control = ControlState<Config, Request>;
static_assert(sizeof(Control) <= Config::controlRoom, "the plan reserves this much");
using Activation = ActivationOf<Control>;

namespace stages {

// Stage admit of QUEUED (autoregressive.yaml:26).
static __device__ void admit(Activation &t) {
  // goto: COMPLETE if finished else PREFILL
#line 29 "pipelines/autoregressive.yaml"
  t.goTo(t.finished() ? State::COMPLETE : State::PREFILL);
#line 91 "autoregressive.control.cu"
} // admit

// Stage prefill of PREFILL (autoregressive.yaml:31), up to its call.
static __device__ void prefillIssue(Activation &t) {
  // - target(tokens[kv.target.len:-1], chunk=prefill_chunk, keep=none)
#line 34 "pipelines/autoregressive.yaml"
  const auto tokens = t.tokens();
#line 34 "pipelines/autoregressive.yaml"
  t.issue<calls::Prefill>(t.slice(tokens, t.kvLen(), tokens.size() - 1));
#line 101 "autoregressive.control.cu"
} // prefillIssue

// Stage decode of DECODE (autoregressive.yaml:37), up to its call.
static __device__ void decodeIssue(Activation &t) {
  // - next: argmax(target([last]))
#line 40 "pipelines/autoregressive.yaml"
  const auto tokens = t.tokens();
#line 40 "pipelines/autoregressive.yaml"
  t.issue<calls::Decode>(t.list(t.at(tokens, tokens.size() - 1)));
#line 111 "autoregressive.control.cu"
} // decodeIssue

// Stage prefill of PREFILL (autoregressive.yaml:31), after its call.
static __device__ void prefillResume(Activation &t) {
  // goto: DECODE if kv.target.lag == 1 else PREFILL
#line 35 "pipelines/autoregressive.yaml"
  t.goTo(t.kvLag() == 1 ? State::DECODE : State::PREFILL);
#line 119 "autoregressive.control.cu"
} // prefillResume

// Stage decode of DECODE (autoregressive.yaml:37), after its call.
static __device__ void decodeResume(Activation &t) {
  // - appended: append(next)
#line 41 "pipelines/autoregressive.yaml"
  const int appended = t.append(t.results());
  // - count: tokens_committed += appended
#line 42 "pipelines/autoregressive.yaml"
  t.count(Metric::tokens_committed, appended);
  // goto: COMPLETE if finished else DECODE
#line 43 "pipelines/autoregressive.yaml"
  t.goTo(t.finished() ? State::COMPLETE : State::DECODE);
#line 133 "autoregressive.control.cu"
} // decodeResume
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
        if (t.resumes<calls::Decode>())
          stages::decodeResume(t);
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
      if (t.in(State::DECODE))
        stages::decodeIssue(t);
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

#line 1 "target.tensors.cu"
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
  static constexpr int controlBegin = 217088; // byte of shared memory at which its state stands
  static constexpr int rowsPerPass = 128;
  static constexpr int vocab[] = {260};
  static constexpr int pages[] = {512};
  static constexpr int pageTokens[] = {128};
  static constexpr bool wide = true; // unread rows of a large pass may run as a wide one
};

// Shared memory of a CTA. The control unit's state comes after it.
struct Shared {
  abi::LaunchParams params; // here paramsOfCta() finds them
  PassShared pass;
  RingShared sync;
  GridEdges grid;
  StreamPlace places[kConsumerWarps]; // of the warps, between two phases
  wide::Sync wideSync; // of passes that run whole
  // From here on passes that run whole have their own: no other pass needs again what stands here.
  alignas(128) float scratch[12288]; // lent stages go on where it ends
  alignas(128) char ring[WeightRing::stages * WeightRing::stageBytes];

  __device__ __forceinline__ wide::Shared wide() { return wide::sharedFrom(this, scratch, wideSync, pass); }
  __device__ __forceinline__ Stream stream() { return {ring, &sync, scratch, &places[warpId()]}; }
};
static_assert(sizeof(Shared) <= Facts::controlBegin, "the plan reserves this much");
static_assert(wide::endFrom(sizeof(Shared) - sizeof(Shared::scratch) - sizeof(Shared::ring)) <= Facts::controlBegin);
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
  static constexpr int rows = 128;
  static constexpr long long sums = 274688;
  static constexpr int wideUnits = 1056, wideLevels = 1; // of attention of many rows of a slot
  static constexpr int wideRound = 55, wideUnit = 22, wideParts = 40; // times of it, as planRanges counts them
  static constexpr long long wideSums = 16074240;
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
  static constexpr long long parts = 4800768, partsDone = 6897920;
  static constexpr long long offset = 0, layerBytes = 262144;
};

// wo (llama.yaml:49): 32 groups of 1 tiles in 1 rounds of 131 CTAs.
struct Wo {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 1, groups = 32, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 64; // of more than 16 rows
  static constexpr int partsEdge = 13;
  static constexpr long long parts = 6898176, partsDone = 7946752;
  static constexpr long long offset = 1572864, layerBytes = 131072;
};

// gate with up (llama.yaml:51): 88 groups of 2 tiles in 1 rounds of 131 CTAs.
struct GateUp {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 2, groups = 88, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 96; // of more than 16 rows
  static constexpr int partsEdge = 14;
  static constexpr long long parts = 7947008, partsDone = 13714176;
  static constexpr long long offset = 2359296, layerBytes = 720896;
};

// down (llama.yaml:51): 32 groups of 1 tiles in 1 rounds of 131 CTAs.
struct Down {
  static constexpr int k = 704, kPadded = 768, blocks = 3, chunkBlocks = 1;
  static constexpr int group = 1, groups = 32, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 52; // of more than 16 rows
  static constexpr int partsEdge = 15;
  static constexpr long long parts = 13714432, partsDone = 14763008;
  static constexpr long long offset = 6684672, layerBytes = 393216;
};

// head (llama.yaml:52): 33 groups of 1 tiles in 1 rounds of 132 CTAs.
struct Head {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 1, groups = 33, firstCta = 0, ctas = 132;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 84; // of more than 16 rows
  static constexpr int partsEdge = 16;
  static constexpr long long parts = 14763264, partsDone = 16073984;
  static constexpr long long offset = 9043968, layerBytes = 135168;
};
} // namespace matrices

// Edges that the resident loop waits at, and places in the flagged words: the logits' maxima, and
// a counter for each operand that passes of many rows have as an image.
struct Edges { static constexpr int best = 10; };
struct Flagged { static constexpr long long best = 4352; };
struct Counters {
  static constexpr long long wq_wk_wv_operand = 85280256;
  static constexpr long long attention = 85674240;
  static constexpr long long gate_up_operand = 86068224;
  static constexpr long long gate_up = 86462208;
  static constexpr long long head_operand = 88822272;
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
  __device__ __forceinline__ auto wq_wk_wv_operand(int instance) const { return FlaggedWords::image<256>(85281024, instance * 65536ll); }
  __device__ __forceinline__ auto attention(int instance) const { return FlaggedWords::image<256>(85675008, instance * 65536ll); }
  __device__ __forceinline__ auto gate_up_operand(int instance) const { return FlaggedWords::image<256>(86068992, instance * 65536ll); }
  __device__ __forceinline__ auto gate_up(int instance) const { return FlaggedWords::image<704>(86462976, instance * 393216ll); }
  __device__ __forceinline__ auto head_operand(int instance) const { return FlaggedWords::image<256>(88822528, instance * 65536ll); }
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
#line 210 "target.tensors.cu"
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
#line 231 "target.tensors.cu"
    for (int c = partBegin<256>() + laneId() * 8; c < partEnd<256>(); c += 256) {
      const auto x_ = b.x(layer).load8(row, c);
#line 45 "pipelines/models/llama.yaml"
      const auto t = toBf16(mul(x_, reciprocalSqrt(add(mul(sum, 0.00390625f), 1e-05f))));
#line 45 "pipelines/models/llama.yaml"
      const auto h_ = toBf16(mul(attn_norm_.load8(c), t));
#line 46 "pipelines/models/llama.yaml"
      forRows<Rows>(b.wq_wk_wv_operand(layer), Images{p.flagged, pass.numRows}.wq_wk_wv_operand(layer)).store8(row, c, h_);
#line 240 "target.tensors.cu"
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
#line 282 "target.tensors.cu"
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
#line 294 "target.tensors.cu"
    } // wk
    if (pair >= 192 && pair < 256) {
      const int c0 = 2 * (pair - 192), c1 = c0 + 1;
#line 49 "pipelines/models/llama.yaml"
      values.storePair(row, c0, c1, toBf16(Floats<2>{{y0, y1}}));
#line 49 "pipelines/models/llama.yaml"
      b.new_values(layer).storePair(row, c0, c1, toBf16(Floats<2>{{y0, y1}}));
#line 302 "target.tensors.cu"
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
#line 325 "target.tensors.cu"
    const auto terms = [&](int row, int c, Words4 words) {
#line 45 "pipelines/models/llama.yaml"
      return mul(unpack8(words), unpack8(words));
#line 329 "target.tensors.cu"
    };
    const auto then = [&](int row, float result) {
#line 45 "pipelines/models/llama.yaml"
      return reciprocalSqrt(add(mul(result, 0.00390625f), 1e-05f));
#line 334 "target.tensors.cu"
    };
#line 45 "pipelines/models/llama.yaml"
    operand.template reduce<0, false, 256>(terms, then);
#line 338 "target.tensors.cu"
    const auto finish = [&](int row, int c, Words4 words, const Aside<1> &beside) -> Words4 {
#line 45 "pipelines/models/llama.yaml"
      const auto t = mul(unpack8(beside.words[0]), toBf16(mul(unpack8(words), operand.scalarOf(0, row))));
#line 45 "pipelines/models/llama.yaml"
      const auto h_ = toBf16(t);
      return keepBelow<256>(pack8(h_), c);
#line 345 "target.tensors.cu"
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
#line 364 "target.tensors.cu"
    // Again: no register is kept for it until here.
    const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
#line 49 "pipelines/models/llama.yaml"
    mergeWide<pools::Target>(shared.grid, 4, pass, layer, Images{p.flagged, pass.numRows}.attention(layer));
#line 369 "target.tensors.cu"
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
#line 380 "target.tensors.cu"
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
#line 404 "target.tensors.cu"
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
#line 437 "target.tensors.cu"
    for (int c = partBegin<256>() + laneId() * 8; c < partEnd<256>(); c += 256) {
      const auto x_ = b.x2(layer).load8(row, c);
#line 50 "pipelines/models/llama.yaml"
      const auto t = toBf16(mul(x_, reciprocalSqrt(add(mul(sum, 0.00390625f), 1e-05f))));
#line 50 "pipelines/models/llama.yaml"
      const auto h_ = toBf16(mul(mlp_norm_.load8(c), t));
#line 51 "pipelines/models/llama.yaml"
      forRows<Rows>(b.gate_up_operand(layer), Images{p.flagged, pass.numRows}.gate_up_operand(layer)).store8(row, c, h_);
#line 446 "target.tensors.cu"
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
#line 467 "target.tensors.cu"
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
#line 489 "target.tensors.cu"
    const auto terms = [&](int row, int c, Words4 words) {
#line 50 "pipelines/models/llama.yaml"
      return mul(unpack8(words), unpack8(words));
#line 493 "target.tensors.cu"
    };
    const auto then = [&](int row, float result) {
#line 50 "pipelines/models/llama.yaml"
      return reciprocalSqrt(add(mul(result, 0.00390625f), 1e-05f));
#line 498 "target.tensors.cu"
    };
#line 50 "pipelines/models/llama.yaml"
    operand.template reduce<0, false, 256>(terms, then);
#line 502 "target.tensors.cu"
    const auto finish = [&](int row, int c, Words4 words, const Aside<1> &beside) -> Words4 {
#line 50 "pipelines/models/llama.yaml"
      const auto t = mul(unpack8(beside.words[0]), toBf16(mul(unpack8(words), operand.scalarOf(0, row))));
#line 50 "pipelines/models/llama.yaml"
      const auto h_ = toBf16(t);
      return keepBelow<256>(pack8(h_), c);
#line 509 "target.tensors.cu"
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
#line 535 "target.tensors.cu"
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
  const wide::ImageRows<256> x_(p.flagged + 95343616ll);
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
#line 645 "target.tensors.cu"
    for (int c = partBegin<256>() + laneId() * 8; c < partEnd<256>(); c += 256) {
      const auto x_ = b.x(6).load8(row, c);
#line 52 "pipelines/models/llama.yaml"
      const auto t = toBf16(mul(x_, reciprocalSqrt(add(mul(sum, 0.00390625f), 1e-05f))));
#line 52 "pipelines/models/llama.yaml"
      forRows<Rows>(b.head_operand(0), Images{p.flagged, pass.numRows}.head_operand(0)).store8(row, c, toBf16(mul(norm_.load8(c), t)));
#line 652 "target.tensors.cu"
    }
  });
} // targetHeadHeadOperand

// Streams head (llama.yaml:52).
template <int Rows>
__device__ __noinline__ void targetHeadHead(int unit = 0, int firstRow = 0, Best *best = nullptr) {
  Shared &shared = sharedOfCta();
  const abi::LaunchParams &p = shared.params;
  PassShared &pass = shared.pass;
  const Buffers b{p.models[0].workspace + pass.sets.current * Workspace::setBytes, &shared.grid};
  const int numRows = pass.numRows;
  const WeightVector<256> norm_{packedVector(p.models[0], 9185280)};
  const auto early = [](int, int) { return Nothing{}; };
  Best own[bestsOf(Rows)];
  if constexpr (Rows == kUnitEnd)
    assumeLocal(best);
  else
    best = own;
  const auto epilogue = [&](int tile, int row, int pair, float y0, float y1, Nothing) {
    const int c0 = 2 * pair, c1 = c0 + 1;
#line 52 "pipelines/models/llama.yaml"
    const auto logit = toBf16(Floats<2>{{y0, y1}});
#line 676 "target.tensors.cu"
    if (c0 < 260) {
      best[tile].take(logit.v[0], c0);
      best[tile].take(logit.v[1], c1);
      storeLogits(p, pass.logitsOf[row], c0, logit, 260);
    }
  };
  if constexpr (Rows == kUnitEnd) {
    endOfUnit<matrices::Head>(shared, unit, firstRow, early, epilogue);
  }
  else if constexpr (Rows > kTileRows) {
    wideProduct<matrices::Head>(shared, 0, pass.wide.heads - 1, [&own](int, int unit, int firstRow) { targetHeadHead<kUnitEnd>(unit, firstRow, own); });
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
#line 699 "target.tensors.cu"
    const auto terms = [&](int row, int c, Words4 words) {
#line 52 "pipelines/models/llama.yaml"
      return mul(unpack8(words), unpack8(words));
#line 703 "target.tensors.cu"
    };
    const auto then = [&](int row, float result) {
#line 52 "pipelines/models/llama.yaml"
      return reciprocalSqrt(add(mul(result, 0.00390625f), 1e-05f));
#line 708 "target.tensors.cu"
    };
#line 52 "pipelines/models/llama.yaml"
    operand.template reduce<0, false, 256>(terms, then);
#line 712 "target.tensors.cu"
    const auto finish = [&](int row, int c, Words4 words, const Aside<1> &beside) -> Words4 {
#line 52 "pipelines/models/llama.yaml"
      const auto t = mul(unpack8(beside.words[0]), toBf16(mul(unpack8(words), operand.scalarOf(0, row))));
      return keepBelow<256>(pack8(toBf16(t)), c);
#line 717 "target.tensors.cu"
    };
    streamProduct<true>(operand, finish, epilogue);
  }
  if constexpr (Rows != kUnitEnd) {
    publishBest<Rows>(own, p, pass, shared.scratch, reinterpret_cast<Words4 *>(p.flagged + Flagged::best));
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
  __device__ __forceinline__ static u32 *wideDone() { return reinterpret_cast<u32 *>(sharedOfCta().params.flagged + 88888064ll); }
  __device__ __forceinline__ static void endWide() { wide::clear(wideDone(), 32); }
  __device__ __forceinline__ static bool runWide() { return wide::consume<::Wide>(sharedOfCta().wide().pass, sharedOfCta().grid); }
  __device__ __forceinline__ static void bringWide(int role) { wide::bring<::Wide>(role); }
  __device__ __forceinline__ static TokenTable tokens(const abi::LaunchParams &p) { return {weightAt(p.models[0], 0), 512, 260}; }
  static constexpr bool reduces = false;
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
  static constexpr bool many = true, words = true, stamps = false, queries = false;
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

#line 1 "target.wide.cu"
//===- wide unit ----------------------------------------------------------===//
//
// The models in passes of more than 128 rows, made by megalith. The tensor unit
// (target.tensors.cu) calls the roles at the end.
//
// model    target (llama)
// source   pipelines/models/llama.yaml
//
// Reading order: constants and buffers, what becomes of each product's sums, work on rows, and the
// table of steps.

#include "megalith/WideUnit.cuh"

namespace abi = megalith::abi;
using namespace megalith::device;

namespace wideUnit {
using WeightRing = Ring<16, 8192, 4, 4, 4, 4, 8, 64, true>;
using Stream = Consumer<WeightRing, 49152, 128>;

// What the control unit must take for true, too (Units.cuh).
struct Facts {
  static constexpr int controlBegin = 217088; // byte of shared memory at which its state stands
  static constexpr int rowsPerPass = 128;
  static constexpr int vocab[] = {260};
  static constexpr int pages[] = {512};
  static constexpr int pageTokens[] = {128};
  static constexpr bool wide = true; // unread rows of a large pass may run as a wide one
};

// Shared memory of a CTA. The control unit's state comes after it.
struct Shared {
  abi::LaunchParams params; // here paramsOfCta() finds them
  PassShared pass;
  RingShared sync;
  GridEdges grid;
  StreamPlace places[kConsumerWarps]; // of the warps, between two phases
  wide::Sync wideSync; // of passes that run whole
  // From here on passes that run whole have their own: no other pass needs again what stands here.
  alignas(128) float scratch[12288]; // lent stages go on where it ends
  alignas(128) char ring[WeightRing::stages * WeightRing::stageBytes];

  __device__ __forceinline__ wide::Shared wide() { return wide::sharedFrom(this, scratch, wideSync, pass); }
  __device__ __forceinline__ Stream stream() { return {ring, &sync, scratch, &places[warpId()]}; }
};
static_assert(sizeof(Shared) <= Facts::controlBegin, "the plan reserves this much");
static_assert(wide::endFrom(sizeof(Shared) - sizeof(Shared::scratch) - sizeof(Shared::ring)) <= Facts::controlBegin);
__device__ __forceinline__ Shared &sharedOfCta() { return *reinterpret_cast<Shared *>(dynamicShared()); }
} // namespace wideUnit

namespace wideUnit {

// What the functions below find in the CTA.
struct Cta {
  __device__ __forceinline__ static const abi::LaunchParams &params() { return sharedOfCta().params; }
  __device__ __forceinline__ static const PassShared &pass() { return sharedOfCta().pass; }
  __device__ __forceinline__ static wide::Shared shared() { return sharedOfCta().wide(); }
  __device__ __forceinline__ static int rows() { return shared().pass.rows; }
  __device__ __forceinline__ static void await(const u32 *counter, u32 least) { awaitCount(sharedOfCta().grid, 17, counter, least); }
};

// The KV pool of the model, and the shape of its attention.
namespace pools {
struct Target {
  static constexpr int model = 0; // its number in LaunchParams::models
  static constexpr int heads = 8, kvHeads = 4, headDim = 32;
  static constexpr int layers = 6, pages = 512, pageTokens = 128;
  static constexpr int rows = 128;
  static constexpr long long sums = 274688;
  static constexpr int wideUnits = 1056, wideLevels = 1; // of attention of many rows of a slot
  static constexpr int wideRound = 55, wideUnit = 22, wideParts = 40; // times of it, as planRanges counts them
  static constexpr long long wideSums = 16074240;
};
} // namespace pools
// Activations. What a layer hands to the next one has two instances, which alternate; all others
// have one.
struct Buffers {
  char *flagged;
  __device__ __forceinline__ auto x(int instance) const { return wide::ImageRows<256>(flagged + 94295040ll + instance % 2 * 1048576ll); }
  __device__ __forceinline__ auto wq_wk_wv_operand(int) const { return wide::ImageRows<256>(flagged + 96392192ll); }
  __device__ __forceinline__ auto q(int) const { return wide::ImageRows<256>(flagged + 97440768ll); }
  __device__ __forceinline__ auto attention(int) const { return wide::ImageRows<256>(flagged + 98489344ll); }
  __device__ __forceinline__ auto x2(int) const { return wide::ImageRows<256>(flagged + 99537920ll); }
  __device__ __forceinline__ auto gate_up_operand(int) const { return wide::ImageRows<256>(flagged + 100586496ll); }
  __device__ __forceinline__ auto gate_up(int) const { return wide::ImageRows<704>(flagged + 101635072ll); }
};

namespace matrices {

// wq, wk, wv (llama.yaml:46): 64 groups of 1 tiles in 1 rounds of 131 CTAs.
struct WqWkWv {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 1, groups = 64, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 0; // of more than 16 rows
  static constexpr int partsEdge = 12;
  static constexpr long long parts = 4800768, partsDone = 6897920;
  static constexpr long long offset = 0, layerBytes = 262144;
};

// wo (llama.yaml:49): 32 groups of 1 tiles in 1 rounds of 131 CTAs.
struct Wo {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 1, groups = 32, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 64; // of more than 16 rows
  static constexpr int partsEdge = 13;
  static constexpr long long parts = 6898176, partsDone = 7946752;
  static constexpr long long offset = 1572864, layerBytes = 131072;
};

// gate with up (llama.yaml:51): 88 groups of 2 tiles in 1 rounds of 131 CTAs.
struct GateUp {
  static constexpr int k = 256, kPadded = 256, blocks = 1, chunkBlocks = 1;
  static constexpr int group = 2, groups = 88, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 96; // of more than 16 rows
  static constexpr int partsEdge = 14;
  static constexpr long long parts = 7947008, partsDone = 13714176;
  static constexpr long long offset = 2359296, layerBytes = 720896;
};

// down (llama.yaml:51): 32 groups of 1 tiles in 1 rounds of 131 CTAs.
struct Down {
  static constexpr int k = 704, kPadded = 768, blocks = 3, chunkBlocks = 1;
  static constexpr int group = 1, groups = 32, firstCta = 1, ctas = 131;
  static constexpr bool descending = false;
  static constexpr int unitParts = 1, firstUnitCta = 52; // of more than 16 rows
  static constexpr int partsEdge = 15;
  static constexpr long long parts = 13714432, partsDone = 14763008;
  static constexpr long long offset = 6684672, layerBytes = 393216;
};
} // namespace matrices

// x (llama.yaml:42): a row, by a warp.
__device__ __forceinline__ void targetBodyX(int layer, int row) {
  const abi::LaunchParams &p = Cta::params();
  const Buffers b{p.flagged};
  const wide::PassOfRuns<Cta> pass;
  const WeightRows<256> embed_{weightAt(p.models[0], 0)};
  for (int c = laneId() * 8; c < 256; c += 256) {
#line 42 "pipelines/models/llama.yaml"
    b.x(0).store8(row, c, embed_.load8(lineOfToken(pass.rows[row].token, 260), c));
#line 145 "target.wide.cu"
  }
} // targetBodyX

// wq_wk_wv operand (llama.yaml:46): a row, by a warp.
__device__ __forceinline__ void targetBodyWqWkWvOperand(int layer, int row) {
  const abi::LaunchParams &p = Cta::params();
  const Buffers b{p.flagged};
  const WeightVector<256> attn_norm_{packedVector(p.models[0], 9179136 + layer * 512ll)};
#line 45 "pipelines/models/llama.yaml"
  const float sum = rowSum<256>([&](int c) {
#line 45 "pipelines/models/llama.yaml"
    const auto x_ = b.x(layer).load8(row, c);
    return mul(x_, x_);
  });
#line 160 "target.wide.cu"
  for (int c = laneId() * 8; c < 256; c += 256) {
    const auto x_ = b.x(layer).load8(row, c);
#line 45 "pipelines/models/llama.yaml"
    const auto t = toBf16(mul(x_, reciprocalSqrt(add(mul(sum, 0.00390625f), 1e-05f))));
#line 45 "pipelines/models/llama.yaml"
    const auto h_ = toBf16(mul(attn_norm_.load8(c), t));
#line 46 "pipelines/models/llama.yaml"
    b.wq_wk_wv_operand(layer).store8(row, c, h_);
#line 169 "target.wide.cu"
  }
} // targetBodyWqWkWvOperand

// wq (llama.yaml:46): what becomes of its sums.
struct TargetBodyWqWkWvWq {
  static constexpr auto pairs = wide::Pairs::Halves;
  static constexpr bool residual = false;
  int layer;
  wide::TileRows<Cta> rows;
  wide::Image<256> to;
  __device__ __forceinline__ void begin(int firstRow, int *words) {
    const abi::LaunchParams &p = Cta::params();
    const Buffers b{p.flagged};
    rows.begin(firstRow, words);
    to = b.q(layer).tile(firstRow);
  }
  __device__ __forceinline__ wide::Columns columns(int pair) const {
    const int c0 = pair / 16 * 32 + pair % 16, c1 = c0 + 16;
    return {c0, c1};
  }
  __device__ __forceinline__ Beside<0, 2> early(int row, int c0, int c1) const {
    const abi::LaunchParams &p = Cta::params();
    const Rope<32> rope32{p.models[0].ropeCosSin};
    const int position = rows.position(row);
    Beside<0, 2> beside = {};
    beside.values[0] = rope32.cosPair(position, c0, c1);
    beside.values[1] = rope32.sinPair(position, c0, c1);
    return beside;
  }
  __device__ __forceinline__ Floats<2> value(int c0, int c1, float y0, float y1, Floats<2> old, const Beside<0, 2> &beside) const {
#line 46 "pipelines/models/llama.yaml"
    const auto t = toBf16(Floats<2>{{y0, y1}});
#line 46 "pipelines/models/llama.yaml"
    const auto t2 = add(toBf16(mul(t, beside.values[0])), toBf16(mul(rotatePair(t), beside.values[1])));
#line 46 "pipelines/models/llama.yaml"
    return toBf16(t2);
#line 206 "target.wide.cu"
  }
  __device__ __forceinline__ Nothing place(int) const { return {}; }
  __device__ __forceinline__ void store(int row, Nothing, int col, Words4 words) const {
#line 46 "pipelines/models/llama.yaml"
    to.store(row, col, words);
#line 212 "target.wide.cu"
  }
};

// wk (llama.yaml:46): what becomes of its sums.
struct TargetBodyWqWkWvWk {
  static constexpr auto pairs = wide::Pairs::Halves;
  static constexpr bool residual = false;
  int layer;
  wide::TileRows<Cta, pools::Target> rows;
  wide::KvOfTile<pools::Target> keys;
  __device__ __forceinline__ void begin(int firstRow, int *words) {
    const abi::LaunchParams &p = Cta::params();
    rows.begin(firstRow, words);
    keys.cache = wide::layerOf<pools::Target>(p.models[0].kCache, layer);
  }
  __device__ __forceinline__ wide::Columns columns(int pair) const {
    const int c0 = (pair - 128) / 16 * 32 + (pair - 128) % 16, c1 = c0 + 16;
    return {c0, c1};
  }
  __device__ __forceinline__ Beside<0, 2> early(int row, int c0, int c1) const {
    const abi::LaunchParams &p = Cta::params();
    const Rope<32> rope32{p.models[0].ropeCosSin};
    const int position = rows.position(row);
    Beside<0, 2> beside = {};
    beside.values[0] = rope32.cosPair(position, c0, c1);
    beside.values[1] = rope32.sinPair(position, c0, c1);
    return beside;
  }
  __device__ __forceinline__ Floats<2> value(int c0, int c1, float y0, float y1, Floats<2> old, const Beside<0, 2> &beside) const {
#line 47 "pipelines/models/llama.yaml"
    const auto t = toBf16(Floats<2>{{y0, y1}});
#line 47 "pipelines/models/llama.yaml"
    const auto t2 = add(toBf16(mul(t, beside.values[0])), toBf16(mul(rotatePair(t), beside.values[1])));
#line 49 "pipelines/models/llama.yaml"
    return toBf16(t2);
#line 248 "target.wide.cu"
  }
  __device__ __forceinline__ int place(int row) const { return rows.place(row); }
  __device__ __forceinline__ void store(int row, int place, int col, Words4 words) const {
#line 49 "pipelines/models/llama.yaml"
    keys.store(place, col, words);
#line 254 "target.wide.cu"
  }
};

// wv (llama.yaml:46): what becomes of its sums.
struct TargetBodyWqWkWvWv {
  static constexpr auto pairs = wide::Pairs::Adjacent;
  static constexpr bool residual = false;
  int layer;
  wide::TileRows<Cta, pools::Target> rows;
  wide::KvOfTile<pools::Target> values;
  __device__ __forceinline__ void begin(int firstRow, int *words) {
    const abi::LaunchParams &p = Cta::params();
    rows.begin(firstRow, words);
    values.cache = wide::layerOf<pools::Target>(p.models[0].vCache, layer);
  }
  __device__ __forceinline__ wide::Columns columns(int pair) const {
    const int c0 = 2 * (pair - 192), c1 = c0 + 1;
    return {c0, c1};
  }
  __device__ __forceinline__ Nothing early(int, int, int) const {
    return {};
  }
  __device__ __forceinline__ Floats<2> value(int c0, int c1, float y0, float y1, Floats<2> old, const Nothing &beside) const {
#line 49 "pipelines/models/llama.yaml"
    return toBf16(Floats<2>{{y0, y1}});
#line 280 "target.wide.cu"
  }
  __device__ __forceinline__ int place(int row) const { return rows.place(row); }
  __device__ __forceinline__ void store(int row, int place, int col, Words4 words) const {
#line 49 "pipelines/models/llama.yaml"
    values.store(place, col, words);
#line 286 "target.wide.cu"
  }
};

// wo (llama.yaml:49): what becomes of its sums.
struct TargetBodyWoWo {
  static constexpr auto pairs = wide::Pairs::Adjacent;
  static constexpr bool residual = true;
  int layer;
  wide::Image<256> to;
  wide::Image<256> from;
  __device__ __forceinline__ void begin(int firstRow, int *) {
    const abi::LaunchParams &p = Cta::params();
    const Buffers b{p.flagged};
    to = b.x2(layer).tile(firstRow);
    from = b.x(layer).tile(firstRow);
  }
  __device__ __forceinline__ wide::Columns columns(int pair) const {
    const int c0 = 2 * pair, c1 = c0 + 1;
    return {c0, c1};
  }
  __device__ __forceinline__ Nothing early(int, int, int) const {
    return {};
  }
  __device__ __forceinline__ Floats<2> value(int c0, int c1, float y0, float y1, Floats<2> old, const Nothing &beside) const {
#line 49 "pipelines/models/llama.yaml"
    return toBf16(add(old, toBf16(Floats<2>{{y0, y1}})));
#line 313 "target.wide.cu"
  }
  __device__ __forceinline__ Words4 load(int row, int col) const { return from.load(row, col); }
  __device__ __forceinline__ Nothing place(int) const { return {}; }
  __device__ __forceinline__ void store(int row, Nothing, int col, Words4 words) const {
#line 49 "pipelines/models/llama.yaml"
    to.store(row, col, words);
#line 320 "target.wide.cu"
  }
};

// gate_up operand (llama.yaml:51): a row, by a warp.
__device__ __forceinline__ void targetBodyGateUpOperand(int layer, int row) {
  const abi::LaunchParams &p = Cta::params();
  const Buffers b{p.flagged};
  const WeightVector<256> mlp_norm_{packedVector(p.models[0], 9182208 + layer * 512ll)};
#line 50 "pipelines/models/llama.yaml"
  const float sum = rowSum<256>([&](int c) {
#line 50 "pipelines/models/llama.yaml"
    const auto x_ = b.x2(layer).load8(row, c);
    return mul(x_, x_);
  });
#line 335 "target.wide.cu"
  for (int c = laneId() * 8; c < 256; c += 256) {
    const auto x_ = b.x2(layer).load8(row, c);
#line 50 "pipelines/models/llama.yaml"
    const auto t = toBf16(mul(x_, reciprocalSqrt(add(mul(sum, 0.00390625f), 1e-05f))));
#line 50 "pipelines/models/llama.yaml"
    const auto h_ = toBf16(mul(mlp_norm_.load8(c), t));
#line 51 "pipelines/models/llama.yaml"
    b.gate_up_operand(layer).store8(row, c, h_);
#line 344 "target.wide.cu"
  }
} // targetBodyGateUpOperand

// gate with up (llama.yaml:51): what becomes of its sums.
struct TargetBodyGateUpGateUp {
  static constexpr auto pairs = wide::Pairs::One;
  static constexpr bool residual = false;
  int layer;
  wide::Image<704> to;
  __device__ __forceinline__ void begin(int firstRow, int *) {
    const abi::LaunchParams &p = Cta::params();
    const Buffers b{p.flagged};
    to = b.gate_up(layer).tile(firstRow);
  }
  __device__ __forceinline__ wide::Columns columns(int pair) const {
    const int c0 = pair;
    return {c0, c0};
  }
  __device__ __forceinline__ Nothing early(int, int, int) const {
    return {};
  }
  __device__ __forceinline__ Floats<1> value(int c0, int c1, float y0, float y1, Floats<2> old, const Nothing &beside) const {
#line 51 "pipelines/models/llama.yaml"
    const auto t = mul(toBf16(silu(toBf16(Floats<1>{{y0}}))), toBf16(Floats<1>{{y1}}));
#line 51 "pipelines/models/llama.yaml"
    return toBf16(t);
#line 371 "target.wide.cu"
  }
  __device__ __forceinline__ Nothing place(int) const { return {}; }
  __device__ __forceinline__ void store(int row, Nothing, int col, Words4 words) const {
#line 51 "pipelines/models/llama.yaml"
    to.store(row, col, words);
#line 377 "target.wide.cu"
  }
};

// down (llama.yaml:51): what becomes of its sums.
struct TargetBodyDownDown {
  static constexpr auto pairs = wide::Pairs::Adjacent;
  static constexpr bool residual = true;
  int layer;
  wide::Image<256> to;
  wide::Image<256> from;
  __device__ __forceinline__ void begin(int firstRow, int *) {
    const abi::LaunchParams &p = Cta::params();
    const Buffers b{p.flagged};
    to = b.x(layer + 1).tile(firstRow);
    from = b.x2(layer).tile(firstRow);
  }
  __device__ __forceinline__ wide::Columns columns(int pair) const {
    const int c0 = 2 * pair, c1 = c0 + 1;
    return {c0, c1};
  }
  __device__ __forceinline__ Nothing early(int, int, int) const {
    return {};
  }
  __device__ __forceinline__ Floats<2> value(int c0, int c1, float y0, float y1, Floats<2> old, const Nothing &beside) const {
#line 51 "pipelines/models/llama.yaml"
    return toBf16(add(old, toBf16(Floats<2>{{y0, y1}})));
#line 404 "target.wide.cu"
  }
  __device__ __forceinline__ Words4 load(int row, int col) const { return from.load(row, col); }
  __device__ __forceinline__ Nothing place(int) const { return {}; }
  __device__ __forceinline__ void store(int row, Nothing, int col, Words4 words) const {
#line 51 "pipelines/models/llama.yaml"
    to.store(row, col, words);
#line 411 "target.wide.cu"
  }
};

// The steps of a layer. Each has a number: of its operand, and of its end or its work on rows.
__constant__ wide::Step kSteps[] = {
  wide::rowStep(0), // wq_wk_wv operand
  wide::productStep<matrices::WqWkWv>(true, 0, 1),
  wide::attentionStep(wide::AttendShape<pools::Target>::tilesOfRow),
  wide::productStep<matrices::Wo>(true, 1, 3),
  wide::rowStep(4), // gate_up operand
  wide::productStep<matrices::GateUp>(true, 2, 5),
  wide::productStep<matrices::Down>(true, 3, 6),
};

// What the roles (device/wide) take of this model.
struct Wide : Cta {
  __device__ __forceinline__ static const wide::Step *steps() { return kSteps; }
  static constexpr wide::Layouts layouts = wide::layoutsOf<matrices::WqWkWv, matrices::Wo, matrices::GateUp, matrices::Down>();
  using Kind = wide::KindOfAll<matrices::WqWkWv, matrices::Wo, matrices::GateUp, matrices::Down>::Of; // of codes
  __device__ __forceinline__ static const char *stream() { return Cta::params().models[0].stream; }
  __device__ __forceinline__ static wide::Operand operand(int number, int layer) {
    const Buffers b{Cta::params().flagged};
    if (number == 0) return wide::operandOf(b.wq_wk_wv_operand(layer));
    if (number == 1) return wide::operandOf(b.attention(layer));
    if (number == 2) return wide::operandOf(b.gate_up_operand(layer));
    return wide::operandOf(b.gate_up(layer));
  }
  static constexpr float scale = 0.17677669f;
  __device__ __forceinline__ static const abi::ModelParams &model() { return Cta::params().models[0]; }
  __device__ __forceinline__ static int runs() { return pass().runs; }
  __device__ __forceinline__ static const PassRun &run(int i) { return pass().byRuns.run[i]; }
  __device__ __forceinline__ static char *queries(int layer) { return Buffers{Cta::params().flagged}.q(layer).image.base; }
  __device__ __forceinline__ static char *attended(int layer) { return Buffers{Cta::params().flagged}.attention(layer).image.base; }
  __device__ __forceinline__ static char *parts() { return Cta::params().flagged + 88888320ll + ctaAgain() * wide::AttendShape<pools::Target>::partBytes; }
  __device__ __forceinline__ static void row(int number, int layer, int row) {
    if (number == 0 && layer == 0) {
      targetBodyX(layer, row);
      __syncwarp();
    }
    if (number == 0) return targetBodyWqWkWvOperand(layer, row);
    if (number == 4) return targetBodyGateUpOperand(layer, row);
  }
  template <class Fn>
  __device__ __forceinline__ static void end(int number, int layer, int pair, Fn fn) {
    if (number == 1) {
      if (pair < 128) fn(TargetBodyWqWkWvWq{layer});
      else if (pair < 192) fn(TargetBodyWqWkWvWk{layer});
      else if (pair < 256) fn(TargetBodyWqWkWvWv{layer});
    } // wq_wk_wv
    if (number == 3) {
      if (pair < 128) fn(TargetBodyWoWo{layer});
    } // wo
    if (number == 5) {
      if (pair < 704) fn(TargetBodyGateUpGateUp{layer});
    } // gate_up
    if (number == 6) {
      if (pair < 128) fn(TargetBodyDownDown{layer});
    } // down
  }
};
} // namespace wideUnit

// The roles.
extern "C" __device__ void megalith_wide_deal() { wide::dealSteps<wideUnit::Wide>(); }
extern "C" __device__ void megalith_wide_multiply() { wide::multiply<wideUnit::Wide>(); }
extern "C" __device__ void megalith_wide_work() { wide::workOnRows<wideUnit::Wide>(); }
extern "C" __device__ void megalith_wide_attend(int layer) { wide::attend<wideUnit::Wide, wideUnit::pools::Target>(layer); }
extern "C" __device__ void megalith_wide_weights(wide::Range range, int half) { wide::bringWeights<wideUnit::Wide>(range, half); }
extern "C" __device__ void megalith_wide_keys(int layer, int half) { wide::bringKeys<wideUnit::Wide, wideUnit::pools::Target>(layer, half); }
extern "C" __device__ void megalith_wide_rows(wide::Range range) { wide::bringRows<wideUnit::Wide>(range); }
extern "C" __device__ void megalith_wide_queries(int layer) { wide::bringQueries<wideUnit::Wide, wideUnit::pools::Target>(layer); }
extern "C" __device__ void megalith_wide_signal(wide::Range range) { wide::signal<wideUnit::Wide>(range); }
