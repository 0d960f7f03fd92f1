//===- Handlers.cpp - what LLVM does where it cannot go on ----------------===//
//
// Only of the shared library, which has an LLVM of its own. Without handlers a lack of memory in one of
// LLVM's containers would end the process that uses the library; the program has handlers in Tool.cpp.
// Exceptions pass through LLVM's code: it has the tables for it, and nothing to clean up in between.
//===----------------------------------------------------------------------===//
#include "llvm/Support/ErrorHandling.h"
#include <new>
#include <stdexcept>

namespace {

struct Handlers {
  Handlers() {
    llvm::install_bad_alloc_error_handler([](void *, const char *, bool) { throw std::bad_alloc(); });
    llvm::install_fatal_error_handler([](void *, const char *reason, bool) { throw std::runtime_error(reason); });
  }
} handlers;

} // namespace
