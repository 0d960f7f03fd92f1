#include "ProgramCommand.h"
#include "megalith/Os/ReadFile.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include <unistd.h>

namespace megalith::tool {

using llvm::StringRef;

static const char *const standardInput = "<stdin>";

/// All of the standard input. nullopt after an error.
static std::optional<std::string> readStandardInput(uint64_t most, Diagnostics &diags) {
  std::string reason;
  auto text = os::readDescriptor(STDIN_FILENO, most, reason);
  if (!text)
    diags.report(Diag::CannotReadFile, {}, standardInput, reason);
  return text;
}

Expected<std::vector<Request>> readRequests(const Program &program, const std::string &path, Diagnostics &diags) {
  if (path != "-")
    return program.readRequests(path);
  auto text = readStandardInput(os::dataBytes, diags);
  if (!text)
    return Messages();
  return program.parseRequests(*text, standardInput);
}

/// "sm_90a" -> 900, as __CUDA_ARCH__ has it.
static Value architecture(std::string &arch, int &cpuArch) {
  return {.form = "sm_XX", .take = [&](StringRef text) {
            arch = text.str();
            unsigned number = 0;
            if (!text.consume_front("sm_") || text.consumeInteger(10, number) ||
                (!text.empty() && text != "a" && text != "f") || number > 10000)
              return "expected sm_80, sm_90a or the like";
            cpuArch = int(number) * 10;
            return number < 80 ? "the kernel needs compute capability 8.0 or more" : "";
          }};
}

ProgramCommand::ProgramCommand(const About &about) : Command(about) {
  add("set", pairs(compile.params, "param=value"), "Give a param of the file another value");
  add("device-profile", text(compile.profile, "name"),
      "Device to plan for: h200, h100, a100, b200, cpu (compile: one of --arch, or h200; run: the GPU that is there, "
      "or "
      "cpu)");
  add("accept", texts(compile.accept, "key"),
      "Take a key of config.json, or a tensor ({i}: any number), that the model file does not understand, on your "
      "word; "
      "all outputs say so");
}

void ProgramCommand::addModels() {
  add("model", models(compile.models, "DIR"),
      "Checkpoint (config.json, model.safetensors) of the pipeline's model NAME; without NAME of every model that has "
      "none of its own");
}

void ProgramCommand::addTokenBytes() {
  add("token-bytes", inputFile(text(compile.tokenBytes, "file")),
      "What tokens spell, for requests with a `format`: lines of bytes in base64, a blank and the token's number; "
      "`python "
      "-m megalith token-bytes DIR` writes them");
}

void ProgramCommand::addKernel(bool &wholeKernel) {
  add("plan", texts(compile.plan, "key=value"),
      "Tune the plan: ctas, ring, flight, lend, chunk, operands, order, edges, spare, passes, stamps, wide; never "
      "changes a "
      "result");
  add("whole-kernel", flag(wholeKernel),
      "Compile the kernel in one unit, and not in two that are linked: it runs the same, but an edit compiles all of "
      "it");
  add("arch", architecture(arch, cpuArch),
      "Architecture of ptx and cubin, and on cpu whose variant of the device code runs: sm_80, sm_90a (default), "
      "sm_100a, ...");
}

void ProgramCommand::addEdits(std::vector<std::string> &cuFiles) {
  add("ir", inputFile(text(compile.irFile, "file")),
      "Start from this IR, printed by --stop-after and edited, in place of the YAML's");
  add("print-after-all", flag(compile.printAfterAll), "Print the IR after each pass, to stderr");
  add("time-passes", flag(compile.timePasses), "Print the time of each pass, to stderr");
  add("cu", inputFile(texts(cuFiles, "file")),
      "Compile the units that this edited file holds, one or several, in place of the emitted ones");
}

void ProgramCommand::addLoop(Control &control, int64_t &ticksPerLaunch) {
  add("control",
      choice(control,
             {{Control::Resident, "resident", "the kernel, which is launched once"},
              {Control::Host, "host", "the host: a launch, a wait, and tokens and states read back for each tick"},
              {Control::Graph, "graph", "the host, which launches a CUDA graph for each tick"}}),
      "Who keeps the loop (default: resident). The results are the same");
  add("ticks-per-launch", number(ticksPerLaunch, "n", 1, INT32_MAX),
      "End a launch after n ticks and launch again (default: resident never, host and graph 1)");
}

bool ProgramCommand::findPipeline(std::string &file, Diagnostics &diags) {
  if (file == "-") {
    auto text = readStandardInput(os::sourceBytes, diags);
    if (!text)
      return false;
    file = standardInput;
    compile.texts[file] = std::move(*text);
    return true;
  }
  const bool exists = llvm::sys::fs::exists(file) && !llvm::sys::fs::is_directory(file);
  if (file.empty() || StringRef(file).contains('/'))
    return true; // an error of reading it tells the rest
  const auto shipped = tools::shippedPipelines();
  const auto found = shipped.find(file);
  if (found != shipped.end()) {
    if (exists)
      diags.report(Diag::PipelineShadowed, {}, file);
    else
      file = found->second;
    return true;
  }
  if (llvm::sys::fs::exists(file) ||
      (StringRef(file).contains('.') && !shipped.count(StringRef(file).split(".yaml").first.str())))
    return true;
  const StringRef stem = StringRef(file).ends_with(".yaml") ? StringRef(file).drop_back(5) : StringRef(file);
  std::vector<std::string> names;
  for (const auto &[name, path] : shipped)
    names.push_back(name);
  const std::string near = shipped.count(stem.str()) ? stem.str() : nearestName(stem, names);
  badOption(diags, file, "there is no such file, and no pipeline of this name comes with megalith");
  if (!near.empty())
    diags.note("did you mean `" + near + "`?");
  else if (!names.empty())
    diags.note("it has " + llvm::join(names, ", "));
  return false;
}

bool ProgramCommand::run(Diagnostics &diags) {
  for (std::string &file : operands)
    if (!findPipeline(file, diags))
      return false;
  if (!operands.empty())
    compile.file = operands.front();
  compile.sink = [](const std::string &text) {
    llvm::errs() << (llvm::errs().is_displayed() ? text::printableLines(text) : text);
  };
  return runProgram(diags);
}

std::vector<NamedFile> ProgramCommand::inputs() const {
  std::vector<NamedFile> all = files(Value::Input);
  for (const std::string &file : operands)
    all.push_back({"FILE", file});
  return all;
}

bool ProgramCommand::checkArch(bool cpu, Diagnostics &diags) const {
  return cpu || !given("arch") ||
         badOption(diags, shown("arch"), "only `--device=cpu` runs another architecture's code");
}

} // namespace megalith::tool
