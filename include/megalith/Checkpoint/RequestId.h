//===- RequestId.h - how a request is named ---------------------*- C++ -*-===//
#ifndef MEGALITH_CHECKPOINT_REQUESTID_H
#define MEGALITH_CHECKPOINT_REQUESTID_H

#include <string>

namespace megalith {

/// The `id` of a request: a string or an integer of JSON, and outputs give back which. Two
/// requests of one run have different texts: `1` and `"1"` would be the same one.
struct RequestId {
  std::string text; ///< of an integer its decimal digits
  bool isInteger = false;

  RequestId() = default;
  RequestId(std::string text) : text(std::move(text)) {}
  RequestId(const char *text) : text(text) {}
  static RequestId ofInteger(std::string digits);

  /// As JSON has it, with quotes if it is a string.
  std::string json() const;
  bool operator==(const RequestId &) const = default;
};

} // namespace megalith

#endif
