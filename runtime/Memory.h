//===- Memory.h - where memory is short -----------------------------------===//
#ifndef MEGALITH_RUNTIME_MEMORY_H
#define MEGALITH_RUNTIME_MEMORY_H

#include "runtime/RuntimeError.h"
#include <cstdint>
#include <new>
#include <stdexcept>

namespace megalith::runtime {

/// Says what did not fit, and what to do.
struct NoRoom : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// "12 bytes", "3.5 GiB".
std::string bytesText(uint64_t bytes);

/// What `step` returns or, where memory does not suffice, `out-of-memory`.
template <class Step> auto withinMemory(Step &&step) -> decltype(step()) {
  try {
    return step();
  } catch (const NoRoom &error) {
    return RuntimeError{"out-of-memory", error.what()};
  } catch (const std::bad_alloc &) {
  } catch (const std::length_error &) { // more than any memory
  }
  return RuntimeError{"out-of-memory",
                      "there is not enough memory for this run; make the KV pool (`pages`, "
                      "`page_tokens`), the slots or `rows_per_pass` smaller, or run fewer requests at a time"};
}

} // namespace megalith::runtime
#endif
