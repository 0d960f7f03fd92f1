#include "megalith/Jit/Compile.h"
#include "CompileLog.h"
#include "megalith/Os/Ending.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <unistd.h>

namespace megalith::jit {

std::vector<Header> headersOf(llvm::StringRef source, llvm::ArrayRef<Header> headers) {
  std::vector<Header> found;
  std::vector<bool> taken(headers.size());
  const auto scan = [&](llvm::StringRef text) {
    while (!text.empty()) {
      llvm::StringRef line;
      std::tie(line, text) = text.split('\n');
      line = line.ltrim();
      if (!line.consume_front("#") || !(line = line.ltrim()).consume_front("include"))
        continue;
      line = line.ltrim();
      if (!line.consume_front("\"") && !line.consume_front("<"))
        continue;
      const llvm::StringRef name = line.take_until([](char c) { return c == '"' || c == '>'; });
      for (size_t i = 0; i < headers.size(); ++i)
        if (!taken[i] && headers[i].name == name) {
          taken[i] = true;
          found.push_back(headers[i]);
        }
    }
  };
  scan(source);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string text = found[i].text; // not a reference: the list grows
    scan(text);
  }
  return found;
}

std::vector<std::string> defaultOptions(llvm::StringRef arch) {
  return {"--gpu-architecture=" + arch.str(),
          "--std=c++20",
          "-default-device",
          "--generate-line-info",
          "--ptxas-options=-v",
          "--split-compile=8"};
}

/// One of NVRTC's outputs, which all come as a size and a copy.
static std::string output(void *program, int (*size)(void *, size_t *), int (*get)(void *, char *)) {
  size_t bytes = 0;
  if (size(program, &bytes) != 0 || bytes == 0)
    return "";
  std::string text(bytes, '\0');
  return get(program, text.data()) == 0 ? text : "";
}

/// Text comes with a terminating zero, a cubin does not.
static std::string textOutput(void *program, int (*size)(void *, size_t *), int (*get)(void *, char *)) {
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
      return fmt::format("kernel `{}` has {} bytes of static shared memory, {} is the most", kernel.kernel,
                         kernel.sharedBytes, sharedLimit);
  return code;
}

namespace {

/// While NVRTC compiles, on any number of threads. ptxas writes some remarks about speed (C7510, C7520: `wgmma` in a
/// function that is called) to the process's stderr, past NVRTC's log. They are for who writes device code, not for who
/// runs it: they are caught here, and all else comes out after them. And there is code on which ptxas gives up by
/// ending the process: what it said comes out then, too, and the process ends as after an error.
class Compiling {
public:
  Compiling() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (running++ > 0)
      return;
    text = std::tmpfile();
    before = text ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0) : -1;
    if (before < 0)
      return;
    fcntl(fileno(text), F_SETFD, FD_CLOEXEC);
    dup2(fileno(text), STDERR_FILENO);
    caught = fileno(text), console = before;
    struct sigaction action = {};
    action.sa_handler = brokeDown;
    action.sa_flags = SA_NODEFER; // brokeDown() sees by itself that it broke down
    for (size_t i = 0; i < std::size(signals); ++i)
      sigaction(signals[i], &action, &handlers[i]);
  }
  ~Compiling() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (--running > 0)
      return;
    if (before >= 0) {
      for (size_t i = 0; i < std::size(signals); ++i)
        sigaction(signals[i], &handlers[i], nullptr);
      dup2(before, STDERR_FILENO);
      close(before);
      std::rewind(text);
      char *line = nullptr; // names in it may be long
      size_t room = 0;
      while (getline(&line, &room, text) >= 0)
        if (!llvm::StringRef(line).starts_with(remark))
          std::fputs(text::printableLines(line).c_str(), stderr);
      std::free(line);
    }
    if (text)
      std::fclose(text);
  }
  Compiling(const Compiling &) = delete;
  Compiling &operator=(const Compiling &) = delete;

