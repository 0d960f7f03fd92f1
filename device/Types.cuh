//===- Types.cuh - words of memory ----------------------------------------===//
#pragma once

namespace megalith::device {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

using namespace shape;

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
