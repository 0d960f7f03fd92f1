//===- JsonText.h - JSON with positions ---------------*- C++ -*-===//
#ifndef MEGALITH_LIB_CHECKPOINT_JSONTEXT_H
#define MEGALITH_LIB_CHECKPOINT_JSONTEXT_H

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace megalith {

/// A place in a text: `byte` from 0, the others from 1.
struct JsonPlace {
  unsigned line = 0;
  unsigned column = 0;
  uint64_t byte = 0;
};

/// What is wrong with a text, and where.
struct JsonProblem : JsonPlace {
  std::string message;
};

/// Lists and objects may stand in each other this deep. What reads, copies and
/// prints values is recursive, so that a file must not choose the depth.
constexpr unsigned MaxJsonDepth = 100;

struct JsonOptions {
  /// Allows `NaN`, `Infinity` and `-Infinity`, which Python's json writes.
  bool nonFinite = false;
  /// Receives the place of each key that stands in objects only, by its dotted
  /// path (`rope_scaling.factor`).
  std::map<std::string, JsonPlace> *places = nullptr;
};

/// Parses `text` into `out`. Beside what is no JSON these are problems: a key
/// that occurs twice in one object, since one of its values would be dropped
/// silently; more than MaxJsonDepth levels; a number that an f64 cannot hold; a
/// byte 0, at which the library would stop reading.
std::optional<JsonProblem> parseJson(std::string_view text, nlohmann::json &out,
                                     const JsonOptions &options = {});

/// The value of an integer. nullopt for what is none (`1.0`, `true`, `"1"`), and
/// for one from 2^63 on, which the library would hand out as a negative one.
std::optional<int64_t> jsonInteger(const nlohmann::json &value);

/// A value as the file has it, for messages; long ones are cut. `dump` throws
/// where a string is no UTF-8, and writes null for a number that is not finite.
std::string jsonShort(const nlohmann::json &value);

} // namespace megalith

#endif
