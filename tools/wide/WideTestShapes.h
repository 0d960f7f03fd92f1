// The shapes and the shared memory of unit.cu and entry.cu.
#pragma once
#include "WideTestParams.h"
struct Pool {
  static constexpr int model = 0, heads = 32, kvHeads = 8, headDim = 64, layers = 16, pages = 512, pageTokens = 128;
};
namespace matrices {
struct WqWkWv {
  static constexpr int k = 2048, blocks = 8, chunkBlocks = 4, group = 1, groups = 384;
  static constexpr long long offset = 0, layerBytes = 12582912;
};
struct Wo {
  static constexpr int k = 2048, blocks = 8, chunkBlocks = 2, group = 2, groups = 128;
  static constexpr long long offset = 201326592, layerBytes = 8388608;
};
struct GateUp {
  static constexpr int k = 2048, blocks = 8, chunkBlocks = 2, group = 2, groups = 1024;
  static constexpr long long offset = 335544320, layerBytes = 67108864;
};
struct Down {
  static constexpr int k = 8192, blocks = 32, chunkBlocks = 2, group = 2, groups = 128;
  static constexpr long long offset = 1409286144, layerBytes = 33554432;
};
} // namespace matrices

struct Shared {
  TestParams params;
  wide::Sync sync;
  wide::Pass pass;
  wide::Deals deals;
  wide::Multiplied multiplied;
  wide::AttendUnit units[2];
  alignas(1024) char turns[kConsumerWarps * wide::kTurnBytes];
  alignas(1024) char stages[wide::kStages * wide::kStageBytes];
};
__device__ __forceinline__ Shared &sharedOfCta() { return *reinterpret_cast<Shared *>(dynamicShared()); }

/// An RMS norm of a row of 2,048 columns, by a warp.
template <class Load, class Store>
__device__ __forceinline__ void normOfRow(const u16 *weights, Load load, Store store) {
  const WeightVector<2048> norm{weights};
  const float sum = rowSum<2048>([&](int c) { return mul(Floats<8>(load(c)), Floats<8>(load(c))); });
  const float scale = reciprocalSqrt(add(mul(sum, 1.0f / 2048), 1e-5f));
#pragma unroll
  for (int c = laneId() * 8; c < 2048; c += 256)
    store(c, pack8(toBf16(mul(Floats<8>(norm.load8(c)), Floats<8>(toBf16(mul(Floats<8>(load(c)), scale)))))));
}
