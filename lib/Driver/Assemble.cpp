#include "EmbeddedFiles.h"
#include "device/Shape.h"
#include "megalith/Driver/Compilation.h"
#include "megalith/Jit/KernelCache.h"
#include "megalith/Support/CodeWriter.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <set>

namespace megalith::driver {

/// Between two units of one text.
static std::string separator(const emit::Unit &next) {
  return "\n#line 1 " + CodeWriter::spelled(next.fileName) + "\n";
}

std::string wholeText(const emit::Units &units) {
  std::string text = units.control.text;
  for (const emit::Unit *unit :
       {&units.tensors, units.wide ? &*units.wide : nullptr, units.more ? &*units.more : nullptr})
    if (unit && !unit->text.empty())
      text += separator(*unit) + unit->text;
  return text;
}

/// An edited unit: `text`, which begins after `before` lines of the file `path`. `#line N "name"` resumes the
/// generated file's own numbers: after an edit they are this file's.
static emit::Unit editedUnit(const emit::Unit &emitted, llvm::StringRef text, size_t before, const std::string &path) {
  const std::string own = CodeWriter::spelled(path), resume = " " + CodeWriter::spelled(emitted.fileName);
  llvm::SmallVector<llvm::StringRef> lines;
  text.split(lines, '\n');
  emit::Unit unit{path, before ? fmt::format("#line {} {}\n", before + 1, own) : ""};
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("#line ") && lines[i].ends_with(resume))
      unit.text += fmt::format("#line {} {}", before + i + 2, own);
    else
      unit.text += lines[i];
    if (i + 1 < lines.size())
      unit.text += '\n';
  }
  return unit;
}

