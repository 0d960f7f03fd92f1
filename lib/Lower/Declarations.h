//===- Declarations.h - what both kinds of pipelines declare --------------===//
#ifndef MEGALITH_LIB_LOWER_DECLARATIONS_H
#define MEGALITH_LIB_LOWER_DECLARATIONS_H

#include "megalith/IR/IR.h"
#include "megalith/Sema/Pipeline.h"

namespace megalith {

/// An operation among the children of the module.
ir::Operation &declare(ir::Module &module, ir::Op op, const std::string &name, SourceLoc loc);
/// The root, and the files that places number.
void beginModule(ir::Module &module, const std::string &name, SourceLoc loc, const SourceFiles &files);
void lowerParam(ir::Module &module, const CheckedParam &p);
ir::Number numberOf(const Constant &c);
/// `items` or `numbers` of a list.
void setList(ir::Operation &o, sema::Elem elem, const std::vector<Constant> &of);

} // namespace megalith
#endif
