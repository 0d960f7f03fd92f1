//===- JsonText.h - JSON with positions ---------------*- C++ -*-===//
#ifndef MEGALITH_LIB_CHECKPOINT_JSONTEXT_H
#define MEGALITH_LIB_CHECKPOINT_JSONTEXT_H

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace megalith {

/// A JSON text that does not parse or that has a key twice.
struct JsonProblem {
  std::string message;
  /// From 1.
  unsigned line = 0;
  unsigned column = 0;
  /// From 0.
  uint64_t byte = 0;
};

/// Parses `text` into `out`. A key that occurs twice in one object is a
/// problem, since one of its values would be dropped silently.
std::optional<JsonProblem> parseJson(std::string_view text,
                                     nlohmann::json &out);

} // namespace megalith

#endif
