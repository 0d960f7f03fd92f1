//===- Plan.h - how the tensor IR is laid over one device -----------------===//
//
// Plain data made from a tensor-level module and a device profile: which packed
// matrix each stream reads and how its tiles are dealt to the CTAs, which buffer
// each value lives in, and which edge of the grid comes after each phase. With
// the IR it is the only input of Emit. The plan moves work; it never changes the
// order of a sum.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PLAN_PLAN_H
#define MEGALITH_PLAN_PLAN_H

#include "device/Shape.h"
#include "megalith/IR/IR.h"
#include "megalith/Support/Diagnostics.h"
#include "llvm/ADT/ArrayRef.h"
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace megalith::plan {

/// What a plan needs to know of a GPU.
struct DeviceProfile {
  std::string name;
  std::string arch; ///< its `--arch`; empty: of no GPU
  int smCount = 0;
  int64_t sharedBytes = 0; ///< shared memory that one CTA may opt in to
  double bandwidth = 0;    ///< GB/s of device memory, by the vendor's data sheet
  /// Rows of a product of more than one row tile that a CTA takes at a time, at most. Without `wgmma` more sums would
  /// not stay in registers.
  int64_t wideRows = 128;
  bool widePasses = false; ///< it runs passes of more than kMaxRows rows by device/wide

  /// Nanoseconds that one copy of the stream takes. Where a layer fills the rings twice or more, the stream counts for
  /// more than the words that CTAs wait for.
  double copyNs = 1600, copyNsOfLongLayers = 2250;
  /// How long attention in wide tiles takes, in tenths of half a round of a tile of 16 pairs: a round of a unit, a
  /// unit's begin and end, and putting the parts together.
  struct WideTiles {
    int64_t round, unit, parts;
  };
  WideTiles shortHeads = {55, 22, 40}, longHeads = {95, 20, 20}; ///< of up to 64 dims, and of more
};
/// h200, h100, a100, b200, cpu; null for an unknown name.
const DeviceProfile *findProfile(llvm::StringRef name);
/// The first one of a compute capability, `sm_90` as `sm_90a`; null when none has it.
const DeviceProfile *findProfileOfArch(llvm::StringRef arch);
std::vector<std::string> profileNames();

/// `--plan key=value`.
struct Knobs {
#define NUMBER_KNOB(Key, Default, Least, Most) int64_t Key = Default;
#define CHOICE_KNOB(Key, Member, Off, On, Default) bool Member = Default;
#include "megalith/Plan/Knobs.def"
};
/// Applies `key=value`; reports Diag::UnknownPlanKey or Diag::BadPlanValue.
bool applyKnob(Knobs &knobs, llvm::StringRef setting, Diagnostics &diags);

using ir::Pairing;

/// Packed rows of one weight (or of two interleaved ones).
struct PairRange {
  Pairing pairing;
  std::string weight, second; ///< second: the other weight of a dual range
  ir::Value product, secondProduct;
  int64_t columns;          ///< output columns of one weight
  int64_t dim, turned;      ///< head_dim of a half range, and how many columns of a head rope turns
  int64_t pairBegin, pairs; ///< pairs of packed rows; pairBegin is a multiple of 4
};

/// A matrix as it is packed and streamed; see device/Matrices.cuh.
struct Matrix {
  std::string name; ///< its weights, joined
  int64_t k, kPadded, blocks, chunkBlocks, group, groups;
  ir::WeightFormat format = ir::WeightFormat::Bf16;
  shape::Coding coding = {}; ///< of the chunks
  int64_t scaleRows = 0;     ///< rows that a scale is for, of the first weight
  int64_t pieceBlocks = 0;   ///< blocks of columns that a scale is for; 0: for all of them
  bool rowScales = false;    ///< scales of whole packed rows stand after the chunks of a layer
  bool ordered = false;      ///< its columns are in an order of the checkpoint's, which stands after these
  int64_t layers;            ///< 0: outside the repeated layers
  int64_t firstCta = 0;      ///< that has groups: 1 where CTA 0 runs control, and no tiles of the layers
  int64_t offset, bytes;     ///< in the packed stream; bytes of one layer
  std::vector<PairRange> ranges;
  SourceLoc loc;
  // Passes of many rows deal a matrix in units, see device/WideProduct.cuh.
  int64_t unitParts = 0;                  ///< eighths of the columns that a unit takes; 0: the plan has no such passes
  int64_t firstUnitCta = 0;               ///< that has unit 0
  int64_t partsOffset = 0, partsDone = 0; ///< in the flagged words: sums of units of one eighth, counters of their sets
  int partsEdge = -1;                     ///< these sums as an edge

  /// As its weights have it; where these differ in `scale_rows`, that of the first one.
  WeightScheme scheme() const { return {format, scaleRows, pieceBlocks * shape::kBlockColumns, coding.zeros, ordered}; }
  int64_t sets() const; ///< of eight groups
  int64_t units() const;
  int64_t tiles() const { return groups * group; }
  int64_t chunkBytes() const;
  int64_t orderOffset() const; ///< from the layer's first chunk on; where `ordered`
};

/// Where the rows of a value stand. Within a pass every place is written once: there is
/// one instance for each layer, and of what a layer hands to the next one more.
struct Buffer {
  std::string name;
  ir::Scalar dtype;
  int64_t columns, stride; ///< elements; stride = columns padded to 8
  int64_t instances;
  int64_t offset, bytes; ///< in the record of a row; bytes of one instance
  /// The edge after the phase that writes this buffer. If two phases write it, the one inside the layers.
  int edge = 0;
  bool several = false; ///< passes of one row do not write it
  /// Products alone read this buffer, as their operand. Passes of many rows write an image of it instead
  /// (device/Windows.cuh). The images stand in the flagged words. Each instance has a counter of the CTAs that have
  /// written it.
  bool windows = false;
  int64_t imageOffset = 0, imageBytes = 0, counterOffset = 0; ///< bytes of one instance
  /// Of wide passes: in the flagged words, and bytes of one instance. What a layer hands to the next one has two, which
  /// alternate, all others have one. 0: such passes do not write it.
  int64_t wideOffset = 0, wideBytes = 0;
  int64_t wideInstances() const { return instances > 1 && carried ? 2 : 1; }
  bool carried = false; ///< a layer hands it to the next one
};

/// Which instance of a buffer a value is: a fixed one, the layer's, or the one after.
struct Place {
  enum Instance { First, Layer, Next, Last };
  int buffer;
  Instance instance;
};

/// One step of all CTAs, with the grid edge after it.
///
/// In a pass of one row each CTA makes the operand of a stream's products for itself, from what others stored. For
/// more rows that takes longer than the products. So an `Operand` phase in front makes it once.
///
/// An `Order` phase puts the operand of several rows in the order of the matrix's columns. In a pass of one row each
/// CTA does that, too.
///
/// Attention makes its queries, keys and values in the same way, where it can and no slot has two rows in the pass.
/// Otherwise the `Map` in front makes them.
struct Phase {
  enum Kind { Stream, Map, Attention, Copy, Operand, Order } kind;
  std::string name;
  const ir::Operation *op = nullptr;
  int matrix = -1;                   ///< Stream, Operand, Order
  Place from = {}, to = {};          ///< Copy, Order; Operand: to
  std::optional<Place> operand = {}; ///< Stream: its operand in passes of more than one row, when that is made in front
  const ir::Operation *makes = nullptr; ///< Attention: the map in front that it can do without
  bool several = false;                 ///< Map: only passes in which a slot has several rows need it
  int edge = -1;
  int result = -1; ///< Stream: number of the model's result whose best it finds
};

/// The matrices of which a CTA's producer copies chunks before it knows the pass, at most.
struct AheadOfPlan {
  std::vector<int> before, repeated, after; ///< `repeated`: repeatCount times
  int64_t repeatCount;
};

/// A segment: phases, with at most one repeated run of them.
struct Segment {
  std::string name;
  const ir::Operation *op;
  std::vector<Phase> before, repeated, after;
  int64_t repeatCount = 0;

  AheadOfPlan ahead() const;
  /// All phases in order, those of the layers once: fn(phase, whether it is in the layers).
  template <class Fn> void forEach(Fn fn) const {
    for (const Phase &phase : before)
      fn(phase, false);
    for (const Phase &phase : repeated)
      fn(phase, true);
    for (const Phase &phase : after)
      fn(phase, false);
  }
};

/// The weight in which a pass looks its tokens up, as it lies in the checkpoint. As soon as the kernel has a result it
/// asks for that row of the table: mostly the next pass looks it up.
struct TokenTable {
  std::string weight;
  int64_t rows, rowBytes;
};

/// A weight vector that phases read beside their products. A copy of it lies after the packed matrices. So its
/// address is known without a look at the weights' table.
struct Vector {
  std::string weight;
  int64_t length, layers;
  int64_t offset, bytes; ///< in the stream; of one layer
};

/// Where CTAs wait for what others wrote.
struct Edge {
  enum Lowering {
    Barrier, ///< of the grid: an arrival counter that only grows
    Words,   ///< readers poll the words themselves: all ones until they are written
    Flagged, ///< words that carry the pass: what it is, and the logits' maxima, which CTA 0 alone reads
    Leave,   ///< all CTAs count themselves out, CTA 0 waits for them
    Count,   ///< the units that share a set of groups count themselves
  };
  std::string name;
  SourceLoc loc;
  Lowering lowering = Barrier;
};

/// The activations of a pass. Each row has a record, in which every value has a place of its own.
struct Records {
  int64_t rowBytes;           ///< of a record
  int64_t narrowBytes;        ///< of it, as far as passes of one row write it
  int64_t wideBegin, wideEnd; ///< of it, what passes of more than one row tile write. The rest they write as images
  int64_t setBytes;           ///< of the records of all rows
  int64_t workspaceBytes;     ///< of two sets, of even and of odd passes
};

/// Partial sums of attention, in the flagged words.
struct AttentionSums {
  int64_t units = 0;     ///< of a pass, at most; 0: the plan has no such attention
  int64_t unitBytes = 0; ///< of a unit
  int64_t offset = 0;
  int64_t bytes() const { return units * unitBytes; }
};

/// What a head does for reducers beside argmax (device/Reducers.cuh).
struct Reducing {
  bool any = false;           ///< the model's code answers them; else the rest means nothing
  int64_t numberBytes = 0;    ///< of a logit that is kept
  int64_t drawnOffset = 0;    ///< in the flagged words: what the CTAs draw
  int64_t selectionBytes = 0; ///< memory of kept logits and of sums over them
};

/// Rows of logits that requests keep: `q: logits[n]`. They stand in front of those that a pass keeps.
struct KeptRows {
  int64_t rows = 0;  ///< of all slots and fields
  int64_t vocab = 0; ///< tokens of one, if there are any
  int64_t bytes = 0; ///< of all
};

/// Passes of more than kMaxRows rows of a model (device/wide). Nobody reads results of their rows: what they leave are
/// keys and values. So they are the phases of the first segment up to the last layer's.
struct WidePasses {
  std::string refused = "no pass has so many"; ///< why they run in pieces; empty: they do not
  int64_t stepsOfLast = 0; ///< phases of the last layer up to the one that stores its keys and values
  bool late = false;       ///< what the last layer takes is all that a pass needs to begin with it
  int64_t doneOffset = 0;  ///< in the flagged words: a counter of each kWideCountedRows rows
  int64_t partsOffset = 0; ///< there: parts of attention of each CTA
  int64_t partBytes = 0;   ///< of a CTA
  int edge = -1;           ///< what the counters count
};

/// What calls read of a row: the logits, and results that the model's file names beside them.
struct Result {
  std::string name;
  int edge; ///< where its maxima cross
};

/// One model of the pipeline.
struct ModelPlan {
  std::string name;
  std::vector<Matrix> matrices;
  std::vector<Vector> vectors;
  int64_t streamBytes; ///< packed matrices and vectors
  std::optional<TokenTable> tokenTable;
  std::vector<Buffer> buffers;
  std::map<uint32_t, Place> placeOf; ///< by value id
  int newKeys = -1, newValues = -1;  ///< buffers of the pass's own K and V
  bool kvInE4m3 = false;             ///< its pool has codes (device/Pool.cuh)
  int64_t bf16Layers = 0;            ///< layers of such a pool that have none
  std::vector<Segment> segments;     ///< body, head
  Records records;
  AttentionSums attention;
  AttentionSums wideAttention; ///< of many rows of a slot (device/WideAttention.cuh)
  int64_t wideLevels = 0;      ///< above rounds, that its ranges may have
  bool draftsContinue = false; ///< drafts of a run of a stage stand one after the other
  int64_t pathPlaces = 0;      ///< see plan::pathPlaces; 0: the models' code knows no paths
  std::vector<Result> results; ///< the first one is the logits
  WidePasses wide;
  int64_t bestOffset; ///< in the flagged words: maxima of all results, one after the other
  Reducing reducing;

  /// Buffers that the phase writes and that have images.
  std::vector<const Buffer *> imagesOf(const Phase &phase) const;
  /// Whether a phase needs nothing that another one, or another CTA, wrote.
  bool readsWeightsAlone(const Phase &phase) const;
  const Vector &vectorOf(const std::string &weight) const {
    return *std::find_if(vectors.begin(), vectors.end(), [&](const Vector &v) { return v.weight == weight; });
  }
  /// All phases in order, those of the layers once: fn(phase, whether it is in the layers).
  template <class Fn> void forEach(Fn fn) const {
    for (const Segment &segment : segments)
      segment.forEach(fn);
  }
};

/// The ring of weights in a CTA's shared memory.
struct Ring {
  int64_t stages, stageBytes;
  int64_t flight;             ///< copies of chunks under way in a CTA, at most
  int64_t lentStages;         ///< that passes of several rows have as scratch (device/Ring.cuh)
  int64_t fewLentStages = 0;  ///< the same of 2 to kFewRows rows
  int64_t stepLentStages = 0; ///< and of one row step
  int64_t tallLentStages = 0; ///< and of more rows of a row tile
  int64_t lentRows = 0;       ///< passes of more rows than these lend wideLentStages
  int64_t wideLentStages = 0;
  /// Whether passes of kFewRows + 1 to kTileRows rows lend more than others of several rows.
  bool tall() const { return tallLentStages > lentStages; }
};

/// A CTA's shared memory.
struct SharedMemory {
  int64_t controlBytes; ///< control's state. It comes last: the models' code does not depend on it
  int64_t scratchBytes; ///< sums and operands of a product; attention
  int64_t bytes;        ///< all of it, the ring and control's state among it

  int64_t controlBegin() const { return bytes - controlBytes; }
};

struct Plan {
  DeviceProfile profile;
  Knobs knobs;
  int64_t ctas;
  int64_t rowsPerPass;  ///< of a pass; of a larger one than the next number they run in pieces
  int64_t rowsAtOnce;   ///< that the models' code takes
  int64_t wideRows = 0; ///< that a product of more than one row tile takes at a time; 0: the plan has no such passes
  Ring ring;
  SharedMemory shared;
  int64_t flaggedBytes;      ///< memory of flagged words and of counters
  bool asksMore;             ///< see plan::asksMore
  std::vector<Edge> edges;   ///< edge 0 comes after the tick's plan
  int passEdge;              ///< the end of a pass
  int ctaThreads() const;    ///< threads of a CTA
  int64_t passBytes() const; ///< of the flagged words: what tells a pass, with the paths of its rows
  std::vector<ModelPlan> models;

  KeptRows kept;

  /// Whether passes of more than kMaxRows rows do not run in pieces: those of all models, or of none.
  bool wide() const {
    return std::all_of(models.begin(), models.end(), [](const ModelPlan &m) { return m.wide.refused.empty(); });
  }
  /// Whether a pass behind such a one may begin with the last layer.
  bool late() const {
    return wide() && std::all_of(models.begin(), models.end(), [](const ModelPlan &m) { return m.wide.late; });
  }
  /// Results of a model, at most.
  int64_t results() const {
    size_t most = 1;
    for (const ModelPlan &model : models)
      most = std::max(most, model.results.size());
    return most;
  }
  /// Whether some model has an answer to more than the best token of each row.
  bool reduces() const {
    return std::any_of(models.begin(), models.end(), [](const ModelPlan &model) { return model.reducing.any; });
  }
};

/// Lays the module's model over the device. Reports what cannot be planned
/// (Diag::PlanUnsupported, Diag::PlanShared).
std::optional<Plan> makePlan(const ir::Module &module, const DeviceProfile &profile, const Knobs &knobs,
                             Diagnostics &diags);

/// What a kernel with `--plan stamps=1` takes the time of in each tick, in this order:
/// control, the phases of the pass with their layers, the results, control again.
struct StampEvent {
  std::string name;
  int64_t layer = -1;           ///< -1: outside the layers
  const Phase *phase = nullptr; ///< null: it is none
};
/// Of several models each has a list; they stand one after the other.
std::vector<StampEvent> stampEvents(const ModelPlan &planned);
/// Where the list of model `number` begins.
size_t firstStamp(const Plan &plan, int number);
/// The number of a phase of model `number` in these lists: `first`, and `ofLayer` more in each further layer.
struct StampNumber {
  int64_t first, ofLayer;
};
StampNumber stampOf(const Plan &plan, int number, const Phase &phase);

/// Whether calls ask for more than the best token of each row of a chain: for a draw, say, or for rows that are a tree.
/// The models' code is then that of all that may be asked, so that such pipelines share it. If not, it is shorter.
bool asksMore(const ir::Module &module);

/// Room for positions on a row's path that earlier passes of a run may have written: 64, or more where runs are longer,
/// since the models' code depends on it.
int64_t pathPlaces(const ir::Module &module, llvm::StringRef model);
/// Pages of the pool's memory beyond its own, of a pool with an index: room for the rows of a pass, should they stand
/// in pages that others may read. Where calls ask for more (asksMore), pools without an index have them, too, so that
/// the models' code is the same. 0 of another pool.
int64_t sparePages(const ir::Module &module, const ir::Operation &pool);

/// Bytes of shared memory that a plan reserves for control's state: its own words, seats, and words of each slot.
int64_t controlRoom(const ir::Module &module);

/// Checks that phases read only what an earlier phase wrote, that no place is written
/// twice in a pass, that every phase has an edge and every matrix fits the stream and
/// the ring. Reports Diag::PlanInvalid.
bool verify(const Plan &plan, Diagnostics &diags);

/// Whether a warp can hold a block of the `parts` of `columns` columns at once, eight to a lane, through all of
/// `slice`: its reductions are those of the blocks, by the tree of a warp (`lanes32`), and partners of rotate_half
/// stand in other lanes.
bool fitsLanes(const ir::Module &module, llvm::ArrayRef<const ir::Operation *> slice, int64_t columns, int64_t parts);

/// A rotation in a map, or before a product, that takes eight columns' partners from here and there, where no warp has
/// a head at once; null: there is none.
const ir::Operation *rotationOfScattered(const ir::Module &module, const ir::Operation &group);

/// The readable form (`--emit=plan`).
std::string print(const Plan &plan);

} // namespace megalith::plan
#endif
