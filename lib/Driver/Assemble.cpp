#include "megalith/Driver/Compilation.h"
#include "megalith/Jit/KernelCache.h"
#include "megalith/Support/CodeWriter.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

namespace megalith::embedded {
// Written by cmake/embed.py from device/.
#define DEVICE_HEADER(Name, Symbol) extern const char Symbol[];
#include "DeviceHeaders.def"
} // namespace megalith::embedded

namespace megalith::driver {

bool readEditedSource(const std::string &path, std::string &cuda, std::string &name, Diagnostics &diags) {
  auto file = openSource(diags, path);
  if (!file)
    return false;
  // `#line N "name"` resumes the generated file's own numbers: after an edit they
  // are this file's.
  llvm::SmallVector<llvm::StringRef> lines;
  diags.sources().text(*file).split(lines, '\n');
  const std::string resume = " " + CodeWriter::spelled(name), own = CodeWriter::spelled(path);
  cuda.clear();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("#line ") && lines[i].ends_with(resume))
      cuda += fmt::format("#line {} {}", i + 2, own);
    else
      cuda += lines[i];
    if (i + 1 < lines.size())
      cuda += '\n';
  }
  name = path;
  return true;
}

/// A header that undefines all words of a source but those with a first `_`. NVRTC has macros of its own (`NULL`,
/// `assert`, `cudaStreamDefault`), other ones in each version, which what a user names must not meet.
static std::string noMacros(llvm::StringRef cuda) {
  std::set<llvm::StringRef> words;
  const auto isPart = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  while (!(cuda = cuda.drop_until(isPart)).empty()) {
    const llvm::StringRef word = cuda.take_while(isPart);
    cuda = cuda.drop_front(word.size());
    if (llvm::isAlpha(word[0]) && word != "defined") // which the preprocessor keeps to itself
      words.insert(word);
  }
  std::string text;
  for (llvm::StringRef word : words)
    text += "#undef " + word.str() + "\n";
  return text;
}

std::optional<jit::CompileResult> assemble(const std::string &cuda, const std::string &fileName,
                                           const AssembleOptions &options, Diagnostics &diags) {
  auto nvrtc = jit::Nvrtc::open(diags);
  if (!nvrtc)
    return std::nullopt;
  jit::CompileRequest request;
  request.source = cuda;
  request.fileName = fileName;
  request.arch = options.arch;
#define DEVICE_HEADER(Name, Symbol) request.headers.push_back({"megalith/" Name, embedded::Symbol});
#include "DeviceHeaders.def"
  request.headers.push_back({"megalith/NoMacros.h", noMacros(cuda)});
  request.options.push_back("--pre-include=megalith/NoMacros.h");
  if (options.needPtx)
    return jit::compileCuda(*nvrtc, request, diags);
  jit::KernelCache cache = jit::KernelCache::open(diags);
  return jit::compileCached(*nvrtc, cache, request, diags);
}

} // namespace megalith::driver
