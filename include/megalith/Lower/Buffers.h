//===- Buffers.h - a checked pipeline of buffers becomes IR ---------------===//
#ifndef MEGALITH_LOWER_BUFFERS_H
#define MEGALITH_LOWER_BUFFERS_H

#include "megalith/IR/IR.h"
#include "megalith/Sema/Buffers.h"

namespace megalith {

/// Makes the module: files, params, dims, buffers and the stages as `items` (docs/ir.md), each with its place in the
/// YAML. `files` are those that the places number.
ir::Module lowerBuffers(const CheckedBuffers &pipeline, const SourceFiles &files);

} // namespace megalith
#endif
