//===- Shape.h - sizes that the plan and the kernel compute alike ---------===//
//
// The plan reserves memory, and the kernel uses it. Both compute the sizes here. lib/Plan
// includes this file as host C++, both units of a kernel include it in device code. It has no
// system header.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Contract/Limits.h"

#ifdef __CUDACC__
#define MEGALITH_SHAPE __device__ constexpr
#else
#define MEGALITH_SHAPE constexpr
#endif

namespace megalith::shape {

template <class Number> MEGALITH_SHAPE Number ceilDiv(Number n, Number by) { return (n + by - 1) / by; }
MEGALITH_SHAPE long long roundUp(long long n, long long to) { return ceilDiv(n, to) * to; }
MEGALITH_SHAPE long long larger(long long a, long long b) { return a > b ? a : b; }

// --- the CTA -------------------------------------------------------------------

/// Consumer warps of a CTA. One more warp streams weights, and one brings the activations of
/// passes of many rows (Windows.cuh). With nine warps one quarter of an SM has three already.
/// So up to three more take no registers from the others.
constexpr int kConsumerWarps = 8;
constexpr int kConsumerThreads = kConsumerWarps * 32;
constexpr int kCtaThreads = kConsumerThreads + 64;
/// Of a kernel with passes that run whole: two more warps bring weights, keys and values in these.
constexpr int kWideCtaThreads = kCtaThreads + 64;
constexpr int kWarpsBeside = kWideCtaThreads / 32 - kConsumerWarps; ///< warps that are no consumers, of these
constexpr int kIdleThreads = (kWarpsBeside - 2 + 1) * 32; ///< warp 0, and those beside without work in other passes
static_assert(kWideCtaThreads <= (kCtaThreads + 127) / 128 * 128, "registersOfThread()");

/// Stages of the ring of weights, at most.
constexpr int kMostStages = 16;
/// A counter of CTAs has a line of its own.
constexpr int kCounterBytes = 128;

// --- rows of a pass ------------------------------------------------------------

/// Sizes of passes. Code for a pass comes in variants, each named by the most rows that it handles.
enum PassSize : int {
  kOneRow = 1,       ///< one row: activations stay in registers as far as they can, and no edge waits for operands
  kHalfTileRows = 8, ///< no variant of its own: up to so many rows fill half of a row tile
  kTileRows = 16,    ///< several rows, 2 to 16: one row tile, which is operand A of an mma step
  kMaxRows = limits::readRows, ///< many rows, from 17 on: more than one row tile. A wide tile of attention is of such
                               ///< a pass
  kUnitEnd,                    ///< no size: the variant of a product's function that ends a unit of a pass of many rows
};
static_assert(kHalfTileRows * 2 == kTileRows);
/// Passes of 2 to so many rows, a token and eight drafts of one request, may need less shared memory for their operands
/// than those of 16.
constexpr int kFewRows = 9;

/// Bytes of the words that tell a pass to all CTAs: one word of the pass, two of each row, three where rows of a slot
/// need not be a chain (Pass.cuh).
MEGALITH_SHAPE long long passBytes(long long rows, bool trees = false) {
  return (1 + (trees ? 3 * kMaxRows : 2 * rows)) * 16;
}
/// Where the places of positions on the rows' paths begin that earlier passes wrote, after these words; and their
/// bytes where a row has `places` of them at most.
MEGALITH_SHAPE long long pathsBegin() { return roundUp(passBytes(kMaxRows, true), 256); }
MEGALITH_SHAPE long long pathBytes(long long rows, long long places) { return rows * places * 4; }
/// Bytes of the best logits: a word of each row and CTA (Results.cuh).
MEGALITH_SHAPE long long bestBytes(long long rows, long long ctas) { return rows * ctas * 16; }

// --- reducers of logits (Reducers.cuh) -------------------------------------------

/// Queries that are settled together, numbers of a selection round of one, and tokens that one gives at most.
constexpr int kQueriesAtOnce = 16, kSelectionBins = 256;

/// Bytes of a row of logits that are kept, each a number of `bytes` bytes.
MEGALITH_SHAPE long long keptRowBytes(long long vocab, long long bytes) { return roundUp(vocab, 8) * bytes; }
/// Of the rows that requests keep, all together at most.
constexpr long long kMostKeptBytes = 1ll << 34;
/// Bytes of the sums of selection rounds: three tables of all queries, of which a round uses one after the other.
MEGALITH_SHAPE long long selectionTableBytes() { return 3ll * kQueriesAtOnce * kSelectionBins * 8; }
/// Bytes of the keys that each CTA finds.
MEGALITH_SHAPE long long selectionListBytes(long long ctas) { return kQueriesAtOnce * ctas * limits::reduced * 8; }
/// Bytes of rows that requests' settings change (EditedRows.cuh), of models with at most `vocab` tokens.
MEGALITH_SHAPE long long editedRowBytes(long long vocab, long long ctas) {
  return kQueriesAtOnce * (keptRowBytes(vocab, 4) + ctas * 16);
}
/// Bytes of LaunchParams::selection. `mostVocab`: of any model.
MEGALITH_SHAPE long long selectionBytes(long long rows, long long vocab, long long bytes, long long ctas,
                                        long long mostVocab) {
  return rows * keptRowBytes(vocab, bytes) + selectionTableBytes() + selectionListBytes(ctas) +
         editedRowBytes(mostVocab, ctas);
}
/// Bytes of a CTA's scratch for selection rounds.
constexpr int kSelectionScratchBytes = 8192;

// --- matrices in the stream (Matrices.cuh) --------------------------------------

/// A warp multiplies one eighth of the columns, in blocks of 32. A tile has 8 weight rows.
constexpr int kBlockColumns = 32, kTileColumns = 8;
/// Packed rows 2j and 2j + 1 are a pair: the two output columns that one thread receives together.
constexpr int kPairsOfTile = kTileColumns / 2;
/// Columns are padded to a multiple of this: a block of each warp.
constexpr int kColumnsOfWarps = kConsumerWarps * kBlockColumns;
/// Bytes of one tile in one block of one warp, and in one block of all warps.
constexpr int kWarpBlockBytes = kTileColumns * kBlockColumns * 2;
constexpr int kBlockBytes = kConsumerWarps * kWarpBlockBytes;
/// Tiles of a group, at most.
constexpr int kMostTiles = 2;
/// Blocks of a warp in one chunk, at most: of bf16, and of codes, which are shorter. Operands of that many blocks have
/// to fit.
constexpr int kMostChunkBlocks = 4, kMostCodeBlocks = 8;

MEGALITH_SHAPE long long paddedColumns(long long columns) { return roundUp(columns, kColumnsOfWarps); }

/// How the codes of a matrix lie in its chunks (Codes.cuh). As it is here: bf16.
struct Coding {
  int bits = 16;       ///< of a code
  int scaleBlocks = 0; ///< blocks of a warp that share a slot of scales and zero points; 0: there are none
  int scalesOfTile =
      0;              ///< in a slot: one for each packed row, 8; one for the even and one for the odd ones, 2; or none
  bool zeros = false; ///< a slot has a zero point for each packed row
};
/// Of one warp in a chunk: codes of its blocks, and slots.
MEGALITH_SHAPE long long slotBytes(long long group, Coding coding) {
  return group * (4 * coding.scalesOfTile + (coding.zeros ? kTileColumns : 0));
}
MEGALITH_SHAPE long long codeBytes(long long group, long long chunkBlocks, Coding coding) {
  return group * chunkBlocks * (kTileColumns * kBlockColumns * coding.bits / 8);
}
/// Where block `block` begins, and slot `slot`: it stands after the first two of its blocks. So up to four blocks have
/// it beside each two of them, which a wide pass takes together.
MEGALITH_SHAPE long long codeOffset(long long group, long long block, Coding coding) {
  const long long of = coding.scaleBlocks;
  return codeBytes(group, block, coding) + (of ? (block / of + (block % of >= 2)) * slotBytes(group, coding) : 0);
}
MEGALITH_SHAPE long long slotOffset(long long group, long long slot, Coding coding) {
  const long long of = coding.scaleBlocks;
  return codeBytes(group, slot * of + (of < 2 ? of : 2), coding) + slot * slotBytes(group, coding);
}
MEGALITH_SHAPE long long partBytes(long long group, long long chunkBlocks, Coding coding) {
  return roundUp(codeBytes(group, chunkBlocks, coding) +
                     (coding.scaleBlocks ? chunkBlocks / coding.scaleBlocks * slotBytes(group, coding) : 0),
                 16);
}
MEGALITH_SHAPE long long chunkBytes(long long group, long long chunkBlocks, Coding coding = {}) {
  return kConsumerWarps * partBytes(group, chunkBlocks, coding);
}
MEGALITH_SHAPE long long matrixBytes(long long groups, long long blocks, long long group, long long chunkBlocks,
                                     Coding coding = {}) {
  return groups * (blocks / chunkBlocks) * chunkBytes(group, chunkBlocks, coding);
}
/// Of scales of whole packed rows, which stand after a layer's chunks.
MEGALITH_SHAPE long long rowScaleBytes(long long groups, long long group) {
  return roundUp(groups * group * kTileColumns * 4, 128);
}
/// Of the order of `columns` columns: two tables (ColumnOrder), which stand there, too.
MEGALITH_SHAPE long long orderBytes(long long columns) { return roundUp(2 * columns * 2, 128); }

// --- products of one row tile (Operand.cuh, Product.cuh) ------------------------

/// Columns of an operand of one row that stays in registers, at most: eight times eight for each lane.
constexpr int kMostColumnsHeld = 8 * 8 * 32 * kConsumerWarps;
/// Groups whose sums are added over the warps together, at most.
constexpr int kGroupsAtOnce = 4;
/// Chunks that one row's warps take out of the ring at a time, at most: so many wait in registers
/// while activations are awaited.
constexpr int kChunksTaken = 4;
/// Reductions in front of a product, at most.
constexpr int kRowScalars = 4;

/// Floats of one warp in one of the two buffers of partial sums: tiles x rows x 8. A pass of one row
/// sums several groups at a time. A pass of several rows sums one.
MEGALITH_SHAPE int sumFloats(int rows) {
  return (rows == kOneRow ? kGroupsAtOnce * kMostTiles : kMostTiles * kTileRows) * kTileColumns;
}
/// Bytes of both buffers.
MEGALITH_SHAPE int sumBytes(int rows) { return 2 * kConsumerWarps * sumFloats(rows) * 4; }
/// Bytes of so many blocks of an operand of `rows` rows, of all warps.
MEGALITH_SHAPE long long operandBytes(long long blocks, long long rows) { return blocks * kColumnsOfWarps * 2 * rows; }

// --- products of more rows (WideProduct.cuh, Windows.cuh) -----------------------

/// Parts of a matrix's columns: the eighths of the sum tree. A set has so many groups, too.
constexpr int kParts = 8;
static_assert(kParts == kConsumerWarps);

MEGALITH_SHAPE int setsOf(int groups) { return ceilDiv(groups, kParts); }
MEGALITH_SHAPE int unitsOf(int groups, int unitParts) { return setsOf(groups) * (kParts / unitParts); }

/// Such a pass processes 32, 64 or 128 rows at a time: 1, 2 or 4 row steps.
constexpr int kRowStep = 32;
MEGALITH_SHAPE int stepsOf(int rows) { return rows <= kRowStep ? 1 : rows <= 2 * kRowStep ? 2 : 4; }

/// Bytes of a unit's partial sums in shared memory.
MEGALITH_SHAPE int unitSumBytes(int rows) { return kParts * kMostTiles * kTileColumns * rows * 4; }
/// Bytes of the partial sums of one unit of one eighth, in memory.
MEGALITH_SHAPE int unitPartBytes(int group) { return kParts * group * kTileColumns * kMaxRows * 4; }
/// Bytes of a block of 32 columns in a window, and of a window: two such blocks.
MEGALITH_SHAPE int windowBlockBytes(int rows) { return rows * kBlockColumns * 2; }
MEGALITH_SHAPE int windowBytes(int rows) { return 2 * windowBlockBytes(rows); }
/// Windows in shared memory, at most.
constexpr int kMostWindows = 4;
/// Bytes of an instance of an operand as windows need it. Columns after the last one are zero from the
/// begin. So where there are such columns, each number of row steps has a place of its own.
MEGALITH_SHAPE long long imageBytes(long long columns) {
  return paddedColumns(columns) * 2 * kMaxRows * (columns % kColumnsOfWarps ? 2 : 1);
}

// --- passes of more than kMaxRows rows (device/wide) ----------------------------

/// Rows of a tile of such a pass; and rows for which one counter counts.
constexpr int kWideTile = 128, kWideCountedRows = 64;
/// Steps of a layer, at most: a lane deals each.
constexpr int kWideSteps = 32;
/// The ring's stages, and bytes of one: 64 columns of 128 weight rows and of a tile of the pass.
constexpr int kWideStages = 6, kWideStageBytes = 2 * kWideTile * 2 * kBlockColumns * 2;
/// Bytes of a consumer warp's sums that are turned, as two planes of 32 rows (WideTile.cuh).
constexpr int kWideTurnRowBytes = 16, kWideTurnPlaneBytes = 32 * kWideTurnRowBytes + 64;
constexpr int kWideTurnBytes = 2 * kWideTurnPlaneBytes;
/// Bytes of its shared memory, where that may begin, and bytes of words that its roles keep between such passes.
constexpr int kWideAlignment = 1024, kWideWordsBytes = 384;
constexpr int kWideBytes = kConsumerWarps * kWideTurnBytes + kWideStages * kWideStageBytes;
static_assert(kConsumerWarps * kWideTurnBytes % kWideAlignment == 0);
/// Heads that attention of such a pass takes.
MEGALITH_SHAPE bool wideDims(long long dim) { return dim % 32 == 0 && (dim <= 128 || dim == 256); }
/// Memory of a CTA for attention's parts of more than eight rounds: for a thread 16 bytes, and 16 of each eight dims,
/// of each level. Of heads of more than 128 dims a thread has half of these.
MEGALITH_SHAPE long long wideLevelBytes(long long dim) {
  return (1 + (dim > 128 ? dim / 2 : dim) / 8) * 16 * kConsumerThreads;
}
/// Bytes of an operand's image of so many rows.
MEGALITH_SHAPE long long wideImageBytes(long long columns, long long rows) {
  return roundUp(rows, kWideTile) * paddedColumns(columns) * 2;
}

// --- attention (AttentionPlan.cuh) ----------------------------------------------

/// A round has 256 positions. A block has 64: eight of each warp.
constexpr int kRound = 256, kBlockKeys = 64, kRoundBlocks = kRound / kBlockKeys;
/// Pairs of a row and a query head of a tile; of a wide tile, 16 of each warp.
constexpr int kTilePairs = 16, kWidePairs = kTilePairs * kConsumerWarps;
/// Ranges of a tile, at most: more would not fit where they are put together.
constexpr int kMostRanges = 256;
/// Units beyond one of each tile, for each CTA; and units of wide tiles.
constexpr int kSplitUnits = 4, kWideUnits = 8;

/// Levels of parts, each of eight of the level below, that so many positions can fill.
MEGALITH_SHAPE int partLevels(long long positions) {
  int levels = 1;
  for (long long covered = 8ll * kRound; covered < positions; covered *= 8)
    ++levels;
  return levels;
}

struct Attention {
  long long heads, kvHeads, dim;
  bool e4m3 = false; ///< keys and values are codes

