#include "CheckPipeline.h"
#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/Driver/Compilation.h"
#include "megalith/Emit/Control.h"
#include "megalith/IR/Inputs.h"
#include "megalith/IR/Text.h"
#include "megalith/Jit/HostCompiler.h"
#include "megalith/Requests/Trace.h"
#include "megalith/Transforms/Passes.h"
#include "runtime/cpu/CpuEngine.h"
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <llvm/Support/FileSystem.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

namespace megalith::random_pipelines {
namespace fs = std::filesystem;

//===--- models -------------------------------------------------------------===//

static void write(const std::string &path, const std::string &text) { std::ofstream(path, std::ios::binary) << text; }

static std::string temporaryFolder() {
  llvm::SmallString<128> folder;
  if (std::error_code error = llvm::sys::fs::createUniqueDirectory("megalith-random", folder))
    throw std::runtime_error("no temporary folder: " + error.message());
  return std::string(folder);
}

/// A checkpoint of nearly normal numbers.
static void writeWeights(const std::string &path,
                         const std::vector<std::pair<std::string, std::vector<int64_t>>> &shapes) {
  std::mt19937_64 random(3);
  nlohmann::json header;
  std::string data;
  for (const auto &[name, shape] : shapes) {
    const size_t begin = data.size();
    int64_t count = 1;
    for (int64_t n : shape)
      count *= n;
    const double spread = shape.size() == 2 ? 3 / std::sqrt(static_cast<double>(shape[1])) : 0.1;
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int j = 0; j < 4; ++j)
        sum += static_cast<double>(random() >> 40) / (1 << 24) - 0.5;
      const uint16_t bits = floatToBf16(static_cast<float>((shape.size() == 1 ? 1 : 0) + spread * 1.7 * sum));
      data.append(reinterpret_cast<const char *>(&bits), 2);
    }
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string head = header.dump();
  head.resize((head.size() + 7) / 8 * 8, ' ');
  const uint64_t length = head.size();
  write(path, std::string(reinterpret_cast<const char *>(&length), 8) + head + data);
}

Models::Models() : root(temporaryFolder()) {
  fs::create_directories(folder(false));
  fs::create_directories(folder(true));
  const std::string config = fmt::format(R"({{"hidden": 32, "vocab": {}, "eos_token_id": 1)", kVocab);
  write(folder(false) + "/config.json", config + "}");
  write(folder(true) + "/config.json", config + R"(, "head_dim": 16, "layers": 1})");
  write(folder(false) + "/model.yaml", R"(model: flat
config: {hidden: hidden, vocab: vocab}
weights:
  embed: {shape: '[vocab, hidden]', from: embed}
  head: {shape: '[vocab, hidden]', from: head}
graph:
  - logits: matmul(embed[tokens], head)
)");
  write(folder(true) + "/model.yaml", R"(model: attends
config: {hidden: hidden, vocab: vocab, head_dim: head_dim, layers: layers}
weights:
  embed: {shape: '[vocab, hidden]', from: embed}
  head: {shape: '[vocab, hidden]', from: head}
  layer:
    norm: {shape: '[hidden]', from: 'norm.{i}'}
    q: {shape: '[hidden, hidden]', from: 'q.{i}'}
    k: {shape: '[head_dim, hidden]', from: 'k.{i}'}
    v: {shape: '[head_dim, hidden]', from: 'v.{i}'}
    o: {shape: '[hidden, hidden]', from: 'o.{i}'}
graph:
  - x: embed[tokens]
  - repeat: layer
    do:
      - h: rms_norm(x, norm, 1e-5)
      - x: x + matmul(attention(matmul(h, q), matmul(h, k), matmul(h, v)), o)
  - logits: matmul(x, head)
)");
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {{"embed", {kVocab, 32}}, {"head", {kVocab, 32}}};
  writeWeights(folder(false) + "/model.safetensors", shapes);
  shapes.insert(shapes.end(),
                {{"norm.0", {32}}, {"q.0", {32, 32}}, {"k.0", {16, 32}}, {"v.0", {16, 32}}, {"o.0", {32, 32}}});
  writeWeights(folder(true) + "/model.safetensors", shapes);
}

