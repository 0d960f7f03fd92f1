//===- Codes.cuh - weights that are codes ---------------------------------===//
//
// A matrix with codes has in place of bf16 (Matrices.cuh) what one lane needs of a block beside each other, so that it
// takes them with one load. A warp's part of a chunk:
//
//   [block chunkBlocks][lane 32][words]   words of a lane: group * bits / 4
//   [slot]                                one for each `coding.scaleBlocks` blocks: scales in f32, then zero points. It
//                                         stands after the first two of them (shape::slotOffset)
//
// Lane 4i + j has weight row i of each tile, columns 2j and 2j + 1 of each eight of columns, as mma takes them. A
// register holds two columns as bf16. Codes of 8 bits: word t gives registers 2t and 2t + 1, of its bytes 1 and 3, and
// of its bytes 0 and 2; of e4m3 bits have changed places (E4m3.cuh). Codes of 4 bits: word t gives registers 4t to 4t +
// 3, register k of its nibbles k and k + 4. Registers are, of a group of two tiles, for each eight of columns that of
// the one tile and that of the other; of one tile, that of each eight.
//
//   scales   [row 8][tile group], or of its even and of its odd rows: [2][tile group]
//   zeros    [row 8][tile group], a byte each
//
// A code less its zero point is a bf16 without rounding. A scale is of a piece of columns: the sum over a piece begins
// at 0, and goes into the eighth's with the scale (docs/ir.md, "Codes of weights"). Slots lie within pieces; a piece
// may have several, and its last one counts. Scales of whole rows stand after the chunks, and epilogues multiply by
// them.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/E4m3.cuh"
#include "megalith/Matrices.cuh"

namespace megalith::device {

/// How a matrix is coded, apart from the matrix.
template <Codes Of, int Bits, int ScaleBlocks, int ScalesOfTile, bool Zeros, int PieceBlocks> struct CodeKind {
  static constexpr Codes codes = Of;
  static constexpr shape::Coding coding = {Bits, ScaleBlocks, ScalesOfTile, Zeros};
  static constexpr int bits = Bits, scaleBlocks = ScaleBlocks, scalesOfTile = ScalesOfTile, pieceBlocks = PieceBlocks;
  static constexpr bool zeros = Zeros, pieces = PieceBlocks > 0;
};
template <class M>
using KindOf =
    CodeKind<M::codes, M::coding.bits, M::coding.scaleBlocks, M::coding.scalesOfTile, M::coding.zeros, M::pieceBlocks>;

/// Whether sums are of pieces of columns, each with a scale.
template <class M> constexpr bool kPieces = false;
template <class M>
  requires kCoded<M>
constexpr bool kPieces<M> = M::pieceBlocks > 0;

/// Registers that mma takes of a block of one or two tiles.
template <int Group> struct BlockWeights {
  Words4 of[Group];
  __device__ __forceinline__ const Words4 &operator[](int i) const { return of[i]; }
};

/// Two numbers from 0 to 15, in bits 0-3 and 16-19, as bf16 with 128 added.
__device__ __forceinline__ u32 smallBf16(u32 numbers) { return maskedOr(numbers, 0x000f000fu, 0x43004300u); }
constexpr u32 kTwoOnes = 0x3f803f80u, kTwoSixteens = 0x41804180u, kMinus128 = 0xc300c300u; ///< pairs of bf16

/// The codes of a lane in one block. The first block of a slot has what the slot has, for all of its blocks.
template <class Kind, int Group> struct CodedBlock {
  static constexpr int count = Group * Kind::bits / 4;
  u32 words[count];
  Float2 scales; ///< of the two tiles; of one tile of the columns that the lane has sums of
  u32 zeros;     ///< of each tile, a byte
  /// The first block of the slot of block `b` of a chunk, or of several.
  static constexpr int firstOfSlot(int b) {
    return Kind::scaleBlocks ? b / max(Kind::scaleBlocks, 1) * Kind::scaleBlocks : b;
  }

  /// Block `block` of a warp's part of a chunk. `first`: of a slot, a constant. `Wide`: its sums are of weight row
  /// lane / 4, of one tile as well.
  template <bool Wide = false> __device__ __forceinline__ void load(const char *part, int block, bool first) {
    loadCodes(part, (int)shape::codeOffset(Group, block, Kind::coding));
    if constexpr (Kind::scaleBlocks > 0)
      if (first)
        loadSlot<Wide>(part, (int)shape::slotOffset(Group, block / Kind::scaleBlocks, Kind::coding));
  }
  /// Codes that begin `offset` bytes after `part`, and a slot that does.
  __device__ __forceinline__ void loadCodes(const char *part, int offset, int lane = laneId()) {
    const int at = offset + lane * (count * 4);
    if constexpr (count == 4) {
      const Words4 w = loadShared4(part, at);
      words[0] = w.x, words[1] = w.y, words[2] = w.z, words[3] = w.w;
    } else if constexpr (count == 2) {
      const Words2 w = loadShared2(part, at);
      words[0] = w.x, words[1] = w.y;
    } else {
      words[0] = loadShared(part, at);
    }
  }
  template <bool Wide> __device__ __forceinline__ void loadSlot(const char *part, int slot, int lane = laneId()) {
    if constexpr (Kind::scaleBlocks > 0) {
      const int row = lane >> 2;
      if constexpr (Kind::scalesOfTile > 0) {
        const int ofRow = Kind::scalesOfTile == 2 ? row & 1 : row;
        if constexpr (Group == 1 && Wide) {
          scales.x = __uint_as_float(loadShared(part, slot + ofRow * 4));
        } else {
          const Words2 w = loadShared2(part, slot + (Group == 2 ? ofRow : Kind::scalesOfTile == 2 ? 0 : lane & 3) * 8);
          scales = {__uint_as_float(w.x), __uint_as_float(w.y)};
        }
      }
      if constexpr (Kind::zeros) {
        const int first = row * Group;
        zeros = loadShared(part, slot + 4 * Group * Kind::scalesOfTile + (first & ~3)) >> (first & 3) * 8;
      }
    }
  }

  /// Its registers. Zero points, which `slot` has, are taken away.
  __device__ __forceinline__ BlockWeights<Group> expanded(const CodedBlock &slot) const {
    u32 out[4 * Group];
    if constexpr (Kind::codes == Codes::E4m3) {
#pragma unroll
      for (int t = 0; t < count; ++t)
        expandE4m3(words[t], out[2 * t], out[2 * t + 1]);
    } else {
      u32 minus[Group]; // zero points as pairs of bf16; of 4 bits with 128 more
#pragma unroll
      for (int n = 0; n < Group; ++n) {
        if constexpr (!Kind::zeros) { // the middle one
          minus[n] = Kind::bits == 4 ? kMinus128 | 0x00080008u : kMinus128;
        } else {
          const u32 zero = slot.zeros >> 8 * n & 0xff;
          minus[n] = Kind::bits == 4 ? kMinus128 | zero * 0x10001u : packBf16(-(float)zero, -(float)zero);
        }
      }
      const auto tileOf = [](int reg) { return Group == 2 ? reg % 2 : 0; };
#pragma unroll
      for (int t = 0; t < count; ++t) {
        if constexpr (Kind::bits == 4) {
#pragma unroll
          for (int k = 0; k < 4; ++k)
            out[4 * t + k] = fmaBf16(smallBf16(words[t] >> 4 * k), kTwoOnes, minus[tileOf(k)]);
        } else { // 16 * high - zero, then the low four bits: each step is exact
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const u32 bytes = k == 0 ? words[t] >> 8 : words[t];
            const u32 high = fmaBf16(smallBf16(bytes >> 4), kTwoOnes, kMinus128),
                      low = fmaBf16(smallBf16(bytes), kTwoOnes, kMinus128);
            out[2 * t + k] = fmaBf16(fmaBf16(high, kTwoSixteens, minus[tileOf(k)]), kTwoOnes, low);
          }
        }
      }
    }
    BlockWeights<Group> result;
#pragma unroll
    for (int n = 0; n < Group; ++n)
      result.of[n] = {out[4 * n], out[4 * n + 1], out[4 * n + 2], out[4 * n + 3]};
    return result;
  }
};

