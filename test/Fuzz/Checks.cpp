#include "Fuzz.h"
#include "megalith/IR/Buffers.h"
#include "megalith/IR/Text.h"
#include "megalith/Reference/Buffers.h"
#include "megalith/Text/Text.h"
#include "megalith/Transforms/Passes.h"
#include "runtime/Manifest.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>

namespace megalith::fuzz {

void finding(const std::string &what) {
  fmt::print(stderr, "\nFINDING: {}\n", what);
  std::abort();
}

namespace {
struct Scratch {
  std::string path;
  Scratch() {
    path = (std::filesystem::temp_directory_path() / "megalith-fuzz-XXXXXX").string();
    if (!mkdtemp(path.data()))
      finding("no folder below " + path);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};
} // namespace

const std::string &scratch() {
  static const Scratch folder;
  return folder.path;
}

std::string writeScratch(const std::string &name, std::string_view bytes) {
  const std::string path = scratch() + "/" + name;
  std::ofstream out(path, std::ios::binary);
  if (!out) { // its folder, the first time
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    out.open(path, std::ios::binary);
  }
  out.write(bytes.data(), bytes.size());
  out.close();
  if (!out)
    finding("cannot write " + path);
  return path;
}

// --- messages

namespace {

/// The first line of a message: `[FILE:LINE:COLUMN: ]WHAT: TEXT`.
struct Head {
  llvm::StringRef place, what, text;
};

std::optional<Head> readHead(llvm::StringRef line) {
  for (llvm::StringRef what : {"error", "warning", "note"}) {
    const std::string word = what.str() + ": ";
    if (line.starts_with(word))
      return Head{"", what, line.drop_front(word.size())};
    auto [place, text] = line.split(": " + word);
    // A message may quote another one; the place of a head has nothing but its numbers after it.
    if (place.size() < line.size() && llvm::isDigit(place.back()))
      return Head{place, what, text};
  }
  return std::nullopt;
}

/// Whether the line is one of the source, or the caret below it.
bool isExcerpt(llvm::StringRef line) { return line.ltrim(" 0123456789").starts_with("| "); }

/// `FILE:LINE:COLUMN` of a file of `files`, or what is wrong with it.
std::string checkPlace(llvm::StringRef place, SourceFiles &files) {
  auto [rest, columnText] = place.rsplit(':');
  auto [name, lineText] = rest.rsplit(':');
  unsigned line, column;
  if (lineText.getAsInteger(10, line) || columnText.getAsInteger(10, column))
    return "is no place";
  for (uint32_t file = 0; file < files.size(); ++file)
    if (text::printable(files.name(file)) == name) {
      const llvm::StringRef text = files.text(file);
      if (line == 0 || line > text.count('\n') + 1)
        return "names a line that its file does not have";
      if (column == 0 || column > files.line(file, line).size() + 1)
        return "names a column that its line does not have";
      return "";
    }
  return "names no file that was read";
}

/// An error of the command line has no place, and one of a checkpoint may have no more than its
/// file. Operations of IR text need not have one.
bool needsNoPlace(llvm::StringRef message, SourceFiles &files) {
  if (message.starts_with("`--") || message.contains("[unknown-profile]") ||
      message.contains("` is not given and stands for `")) // of a key that is not there
    return true;
  for (uint32_t file = 0; file < files.size(); ++file) {
    const std::string name = text::printable(files.name(file));
    if (message.starts_with(name) || name == "input.ir")
      return true;
  }
  return false;
}

} // namespace

bool hasError(const Diagnostics &diags, const char *kind) {
  llvm::SmallVector<llvm::StringRef> lines;
  const std::string all = diags.render(), end = std::string("[") + kind + "]";
  llvm::StringRef(all).split(lines, '\n');
  return llvm::any_of(lines, [&](llvm::StringRef line) { return !isExcerpt(line) && line.ends_with(end); });
}

void checkMessages(Diagnostics &diags, bool failed) {
  if (failed != diags.hasErrors())
    finding(failed ? "no result, and no error" : "a result beside errors:\n" + diags.render());
  const std::string all = diags.render();
  if (text::printableLines(all) != all)
    finding("a message that is not printable:\n" + text::printableLines(all));
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(all).split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef line : lines) {
    if (isExcerpt(line) || line.starts_with("... and "))
      continue;
    std::optional<Head> head = readHead(line);
    if (!head || head->text.trim().empty())
      finding(fmt::format("a message without a text: `{}` of\n{}", line.str(), all));
    if (head->place.empty() && head->what == "error" && !needsNoPlace(head->text, diags.sources()))
      finding(fmt::format("an error without a place:\n{}", all));
    if (!head->place.empty())
      if (std::string wrong = checkPlace(head->place, diags.sources()); !wrong.empty())
        finding(fmt::format("`{}` {}:\n{}", head->place.str(), wrong, all));
  }
}

void checkError(const FileError &error, std::string_view text) {
  if (error.kind.empty() || error.message.empty() || error.file.empty())
    finding(
        fmt::format("an error that lacks its kind, text or file: [{}] {}: {}", error.kind, error.file, error.message));
  SourceFiles files;
  Diagnostics diags(files);
  files.add(error.file, std::string(text));
  driver::reportCheckpoint(diags, error);
  checkMessages(diags, true);
}

// --- modules

/// Its text, which has to read back as the same.
static void checkPrints(const ir::Module &module, const char *when) {
  const std::string text = ir::print(module);
  SourceFiles files;
  Diagnostics diags(files);
  std::optional<ir::Module> back = ir::parse(diags, files.add("printed.ir", text));
  if (!back)
    finding(fmt::format("{}, the module's text cannot be read:\n{}", when, diags.render()));
  const std::string again = ir::print(*back);
  if (again == text)
    return;
  const size_t at = std::mismatch(text.begin(), text.end(), again.begin(), again.end()).first - text.begin();
  const size_t from = text.rfind('\n', at) + 1;
  finding(fmt::format("{}, the module's text reads back as another:\n{}\n{}", when, text.substr(from, 200),
                      again.substr(from, 200)));
}

ir::Module checkPasses(ir::Module module, Diagnostics &diags) {
  checkPrints(module, "before the passes");
  // One after the other, as runPasses does, to look at each result.
  bool ran = false;
  for (const transforms::PassInfo &pass : transforms::passes()) {
    if (!ran && module.after() != "lower" && !module.after().empty()) {
      ran = module.after() == pass.name;
      continue;
    }
    ran = true;
    module = pass.run(std::move(module));
    module.root.set<ir::attr::after>(std::string(pass.name));
    if (!ir::verify(module, diags))
      finding(fmt::format("what the pass `{}` made is not valid:\n{}", pass.name, diags.render()));
    checkPrints(module, fmt::format("after `{}`", pass.name).c_str());
  }
  return module;
}

/// What a call with small dims leaves in all buffers, and how it ends; nullopt where that would be much.
static std::optional<std::string> callOf(const ir::Module &module) {
  std::map<std::string, int64_t> dims;
  for (const ir::Operation *dim : module.all(ir::Op::Dim))
    dims[dim->name] = std::clamp<int64_t>(3, dim->get<ir::attr::least>(), dim->get<ir::attr::most>());
  const ir::CallShapes call = ir::shapesOf(module, dims);
  if (!call.error.empty())
    return call.error;
  std::map<std::string, std::string> memory;
  std::map<std::string, void *> buffers;
  for (const auto &[name, shape] : call.shapes) {
    int64_t bytes = ir::bytesOf(module.find(ir::Op::Buffer, name)->get<ir::attr::dtype>());
    for (int64_t size : shape)
      bytes *= size;
    if (bytes > 4096)
      return std::nullopt;
    std::string &data = memory[name];
    for (int64_t i = 0; i < bytes; ++i)
      data += static_cast<char>(i % 8 ? 0 : i / 8 % 5); // small numbers in elements of any type
    buffers[name] = data.data();
  }
  bool little = true; // ranges are as long as numbers are great
  for (const ir::Operation *items : module.all(ir::Op::Items))
    for (const ir::Region &region : items->regions)
      ir::walk(region, [&](const ir::Operation &op) {
        little = little && op.op != ir::Op::Mul && op.op != ir::Op::Exp && op.op != ir::Op::Pow;
        if (op.op == ir::Op::Const && module.type(op.result()).is(ir::Scalar::I32))
          little = little && std::abs(op.get<ir::attr::value>().whole()) <= 32;
      });
  if (!little)
    return std::nullopt;
  const auto fault = reference::runBuffers(module, call, buffers);
  std::string all = fault ? fmt::format("fault {} {}", fault->code, fault->numbers[0]) : "done";
  for (const auto &[name, data] : memory)
    all += "\n" + name + data;
  return all;
}

void checkModule(ir::Module lowered, const driver::CompileOptions &options, Diagnostics &diags) {
  if (ir::ofBuffers(lowered)) {
    const auto before = callOf(lowered);
    const ir::Module module = checkPasses(std::move(lowered), diags);
    if (!ir::verifyWhole(module, diags))
      finding("the passes made of a whole module one that is not:\n" + diags.render());
    if (before != callOf(module))
      finding("the passes change what a call gives:\n" + ir::print(module));
    return;
  }
  const std::optional<Trace> trace = traceOf(lowered);
  const ir::Module module = checkPasses(std::move(lowered), diags);
  if (!ir::verifyWhole(module, diags))
    finding("the passes made of a whole module one that is not:\n" + diags.render());
  if (trace)
    compareRuns(*trace, module);
  std::optional<plan::Plan> plan = driver::makePlan(module, options, diags);
  checkMessages(diags, !plan);
  if (!plan) {
    if (hasError(diags, "plan-invalid"))
      finding(diags.render());
    return;
  }
  plan::print(*plan);
  const driver::Source source = driver::emitSource(module, *plan, diags);
  checkMessages(diags, false);
  checkCode(driver::wholeText(source.units));
  if (auto manifest = runtime::Manifest::parse(source.manifest); !manifest)
    finding(fmt::format("the runtime cannot read the manifest: {}\n{}", manifest.error.message, source.manifest));
}

// --- code

void checkCode(std::string_view code) {
  const auto fail = [&](size_t at, const char *what) {
    const size_t begin = code.rfind('\n', at);
    const std::string_view line = code.substr(begin == code.npos ? 0 : begin + 1);
    finding(fmt::format("emitted code: {}: {}", what, text::printable(line.substr(0, line.find('\n')))));
  };
  std::string open;
  for (size_t i = 0; i < code.size();) {
    const char c = code[i];
    const std::string_view rest = code.substr(i);
    if (rest.starts_with("//")) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      if (text::printableLines(rest.substr(0, end)) != rest.substr(0, end))
        fail(i, "a comment with bytes that are not printable");
      if (rest[end - 1] == '\\')
        fail(i, "a comment that swallows the next line");
      i += end;
    } else if (c == '"') {
      for (++i; i < code.size() && code[i] != '"' && code[i] != '\n'; ++i)
        i += code[i] == '\\';
      if (i >= code.size() || code[i] == '\n')
        fail(i - 1, "a string that does not end");
      ++i;
    } else {
      if (c != '\n' && (c < ' ' || c > '~'))
        fail(i, "a byte that is no code");
      if (c == '(' || c == '[' || c == '{')
        open += c;
      if (c == ')' || c == ']' || c == '}') {
        const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
        if (open.empty() || open.back() != wanted)
          fail(i, "a bracket without its partner");
        open.pop_back();
      }
      ++i;
    }
  }
  if (!open.empty())
    finding("emitted code: a bracket is open at the end");
}

void readOptions(std::string_view input, std::string_view mark, driver::CompileOptions &options) {
  while (input.starts_with(mark)) {
    const size_t end = std::min(input.find('\n'), input.size());
    auto [option, value] = llvm::StringRef(input.substr(mark.size(), end - mark.size())).trim().split(' ');
    if (option == "--set") {
      auto [name, set] = value.split('=');
      options.sets.emplace_back(name.str(), set.str());
    } else if (option == "--plan") {
      options.planSettings.push_back(value.str());
    } else if (option == "--accept") {
      options.accept.push_back(value.str());
    } else if (option == "--device-profile") {
      options.profile = value.str();
    }
    input.remove_prefix(std::min(end + 1, input.size()));
  }
}

} // namespace megalith::fuzz
