//===- Common.h - what several commands do ---------------------------------===//
#ifndef MEGALITH_TOOLS_COMMON_H
#define MEGALITH_TOOLS_COMMON_H

#include "Command.h"
#include "megalith/Api.h"
#include "megalith/Support/Diagnostics.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith::tool {

enum class Format { Auto, Json, Text };

/// Whether there is a value; else its errors are in `diags`.
template <class T> bool got(const Expected<T> &result, Diagnostics &diags) {
  diags.adopt(result.errors());
  return bool(result);
}
/// A program with its warnings told, those of what was taken on the user's word as well.
std::optional<Program> compileProgram(const ProgramOptions &options, Diagnostics &diags);
void reportAccepted(const Program &program, Diagnostics &diags);

/// Those of a file, or of the standard input (`-`).
Expected<std::vector<Request>> readRequests(const Program &program, const std::string &path, Diagnostics &diags);

/// Whether all of `outputs` can be written, asked before what takes long; reports `cannot-write-file`,
/// and `bad-option` for one that is an input or another output as well.
bool checkOutputs(const std::vector<NamedFile> &outputs, const std::vector<NamedFile> &inputs, Diagnostics &diags);
/// What a compilation has read beside the files of the command line.
std::vector<NamedFile> filesRead(const Program &program);

/// Writes `data` to `path` ("-": the standard output); reports `cannot-write-file`.
bool writeOutput(const std::string &path, llvm::StringRef data, Diagnostics &diags);

/// Shows `text` in place on a terminal's last line of stderr; nothing elsewhere.
void showProgress(const std::string &text);
/// Takes the progress line away.
void clearProgress();

} // namespace megalith::tool
#endif
