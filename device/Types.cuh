//===- Types.cuh - words, and the shape of a CTA --------------------------===//
#pragma once

namespace megalith::device {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

/// Consumer warps of a CTA; one more warp streams weights, and one brings the activations of passes of many rows
/// (Windows.cuh). With nine warps one quarter of an SM has three already: up to three more take no registers from the others.
constexpr int kConsumerWarps = 8;
constexpr int kConsumerThreads = kConsumerWarps * 32;
constexpr int kCtaThreads = kConsumerThreads + 64;
/// Rows of a pass that one tensor-core tile holds.
constexpr int kTileRows = 16;
constexpr int kMaxRows = 128;
/// In place of rows: the variant of a product's function that ends a unit of a pass of more than one row tile (WideProduct.cuh).
constexpr int kUnitEnd = kMaxRows + 1;

struct alignas(16) Words4 {
  u32 x, y, z, w;
};
struct alignas(8) Float2 {
  float x, y;
};
struct alignas(16) Float4 {
  float x, y, z, w;
};

} // namespace megalith::device
