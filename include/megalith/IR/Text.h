//===- Text.h - the textual form of the IR --------------------------------===//
#ifndef MEGALITH_IR_TEXT_H
#define MEGALITH_IR_TEXT_H

#include "megalith/IR/IR.h"
#include "megalith/Support/Diagnostics.h"
#include <optional>

namespace megalith::ir {

struct PrintOptions {
  bool locations = true; ///< print `@file:line:col` after each operation
  /// Print only the control half (`Control`), only the models (`Models`), or all.
  enum Part { All, Control, Models } part = All;
};

/// Prints the module. Never mutates; parse(print(m)) prints the same text.
std::string print(const Module &module, PrintOptions options = {});
/// Prints one operation and what is below it (for messages and tests).
std::string print(const Module &module, const Operation &op);
/// The value of an attribute, exact; "" of a flag, whose name stands alone.
std::string print(const Attr &attr);
/// One line: the operation without its regions and place.
std::string printHead(const Module &module, const Operation &op);

/// Reads a printed module. `file` is the registered text; errors are reported
/// at its lines (Diag::IrSyntax). The operations' own locations come from the text.
std::optional<Module> parse(Diagnostics &diags, uint32_t file);

/// Checks structure: operand, result and region counts, definition before use,
/// types, references to declared names, and that every operation is legal at the
/// module's level (pipe before `form-ticks`, tick after). Reports Diag::IrInvalid
/// and returns false on the first violation.
bool verify(const Module &module, Diagnostics &diags);
/// The same of a module that is run or planned: nothing is missing, numbers are within the limits of the language,
/// parts and calls belong together, every place lies in a file that the module lists.
bool verifyWhole(const Module &module, Diagnostics &diags);

} // namespace megalith::ir
#endif
