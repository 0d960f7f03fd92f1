//===- JsonValue.h - values of JSON files, read with care -------*- C++ -*-===//
#ifndef MEGALITH_JSON_JSONVALUE_H
#define MEGALITH_JSON_JSONVALUE_H

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace megalith {

/// The value of an integer. nullopt for what is none (`1.0`, `true`, `"1"`), and
/// for one from 2^63 on, which the library would hand out as a negative one.
std::optional<int64_t> jsonInteger(const nlohmann::json &value);

/// A finite number, also a quoted one (`"10000"`), which some tools write. nullopt
/// for anything else.
std::optional<double> jsonNumber(const nlohmann::json &value);

/// A value as the file has it, for messages; long ones are cut. `dump` throws
/// where a string is no UTF-8, and writes null for a number that is not finite.
std::string jsonShort(const nlohmann::json &value);

} // namespace megalith

#endif
