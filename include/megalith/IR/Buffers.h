//===- Buffers.h - the shapes of a call of a pipeline of buffers ----------===//
#ifndef MEGALITH_IR_BUFFERS_H
#define MEGALITH_IR_BUFFERS_H

#include "megalith/IR/IR.h"
#include <map>

namespace megalith::ir {

/// Whether the module is a pipeline of buffers.
bool ofBuffers(const Module &module);

using Shapes = std::map<std::string, std::vector<int64_t>>; ///< by the names of buffers

/// What a call's shapes say.
struct CallShapes {
  std::map<std::string, int64_t> dims;
  Shapes shapes;         ///< of all buffers, also of those that were not given
  std::string error;     ///< why it cannot be called so; else empty
  SourceLoc declaration; ///< of the buffer or dim that the error is of
};

/// Finds the dims by the shapes that are given. A buffer that a stage writes may be missing: `shapes` has what it
/// needs.
CallShapes callShapes(const Module &module, const Shapes &given);

/// The shapes of all buffers where the dims are known, which are within their ranges.
CallShapes shapesOf(const Module &module, std::map<std::string, int64_t> dims);

/// Elements that a buffer of one dimension may have, by the ranges of its dims.
int64_t mostOf(const Module &module, const Operation &buffer);

/// Bytes of an element.
int64_t bytesOf(Scalar dtype);

/// Arithmetic on dims, in reverse Polish notation: `b g 1 + *`. What a region yields as its value number `index`;
/// empty where it takes more than + - * / % min max.
std::string polishOf(const Region &region, size_t index);
/// The same as people write it: `b * (g + 1)`.
std::string infixOf(llvm::StringRef polish);

/// Copies of a stage that are all that its items do, and that meet nothing of each other: any part of them may be done
/// at any time. Empty: there is something else.
std::vector<const Operation *> plainCopies(const Operation &items);

} // namespace megalith::ir
#endif
