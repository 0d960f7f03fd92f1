#include "EmbeddedFiles.h"
#include "megalith/Driver/Compilation.h"
#include "megalith/Jit/HostCompiler.h"
#include <cstdlib>

namespace megalith::driver {

static std::optional<HostKernel> assembleUnits(std::vector<jit::HostCompileRequest::Unit> units,
                                               const HostOptions &options, Diagnostics &diags) {
  auto compiler = jit::HostCompiler::open(diags);
  if (!compiler)
    return std::nullopt;
  jit::HostCompileRequest request;
  request.units = std::move(units);
  request.checked = options.checked;
  request.arch = options.arch;
  const char *quick = std::getenv("MEGALITH_HOST_QUICK");
  request.effort = options.quick ? jit::Effort::Least : quick && *quick ? jit::Effort::Less : jit::Effort::Full;
  for (const embedded::File &file : embedded::files())
    if (llvm::StringRef(file.name).ends_with(".cpp"))
      request.extraSources.push_back({file.name, file.text});
  request.headers = hostHeaders();
  if (options.edit)
    options.edit(request.headers);
  jit::KernelCache cache = jit::KernelCache::open(diags);
  auto result = jit::compileHostCached(*compiler, cache, request, diags);
  if (!result)
    return std::nullopt;
  return HostKernel{result->path, result->milliseconds, result->cacheHit, result->how};
}

std::optional<HostKernel> assembleHostText(const std::string &cuda, const std::string &fileName,
                                           const HostOptions &options, Diagnostics &diags) {
  return assembleUnits({{cuda, fileName, ""}}, options, diags);
}

std::optional<HostKernel> assembleHost(const emit::Units &units, const HostOptions &options, Diagnostics &diags) {
  if (options.whole || units.isCall())
    return assembleHostText(wholeText(units), units.control.fileName, options, diags);
  std::vector<jit::HostCompileRequest::Unit> all = {{units.control.text, units.control.fileName, jit::kind::control},
                                                    {units.tensors.text, units.tensors.fileName, jit::kind::tensors}};
  if (units.wide)
    all.push_back({units.wide->text, units.wide->fileName, jit::kind::wide});
  if (units.more)
    all.push_back({units.more->text, units.more->fileName, jit::kind::tool});
  return assembleUnits(std::move(all), options, diags);
}

} // namespace megalith::driver
