//===- Fuzz.h - what the fuzz targets share ---------------------*- C++ -*-===//
//
// A target is a function from bytes to nothing. It hands them to a reader as a user's
// file, and calls finding() where the reader breaks a promise. What a sanitizer or an
// assertion sees is a finding as well. Targets.def lists all of them.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TEST_FUZZ_FUZZ_H
#define MEGALITH_TEST_FUZZ_FUZZ_H

#include "megalith/Driver/Compilation.h"
#include "megalith/Os/Result.h"
#include "megalith/Requests/Trace.h"
#include <string>
#include <string_view>

namespace megalith::fuzz {

#define TARGET(Function, Name, MostBytes, Text) void Function(std::string_view input);
#include "Targets.def"

/// Says what is wrong and ends the process: libFuzzer keeps the input.
[[noreturn]] void finding(const std::string &what);

/// A folder of this process, removed when it ends.
const std::string &scratch();
/// Writes a file below it and returns its path.
std::string writeScratch(const std::string &name, std::string_view bytes);

/// Ends with a finding unless every message says what and where: nothing in it can change
/// a terminal, it is not empty, and an error stands at a line and column that its file has.
/// `failed`: whether the caller got no result, for which there has to be an error.
void checkMessages(Diagnostics &diags, bool failed);

/// The same of an error of the Checkpoint library in the file `text`.
void checkError(const FileError &error, std::string_view text);

/// Whether one of this kind was reported: `ir-invalid`.
bool hasError(const Diagnostics &diags, const char *kind);

/// A module that has passed the verifier: prints and reads back as the same, is valid after each
/// pass, and reads back then, too. Returns the last one.
ir::Module checkPasses(ir::Module module, Diagnostics &diags);
/// The same of a whole one, which does the same after the passes; then a plan and a source, or an error. The messages
/// are checked.
void checkModule(ir::Module module, const driver::CompileOptions &options, Diagnostics &diags);

/// What a few ticks of a whole module do on the reference executor; nullopt when they take long.
std::optional<Trace> traceOf(const ir::Module &module);
/// Ends with a finding unless `after`, the same module after the passes, does what `before` is.
void compareRuns(const Trace &before, const ir::Module &after);

/// Ends with a finding unless `text` is code that no name, path or comment has broken:
/// ASCII, comments and strings that end on their line, brackets in pairs.
void checkCode(std::string_view text);

/// Takes `--set a=1`, `--plan ring=4`, `--accept key` and `--device-profile cpu` from lines at the front that
/// begin with `mark`, so that inputs can vary them.
void readOptions(std::string_view input, std::string_view mark, driver::CompileOptions &options);

} // namespace megalith::fuzz
#endif