bool readEditedSource(const std::string &path, const emit::Units &emitted, emit::Units &units, Diagnostics &diags) {
  auto file = openSource(diags, path);
  if (!file)
    return false;
  std::string text = diags.sources().text(*file).str();
  text.erase(std::remove(text.begin(), text.end(), '\r'), text.end()); // an editor may have put them at line ends
  const auto lineOf = [&](size_t offset) { return size_t(std::count(text.begin(), text.begin() + offset, '\n')); };
  const auto refuse = [&](size_t offset, const std::string &why) {
    diags.report(Diag::NoUnit, {*file, uint32_t(lineOf(offset) + 1), 1}, why);
    return false;
  };
  struct Kind {
    const char *first, *include;
    const emit::Unit &emitted;
    emit::Unit &unit;
  };
  std::vector<Kind> kinds;
  if (emitted.isCall()) {
    kinds.push_back({emit::kCallUnit, "#include \"megalith/CallUnit.cuh\"", emitted.control, units.control});
  } else {
    kinds.push_back({emit::kControlUnit, "#include \"megalith/ControlUnit.cuh\"", emitted.control, units.control});
    kinds.push_back({emit::kTensorUnit, "#include \"megalith/TensorUnit.cuh\"", emitted.tensors, units.tensors});
  }
  if (const size_t at = text.find(emit::kWideUnit); at != std::string::npos && !emitted.wide)
    return refuse(at, "this kernel has no wide unit, for its passes do not run whole");
  if (emitted.wide)
    kinds.push_back({emit::kWideUnit, "#include \"megalith/WideUnit.cuh\"", *emitted.wide, *units.wide});
  struct Place {
    size_t offset;
    const Kind *kind;
  };
  std::vector<Place> places;
  for (const Kind &kind : kinds)
    for (size_t at = text.find(kind.first); at != std::string::npos; at = text.find(kind.first, at + 1))
      if (at == 0 || text[at - 1] == '\n')
        places.push_back({at, &kind});
  llvm::sort(places, [](const Place &a, const Place &b) { return a.offset < b.offset; });
  std::string lines = "a unit begins with the line";
  for (size_t i = 0; i < kinds.size(); ++i)
    lines += fmt::format("{} `{}`", i == 0 ? "" : i + 1 < kinds.size() ? "," : " or", kinds[i].first);
  if (places.empty()) {
    refuse(0, "it has no unit of a kernel");
    diags.note(lines);
    return false;
  }
  for (size_t i = 0; i < places.size(); ++i)
    for (size_t before = 0; before < i; ++before)
      if (places[i].kind == places[before].kind)
        return refuse(places[i].offset, "it has two units of one kind");
  for (size_t i = 0; i < places.size(); ++i) {
    const Kind &kind = *places[i].kind;
    const bool isFirst = i == 0, isLast = i + 1 == places.size();
    const size_t begin = isFirst ? 0 : places[i].offset, end = isLast ? text.size() : places[i + 1].offset;
    llvm::StringRef part = llvm::StringRef(text).substr(begin, end - begin);
    for (const Kind &other : kinds)
      if (const size_t at = &other == &kind ? llvm::StringRef::npos : part.find(other.include);
          at != llvm::StringRef::npos) {
        refuse(begin + at, "a second unit begins here, without its first line");
        diags.note(lines);
        return false;
      }
    if (!isLast)
      part.consume_back(separator(places[i + 1].kind->emitted));
    if (part == kind.emitted.text) // its code may be in the cache under its own name
      continue;
    if (kind.unit.fileName != kind.emitted.fileName)
      return refuse(places[i].offset,
                    fmt::format("`{}` has this unit, too, and another text of it", kind.unit.fileName));
    kind.unit = editedUnit(kind.emitted, part, isFirst ? 0 : lineOf(places[i].offset), path);
  }
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

/// What an emitted unit may include on a target, `cuda` or `cpu`.
static std::vector<jit::Header> headersFor(llvm::StringRef target) {
  std::vector<jit::Header> headers;
  for (const embedded::File &file : embedded::files())
    if (llvm::StringRef folder = file.folder;
        (folder == target || (folder != "cuda" && folder != "cpu")) && !llvm::StringRef(file.name).ends_with(".cpp"))
      headers.push_back(
          {(folder == "Contract" ? "megalith/Contract/" : "megalith/") + std::string(file.name), file.text});
  return headers;
}

std::vector<jit::Header> deviceHeaders() { return headersFor("cuda"); }
std::vector<jit::Header> hostHeaders() { return headersFor("cpu"); }

static jit::CompileRequest request(const emit::Unit &unit, const std::string &arch) {
  jit::CompileRequest request;
  request.source = unit.text;
  request.fileName = unit.fileName;
  request.arch = arch;
  request.headers = jit::headersOf(unit.text, deviceHeaders()); // code that others include is no part of the unit's key
  request.headers.push_back({"megalith/NoMacros.h", noMacros(unit.text)});
  request.options.push_back("--pre-include=megalith/NoMacros.h");
  return request;
}

static std::optional<jit::CompileResult> assembleWhole(const jit::Nvrtc &nvrtc, const jit::KernelCache &cache,
                                                       const std::string &cuda, const std::string &fileName,
                                                       const AssembleOptions &options, Diagnostics &diags) {
  const jit::CompileRequest whole = request({fileName, cuda}, options.arch);
  return options.needPtx ? jit::compileCuda(nvrtc, whole, diags) : jit::compileCached(nvrtc, cache, whole, diags);
}

std::optional<jit::CompileResult> assembleText(const std::string &cuda, const std::string &fileName,
                                               const AssembleOptions &options, Diagnostics &diags) {
  auto nvrtc = jit::Nvrtc::open(diags);
  if (!nvrtc)
    return std::nullopt;
  return assembleWhole(*nvrtc, jit::KernelCache::open(diags), cuda, fileName, options, diags);
}

/// For sm_8x, ptxas spills three times as much in a unit with `-ewp` as in a whole program (1B shape: 1,924 bytes of
/// stores, not 484). From sm_90 on the code is the same.
static bool takesUnits(llvm::StringRef arch) { return !arch.starts_with("sm_8"); }

/// The tensor unit has the entry. `-ewp` lets ptxas give registers to all functions that it calls but those of the
/// other unit, as it does in a whole program. The control unit's functions take no more registers than the entry has.
static std::vector<jit::CompileRequest> unitRequests(const emit::Units &units, const std::string &arch) {
  std::vector<jit::CompileRequest> requests = {request(units.control, arch), request(units.tensors, arch)};
  requests[0].unit = jit::kind::control;
  requests[0].options.push_back("--relocatable-device-code=true");
  requests[0].options.push_back(fmt::format("--maxrregcount={}", shape::registersOfThread()));
  requests[1].unit = jit::kind::tensors;
  requests[1].options.push_back("--ptxas-options=-ewp");
  const auto add = [&](const std::optional<emit::Unit> &unit, const char *kind) -> jit::CompileRequest & {
    requests.push_back(request(*unit, arch));
    requests.back().unit = kind;
    requests.back().options.push_back("--relocatable-device-code=true");
    return requests.back();
  };
  if (units.wide)
    add(units.wide, jit::kind::wide).options.push_back(fmt::format("--maxrregcount={}", shape::registersOfThread()));
  if (units.more)
    add(units.more, jit::kind::tool);
  return requests;
}

std::optional<jit::CompileResult> assemble(const emit::Units &units, const AssembleOptions &options,
                                           Diagnostics &diags) {
  auto nvrtc = jit::Nvrtc::open(diags);
  if (!nvrtc)
    return std::nullopt;
  const jit::KernelCache cache = jit::KernelCache::open(diags);
  const auto whole = [&] {
    return assembleWhole(*nvrtc, cache, wholeText(units), units.control.fileName, options, diags);
  };
  if (options.whole || units.isCall() || !takesUnits(options.arch))
    return whole();
  const std::vector<jit::CompileRequest> requests = unitRequests(units, options.arch);
  if (options.needPtx) {
    auto compiled = jit::sideBySide(
        requests.size(), [&](size_t i, Diagnostics &own) { return jit::compileCuda(*nvrtc, requests[i], own); }, diags);
    if (!compiled)
      return std::nullopt;
    jit::CompileResult all;
    for (jit::CompileResult &unit : *compiled) {
      all.ptx += unit.ptx;
      all.log += unit.log;
      all.kernels.insert(all.kernels.end(), unit.kernels.begin(), unit.kernels.end());
      all.milliseconds = std::max(all.milliseconds, unit.milliseconds);
    }
    all.how = "compiled";
    return all;
  }
  std::string why;
  std::unique_ptr<jit::Linker> own;
  if (!options.linker)
    own = jit::openNvJitLink(nvrtc->path(), why);
  const jit::Linker *linker = options.linker ? options.linker : own.get();
  if (!linker) {
    diags.report(Diag::NotLinked, {}, "nvJitLink, NVIDIA's linker, was not found");
    diags.note("`pip install nvidia-nvjitlink`, or set `MEGALITH_NVJITLINK` to the path of a libnvJitLink.so; "
               "`--whole-kernel` asks for one unit: " +
               why);
    return whole();
  }
  why.clear();
  auto linked = jit::compileLinked(*nvrtc, cache, *linker, requests, why, diags);
  if (linked || why.empty())
    return linked;
  diags.report(Diag::NotLinked, {}, linker->identity() + " cannot link them");
  diags.note("it said: " + why);
  return whole();
}

} // namespace megalith::driver
