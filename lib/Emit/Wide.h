//===- Wide.h - passes that run whole, in the source ----------------------===//
#ifndef MEGALITH_LIB_EMIT_WIDE_H
#define MEGALITH_LIB_EMIT_WIDE_H

#include "Tensor.h"

namespace megalith::emit {

/// In the tensor unit: declares the roles' functions of a model.
void emitWideDeclarations(CodeWriter &w, const Names &names);
/// In the tensor unit: the parts of such a pass of a model.
void emitWideParts(CodeWriter &w, const plan::Plan &plan, const Names &names);
/// In the wide unit: all of a model.
void emitWideModelUnit(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const Names &names,
                       const SourceFiles &files, const EmitOptions &options);

} // namespace megalith::emit
#endif
