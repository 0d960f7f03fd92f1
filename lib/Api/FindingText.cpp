#include "FindingText.h"
#include "megalith/Jit/Symbols.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include <dlfcn.h>
#include <map>

namespace megalith::api {

using jit::Frame;
namespace json = llvm::json;

namespace {

/// What the manifest says of functions and edges.
class Names {
public:
  explicit Names(const std::string &manifest) {
    llvm::Expected<json::Value> parsed = json::parse(manifest);
    if (!parsed) {
      llvm::consumeError(parsed.takeError());
      return;
    }
    const json::Object *root = parsed->getAsObject();
    if (!root)
      return;
    addFunctions(*root);
    if (const json::Array *list = root->getArray("edges"))
      for (const json::Value &value : *list)
        if (const json::Object *entry = value.getAsObject())
          edges.push_back(entry->getString("name").value_or("").str());
    rows = root->getInteger("rows_per_pass").value_or(0);
    if (const json::Array *list = root->getArray("models"))
      for (const json::Value &value : *list)
        if (const json::Object *model = value.getAsObject()) {
          addFunctions(*model);
          if (list->size() == 1) // a finding speaks of `workspace` without a model
            addBuffers(*model);
        }
  }

  /// "stage `verify`" or "phase `down`" of the frame's function; "" if it is neither.
  std::string part(const Frame &frame) const {
    auto it = functions.find(qualifiedName(frame.function));
    return it == functions.end() ? "" : it->second;
  }
  /// "`q` of layer 2, row 3" for a place in the workspace.
  std::string buffer(int64_t offset) const {
    if (rowBytes <= 0 || rows <= 0)
      return "";
    const int64_t row = offset / rowBytes % rows, place = offset % rowBytes;
    for (const auto &[name, begin, bytes, instances] : buffers)
      if (bytes > 0 && place >= begin && place < begin + bytes * instances)
        return fmt::format("`{}`{}, row {}", name,
                           instances > 1 ? fmt::format(" of layer {}", (place - begin) / bytes) : "", row);
    return "";
  }
  std::string edge(int number) const {
    if (number < 0)
      return "before the first edge";
    const std::string name = size_t(number) < edges.size() ? " `" + edges[number] + "`" : "";
    return fmt::format("last at edge {}{}", number, name);
  }

  /// `void phases::targetBodyDown<1>(int)` -> `phases::targetBodyDown`.
  static std::string qualifiedName(llvm::StringRef function) {
    std::string name; // the last word before the arguments, without those of templates
    int depth = 0;
    for (char c : function) {
      depth += c == '<';
      if (depth == 0 && c == '(')
        break;
      if (depth == 0)
        name = c == ' ' ? "" : name + c;
      depth -= c == '>';
    }
    return name;
  }
  /// `targetBodyDown`.
  static std::string baseName(llvm::StringRef function) {
    const std::string name = qualifiedName(function);
    return name.substr(name.rfind(':') + 1);
  }

private:
  /// The stages of the pipeline, or the phases of a model.
  void addFunctions(const json::Object &of) {
    if (const json::Array *list = of.getArray("functions"))
      for (const json::Value &value : *list)
        if (const json::Object *entry = value.getAsObject())
          functions[entry->getString("name").value_or("").str()] = entry->getString("what").value_or("").str();
  }
  /// Of the one model's workspace.
  void addBuffers(const json::Object &model) {
    rowBytes = model.getInteger("workspace_row_bytes").value_or(0);
    if (const json::Array *list = model.getArray("buffers"))
      for (const json::Value &value : *list)
        if (const json::Object *entry = value.getAsObject())
          buffers.push_back({entry->getString("name").value_or("").str(), entry->getInteger("offset").value_or(0),
                             entry->getInteger("bytes").value_or(0), entry->getInteger("instances").value_or(1)});
  }

