//===- Model.h - a checked model becomes tensor IR ------------------------===//
#ifndef MEGALITH_LOWER_MODEL_H
#define MEGALITH_LOWER_MODEL_H

#include "megalith/IR/IR.h"
#include "megalith/Sema/Model.h"
#include "llvm/ADT/StringRef.h"

namespace megalith {

/// Appends `model @name` with its weights and one `segment @forward` to `module`.
///
/// Every value of the graph is rounded to bf16 where the bf16 tensor operation of
/// `transformers` rounds: after a product (with its bias), after each elementwise
/// operation, twice in an RMS norm (before and after the weight), three times in
/// rope, after attention. Sums and functions inside are f32.
void lowerModel(const CheckedModel &model, llvm::StringRef name, ir::Module &module);

} // namespace megalith
#endif
