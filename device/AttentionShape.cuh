//===- AttentionShape.cuh - how attention is cut, and parts are added --------===//
//
// What attention has in common, whatever the rows of a pass: the law of its bits (docs/ir.md).
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/E4m3.cuh"
#include "megalith/Pool.cuh"

namespace megalith::device {

/// Exponents of e are those of 2 times this.
constexpr float kLog2e = 1.44269504f;

/// Of a layer without a window.
constexpr int kNoWindow = 0x7fffffff;

/// How an attention `A` (heads, kvHeads, headDim) is cut: the numbers of shape::Attention as constants.
template <class A> struct AttentionShape {
  static constexpr int dim = A::headDim;
  static_assert(dim % 16 == 0 && dim <= 256, "head_dim is a multiple of 16, at most 256");
  static constexpr shape::Attention numbers = {A::heads, A::kvHeads, A::headDim, kE4m3<A>};
  static constexpr int group = (int)numbers.group();
  static constexpr int headsOfTile = (int)numbers.headsOfTile();
  static constexpr int rowsOfTile = kTilePairs / headsOfTile;
  static constexpr int slices = (int)numbers.slices();           ///< of a group's heads
  static constexpr int tilesOfRows = (int)numbers.tilesOfRows(); ///< that the same rows make
  static constexpr int round = kRound, blocks = kRoundBlocks;
  static constexpr int batch = (int)numbers.batch(), batches = blocks / batch; ///< of blocks in registers
  static constexpr int keyPieces = (int)numbers.keyPieces(), valueSlabs = (int)numbers.valueSlabs();
  static constexpr int rowsOfWideTile = kWidePairs / headsOfTile < kMaxRows ? kWidePairs / headsOfTile : kMaxRows;

  /// Some layer has a window: `A::window(layer)` positions up to its own, which a row sees.
  static constexpr bool windowed = requires { A::mostWindow; };
  __device__ __forceinline__ static int window(int layer) {
    if constexpr (windowed)
      return A::window(layer);
    return kNoWindow;
  }
  /// That work is dealt for.
  __device__ static constexpr int mostWindow() {
    if constexpr (windowed)
      return A::mostWindow;
    return kNoWindow;
  }
  /// What rows see of the first position of a window on, when the first of them sees `visible` positions.
  __device__ __forceinline__ static int windowFrom(int visible, int window) {
    return windowed ? max(0, visible - window) : 0;
  }
  /// Whether a row that sees positions before `seen` sees this one.
  __device__ __forceinline__ static bool sees(int position, int seen, int window) {
    if constexpr (windowed)
      return (u32)(seen - 1 - position) < (u32)window;
    return position < seen;
  }
  static constexpr bool capped = requires { A::softCap; }; ///< scores are bent towards A::softCap
  /// Scores are scaled only on the way to the exponent: unless the greatest would not be the greatest of those scaled.
  __device__ __forceinline__ static bool scalesLate(float scale) { return !capped && scale > 0.0f; }
  /// The score of a pair whose q * k is `sum`; bent towards the soft cap, it is scaled.
  __device__ __forceinline__ static float score(float sum, float scale) {
    if (scalesLate(scale))
      return sum;
    const float scaled = __fmul_rn(sum, scale);
    if constexpr (capped)
      return __fmul_rn(tanhf(__fdiv_rn(scaled, A::softCap)), A::softCap);
    return scaled;
  }
  /// The maximum as a part has it.
  __device__ __forceinline__ static float scaled(float most, float scale) {
    return scalesLate(scale) ? __fmul_rn(most, scale) : most;
  }
  /// What a score is multiplied with to be a power of two.
  __device__ __forceinline__ static float factor(float scale) {
    return scalesLate(scale) ? __fmul_rn(scale, kLog2e) : kLog2e;
  }
  /// What is taken off before the power, where the greatest score is `most`. Where no score is above minus infinity it
  /// is a number: their weights are 0, not NaN.
  __device__ __forceinline__ static float shift(float most, float scale) {
    return fmaxf(__fmul_rn(most, factor(scale)), __int_as_float(0xff7fffff));
  }
  /// The weight of a score, not yet rounded.
  __device__ __forceinline__ static float weight(float score, float shift, float scale) {
    return exp2OfScore(__fmaf_rn(score, factor(scale), -shift));
  }

  /// What a lane brings of dims 32i to 32i + 31 of a row in shared memory to two mma steps: of each one's 16 dims
  /// 4t to 4t + 3, of which the first two are k = 2t and 2t + 1, the others k = 2t + 8 and 2t + 9.
  __device__ __forceinline__ static Words4 loadDims(const char *row, int i) {
    const int t = laneId() & 3;
    const Words2 first = loadShared2(row, i * 64 + t * 8);
    const Words2 second = hasStep(2 * i + 1) ? loadShared2(row, i * 64 + 32 + t * 8) : Words2{0, 0};
    return {first.x, first.y, second.x, second.y};
  }
  /// Dims of one position as a chunk of the keys, or values, of `Keys` positions has them.
  struct ChunkRow {
    const char *row;
    u32 scale; ///< of codes: a bf16, twice
    /// As loadDims gives them.
    __device__ __forceinline__ Words4 dims(int i) const {
      if constexpr (kE4m3<A>) {
        const int t = laneId() & 3;
        const Words2 first = valuesOfE4m3(loadShared(row, i * 32 + t * 4), scale);
        const Words2 second =
            hasStep(2 * i + 1) ? valuesOfE4m3(loadShared(row, i * 32 + 16 + t * 4), scale) : Words2{0, 0};
        return {first.x, first.y, second.x, second.y};
      } else {
        return loadDims(row, i);
      }
    }
    /// Dims `dim` to `dim` + 7.
    __device__ __forceinline__ Words4 eight(int dim) const {
      if constexpr (kE4m3<A>)
        return valuesOfE4m3(loadShared2(row, dim), scale);
      else
        return loadShared4(row, dim * 2);
    }
  };
  template <int Keys> __device__ __forceinline__ static ChunkRow rowOfChunk(const char *chunk, int key) {
    if constexpr (kE4m3<A>) {
      const u32 scale = reinterpret_cast<const u16 *>(chunk + Keys * dim)[key];
      return {chunk + key * dim, scale | scale << 16};
    } else {
      return {chunk + key * rowBytes, 0};
    }
  }
  /// Whether the head has 16 dims more than `step` times 16.
  __device__ __forceinline__ static bool hasStep(int step) { return 16 * step < dim; }

  /// Positions whose keys, or values, one stage of the ring takes.
  __device__ static constexpr int keysOfChunk(int stageBytes) { return (int)numbers.keysOfChunk(stageBytes); }

  static constexpr int queryStride = (int)numbers.queryStride(), rowBytes = (int)numbers.rowBytes(),
                       outputStride = numbers.outputStride;
  static constexpr int outputsOfRow = (int)numbers.outputsOfRow(), outputsOfRound = (int)numbers.outputsOfRound();
  static constexpr bool deferred = numbers.deferred();
  static constexpr int together = (int)numbers.together();
  /// Where the parts of scratch begin, in bytes, in a pass of at most `rows` rows.
  struct Scratch {
    int sumsOfRound, maxima, weights, outputs, ownKeys, ownValues;
  };
  __device__ static constexpr Scratch scratch(int rows) {
    const shape::Attention::Scratch s = numbers.scratch(rows);
    return {(int)s.sumsOfRound, (int)s.maxima, (int)s.weights, (int)s.outputs, (int)s.ownKeys, (int)s.ownValues};
  }
  __device__ static constexpr int scratchBytes(int rows) { return (int)numbers.scratchBytes(rows); }

  /// Where four dims of a pair's outputs stand, in fours: so that no two lanes meet in a bank.
  __device__ static int outputPlace(int four, int pair) { return (four ^ (pair >> 1 & 1) ^ (pair & 4)) * 4; }

  /// Levels above rounds that the pool's positions can fill.
  __device__ static constexpr int levels() { return shape::partLevels((long long)A::pages * A::pageTokens); }
};

/// exp(x) of x <= 0.
__device__ __forceinline__ float expOfScore(float x) { return exp2OfScore(__fmul_rn(x, kLog2e)); }

/// No position is in the part.
__device__ __forceinline__ bool isNoPart(float m, float z) { return m == __int_as_float(0xff800000) && z == 0.0f; }
/// What z and o of two parts are multiplied with to become one, and its m.
struct PartScales {
  float m, before, now;
};
__device__ __forceinline__ PartScales scalesOfParts(float m, float other) {
  const float larger = fmaxf(m, other);
  return {larger, expOfScore(__fsub_rn(m, larger)), expOfScore(__fsub_rn(other, larger))};
}
__device__ __forceinline__ float sumOfParts(float x, float before, float y, float now) {
  return __fadd_rn(__fmul_rn(x, before), __fmul_rn(y, now));
}

} // namespace megalith::device
