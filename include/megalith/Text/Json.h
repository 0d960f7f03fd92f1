//===- Json.h - the text of a JSON value ------------------------*- C++ -*-===//
#ifndef MEGALITH_TEXT_JSON_H
#define MEGALITH_TEXT_JSON_H

#include "megalith/Text/Text.h"
#include <nlohmann/json.hpp>
#include <string>

namespace megalith::text {

/// The text of `value`, on one line or with `indent` blanks a level, as safe as text::json.
/// Bytes that are no UTF-8 become U+FFFD: unlike the library's default this throws nothing. A
/// path that has to be told from another goes through text::utf8 first.
template <class Json> std::string dump(const Json &value, int indent = -1) {
  return jsonShown(value.dump(indent, ' ', false, Json::error_handler_t::replace));
}

} // namespace megalith::text
#endif
