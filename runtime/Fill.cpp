#include "runtime/Fill.h"
#include <algorithm>
#include <cmath>

namespace megalith::runtime {

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (unsigned char byte : bytes) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i)
      crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

Fill fillOf(std::string_view name, const std::vector<int64_t> &shape) {
  Fill fill{crc32(name), 0.25f, 1};
  if (shape.size() >= 2)
    fill.scale = static_cast<float>(2 * std::sqrt(3.0) / std::sqrt(static_cast<double>(shape.back())));
  else if (name.ends_with(".bias"))
    fill.scale = 0.1f;
  if (shape.size() >= 2 || name.ends_with(".bias"))
    fill.mean = 0;
  return fill;
}

std::optional<Fill> fillOfKv(std::string_view member) {
  if (member != "kCache" && member != "vCache")
    return std::nullopt;
  return Fill{crc32(member), static_cast<float>(2 * std::sqrt(3.0)), 0};
}

} // namespace megalith::runtime