  MEGALITH_SHAPE long long group() const { return heads / kvHeads; } ///< query heads of a KV head
  MEGALITH_SHAPE long long headsOfTile() const { return group() < kTilePairs ? group() : kTilePairs; }
  MEGALITH_SHAPE long long slices() const { return ceilDiv(group(), headsOfTile()); } ///< of a group's heads
  MEGALITH_SHAPE long long tilesOfRows() const { return kvHeads * slices(); }         ///< that the same rows make
  MEGALITH_SHAPE long long keyPieces() const { return ceilDiv(dim, 32ll); }           ///< of 32 dims, 8 to a lane
  MEGALITH_SHAPE long long valueSlabs() const { return ceilDiv(dim, 64ll); }          ///< of 64 dims, 8 to a lane
  MEGALITH_SHAPE long long rowBytes() const { return 2 * dim; }
  /// Blocks of keys that a lane has in registers.
  MEGALITH_SHAPE long long batch() const { return dim <= 64 ? 4 : dim <= 128 ? 2 : 1; }
  /// Positions whose keys, or values, one stage of the ring takes.
  MEGALITH_SHAPE long long keysOfChunk(long long stageBytes) const {
    long long keys = kBlockKeys * batch();
    while (keys * rowBytes() > stageBytes)
      keys /= 2;
    return keys;
  }
  /// A stage holds the keys of 32 positions at least.
  MEGALITH_SHAPE long long leastStageBytes() const { return 32 * rowBytes(); }

