//===- Origin.h - where a unit comes from, as comments ---------------------===//
#ifndef MEGALITH_LIB_EMIT_ORIGIN_H
#define MEGALITH_LIB_EMIT_ORIGIN_H

#include "megalith/IR/IR.h"
#include "megalith/Support/CodeWriter.h"

namespace megalith::emit {

/// The models, and the files of a unit: those of its models, or all others.
void emitOrigin(CodeWriter &w, const ir::Module &module, bool ofModels);
/// The params and their values.
void emitParams(CodeWriter &w, const ir::Module &module);

} // namespace megalith::emit
#endif