Models::~Models() {
  std::error_code ignored;
  fs::remove_all(root, ignored);
}

//===--- one pipeline -------------------------------------------------------===//

namespace {

class FileWeights : public reference::WeightSource {
public:
  explicit FileWeights(const SafetensorsFile &file) : file(file) {}
  const uint16_t *find(const std::string &, const std::string &name, std::vector<int64_t> &shape) override {
    const TensorView *tensor = file.find(name);
    if (!tensor)
      return nullptr;
    shape = tensor->shape;
    return reinterpret_cast<const uint16_t *>(tensor->data); // writeWeights aligns
  }

private:
  const SafetensorsFile &file;
};

class PipelineCheck {
public:
  PipelineCheck(uint64_t seed, const Models &models, const CheckOptions &options)
      : seed(seed), options(options), source(makePipeline(seed, options.wordy)), diags(files) {
    attends = (options.attends || source.samples) && source.positions <= 100000;
    folder = models.folder(attends);
    outcome.yaml = source.yaml;
  }

  Outcome run() {
    if (compile() && comparePasses() && plan() && options.run)
      runOnCpu();
    return std::move(outcome);
  }

private:
  static constexpr int64_t kMostTicks = 200;

  bool fail(std::string what) {
    outcome.failure = std::move(what);
    return false;
  }

  bool compile() {
    const std::string path = fmt::format("{}/p{}.yaml", folder, seed);
    write(path, source.yaml);
    driver::CompileOptions compile;
    compile.file = path;
    compile.models = {{"", folder}};
    compile.needWeights = true;
    compile.stopAfter = "lower";
    compilation = driver::compile(compile, diags);
    fs::remove(path);
    if (!compilation)
      return refused(path);
    outcome.accepted = true;
    return true;
  }

  /// Every error stands at a place in the file, and is no finding of what comes after the checks. False.
  bool refused(const std::string &path) {
    const std::string messages = diags.render();
    std::istringstream lines(messages);
    for (std::string line; std::getline(lines, line);) {
      const size_t word = line.find(": error: "), id = line.rfind('[');
      if (line.rfind("error: ", 0) == 0 || (word != std::string::npos && line.rfind(path + ":", 0) != 0))
        return fail("an error without a place in the file:\n" + messages);
      if (word == std::string::npos)
        continue;
      if (line.find("[ir-invalid]", id) != std::string::npos)
        return fail("the checks accept what the verifier does not:\n" + messages);
      if (outcome.refusal.empty())
        outcome.refusal = line.substr(id);
    }
    return outcome.refusal.empty() ? fail("refused without an error:\n" + messages) : false;
  }

  /// Control gives pages back below a window, whatever the model does. One that does not attend sees none of them.
  void giveWindow() {
    if (seed % 2 == 0 || attends)
      return;
    for (ir::Operation &op : module.root.region().ops)
      if (op.op == ir::Op::Model)
        op.set<ir::attr::kv_window>(int64_t(1 + seed / 2 % 24));
  }

  bool comparePasses() {
    module = std::move(compilation->module);
    giveWindow();
    bringInputs(source.requests, ir::inputsOf(module), seed);
    bringTimes(source.requests, seed);
    loops = hasLoopsOfCalls();
    std::optional<reference::RunResult> before;
    if (!loops && !(before = execute("lower")))
      return false;
    if (before && seed % 3 == 0) {
      std::vector<std::vector<int32_t>> generated;
      for (const reference::RequestResult &r : before->requests)
        generated.push_back(r.tokens);
      bringStops(source.requests, generated, seed);
      if (!(before = execute("lower")))
        return false;
    }
    for (const transforms::PassInfo &pass : transforms::passes()) {
      transforms::PassOptions passOptions;
      passOptions.stopAfter = pass.name;
      auto next = transforms::runPasses(std::move(module), passOptions, diags);
      if (!next)
        return fail(fmt::format("pass `{}` failed:\n{}", pass.name, diags.render()));
      module = std::move(*next);
      const std::string now = ir::print(module);
      Diagnostics reading(files);
      auto again = ir::parse(reading, files.add("printed.ir", now));
      if (!again || ir::print(*again) != now || !ir::verifyWhole(*again, reading))
        return fail(fmt::format("the text after `{}` does not read back:\n{}", pass.name, reading.render()));
      if (pass.name == std::string_view("form-ticks"))
        loops = false;
      if (loops)
        continue;
      auto after = execute(pass.name);
      if (!after)
        return false;
      if (!before) {
        before = std::move(after);
        continue;
      }
      if (std::string difference = compareTraces(before->trace, after->trace); !difference.empty())
        return fail(fmt::format("pass `{}` changed the trace: {}", pass.name, difference));
      before = std::move(after);
    }
    return true;
  }

