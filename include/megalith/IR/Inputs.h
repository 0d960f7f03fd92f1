//===- Inputs.h - what a module's requests bring --------------------------===//
#ifndef MEGALITH_IR_INPUTS_H
#define MEGALITH_IR_INPUTS_H

#include "megalith/IR/IR.h"
#include "megalith/Request.h"

namespace megalith::ir {

/// Its `input` declarations, in order.
std::vector<Input> inputsOf(const Module &module);

} // namespace megalith::ir
#endif
