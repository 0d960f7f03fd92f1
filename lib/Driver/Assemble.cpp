#include "megalith/Driver/Compilation.h"
#include "megalith/Jit/KernelCache.h"
#include "llvm/ADT/SmallVector.h"

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
  const std::string resume = " \"" + name + "\"";
  cuda.clear();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("#line ") && lines[i].ends_with(resume))
      cuda += fmt::format("#line {} \"{}\"", i + 2, path);
    else
      cuda += lines[i];
    if (i + 1 < lines.size())
      cuda += '\n';
  }
  name = path;
  return true;
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
  if (options.needPtx)
    return jit::compileCuda(*nvrtc, request, diags);
  jit::KernelCache cache = jit::KernelCache::open(diags);
  return jit::compileCached(*nvrtc, cache, request, diags);
}

} // namespace megalith::driver