  bool hasLoopsOfCalls() const {
    bool found = false;
    for (const ir::Operation *stage : module.all(ir::Op::Stage))
      ir::walk(stage->region(), [&](const ir::Operation &op) {
        if (op.op == ir::Op::For)
          ir::walk(op.regions.back(), [&](const ir::Operation &inner) { found |= inner.op == ir::Op::Call; });
      });
    return found;
  }

  reference::Options runOptions() const {
    reference::Options run;
    run.maxTicks = kMostTicks;
    run.shufflePages = seed;
    return run;
  }

  std::optional<reference::RunResult> execute(const std::string &pass) {
    FileWeights weights(*compilation->models[0].weights);
    auto result = reference::run(module, weights, source.requests, runOptions());
    if (!result.error.empty()) {
      fail(fmt::format("after `{}`: {}", pass, result.error));
      return std::nullopt;
    }
    if (!std::exchange(counted, true))
      for (const reference::RequestResult &r : result.requests) {
        outcome.tokens += static_cast<int64_t>(r.tokens.size());
        outcome.faults += r.finish == "fault";
        outcome.limits += r.finish == "limit";
      }
    outcome.passes += result.passes;
    return result;
  }

  bool plan() {
    for (const char *profile : {"cpu", "h200"}) {
      driver::CompileOptions compile;
      compile.profile = profile;
      Diagnostics planning(files);
      auto plan = driver::makePlan(module, compile, planning);
      if (!plan) {
        // What no device has room for is told at its line.
        const std::string text = planning.render();
        if (text.rfind(folder, 0) != 0)
          return fail(fmt::format("no plan for `{}`, and no line says why:\n{}", profile, text));
        const std::string first = text.substr(0, text.find('\n'));
        outcome.refusal = first.substr(first.rfind('['));
        return false;
      }
      driver::Source emitted = driver::emitSource(module, *plan, planning);
      if (std::string(profile) == "cpu")
        kernel = std::move(emitted);
      else
        outcome.units = std::move(emitted.units);
    }
    takeControl();
    return true;
  }

  /// The pipeline's own part of the source, with the record of shared memory and what is asserted of it.
  void takeControl() {
    CodeWriter w;
    emit::ControlOptions plain;
    plain.lineDirectives = false;
    emit::emitControl(w, module, &files, plain);
    const std::string &tensors = outcome.units.tensors.text;
    const size_t shared = tensors.find("using WeightRing"), end = tensors.find("reserves this much", shared);
    std::string control = w.text();
    for (size_t at = 0; (at = control.find("= ::controlPools::", at)) != std::string::npos;)
      control.insert(at + 2, fmt::format("p{}", seed));
    outcome.control = fmt::format("namespace p{} {{\n#line 1 \"p{}.cu\"\n{}\n{}\");\n}} // namespace\n", seed, seed,
                                  control, tensors.substr(shared, end - shared));
  }

