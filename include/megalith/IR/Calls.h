//===- Calls.h - what a call of a model can feed --------------------------===//
#ifndef MEGALITH_IR_CALLS_H
#define MEGALITH_IR_CALLS_H

#include "megalith/IR/IR.h"

namespace megalith::ir {

/// Rows that one pass can have of this `call` or `issue`: what it is fed, but at most `chunk` and
/// `rows_per_pass`. The one place that says so for the IR; lib/Sema/Calls.cpp has checked the same
/// of the YAML.
int64_t mostRows(const Module &module, const Operation &call);

} // namespace megalith::ir
#endif
