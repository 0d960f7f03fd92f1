#include "Common.h"
#include "megalith/Os/WriteFile.h"
#include "megalith/Text/Text.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

namespace megalith::tool {

using namespace llvm::sys;

/// Whether a file can be written there, asked before what takes long.
static bool mayWrite(const std::string &path, Diagnostics &diags) {
  const llvm::StringRef parent = path::parent_path(path);
  std::error_code error;
  if (fs::is_directory(path))
    error = std::make_error_code(std::errc::is_a_directory);
  else if (fs::exists(path))
    error = fs::access(path, fs::AccessMode::Write);
  else
    error = fs::access(parent.empty() ? "." : parent, fs::AccessMode::Write);
  if (error)
    diags.report(Diag::CannotWriteFile, {}, path, error.message());
  return !error;
}

/// What two paths of one file have in common. "" for what many may name: a terminal, a pipe,
/// /dev/null.
static std::string identity(const std::string &path) {
  fs::file_status status;
  if (!fs::status(path, status)) {
    if (status.type() != fs::file_type::regular_file)
      return "";
    const fs::UniqueID id = status.getUniqueID();
    return fmt::format("{}:{}", id.getDevice(), id.getFile());
  }
  // Not there yet: the folder that it will lie in, and its name.
  const llvm::StringRef parent = path::parent_path(path);
  fs::UniqueID id;
  if (fs::getUniqueID(parent.empty() ? "." : parent, id))
    return "";
  return fmt::format("{}:{}:{}", id.getDevice(), id.getFile(), path::filename(path).str());
}

bool checkOutputs(const std::vector<NamedFile> &outputs, const std::vector<NamedFile> &inputs, Diagnostics &diags) {
  std::vector<NamedFile> known = inputs;
  bool good = true;
  for (const NamedFile &output : outputs) {
    if (output.path.empty() || output.path == "-")
      continue;
    good = mayWrite(output.path, diags) && good;
    const std::string own = identity(output.path);
    for (size_t i = 0; i < known.size() && !own.empty(); ++i)
      if (!known[i].path.empty() && identity(known[i].path) == own) {
        good = badOption(diags, output.option + " " + output.path,
                         i < inputs.size()
                             ? fmt::format("this file is read ({}), and would be overwritten", known[i].option)
                             : fmt::format("`{}` writes the same file", known[i].option));
        break;
      }
    known.push_back(output);
  }
  return good;
}

std::vector<NamedFile> filesRead(const Program &program) {
  std::vector<NamedFile> files;
  for (const Program::File &file : program.files())
    files.push_back({file.of, file.path});
  return files;
}

bool writeOutput(const std::string &path, llvm::StringRef data, Diagnostics &diags) {
  if (path == "-") {
    // A program gets the bytes as they are, a terminal none that controls it.
    if (llvm::outs().is_displayed())
      llvm::outs() << text::printableLines(data);
    else
      llvm::outs() << data;
    return true;
  }
  const std::string why = os::writeFile(path, data);
  if (!why.empty())
    diags.report(Diag::CannotWriteFile, {}, path, why);
  return why.empty();
}

std::optional<Program> compileProgram(const ProgramOptions &options, Diagnostics &diags) {
  auto program = Program::compile(options);
  if (!got(program, diags))
    return std::nullopt;
  diags.adopt(program->messages());
  return std::move(*program);
}

void reportAccepted(const Program &program, Diagnostics &diags) {
  for (const std::string &name : program.accepted())
    diags.report(Diag::AcceptedOnWord, {}, name);
}

void showProgress(const std::string &text) {
  static const char *const kind = std::getenv("TERM");
  static const bool terminal = llvm::sys::Process::StandardErrIsDisplayed() && kind && llvm::StringRef(kind) != "dumb";
  if (!terminal)
    return;
  // Of a line that goes on below only the last one would be taken away.
  const unsigned columns = llvm::sys::Process::StandardErrColumns();
  llvm::errs() << "\r\x1b[2K" << (columns > 8 && text.size() >= columns ? text::printable(text, columns - 4) : text);
}

void clearProgress() { showProgress(""); }

} // namespace megalith::tool
