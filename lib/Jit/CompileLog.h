//===- CompileLog.h - errors of any compiler's log ------------------------===//
#ifndef MEGALITH_LIB_JIT_COMPILELOG_H
#define MEGALITH_LIB_JIT_COMPILELOG_H

#include "megalith/Support/Diagnostics.h"

namespace megalith::jit {

/// An error line taken apart.
struct LogError {
  std::string file; ///< empty: the compiler gave no place
  unsigned line = 0;
  std::string message;
  std::string code; ///< of the generated text; empty: the compiler did not show it
};

/// Reports `error` as `id`: at the line's first visible character where its file is
/// among the sources of `diags`, else with `file:line` in the text. Then the code, as a
/// note, unless it is what the source's line says.
void report(const LogError &error, Diag id, Diagnostics &diags);

/// A note for each line of a log in which there was no error to report: the last ones.
void noteSaid(llvm::StringRef log, Diagnostics &diags);

} // namespace megalith::jit
#endif
