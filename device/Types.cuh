//===- Types.cuh - words of memory ----------------------------------------===//
#pragma once

#include "megalith/Shape.h"

namespace megalith::device {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
/// A matrix in shared memory, as products take it: made by a primitive.
using SharedMatrix = u64;

using namespace shape;

struct alignas(16) Words4 {
  u32 x, y, z, w;
};
struct alignas(8) Words2 {
  u32 x, y;
};
struct alignas(8) Float2 {
  float x, y;
};
struct alignas(16) Float4 {
  float x, y, z, w;
};

} // namespace megalith::device
