#include "megalith/Jit/HostCompiler.h"
#include "CompileLog.h"
#include "megalith/Os/Process.h"
#include "megalith/Os/ReadFile.h"
#include "megalith/Os/Temporary.h"
#include "megalith/Os/WriteFile.h"
#include "megalith/Support/CodeWriter.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Program.h"
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

namespace fs = std::filesystem;
namespace json = llvm::json;

namespace megalith::jit {

//===----------------------------------------------------------------------===//
// The compiler
//===----------------------------------------------------------------------===//

/// The value of a predefined macro in `-E -dM` output, "" if it is not there.
static llvm::StringRef macro(llvm::StringRef dump, llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef> lines;
  dump.split(lines, '\n');
  for (llvm::StringRef line : lines)
    if (line.consume_front("#define ") && line.consume_front(name) && line.consume_front(" "))
      return line;
  return "";
}

std::string HostCompiler::probe(const std::string &path) {
  std::vector<std::string> command = {path, "-std=c++20", "-march=native", "-x", "c++", "-E", "-dM", "/dev/null"};
  native = true;
  os::ProcessResult macros = os::run(command);
  if (macros.status > 0) {
    native = false;
    command.erase(command.begin() + 2);
    macros = os::run(command);
  }
  if (macros.status < 0)
    return "it cannot be run: " + macros.error;
  llvm::StringRef firstLine = llvm::StringRef(macros.output).split('\n').first.trim();
  if (!macros.ok())
    return "it does not compile C++20: " + firstLine.str();
  clang = !macro(macros.output, "__clang__").empty();
  if (macro(macros.output, clang ? "__clang_major__" : "__GNUC__").getAsInteger(10, majorVersion))
    return "it is neither g++ nor clang++";
  os::ProcessResult version = os::run({path, "--version"});
  if (!version.ok())
    return "`--version` fails";
  file = path;
  versionLine = llvm::StringRef(version.output).split('\n').first.trim().str();
  identityText = path + '\n' + versionLine + '\n' + macros.output;
  return "";
}

std::optional<HostCompiler> HostCompiler::open(Diagnostics &diags) {
  const char *set = std::getenv("MEGALITH_HOST_CXX");
  std::vector<std::string> names = {"g++", "clang++", "c++"};
  if (set && *set)
    names = {set};
  std::vector<std::string> reasons;
  for (const std::string &name : names) {
    auto path = llvm::sys::findProgramByName(name);
    HostCompiler compiler;
    std::string why = path ? compiler.probe(*path) : "it was not found";
    if (why.empty())
      return compiler;
    if (path || names.size() == 1)
      reasons.push_back(fmt::format("`{}`: {}", path ? *path : name, why));
  }
  diags.report(Diag::HostCompilerNotFound, SourceLoc());
  for (const std::string &reason : reasons)
    diags.note(reason);
  if (set && *set)
    diags.note("`MEGALITH_HOST_CXX` is set, so that nothing else was tried");
  else
    diags.note("install g++ 11 or clang++ 14, or a newer one, or set `MEGALITH_HOST_CXX` to the path of one");
  return std::nullopt;
}

std::vector<std::string> HostCompiler::plainOptions(bool checked, int arch) const {
  std::vector<std::string> options = {"-std=c++20",
                                      "-fPIC",
                                      "-O2",
                                      "-g1",
                                      "-fvisibility=hidden",
                                      "-fno-omit-frame-pointer",
                                      "-w",
                                      fmt::format("-D__CUDA_ARCH__={}", arch),
                                      "-I."};
  // addr2line finds no names in clang's -g1 of DWARF 5.
  if (clang)
    options.push_back("-gdwarf-4");
  if (checked)
    options.push_back("-DMEGALITH_CPU_CHECKED=1");
  return options;
}

std::vector<std::string> HostCompiler::kernelOptions(bool checked, int arch, bool quick) const {
  std::vector<std::string> options = plainOptions(/*checked=*/false, arch); // that is a macro, of the hooks alone
  auto add = [&](std::initializer_list<const char *> more) { options.insert(options.end(), more.begin(), more.end()); };
  // Every f32 operation is rounded once, and words are read as other types.
  add({"-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing", "-fdiagnostics-color=never"});
  // An error in a generated line can come with many others: reportHostErrors counts them.
  add({clang ? "-ferror-limit=0" : "-fmax-errors=0"});
  if (!checked) {
    add({"-O2"});
    if (native)
      add({"-march=native"});
    return options;
  }
  // Most of the time goes into the calls before accesses, so that -O2 takes twice as long to
  // compile and runs as long. A jump to memcpy would hide who calls it.
  add({quick ? "-O0" : "-O1", "-fsanitize=thread", "-fno-optimize-sibling-calls"});
  if (clang) {
    // Accesses wider than 16 bytes are not instrumented, and vectorized loops have such.
    add({"-fno-vectorize", "-fno-slp-vectorize"});
    for (const char *option :
         {"-tsan-instrument-func-entry-exit=0", "-tsan-instrument-read-before-write=1", "-tsan-distinguish-volatile=1"})
      add({"-mllvm", option});
  } else {
    // Copies of a constant size would become moves that are not instrumented.
    add({"-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset",
         "--param=tsan-instrument-func-entry-exit=0"});
    // Merged code would carry the line of one of the places that it came from.
    add({"-fno-tree-tail-merge", "-fno-crossjumping", "-fno-ipa-icf"});
    if (majorVersion >= 11)
      add({"--param=tsan-distinguish-volatile=1"});
  }
  return options;
}

std::vector<std::string> HostCompiler::linkOptions(bool checked) const {
  // -z defs: a function without a body is an error here, not in the loader.
  std::vector<std::string> options = {"-shared", "-static-libgcc", "-Wl,-z,defs", "-Wl,--as-needed"};
  if (checked)
    options.push_back("-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset");
  return options;
}

//===----------------------------------------------------------------------===//
// A compilation
//===----------------------------------------------------------------------===//

/// Where it compiles.
namespace {
class WorkFolder : public os::TemporaryDirectory {
public:
  bool write(const std::string &name, const std::string &text) {
    std::error_code error;
    fs::create_directories(fs::path(*this / name).parent_path(), error);
    std::string why = error ? error.message() : os::writeFile(*this / name, text);
    if (!why.empty())
      failure = fmt::format("cannot write to `{}`: {}", path(), why);
    return why.empty();
  }
  std::string failure = error();
};
} // namespace

static std::vector<std::string> concat(std::initializer_list<std::vector<std::string>> lists) {
  std::vector<std::string> out;
  for (const auto &list : lists)
    out.insert(out.end(), list.begin(), list.end());
  return out;
}

/// Of the source in the compiler's directory: what a user calls it is no file name, nor an option.
static constexpr const char *kDiskName = "kernel.cu";

/// Compiles and links in `dir`, as `dir`/kernel.so. False, and reported, if it fails.
static bool build(const HostCompiler &compiler, const HostCompileRequest &request, WorkFolder &dir, std::string &log,
                  Diagnostics &diags) {
  auto fail = [&](const std::string &why) {
    diags.report(Diag::CpuCompile, SourceLoc(), why);
    return false;
  };
  if (!dir.failure.empty())
    return fail(dir.failure);
  for (const auto *files : {&request.headers, &request.extraSources})
    for (const Header &file : *files)
      if (!dir.write(file.name, file.text))
        return fail(dir.failure);
  if (!dir.write(kDiskName, "#line 1 " + CodeWriter::spelled(request.fileName) + "\n" + request.source))
    return fail(dir.failure);

  // Paths in the shared object are relative to the directory, which will be gone.
  os::ProcessOptions process;
  process.directory = process.temporary = dir.path();
  std::vector<std::string> map = {"-fdebug-prefix-map=" + dir.path() + "=."}, objects;
  auto compile = [&](const std::string &name, const std::vector<std::string> &options) {
    objects.push_back(fmt::format("{}.o", objects.size()));
    return std::make_unique<os::Process>(
        concat({{compiler.path()}, options, map, {"-x", "c++", "-c", name, "-o", objects.back()}}), process);
  };
  std::vector<std::unique_ptr<os::Process>> running;
  running.push_back(compile(kDiskName, compiler.kernelOptions(request.checked, request.arch, request.quick)));
  for (const Header &extra : request.extraSources)
    running.push_back(compile(extra.name, compiler.plainOptions(request.checked, request.arch)));

  auto good = [&](const os::ProcessResult &result) {
    log += result.output;
    if (result.ok())
      return true;
    // A compiler that was killed (out of memory) has said nothing of use.
    if (result.status < 0 || result.status >= 128)
      return fail(fmt::format("`{}` {}: {}", compiler.path(), result.status < 0 ? "cannot be run" : "was killed",
                              result.error));
    if (reportHostErrors(result.output, diags) == 0) {
      fail(fmt::format("`{}` ended with status {}", compiler.path(), result.status));
      noteSaid(result.output, diags);
    }
    return false;
  };
  bool ok = true;
  for (auto &each : running)
    ok = good(each->finish()) && ok;
  return ok &&
         good(os::run(concat({{compiler.path()}, compiler.linkOptions(request.checked), objects, {"-o", "kernel.so"}}),
                      process));
}

static std::string cacheKey(const HostCompiler &compiler, const HostCompileRequest &request) {
  std::vector<std::string> parts = {"cpu 1", compiler.identity(), request.fileName, request.source};
  for (const auto *files : {&request.headers, &request.extraSources}) {
    parts.push_back(std::to_string(files->size()));
    for (const Header &file : *files)
      parts.insert(parts.end(), {file.name, file.text});
  }
  return KernelCache::key(
      concat({parts, compiler.kernelOptions(request.checked, request.arch, request.quick),
              compiler.plainOptions(request.checked, request.arch), compiler.linkOptions(request.checked)}));
}

/// An entry may be whole and ours, and yet be of another system.
static bool canLoad(const std::string &sharedObject) {
  void *handle = dlopen(sharedObject.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle)
    dlclose(handle);
  return handle;
}

std::optional<HostCompileResult> compileHostCached(const HostCompiler &compiler, const KernelCache &cache,
                                                   const HostCompileRequest &request, Diagnostics &diags) {
  auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  HostCompileResult result;
  std::string key = cacheKey(compiler, request);
  if (auto entry = cache.loadEntry(key, ".so"); entry && canLoad(cache.loadPath(key, ".so"))) {
    result.path = cache.loadPath(key, ".so");
    result.log = entry->info.getString("log").value_or("").str();
    result.cacheHit = true;
    result.milliseconds = elapsed();
    return result;
  }

  auto dir = std::make_unique<WorkFolder>();
  if (!build(compiler, request, *dir, result.log, diags))
    return std::nullopt;
  result.milliseconds = elapsed();
  std::string reason;
  auto code = os::readRegularFile(*dir / "kernel.so", os::dataBytes, reason);
  if (!code) {
    diags.report(Diag::CpuCompile, SourceLoc(), fmt::format("cannot read `{}`: {}", *dir / "kernel.so", reason));
    return std::nullopt;
  }
  KernelCache::Entry entry{std::move(*code), json::Object{{"compiler", json::fixUTF8(compiler.version())},
                                                          {"checked", request.checked},
                                                          {"arch", request.arch},
                                                          {"milliseconds", result.milliseconds},
                                                          {"log", json::fixUTF8(result.log)}}};
  // A cache on a disk from which nothing may be run is of no use either.
  if (cache.storeEntry(key, ".so", std::move(entry), request.source, diags) && canLoad(cache.loadPath(key, ".so"))) {
    result.path = cache.loadPath(key, ".so");
  } else {
    static std::vector<std::unique_ptr<WorkFolder>> keptUntilExit;
    result.path = *dir / "kernel.so";
    keptUntilExit.push_back(std::move(dir));
  }
  return result;
}

} // namespace megalith::jit
