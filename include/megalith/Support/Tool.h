//===- Tool.h - the frame of a program -------------------------*- C++ -*-===//
#ifndef MEGALITH_SUPPORT_TOOL_H
#define MEGALITH_SUPPORT_TOOL_H

#include "llvm/ADT/STLFunctionalExtras.h"

namespace megalith {

/// Runs `body`, all that a program does, over a last net, and returns its exit status.
/// What falls into the net is one line on stderr, and the status is 1:
///
///   cannot-write-output  standard output could not be written, as on a full disk; also
///                        where a library prints and calls exit(), as for `--help`
///   out-of-memory        an allocation failed, in this code or in a library
///   internal-error       any other exception, a fatal error of LLVM, or a fault
///                        (os::endCleanly)
int runTool(llvm::function_ref<int()> body);

} // namespace megalith
#endif
