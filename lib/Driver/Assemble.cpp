#include "device/Shape.h"
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

/// Between two units of one text.
static std::string separator(const emit::Unit &next) {
  return "\n#line 1 " + CodeWriter::spelled(next.fileName) + "\n";
}

std::string wholeText(const emit::Units &units) {
  std::string text = units.control.text;
  for (const emit::Unit *unit : {&units.tensors, units.more ? &*units.more : nullptr})
    if (unit)
      text += separator(*unit) + unit->text;
  return text;
}

/// An edited unit: `text`, which begins behind `before` lines of the file `path`. `#line N "name"` resumes the
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

bool readEditedSource(const std::string &path, emit::Units &units, Diagnostics &diags) {
  auto file = openSource(diags, path);
  if (!file)
    return false;
  const llvm::StringRef text = diags.sources().text(*file);
  struct Place {
    emit::Unit *unit;
    size_t offset;
    size_t line; ///< from 0
  };
  std::vector<Place> places;
  for (const auto &[first, unit] : {std::pair(emit::kControlUnit, &units.control), {emit::kTensorUnit, &units.tensors}})
    for (size_t at = text.find(first); at != llvm::StringRef::npos; at = text.find(first, at + 1))
      if (at == 0 || text[at - 1] == '\n')
        places.push_back({unit, at, size_t(text.take_front(at).count('\n'))});
  llvm::sort(places, [](const Place &a, const Place &b) { return a.offset < b.offset; });
  if (places.empty()) {
    diags.report(Diag::NoUnit, {*file, 1, 1}, "it has no unit of a kernel");
    diags.note(fmt::format("a unit begins with the line `{}` or `{}`", emit::kControlUnit, emit::kTensorUnit));
    return false;
  }
  const emit::Units emitted = units;
  for (size_t i = 0; i < places.size(); ++i)
    for (size_t other = 0; other < i; ++other)
      if (places[other].unit == places[i].unit) {
        diags.report(Diag::NoUnit, {*file, uint32_t(places[i].line + 1), 1}, "it has two units of one kind");
        return false;
      }
  for (size_t i = 0; i < places.size(); ++i) {
    const bool isFirst = i == 0, isLast = i + 1 == places.size();
    const size_t begin = isFirst ? 0 : places[i].offset, end = isLast ? text.size() : places[i + 1].offset;
    llvm::StringRef part = text.substr(begin, end - begin);
    if (!isLast)
      part.consume_back(separator(places[i + 1].unit == &units.control ? emitted.control : emitted.tensors));
    // One that was not edited is the emitted one, whose code the cache may have.
    if (part != places[i].unit->text)
      *places[i].unit = editedUnit(*places[i].unit, part, isFirst ? 0 : places[i].line, path);
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

static jit::CompileRequest request(const emit::Unit &unit, const std::string &arch) {
  jit::CompileRequest request;
  request.source = unit.text;
  request.fileName = unit.fileName;
  request.arch = arch;
  std::vector<jit::Header> headers;
#define DEVICE_HEADER(Name, Symbol) headers.push_back({"megalith/" Name, embedded::Symbol});
#include "DeviceHeaders.def"
  request.headers = jit::headersOf(unit.text, headers); // code that others include is no part of the unit's key
  request.headers.push_back({"megalith/NoMacros.h", noMacros(unit.text)});
  request.options.push_back("--pre-include=megalith/NoMacros.h");
  return request;
}

std::optional<jit::CompileResult> assembleText(const std::string &cuda, const std::string &fileName,
                                               const AssembleOptions &options, Diagnostics &diags) {
  auto nvrtc = jit::Nvrtc::open(diags);
  if (!nvrtc)
    return std::nullopt;
  const jit::CompileRequest whole = request({fileName, cuda}, options.arch);
  if (!options.needPtx)
    return jit::compileCached(*nvrtc, jit::KernelCache::open(diags), whole, diags);
  auto compiled = jit::compileCuda(*nvrtc, whole, diags);
  return compiled ? std::optional(std::move(compiled->front())) : std::nullopt;
}

/// For sm_8x, ptxas spills three times as much in a unit with `-ewp` as in a whole program (1B shape: 1,924 bytes of
/// stores, not 484). From sm_90 on the code is the same.
static bool takesUnits(llvm::StringRef arch) { return !arch.starts_with("sm_8"); }

/// The tensor unit has the entry. `-ewp` lets ptxas give registers to all functions that it calls but those of the
/// other unit, as it does in a whole program. The control unit's functions take no more registers than the entry has.
static std::vector<jit::CompileRequest> unitRequests(const emit::Units &units, const std::string &arch) {
  std::vector<jit::CompileRequest> requests = {request(units.control, arch), request(units.tensors, arch)};
  requests[0].unit = "control unit";
  requests[0].options.push_back("--relocatable-device-code=true");
  requests[0].options.push_back(fmt::format("--maxrregcount={}", shape::registersOfThread()));
  requests[1].unit = "tensor unit";
  requests[1].options.push_back("--ptxas-options=-ewp");
  if (units.more) {
    requests.push_back(request(*units.more, arch));
    requests[2].unit = "unit of the tool";
    requests[2].options.push_back("--relocatable-device-code=true");
  }
  return requests;
}

std::optional<jit::CompileResult> assemble(const emit::Units &units, const AssembleOptions &options,
                                           Diagnostics &diags) {
  const auto whole = [&] { return assembleText(wholeText(units), units.control.fileName, options, diags); };
  if (options.whole || !takesUnits(options.arch))
    return whole();
  auto nvrtc = jit::Nvrtc::open(diags);
  if (!nvrtc)
    return std::nullopt;
  const std::vector<jit::CompileRequest> requests = unitRequests(units, options.arch);
  if (options.needPtx) {
    auto compiled = jit::compileCuda(*nvrtc, requests, diags);
    if (!compiled)
      return std::nullopt;
    jit::CompileResult both = std::move((*compiled)[1]);
    both.ptx = compiled->front().ptx + both.ptx;
    return both;
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
  auto linked = jit::compileLinked(*nvrtc, jit::KernelCache::open(diags), *linker, requests, why, diags);
  if (linked || why.empty())
    return linked;
  diags.report(Diag::NotLinked, {}, linker->identity() + " cannot link them");
  diags.note("it said: " + why);
  return whole();
}

} // namespace megalith::driver
