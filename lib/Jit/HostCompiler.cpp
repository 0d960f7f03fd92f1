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
                                      "-ffp-contract=off", // every f32 operation is rounded once
                                      fmt::format("-D__CUDA_ARCH__={}", arch),
                                      "-I."};
  // addr2line finds no names in clang's -g1 of DWARF 5.
  if (clang)
    options.push_back("-gdwarf-4");
  if (checked)
    options.push_back("-DMEGALITH_CPU_CHECKED=1");
  return options;
}

std::vector<std::string> HostCompiler::kernelOptions(bool checked, int arch, Effort effort) const {
  std::vector<std::string> options = plainOptions(/*checked=*/false, arch); // that is a macro, of the hooks alone
  auto add = [&](std::initializer_list<const char *> more) { options.insert(options.end(), more.begin(), more.end()); };
  // Words are read as other types.
  add({"-fno-math-errno", "-fno-strict-aliasing", "-fdiagnostics-color=never"});
  // An error in a generated line can come with many others: reportHostErrors counts them.
  add({clang ? "-ferror-limit=0" : "-fmax-errors=0"});
  if (!checked) {
    if (effort == Effort::Less && !clang)
      add({"-Og", "-ftree-sra"});
    else
      add({effort == Effort::Full ? "-O2" : effort == Effort::Less ? "-O1" : "-O0"});
    if (native)
      add({"-march=native"});
    return options;
  }
  // Most of the time goes into the calls before accesses, so that -O2 takes twice as long to
  // compile and runs as long. A jump to memcpy would hide who calls it.
  if (effort == Effort::Least)
    add({"-O0"});
  else if (effort == Effort::Less && !clang) // structs are copied member by member
    add({"-Og", "-ftree-sra"});
  else
    add({"-O1"});
  add({"-fsanitize=thread", "-fno-optimize-sibling-calls"});
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

/// All that an object depends on.
static std::string objectKey(const HostCompiler &compiler, const HostCompileRequest &request, const std::string &name,
                             const std::string &source, const std::vector<std::string> &options) {
  const std::vector<Header> headers = headersOf(source, request.headers);
  std::vector<std::string> parts = {"cpu 2", compiler.identity(), name, source, std::to_string(headers.size())};
  for (const Header &file : headers)
    parts.insert(parts.end(), {file.name, file.text});
  return KernelCache::key(concat({parts, options}));
}

/// Compiles a request's sources and links them.
namespace {
class Build {
public:
  Build(const HostCompiler &compiler, const KernelCache &cache, const HostCompileRequest &request, Diagnostics &diags)
      : compiler(compiler), cache(cache), request(request), diags(diags) {
    const std::vector<std::string> kernel = compiler.kernelOptions(request.checked, request.arch, request.effort),
                                   plain = compiler.plainOptions(request.checked, request.arch);
    const auto add = [&](const std::string &name, const std::string &disk, const std::string &source,
                         const std::vector<std::string> &options) {
      objects.push_back({name, disk, source, options, objectKey(compiler, request, disk, source, options)});
    };
    // On disk they have names of ours: what a user calls a file is no file name, nor an option. Linkers show them.
    for (const HostCompileRequest::Unit &unit : request.units)
      add(unit.name, unit.name.empty() ? "kernel.cu" : llvm::join(llvm::split(unit.name, ' '), "_") + ".cu",
          "#line 1 " + CodeWriter::spelled(unit.fileName) + "\n" + unit.source, kernel);
    for (const Header &extra : request.extraSources)
      add("", extra.name, extra.text, plain);
  }

  std::string key() const {
    std::vector<std::string> parts = compiler.linkOptions(request.checked);
    for (const Object &object : objects)
      parts.push_back(object.key);
    return KernelCache::key(parts);
  }

  /// As `folder`/kernel.so. False, and reported, if it fails. `anew`: from sources alone.
  bool run(WorkFolder &folder, bool anew) {
    dir = &folder;
    fromCache = !anew;
    if (!dir->failure.empty())
      return fail(dir->failure);
    for (const Object &object : objects) // those of the keys, and no other
      for (const Header &file : headersOf(object.source, request.headers))
        if (!dir->write(file.name, file.text))
          return fail(dir->failure);
    // Paths in the shared object are relative to the directory, which will be gone.
    process.directory = process.temporary = dir->path();
    if (!compileMissing())
      return false;
    std::vector<std::string> files;
    for (size_t i = 0; i < objects.size(); ++i)
      files.push_back(fileOf(i));
    const os::ProcessResult linked = os::run(
        concat({{compiler.path()}, compiler.linkOptions(request.checked), files, {"-o", "kernel.so"}}), process);
    log += linked.output;
    return linked.ok() || (wasKilled(linked) ? fail(howItEnded(linked)) : rejected(linked.output, linked.status));
  }

  /// What is linked already: the next edit needs some of the objects again.
  void use() const {
    for (const Object &object : objects)
      cache.use(object.key, ".o");
  }

  std::string log;
  /// Which units were compiled.
  std::string how() const {
    std::vector<std::string> compiled;
    for (const Object &object : objects)
      if (object.compiled && !object.name.empty())
        compiled.push_back(object.name);
    return request.units.size() > 1 ? howMade(request.units.size(), compiled) : "compiled";
  }

private:
  struct Object {
    std::string name; ///< of a unit
    std::string disk, source;
    std::vector<std::string> options;
    std::string key;
    bool compiled = false;
  };
  static std::string fileOf(size_t i) { return fmt::format("{}.o", i); }

  bool fail(const std::string &why) {
    diags.report(Diag::CpuCompile, SourceLoc(), why);
    return false;
  }

  /// A compiler that was killed (out of memory) has said nothing of use.
  static bool wasKilled(const os::ProcessResult &result) { return result.status < 0 || result.status >= 128; }
  std::string howItEnded(const os::ProcessResult &result) const {
    return fmt::format("`{}` {}: {}", compiler.path(), result.status < 0 ? "cannot be run" : "was killed",
                       result.error);
  }
  /// False, with the errors of what compilers or the linker said.
  bool rejected(const std::string &said, int status) {
    if (reportHostErrors(said, diags) == 0) {
      fail(fmt::format("`{}` ended with status {}", compiler.path(), status));
      noteSaid(said, diags);
    }
    return false;
  }

  /// Takes an object out of the cache.
  bool take(size_t i) {
    auto entry = fromCache ? cache.loadEntry(objects[i].key, ".o") : std::nullopt;
    return entry && dir->write(fileOf(i), entry->code);
  }

  std::unique_ptr<os::Process> start(size_t i) {
    const Object &object = objects[i];
    return std::make_unique<os::Process>(concat({{compiler.path()},
                                                 object.options,
                                                 {"-fdebug-prefix-map=" + dir->path() + "=."},
                                                 {"-x", "c++", "-c", object.disk, "-o", fileOf(i)}}),
                                         process);
  }

  /// All objects that the cache lacks, side by side: the small ones first, each for others to take as soon as it is
  /// made. All processes lock in this one order.
  bool compileMissing() {
    std::vector<size_t> missing;
    for (size_t i = 0; i < objects.size(); ++i)
      if (!take(i))
        missing.push_back(i);
    llvm::sort(missing, [&](size_t a, size_t b) {
      return std::pair(objects[a].source.size(), objects[a].key) < std::pair(objects[b].source.size(), objects[b].key);
    });
    struct Running {
      size_t object;
      std::unique_ptr<KernelCache::Making> making;
      std::unique_ptr<os::Process> process;
    };
    std::vector<Running> running;
    for (size_t i : missing) {
      auto making = std::make_unique<KernelCache::Making>(cache, objects[i].key);
      if (take(i))
        continue;
      if (!dir->write(objects[i].disk, objects[i].source))
        return fail(dir->failure);
      running.push_back({i, std::move(making), start(i)});
    }
    int status = 0;
    std::string wrong; // what they said, told together: what is wrong with a header is wrong with each
    for (Running &each : running) {
      const os::ProcessResult result = each.process->finish();
      log += result.output;
      if (result.ok())
        store(each.object, result.output);
      else if (wasKilled(result))
        return fail(howItEnded(result));
      else
        wrong += result.output, status = result.status;
      each.making.reset();
    }
    return status == 0 || rejected(wrong, status);
  }

  void store(size_t i, const std::string &said) {
    Object &object = objects[i];
    object.compiled = true;
    std::string reason;
    if (auto code = os::readRegularFile(*dir / fileOf(i), os::dataBytes, reason))
      cache.storeEntry(object.key, ".o",
                       {std::move(*code), json::Object{{"compiler", json::fixUTF8(compiler.version())},
                                                       {"checked", request.checked},
                                                       {"arch", request.arch},
                                                       {"log", json::fixUTF8(said)}}},
                       object.source, diags);
  }

  const HostCompiler &compiler;
  const KernelCache &cache;
  const HostCompileRequest &request;
  WorkFolder *dir = nullptr; ///< where it compiles
  Diagnostics &diags;
  std::vector<Object> objects;
  bool fromCache = true;
  os::ProcessOptions process;
};
} // namespace

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
  Build build(compiler, cache, request, diags);
  const std::string key = build.key();
  const auto cached = cache.loadEntry(key, ".so");
  if (cached && canLoad(cache.loadPath(key, ".so"))) {
    build.use();
    result.path = cache.loadPath(key, ".so");
    result.log = cached->info.getString("log").value_or("").str();
    result.cacheHit = true;
    result.how = "taken from the kernel cache";
    result.milliseconds = elapsed();
    return result;
  }

  auto dir = std::make_unique<WorkFolder>();
  bool built = build.run(*dir, /*anew=*/false);
  if (built && cached && !canLoad(*dir / "kernel.so")) // the objects are of another system, too
    built = build.run(*dir, /*anew=*/true);
  if (!built)
    return std::nullopt;
  result.log = build.log;
  result.how = build.how();
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
  std::string text;
  for (const HostCompileRequest::Unit &unit : request.units)
    text += unit.source;
  if (cache.storeEntry(key, ".so", std::move(entry), text, diags) && canLoad(cache.loadPath(key, ".so"))) {
    result.path = cache.loadPath(key, ".so");
  } else {
    static std::vector<std::unique_ptr<WorkFolder>> keptUntilExit;
    result.path = *dir / "kernel.so";
    keptUntilExit.push_back(std::move(dir));
  }
  return result;
}

} // namespace megalith::jit
