//===- RuntimeError.h - a value or what stopped the runtime ---------------===//
#ifndef MEGALITH_RUNTIME_RUNTIMEERROR_H
#define MEGALITH_RUNTIME_RUNTIMEERROR_H

#include <optional>
#include <string>
#include <utility>

namespace megalith::runtime {

/// Something a user can act on. `kind` is a stable kebab-case id: `gpu-absent`,
/// `gpu-too-old`, `gpu-out-of-memory`, `cuda-driver`, ...; `message` one
/// lower-case sentence without a full stop.
struct RuntimeError {
  std::string kind, message;
};

/// The outcome of a step without a value: nullopt is success.
using Failure = std::optional<RuntimeError>;

/// A value or the error that prevented it.
template <class T> struct Outcome {
  std::optional<T> value;
  RuntimeError error;

  Outcome(T v) : value(std::move(v)) {}
  Outcome(RuntimeError e) : error(std::move(e)) {}

  explicit operator bool() const { return value.has_value(); }
  T &operator*() { return *value; }
  const T &operator*() const { return *value; }
  T *operator->() { return &*value; }
  const T *operator->() const { return &*value; }
};

} // namespace megalith::runtime
#endif
