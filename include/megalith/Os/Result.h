//===- Result.h - A value or one error --------------------------*- C++ -*-===//
#ifndef MEGALITH_OS_RESULT_H
#define MEGALITH_OS_RESULT_H

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace megalith {

/// What was wrong with a file that a user gave.
struct FileError {
  /// Stable kebab-case id, for instance `safetensors-truncated`.
  std::string kind;
  /// One lower-case sentence without the location: what was found, what was
  /// expected.
  std::string message;
  /// The path as it was opened.
  std::string file;
  /// Both start at 1; 0 means that the error has no such position.
  unsigned line = 0;
  unsigned column = 0;
  /// What was read of `file`, with a line: a pipe would not give it again. Null when
  /// whoever gets the error gave the text.
  std::shared_ptr<const std::string> text = nullptr;
};

/// Either a value or the error that prevented it. This library does not use
/// Support, so that the runtime can link it without LLVM.
template <class T> struct Result {
  std::optional<T> value;
  FileError error;

  Result(T v) : value(std::move(v)) {}
  Result(FileError e) : error(std::move(e)) {}

  explicit operator bool() const { return value.has_value(); }
  T &operator*() { return *value; }
  const T &operator*() const { return *value; }
  T *operator->() { return &*value; }
  const T *operator->() const { return &*value; }
};

} // namespace megalith

#endif
