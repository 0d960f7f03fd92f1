//===- Help.h - help, completion and the man page -------------------------===//
#ifndef MEGALITH_TOOLS_HELP_H
#define MEGALITH_TOOLS_HELP_H

#include "Command.h"

namespace megalith::tool {

/// As wide as what the standard output goes to: $COLUMNS, else the terminal's columns, else 80.
unsigned helpWidth();
/// `megalith --help`.
std::string programHelp(unsigned width);
/// `megalith COMMAND --help`.
std::string commandHelp(const Command &command, unsigned width);

/// `--device=<value>`, `-o <file>`.
std::string optionForm(const Option &option);

} // namespace megalith::tool
#endif