  void runOnCpu() {
    auto built = driver::assembleHost(kernel.units, {}, diags);
    if (!built) {
      fail("the host's compiler rejects the source:\n" + diags.render());
      return;
    }
    auto engine = cpu::CpuEngine::load(built->path, kernel.manifest, *compilation->models[0].weights);
    if (!engine) {
      fail("the kernel is not loaded: " + engine.error.message);
      return;
    }
    runtime::RunOptions run;
    run.maxTicks = kMostTicks;
    run.shufflePages = seed;
    run.trace = true;
    run.watchdogSeconds = 0;
    run.ticksPerLaunch = int64_t(seed % 4); // 0: one launch
    auto result = (*engine)->run(source.requests, run);
    if (!result || result->launch.finding || result->run.stop) {
      fail("the CPU executor: " + (!result ? result.error.message : std::string("it found something")));
      return;
    }
    outcome.ran = true;
    // Logits of the two differ a little; the results that the kernel chose must be among the reference's best.
    reference::Options again = runOptions();
    again.replay = &result->run.trace;
    again.replayEpsilon = again.replayError = 0.1;
    FileWeights weights(*compilation->models[0].weights);
    auto replayed = reference::run(module, weights, source.requests, again);
    if (!replayed.mismatches.empty())
      fail("the reference has other logits than the CPU executor");
    else if (!replayed.replayDifference.empty())
      fail("reference and CPU executor differ: " + replayed.replayDifference);
  }

  uint64_t seed;
  const CheckOptions &options;
  RandomPipeline source;
  SourceFiles files;
  Diagnostics diags;
  bool attends = false;
  bool loops = false;   ///< the reference executor runs loops with calls after `form-ticks` only
  bool counted = false; ///< what the requests did
  std::string folder;
  std::optional<driver::Compilation> compilation;
  ir::Module module;
  driver::Source kernel;
  Outcome outcome;
};

} // namespace

Outcome checkPipeline(uint64_t seed, const Models &models, const CheckOptions &options) {
  return PipelineCheck(seed, models, options).run();
}

//===--- compilers ----------------------------------------------------------===//

std::string unitOf(const std::vector<std::pair<uint64_t, std::string>> &controls) {
  std::string unit =
      "#include \"megalith/Device.cuh\"\nnamespace abi = megalith::abi;\nusing namespace megalith::device;\n";
  for (const auto &[seed, text] : controls)
    unit += text;
  unit += "#line 1 \"entry.cu\"\nextern \"C\" __global__ void entry(const __grid_constant__ abi::LaunchParams p) {\n";
  for (const auto &[seed, text] : controls)
    unit += fmt::format(
        "  {{\n    p{0}::Shared &shared = *reinterpret_cast<p{0}::Shared *>(dynamicShared());\n"
        "    startControl(controlOfCta<p{0}::Control>(), p, shared.pass);\n    p{0}::controlTicks(threadIdx.x == 0);\n"
        "  }}\n",
        seed);
  return unit + "}\n";
}

std::string hostErrors(const std::string &text) {
  SourceFiles files;
  Diagnostics diags(files);
  auto compiler = jit::HostCompiler::open(diags);
  if (!compiler)
    return diags.render();
  const std::string folder = temporaryFolder();
  fs::create_directories(folder + "/megalith");
  for (const jit::Header &header : driver::hostHeaders()) {
    fs::create_directories(fs::path(folder + "/" + header.name).parent_path());
    write(folder + "/" + header.name, header.text);
  }
  write(folder + "/unit.cpp", text);
  std::string command = "cd " + folder + " && " + compiler->path();
  for (const std::string &option : compiler->kernelOptions(false, 900))
    command += " '" + option + "'";
  command += " -fsyntax-only unit.cpp 2>&1";
  std::string said;
  std::array<char, 4096> buffer;
  FILE *pipe = popen(command.c_str(), "r");
  while (pipe && std::fgets(buffer.data(), buffer.size(), pipe))
    said += buffer.data();
  const int status = pipe ? pclose(pipe) : -1;
  fs::remove_all(folder);
  return status == 0 ? "" : said.empty() ? "the compiler does not run" : said;
}

std::string cudaErrors(const std::string &text, const std::string &arch) {
  SourceFiles files;
  Diagnostics diags(files);
  auto compiled = driver::assembleText(text, "unit.cu", {.arch = arch, .needPtx = true}, diags);
  return compiled ? "" : diags.render();
}

} // namespace megalith::random_pipelines