  // Scratch of a tile. Queries are bf16; their rows lie apart so that no two lanes meet in a bank.
  // After them stand maxima and sums of the leaves of two rounds, then the leaves' outputs, then keys
  // and values of the pass's own rows. The outputs are those of 8 pairs and 64 dims at a time. Of one
  // row they are those of all pairs and dims and of two rounds, where that is not much.
  static constexpr int outputStride = 64;
  MEGALITH_SHAPE long long queryStride() const { return keyPieces() * 64 + (keyPieces() % 2 ? 0 : 64); }
  MEGALITH_SHAPE long long outputsOfRow() const {
    return kConsumerWarps * headsOfTile() * outputStride;
  } ///< floats of 64 dims
  MEGALITH_SHAPE long long outputsOfRound() const { return valueSlabs() * outputsOfRow(); }
  /// Of one row the leaves of a round are added up beside the scores of the next one.
  MEGALITH_SHAPE bool deferred() const { return headsOfTile() <= 8 && 2 * outputsOfRound() * 4 <= 20480; }
  /// So many units get their queries and own rows together, where deferred(). Between two of them no CTA
  /// waits for what is far away.
  MEGALITH_SHAPE long long together() const { return headsOfTile() <= 4 ? 4 : 2; }
  /// Where these begin, in bytes, in a pass of at most `rows` rows.
  struct Scratch {
    long long sumsOfRound; ///< floats
    long long maxima, weights, outputs, ownKeys, ownValues, end;
  };
  MEGALITH_SHAPE Scratch scratch(long long rows) const {
    const bool one = rows == kOneRow && deferred();
    const long long ownRows = one ? together() : rows;
    Scratch s{};
    s.sumsOfRound = (one ? 8 : kTilePairs) * kConsumerWarps;
    s.maxima = (one ? together() * headsOfTile() : kTilePairs) * queryStride();
    s.weights = s.maxima + 2 * s.sumsOfRound * 4;
    s.outputs = s.weights + 2 * s.sumsOfRound * 4;
    s.ownKeys = s.outputs + (one ? 2 * outputsOfRound() : kConsumerWarps * 8 * outputStride) * 4;
    s.ownValues = s.ownKeys + ownRows * rowBytes();
    s.end = s.ownValues + ownRows * rowBytes();
    return s;
  }
  /// Of mergeRanges, instead of all these.
  MEGALITH_SHAPE long long nodeBytes() const { return kMostRanges / 8 * (dim + 2) * 4; }
  MEGALITH_SHAPE long long scratchBytes(long long rows) const { return larger(scratch(rows).end, nodeBytes()); }

