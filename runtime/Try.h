//===- Try.h - hands a failure on -----------------------------------------===//
#ifndef MEGALITH_RUNTIME_TRY_H
#define MEGALITH_RUNTIME_TRY_H

#include "runtime/RuntimeError.h"

/// The failure of `expression` is that of the enclosing function.
#define TRY(expression)                                                                                                \
  if (Failure failure_ = (expression))                                                                                 \
  return *failure_

#endif
