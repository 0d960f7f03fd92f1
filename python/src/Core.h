//===- Core.h - between Python and megalith/Api.h -----------------*- C++ -*-===//
//
// The module `megalith._core` is plain: options and requests come as dicts that the Python side has checked, results go
// back as dicts. The classes and the documentation that users see are in python/megalith.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_PYTHON_CORE_H
#define MEGALITH_PYTHON_CORE_H

#include "megalith/Api.h"
#include <initializer_list>
#include <limits>
#include <mutex>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

namespace megalith::python {

namespace nb = nanobind;

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// Text of the library. It may quote any bytes of a user's file: those that are no UTF-8 become escapes.
nb::str text(const std::string &bytes);
/// Names of files, as Python has them.
nb::str pathText(const std::string &bytes);
/// The UTF-8 of a str, or the bytes of a path that Python has read from the system.
std::string bytesOf(nb::handle value);

nb::list texts(const std::vector<std::string> &list);
/// The members of `end`.
void put(const RequestEnd &end, nb::dict out);

/// An array that owns `values`.
template <class T> nb::object arrayOf(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto *held = new std::vector<T>(std::move(values));
  nb::capsule owner(held, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(held->data(), shape.size(), shape.begin(), owner));
}
template <class T> nb::object arrayOf(std::vector<T> values) {
  const size_t size = values.size();
  return arrayOf(std::move(values), {size});
}

/// Of a C-contiguous array of one dimension.
template <class T> std::vector<T> valuesOf(nb::handle array) {
  const auto values = nb::cast<nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(array);
  return std::vector<T>(values.data(), values.data() + values.size());
}

/// A member of a dict of options; none when it is not there, or None.
nb::object member(nb::dict options, const char *name);

/// Raises megalith.Error: `value` is outside what `name` may be.
[[noreturn]] void raiseOutside(const std::string &name, nb::object least, nb::object most, nb::handle value);
/// Raises TypeError.
[[noreturn]] void raiseNot(const char *what, const std::string &name, nb::handle value);

/// What Python says, as C++ has it. Numbers that C++ has no room for are told with their limits.
template <class T> T valueOf(nb::handle value, const std::string &name) {
  T out;
  if (nb::try_cast(value, out))
    return out;
  if constexpr (std::is_same_v<T, bool>) {
    raiseNot("a bool", name, value);
  } else if constexpr (std::is_integral_v<T>) {
    if (PyIndex_Check(value.ptr()))
      raiseOutside(name, nb::cast(std::numeric_limits<T>::min()), nb::cast(std::numeric_limits<T>::max()), value);
    raiseNot("an integer", name, value);
  } else {
    raiseNot("a number", name, value);
  }
}

/// Sets `out` if the options say something.
template <class T> void read(nb::dict options, const char *name, T &out) {
  if (nb::object value = member(options, name); !value.is_none())
    out = valueOf<T>(value, name);
}
void read(nb::dict options, const char *name, std::string &out);
void read(nb::dict options, const char *name, std::vector<std::string> &out);
void read(nb::dict options, const char *name, std::vector<std::pair<std::string, std::string>> &out);
/// A callable of Python, which may be called and destroyed on any thread.
void read(nb::dict options, const char *name, std::function<void(const std::string &)> &out);

Request requestOf(nb::dict request);
nb::dict dictOf(const Request &request);
nb::list listOf(const std::vector<Input> &inputs);

//===----------------------------------------------------------------------===//
// Errors and threads
//===----------------------------------------------------------------------===//

nb::list listOf(const Messages &messages);
nb::object objectOf(const Error &error);
/// Raises megalith.Error.
[[noreturn]] void raise(const Messages &messages);

template <class T> T take(Expected<T> result) {
  if (!result)
    raise(result.errors());
  return std::move(*result);
}

/// Raises what a handler of Python's signals raised, KeyboardInterrupt above all. Needs the GIL.
inline void checkSignals() {
  if (PyErr_CheckSignals() != 0)
    throw nb::python_error();
}

/// A program, the kernels made of it and their batches are for one thread at a time. A callback of this thread may come
/// back to them.
using Mutex = std::recursive_timed_mutex;

/// Holds the mutex. While it waits, other threads of Python run and Ctrl-C works.
class Hold {
public:
  explicit Hold(Mutex &mutex) : lock(mutex, std::defer_lock) {
    while (!lock.try_lock() && !tryLock())
      checkSignals();
  }

private:
  bool tryLock() {
    const nb::gil_scoped_release release;
    return lock.try_lock_for(std::chrono::milliseconds(100));
  }

  std::unique_lock<Mutex> lock;
};

struct CompiledProgram {
  Program program;
  std::shared_ptr<Mutex> mutex = std::make_shared<Mutex>();
};

struct LoadedKernel {
  Kernel kernel;
  std::shared_ptr<Mutex> mutex; ///< its program's
};

/// Calls `f`, which uses what the mutex guards and nothing of Python.
template <class F> auto alone(Mutex &mutex, F f) {
  const Hold hold(mutex);
  const nb::gil_scoped_release release;
  return f();
}

void bindPrograms(nb::module_ &module);
void bindKernels(nb::module_ &module);
void bindCalls(nb::module_ &module);
void bindLive(nb::module_ &module);

} // namespace megalith::python
#endif
