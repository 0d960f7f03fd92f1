// Reads what NVRTC and ptxas print. Their forms:
//
//   kernel.cu(12): error: identifier "x" is undefined
//     a[1] = x;
//            ^
//   "kernel.cu", line 12: error: identifier "x" is undefined
//   ptxas error   : Entry function 'k' uses too much shared data (...)
//   ptxas info    : Compiling entry function 'k' for 'sm_90a'
//   ptxas info    : Function properties for k
//   ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
//   ptxas info    : Used 24 registers, used 1 barriers, 400 bytes smem
//   ptxas info    : Function properties for _Z6helperPf
#include "CompileLog.h"
#include "megalith/Jit/Compile.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>

namespace megalith::jit {

/// The number right before `unit` in `line`, 0 if there is none.
static int numberBefore(llvm::StringRef line, llvm::StringRef unit) {
  size_t at = line.find(unit);
  if (at == llvm::StringRef::npos)
    return 0;
  llvm::StringRef head = line.take_front(at).rtrim();
  llvm::StringRef digits = head.take_back(head.size() - (head.find_last_not_of("0123456789") + 1));
  int value = 0;
  digits.getAsInteger(10, value);
  return value;
}

std::vector<KernelResources> parseResources(llvm::StringRef log) {
  std::vector<KernelResources> kernels;
  llvm::SmallVector<llvm::StringRef> lines;
  log.split(lines, '\n');
  for (llvm::StringRef line : lines) {
    auto [before, name] = line.split("Compiling entry function '");
    if (!name.empty()) {
      KernelResources kernel;
      kernel.kernel = name.take_until([](char c) { return c == '\''; }).str();
      kernels.push_back(kernel);
      continue;
    }
    if (kernels.empty())
      continue;
    // Functions that are called, not inlined, are listed after their kernel.
    KernelResources &kernel = kernels.back();
    if (line.contains("bytes stack frame")) {
      kernel.stackBytes += numberBefore(line, " bytes stack frame");
      kernel.spillStores += numberBefore(line, " bytes spill stores");
      kernel.spillLoads += numberBefore(line, " bytes spill loads");
    } else if (line.contains("Used ") && line.contains(" registers")) {
      kernel.registers = numberBefore(line, " registers");
      kernel.sharedBytes = numberBefore(line, " bytes smem");
    }
  }
  std::sort(kernels.begin(), kernels.end(),
            [](const KernelResources &a, const KernelResources &b) { return a.kernel < b.kernel; });
  return kernels;
}

/// `kernel.cu(12)` or `"kernel.cu", line 12`.
static bool parsePlace(llvm::StringRef place, LogError &error) {
  llvm::StringRef file, number;
  if (place.consume_back(")")) {
    std::tie(file, number) = place.rsplit('(');
  } else {
    std::tie(file, number) = place.rsplit(", line ");
    file = file.trim().trim('"');
  }
  if (file.empty() || number.getAsInteger(10, error.line))
    return false;
  error.file = file.str();
  return true;
}

static std::optional<LogError> parseErrorLine(llvm::StringRef line) {
  LogError error;
  if (line.starts_with("ptxas")) {
    llvm::StringRef head = line.take_until([](char c) { return c == ':'; });
    if (!head.contains("error") && !head.contains("fatal"))
      return std::nullopt;
    // "ptxas application ptx input, line 25; error" keeps its place in the PTX.
    auto [tool, at] = head.split(", line ");
    llvm::StringRef text = line.drop_front(std::min(line.size(), head.size() + 1)).trim();
    error.message = "ptxas: " + text.str();
    if (!at.empty())
      error.message += " (line " + at.take_while(llvm::isDigit).str() + " of the PTX)";
    return error;
  }
  // A file's name may hold such a mark, too: the first one after a place counts.
  for (llvm::StringRef mark : {": catastrophic error", ": fatal error", ": error"})
    for (size_t at = line.find(mark); at != llvm::StringRef::npos; at = line.find(mark, at + 1)) {
      // The number that some errors carry, `error #20: `, says nothing more.
      llvm::StringRef rest = line.drop_front(at + mark.size());
      size_t colon = rest.find(':');
      if (colon == llvm::StringRef::npos || (colon != 0 && !rest.starts_with(" #")))
        continue;
      error.message = rest.drop_front(colon + 1).trim().str();
      llvm::StringRef place = line.take_front(at);
      if (place == "nvrtc" || parsePlace(place, error))
        return error;
    }
  return std::nullopt;
}

static std::optional<SourceLoc> findSource(const LogError &error, SourceFiles &files) {
  const std::optional<uint32_t> file = files.named(error.file);
  if (!file)
    return std::nullopt;
  SourceLoc loc;
  loc.file = *file;
  loc.line = error.line;
  llvm::StringRef text = files.line(*file, error.line);
  size_t first = text.find_first_not_of(" \t");
  if (first == llvm::StringRef::npos)
    first = 0;
  loc.column = first + 1;
  loc.length = std::max<size_t>(1, text.rtrim().size() - std::min(first, text.rtrim().size()));
  return loc;
}

void report(const LogError &error, Diag id, Diagnostics &diags) {
  std::optional<SourceLoc> loc = findSource(error, diags.sources());
  if (loc || error.file.empty())
    diags.report(AnyDiag{id}, loc.value_or(SourceLoc()), error.message);
  else
    diags.report(AnyDiag{id}, SourceLoc(), fmt::format("{}:{}: {}", error.file, error.line, error.message));
  if (!error.code.empty() && (!loc || diags.sources().line(loc->file, loc->line).trim() != error.code))
    diags.note("in the generated code: `" + error.code + "`");
}

void noteSaid(llvm::StringRef log, Diagnostics &diags) {
  llvm::SmallVector<llvm::StringRef> lines;
  log.trim().take_back(2000).split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef line : lines)
    diags.note("it said: " + line.str());
}

unsigned reportErrors(llvm::StringRef log, Diagnostics &diags) {
  llvm::SmallVector<llvm::StringRef> lines;
  log.split(lines, '\n');
  unsigned count = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::optional<LogError> error = parseErrorLine(lines[i]);
    if (!error)
      continue;
    // Indented lines follow: the rest of the message, the code, a caret.
    // For a file named by #line the code is the generated line, not the user's.
    if (!error->file.empty()) {
      llvm::SmallVector<llvm::StringRef> block;
      while (i + 1 < lines.size() && lines[i + 1].starts_with(" ") && !lines[i + 1].trim().empty())
        block.push_back(lines[++i].trim());
      auto caret = llvm::find(block, "^");
      if (caret != block.end() && caret != block.begin()) {
        error->code = std::prev(caret)->str();
        block.erase(std::prev(caret), std::next(caret));
      }
      for (llvm::StringRef more : block)
        error->message += "; " + more.str();
    }
    report(*error, Diag::CudaCompile, diags);
    ++count;
  }
  return count;
}

} // namespace megalith::jit
