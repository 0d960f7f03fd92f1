#include "megalith/Jit/Compile.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace megalith::jit {

std::vector<std::string> defaultOptions(llvm::StringRef arch) {
  return {"--gpu-architecture=" + arch.str(), "--std=c++20", "-default-device",
          "--generate-line-info", "--ptxas-options=-v", "--split-compile=8"};
}

/// One of NVRTC's outputs, which all come as a size and a copy.
static std::string output(void *program, int (*size)(void *, size_t *),
                          int (*get)(void *, char *)) {
  size_t bytes = 0;
  if (size(program, &bytes) != 0 || bytes == 0)
    return "";
  std::string text(bytes, '\0');
  return get(program, text.data()) == 0 ? text : "";
}

/// Text comes with a terminating zero, a cubin does not.
static std::string textOutput(void *program, int (*size)(void *, size_t *),
                              int (*get)(void *, char *)) {
  std::string text = output(program, size, get);
  text.resize(std::min(text.size(), text.find('\0')));
  return text;
}

/// ptxas stays silent about some failures when it reports resources: too much
/// static shared memory shows only in the numbers.
static std::string whyWithoutError(const std::string &log, const char *code) {
  constexpr int sharedLimit = 48 * 1024;
  for (const KernelResources &kernel : parseResources(log))
    if (kernel.sharedBytes > sharedLimit)
      return fmt::format("kernel `{}` has {} bytes of static shared memory, {} is the most",
                         kernel.kernel, kernel.sharedBytes, sharedLimit);
  return fmt::format("{}: {}", code, log);
}

namespace {

/// ptxas writes some remarks about speed (C7510, C7520: `wgmma` in a function that is called) to the process's stderr, past NVRTC's
/// log. They are for who writes device code, not for who runs it: while this lives they are caught, and all else comes out behind it.
class WithoutRemarks {
public:
  WithoutRemarks() : text(std::tmpfile()), before(text ? dup(STDERR_FILENO) : -1) {
    if (before >= 0)
      dup2(fileno(text), STDERR_FILENO);
  }
  ~WithoutRemarks() {
    if (before >= 0) {
      dup2(before, STDERR_FILENO);
      close(before);
      std::rewind(text);
      char *line = nullptr; // names in it may be long
      size_t room = 0;
      while (getline(&line, &room, text) >= 0)
        if (!llvm::StringRef(line).starts_with("ptxas info"))
          std::fputs(line, stderr);
      std::free(line);
    }
    if (text)
      std::fclose(text);
  }
  WithoutRemarks(const WithoutRemarks &) = delete;
  WithoutRemarks &operator=(const WithoutRemarks &) = delete;

private:
  FILE *text;
  int before;
};

} // namespace

std::optional<CompileResult> compileCuda(const Nvrtc &nvrtc, const CompileRequest &request,
                                         Diagnostics &diags) {
  auto start = std::chrono::steady_clock::now();
  std::vector<const char *> headerTexts, headerNames, options;
  for (const Header &header : request.headers) {
    headerTexts.push_back(header.text.c_str());
    headerNames.push_back(header.name.c_str());
  }
  std::vector<std::string> allOptions = defaultOptions(request.arch);
  allOptions.insert(allOptions.end(), request.options.begin(), request.options.end());
  for (const std::string &option : allOptions)
    options.push_back(option.c_str());

  void *program = nullptr;
  int rc = nvrtc.nvrtcCreateProgram(&program, request.source.c_str(), request.fileName.c_str(),
                                    headerTexts.size(), headerTexts.data(), headerNames.data());
  if (rc != 0) {
    diags.report(Diag::CudaCompile, SourceLoc(), nvrtc.nvrtcGetErrorString(rc));
    return std::nullopt;
  }
  {
    WithoutRemarks quiet;
    rc = nvrtc.nvrtcCompileProgram(program, options.size(), options.data());
  }

  CompileResult result;
  result.log = textOutput(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog);
  if (rc == 0) {
    result.cubin = output(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN);
    result.ptx = textOutput(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX);
  }
  nvrtc.nvrtcDestroyProgram(&program);
  if (rc != 0) {
    if (reportErrors(result.log, diags) == 0)
      diags.report(Diag::CudaCompile, SourceLoc(),
                   whyWithoutError(result.log, nvrtc.nvrtcGetErrorString(rc)));
    return std::nullopt;
  }
  result.kernels = parseResources(result.log);
  result.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

} // namespace megalith::jit
