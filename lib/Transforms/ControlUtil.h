//===- ControlUtil.h - what the control passes share ----------------------===//
#ifndef MEGALITH_LIB_TRANSFORMS_CONTROLUTIL_H
#define MEGALITH_LIB_TRANSFORMS_CONTROLUTIL_H

#include "megalith/IR/IR.h"
#include <vector>

namespace megalith::transforms {

/// Removes the operations without effect below `module` whose results are unused,
/// and every `if` that is left without a body.
void dropUnused(ir::Module &module);

/// Adds `fields` after the module's last field.
void insertFields(ir::Module &module, std::vector<ir::Operation> fields);

} // namespace megalith::transforms
#endif
