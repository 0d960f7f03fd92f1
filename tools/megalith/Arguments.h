//===- Arguments.h - what command lines of several commands share ---------===//
#ifndef MEGALITH_TOOLS_ARGUMENTS_H
#define MEGALITH_TOOLS_ARGUMENTS_H

#include "Options.h"
#include "Usage.h"

namespace megalith::tool {

/// Of all that `--help` shows.
llvm::cl::OptionCategory &optionCategory();
/// The path of a pipeline that the command line names: a file, the name of one that comes with megalith, or `-`, whose
/// text goes into `texts`. Reports `bad-option`.
bool findPipeline(std::string &file, std::map<std::string, std::string> &texts, Diagnostics &diags);
/// Whether at most one of these is `-`, the standard input; reports `bad-option`. Paths that are become /dev/stdin, but
/// for the pipeline and the requests.
bool checkStandardInput(const std::vector<std::pair<const char *, std::vector<std::string *>>> &inputs,
                        Diagnostics &diags);

/// `megalith sweep`. A function's, for options of two files are made in no order.
llvm::cl::SubCommand &sweepSub();
/// Reads its own options. `command` has those that others have, too.
bool sweepMain(SweepCommand command, Diagnostics &diags);

/// `megalith inspect`, as well. `options`: without `file`.
llvm::cl::SubCommand &inspectSub();
bool inspectMain(ProgramOptions options, Diagnostics &diags);

/// The numbers of a list; `otherwise` of an empty one. Reports `bad-option`.
bool numbersOf(const llvm::cl::list<std::string> &list, llvm::StringRef option, int64_t otherwise,
               std::vector<int64_t> &out, Diagnostics &diags);
/// The values of `--option`: `[NAME=]DIR`, each name once; `what` stands for DIR in messages. Reports `bad-option`.
bool readModels(llvm::StringRef option, llvm::StringRef what, const llvm::cl::list<std::string> &list,
                std::vector<std::pair<std::string, std::string>> &models, Diagnostics &diags);
/// Whether a value stands behind each of these options that are given. Reports `bad-option`.
bool checkTexts(const std::vector<const llvm::cl::opt<std::string> *> &options,
                const std::vector<std::reference_wrapper<const llvm::cl::list<std::string>>> &lists,
                Diagnostics &diags);

} // namespace megalith::tool
#endif