  /// Units of a pass, at most; and bytes of the partial sums of one: o, m and z of each pair, in words with a tag.
  MEGALITH_SHAPE long long mostUnits(long long rows, long long ctas) const {
    return kSplitUnits * ctas + rows * tilesOfRows();
  }
  MEGALITH_SHAPE long long unitBytes() const { return 8 * kTilePairs * (dim + 2); }
};

/// Attention of many rows of a slot (WideAttention.cuh).
struct WideAttention {
  Attention of;

  /// Keys of a round as fragments of the mma steps: [eight keys][32 dims][lane].
  MEGALITH_SHAPE long long keyBytes() const { return kRound / 8 * of.keyPieces() * 512; }
  /// Values of a leaf, of a slab: [step 2][two columns of B, of eight][lane].
  static constexpr int leafBytes = 2 * 4 * 512;
  /// Each warp notes the first value that is not finite.
  static constexpr int spoiledBytes = kConsumerWarps * 4;
  /// Scales of keys and values of the pass's own rows, and their inverses.
  MEGALITH_SHAPE int ownScaleBytes() const { return of.e4m3 ? 2 * kMaxRows * 8 : 0; }
  /// Outputs of a thread, of each of its two pairs: dims 16t to 16t + 15 of a slab.
  static constexpr int outputs = 16;
  /// Of a unit of several rounds: what a thread has of the rounds before for each pair, in words of 16 bytes.
  static constexpr int kept = outputs / 4 + 1;
  static constexpr int stateBytes = kConsumerThreads * 2 * kept * 16;
  /// Words of a lane in a unit's parts, of a slab: [pair 2][two dims 8].
  static constexpr int words = 16;

