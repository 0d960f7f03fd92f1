//===- JsonText.h - JSON with positions ---------------*- C++ -*-===//
#ifndef MEGALITH_JSON_JSONTEXT_H
#define MEGALITH_JSON_JSONTEXT_H

#include "megalith/Json/JsonValue.h"
#include <cstdint>
#include <map>
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
std::optional<JsonProblem> parseJson(std::string_view text, nlohmann::json &out, const JsonOptions &options = {});

/// Whether the text is what Git keeps in place of a large file (Git LFS).
bool isLfsPointer(std::string_view text);
/// What to do about it, after `: `.
constexpr const char *lfsAdvice = "this is a pointer of Git LFS, not the file itself; run `git lfs pull` in its "
                                  "repository, or download the file";

} // namespace megalith

#endif
