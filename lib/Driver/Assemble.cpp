#include "megalith/Driver/Compilation.h"
#include "megalith/Jit/KernelCache.h"

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
  cuda = diags.sources().text(*file).str();
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