private:
  static constexpr int signals[] = {SIGABRT, SIGSEGV};
  static constexpr llvm::StringLiteral remark = "ptxas info";
  static inline int caught = -1, console = -1; ///< descriptors: for the handler
  static inline std::mutex mutex;              ///< of what follows
  static inline int running = 0, before = -1;
  static inline FILE *text = nullptr;
  static inline struct sigaction handlers[std::size(signals)];

  static void print(llvm::StringRef what) {
    for (ssize_t written; !what.empty() && (written = write(console, what.data(), what.size())) > 0;)
      what = what.drop_front(size_t(written));
  }
  /// In any of NVRTC's threads, which may have left anything half done: system calls only. Several compilations may
  /// break down at once: the first one tells, and the others wait for the end.
  static void brokeDown(int) {
    static std::atomic<pid_t> first = 0;
    pid_t none = 0;
    const pid_t self = gettid();
    if (!first.compare_exchange_strong(none, self)) {
      if (none == self)
        _exit(1);
      for (;;)
        pause();
    }
    static char said[1 << 16];
    const ssize_t size = pread(caught, said, sizeof said, 0);
    print("error: the CUDA compiler broke down on the code [cuda-compile]\n");
    bool words = false;
    llvm::StringRef last; // of another compilation that said the same
    for (llvm::StringRef rest(said, size_t(std::max<ssize_t>(0, size))), line; !rest.empty();) {
      std::tie(line, rest) = rest.split('\n');
      if (line.empty() || line.starts_with(remark) || line == last)
        continue;
      words = true;
      last = line;
      print("note: it said: ");
      print(line);
      print("\n");
    }
    if (!words)
      print("note: it said nothing; other numbers with `--plan` or `--set`, or another NVRTC (`MEGALITH_NVRTC`) may go "
            "around it\n");
    os::endNow(1);
  }
};

} // namespace

std::optional<CompileResult> compileCuda(const Nvrtc &nvrtc, const CompileRequest &request, Diagnostics &diags) {
  const auto start = std::chrono::steady_clock::now();
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
  const std::string fileName = text::printable(request.fileName); // as `#line` has it
  int rc = nvrtc.nvrtcCreateProgram(&program, request.source.c_str(), fileName.c_str(), headerTexts.size(),
                                    headerTexts.data(), headerNames.data());
  if (rc != 0) {
    diags.report(Diag::CudaCompile, SourceLoc(), nvrtc.nvrtcGetErrorString(rc));
    return std::nullopt;
  }
  {
    Compiling compiling;
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
    if (reportErrors(result.log, diags) == 0) {
      diags.report(Diag::CudaCompile, SourceLoc(), whyWithoutError(result.log, nvrtc.nvrtcGetErrorString(rc)));
      noteSaid(result.log, diags);
    }
    return std::nullopt;
  }
  result.kernels = parseResources(result.log);
  result.how = "compiled";
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::string howMade(size_t units, llvm::ArrayRef<std::string> compiled) {
  if (compiled.size() == units)
    return "compiled";
  return compiled.empty() ? "linked" : llvm::join(compiled, " compiled, ") + " compiled";
}

std::optional<std::vector<CompileResult>>
sideBySide(size_t count, const std::function<std::optional<CompileResult>(size_t, Diagnostics &)> &make,
           Diagnostics &diags) {
  std::vector<std::optional<CompileResult>> made(count);
  std::vector<Messages> said(count);
  std::vector<std::exception_ptr> thrown(count);
  const auto work = [&](size_t i) {
    try {
      Diagnostics own(diags.sources());
      made[i] = make(i, own);
      said[i] = own.messages();
    } catch (...) {
      thrown[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < count; ++i)
      others.emplace_back(work, i);
    if (count > 0)
      work(0);
  }
  for (const std::exception_ptr &exception : thrown)
    if (exception)
      std::rethrow_exception(exception);
  std::set<std::string> told; // what is wrong with a header is wrong with each that includes it
  for (const Messages &messages : said)
    for (const Error &message : messages.list)
      if (told.insert(message.text).second)
        diags.adopt(message);
  std::vector<CompileResult> results;
  for (std::optional<CompileResult> &result : made) {
    if (!result)
      return std::nullopt;
    results.push_back(std::move(*result));
  }
  return results;
}

} // namespace megalith::jit