  MEGALITH_SHAPE long long leastBytes() const { return keyBytes() + spoiledBytes + ownScaleBytes() + leafBytes; }
  /// Whether a thread has registers for it, and the CTA shared memory. `room`: bytes of scratch. `left`:
  /// stages that the ring keeps; they hold the values of a round.
  MEGALITH_SHAPE bool fits(long long room, long long stageBytes, long long left) const {
    if (of.dim > 128 || room < leastBytes())
      return false;
    const long long keys = of.keysOfChunk(stageBytes);
    return keys >= kBlockKeys && kRound / keys <= left;
  }
  /// Levels above rounds that its ranges may have.
  MEGALITH_SHAPE long long levels(long long room) const {
    return of.valueSlabs() == 1 && room >= leastBytes() + stateBytes;
  }
  MEGALITH_SHAPE long long unitBytes() const { return of.valueSlabs() * words * kConsumerThreads * 16; }
};

/// Registers that the hardware gives each thread of a CTA that runs alone on its SM: 65,536 of an SM, dealt to
/// warps four at a time, in steps of 8 to a thread.
MEGALITH_SHAPE int registersOfThread() { return 65536 / ((kCtaThreads + 127) / 128 * 128) / 8 * 8; }

// --- control (Control.cuh) ------------------------------------------------------

/// Tokens of a slot that control keeps in shared memory, of each kind. A way to the L2 cache and back takes
/// longer than what is computed with them.
MEGALITH_SHAPE int tokensAtHand(long long slots) { return slots <= 64 ? 9 : 1; }
MEGALITH_SHAPE int eosAtHand(long long slots) { return slots <= 64 ? 4 : 1; }
/// Descriptors of seated requests stand in shared memory when they take no more than this. A request has more words of
/// each further model, and of an index (`indexed`: some pool has one).
MEGALITH_SHAPE int seatBytes(int models, bool indexed) { return 1536 + (indexed ? 512 : 0) + 128 * (models - 1); }

} // namespace megalith::shape

#undef MEGALITH_SHAPE