  std::map<std::string, std::string> functions;
  std::vector<std::string> edges;
  struct Buffer {
    std::string name;
    int64_t begin, bytes, instances;
  };
  std::vector<Buffer> buffers;
  int64_t rowBytes = 0, rows = 0;
};

/// The inline chains of all parties, one run of the symbolizer per shared object.
std::vector<std::vector<Frame>> framesOf(const cpu::Finding &finding) {
  std::vector<std::vector<Frame>> frames(finding.parties.size());
  std::map<std::string, std::vector<std::pair<size_t, uint64_t>>> byObject;
  for (size_t i = 0; i < finding.parties.size(); ++i) {
    Dl_info info;
    const void *pc = finding.parties[i].place.pc;
    if (pc && dladdr(pc, &info) && info.dli_fname)
      byObject[info.dli_fname].push_back(
          {i, uint64_t(static_cast<const char *>(pc) - static_cast<const char *>(info.dli_fbase))});
  }
  for (auto &[object, wanted] : byObject) {
    std::vector<uint64_t> addresses;
    for (auto &[party, address] : wanted)
      addresses.push_back(address);
    auto found = jit::symbolize(object, addresses);
    for (size_t i = 0; i < wanted.size() && i < found.size(); ++i)
      frames[wanted[i].first] = found[i];
  }
  return frames;
}

/// The innermost frame that stands in one of the sources: a line of the YAML.
SourceLoc yamlLine(const std::vector<Frame> &frames, const SourceFiles &files) {
  for (const Frame &frame : frames)
    if (const auto file = frame.line ? files.named(frame.file) : std::nullopt) {
      llvm::StringRef text = files.line(*file, frame.line);
      SourceLoc loc;
      loc.file = *file;
      loc.line = frame.line;
      loc.column = uint32_t(text.size() - text.ltrim().size()) + 1;
      loc.length = uint32_t(std::max<size_t>(1, text.trim().size()));
      return loc;
    }
  return {};
}

/// The innermost function that is more than a built-in or a primitive.
const Frame *innermost(const std::vector<Frame> &frames) {
  const Frame *found = nullptr;
  for (const Frame &frame : frames) {
    const llvm::StringRef file = llvm::StringRef(frame.file);
    if (frame.function.empty())
      continue;
    if (!found)
      found = &frame;
    if (!file.ends_with("Cuda.h") && !file.ends_with("Primitives.cuh"))
      return &frame;
  }
  return found;
}

/// `what`, with the name of the buffer after a place in the workspace.
std::string withBuffer(std::string what, const Names &names) {
  const std::string mark = "`workspace` + ";
  size_t at = what.find(mark), end = at;
  if (at == std::string::npos)
    return what;
  for (end = at + mark.size(); end < what.size() && llvm::isDigit(what[end]); ++end)
    ;
  const std::string buffer = names.buffer(std::stoll(what.substr(at + mark.size(), end - at - mark.size())));
  return buffer.empty() ? what : what.insert(end, " (" + buffer + ")");
}

std::string describe(const cpu::Finding::Party &party, const std::vector<Frame> &frames, const Names &names) {
  const cpu::Place &place = party.place;
  std::string text = party.role;
  if (place.outside)
    text += ": the host";
  if (!place.host)
    text += fmt::format(": CTA {}, {} {} (warp {}, lane {})", place.cta,
                        party.alike > 1 ? fmt::format("{} threads, one of them", party.alike) : "thread", place.thread,
                        place.thread / 32, place.thread % 32);
  std::string part;
  for (const Frame &frame : frames)
    if (part.empty())
      part = names.part(frame);
  if (!part.empty())
    text += " in " + part;
  if (const Frame *found = innermost(frames)) {
    const Frame &inner = *found;
    text += fmt::format("{} `{}` ({}:{})", part.empty() ? " in" : ",", Names::baseName(inner.function),
                        llvm::StringRef(inner.file).rsplit('/').second.empty()
                            ? inner.file
                            : llvm::StringRef(inner.file).rsplit('/').second.str(),
                        inner.line);
  }
  if (!place.host)
    text += ", " + names.edge(place.edge);
  return text;
}

} // namespace

void reportFinding(const cpu::Finding &finding, const std::string &manifest, Diagnostics &diags) {
  const Names names(manifest);
  const auto frames = framesOf(finding);
  SourceLoc first;
  for (size_t i = 0; i < frames.size() && !first; ++i)
    first = yamlLine(frames[i], diags.sources());
  diags.report(Diag::CpuFinding, first, cpu::findingName(finding.kind), withBuffer(finding.what, names));
  for (size_t i = 0; i < finding.parties.size(); ++i)
    diags.note(yamlLine(frames[i], diags.sources()), describe(finding.parties[i], frames[i], names));
}

} // namespace megalith::api
