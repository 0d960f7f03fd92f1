//===- WeightScheme.h - how the values of a matrix are coded --------------===//
#ifndef MEGALITH_SUPPORT_WEIGHTSCHEME_H
#define MEGALITH_SUPPORT_WEIGHTSCHEME_H

#include <cstdint>

namespace megalith {

/// The codes of a matrix. Each is a bf16 without rounding: e4m3 itself, and an unsigned number less its zero point,
/// which is a whole number from -255 to 255.
enum class WeightFormat : uint8_t { Bf16, E4m3, U4, U8 };

/// Bits of a code.
constexpr int bitsOf(WeightFormat format) {
  return format == WeightFormat::Bf16 ? 16 : format == WeightFormat::U4 ? 4 : 8;
}
/// The zero point of unsigned codes whose matrix has none of its own.
constexpr int middleOf(WeightFormat format) { return format == WeightFormat::U4 ? 8 : 128; }

/// How a matrix [rows, columns] is coded: the value is scale * (code - zero point).
struct WeightScheme {
  WeightFormat format = WeightFormat::Bf16;
  /// One scale is for a block of so many rows and columns. 0: for all of them.
  int64_t scaleRows = 0, scaleColumns = 0;
  bool zeros = false;   ///< each block has a zero point beside its scale; else it is the middle one, or e4m3 has none
  bool ordered = false; ///< blocks are of columns in an order that the checkpoint gives

  bool quantised() const { return format != WeightFormat::Bf16; }
  /// Whether sums are cut where blocks of columns end.
  bool hasGroups() const { return scaleColumns != 0; }
  bool operator==(const WeightScheme &) const = default;
};

/// Bytes of a matrix: codes, scales in f32, zero points in a byte.
inline int64_t bytesOf(const WeightScheme &scheme, int64_t rows, int64_t columns) {
  const int64_t codes = (rows * columns * bitsOf(scheme.format) + 7) / 8;
  if (!scheme.quantised())
    return codes;
  const int64_t down = scheme.scaleRows ? (rows + scheme.scaleRows - 1) / scheme.scaleRows : 1;
  const int64_t across = scheme.scaleColumns ? (columns + scheme.scaleColumns - 1) / scheme.scaleColumns : 1;
  return codes + down * across * (scheme.zeros ? 5 : 4);
}

} // namespace megalith
#endif