/// What a lane takes of a block of M: registers as they are, or codes.
template <class M> struct TakenOf {
  using Block = Words4[M::group];
};
template <class M>
  requires kCoded<M>
struct TakenOf<M> {
  using Block = CodedBlock<KindOf<M>, M::group>;
};
/// What mma takes of block `b` of those.
template <int Count, int Group>
__device__ __forceinline__ const Words4 (&weightsOf(const Words4 (&blocks)[Count][Group], int b))[Group] {
  return blocks[b];
}
template <int Count, class Kind, int Group>
__device__ __forceinline__ BlockWeights<Group> weightsOf(const CodedBlock<Kind, Group> (&blocks)[Count], int b) {
  return blocks[b].expanded(blocks[CodedBlock<Kind, Group>::firstOfSlot(b)]);
}
/// Block `block` of a warp's part of a chunk of M.
template <class M>
__device__ __forceinline__ void takeBlock(typename TakenOf<M>::Block &to, const char *part, int block) {
  if constexpr (kCoded<M>) {
    to.load(part, block, block == TakenOf<M>::Block::firstOfSlot(block));
  } else {
#pragma unroll
    for (int n = 0; n < M::group; ++n)
      to[n] = loadWeights<M::group, M::chunkBlocks>(part, block, n);
  }
}

/// Whether a piece of columns ends after so many blocks of a warp's eighth, or the eighth does. There a slot ends.
template <class Kind> __device__ __forceinline__ bool pieceEnds(int eighth, int blocks, int done) {
  return done == blocks || (eighth * blocks + done) % Kind::pieceBlocks == 0;
}
/// Whether each slot of M is a piece, and no piece has parts in two eighths.
template <class M>
constexpr bool kSlotsArePieces = M::pieceBlocks == M::coding.scaleBlocks && M::blocks % M::pieceBlocks == 0;

/// The scales of packed rows 2 * pair and 2 * pair + 1 of M, which stand after a layer's chunks.
struct RowScales {
  const u16 *at;
  __device__ __forceinline__ Floats<2> of(int pair) const {
    const Float2 scales = reinterpret_cast<const Float2 *>(at)[pair];
    return {{scales.x, scales.y}};
  }
};

} // namespace megalith::device
