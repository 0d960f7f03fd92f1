//===- ControlBody.h - operations of a part to statements -----------------===//
//
// A part's operations become few, readable statements: a value that is used once
// is written where it is used, as long as nothing in between changes what it
// reads; the others become `const` variables.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_EMIT_CONTROLBODY_H
#define MEGALITH_LIB_EMIT_CONTROLBODY_H

#include "ControlLayout.h"

namespace megalith::emit {

/// The statements of a part's region, in terms of `t`, the activation, and `r`, its request's fields. `scratch`
/// receives how many words of scratch they take.
std::vector<Statement> partStatements(const ir::Module &module, const ControlLayout &layout, const ir::Region &region,
                                      int64_t &scratch);
/// The statements that set the keys of the part's `order`: `key[0] = orderKey(...)`.
std::vector<Statement> orderStatements(const ir::Module &module, const ControlLayout &layout, const ir::Region &part);

} // namespace megalith::emit
#endif
