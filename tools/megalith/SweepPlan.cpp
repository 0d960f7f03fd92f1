#include "Measured.h"
#include "Report.h"
#include "Sweep.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <set>

namespace megalith::tool {

namespace {

/// `--vary`: values of a param, of one pipeline or (`pipeline` empty) of all.
struct Variation {
  std::string text, pipeline, param;
  std::vector<std::string> values;
};

class Planner {
public:
  Planner(const SweepCommand &command, Diagnostics &diags) : command(command), diags(diags) {}

  std::optional<SweepPlan> run() {
    if (!checkOptions() || !readVariations() || !checkProfiles())
      return std::nullopt;
    SweepPlan plan;
    if (command.device == Device::Cuda) {
      auto name = findGpu("`megalith sweep --device=cpu` counts ticks of the same kernel", diags);
      if (!name)
        return std::nullopt;
      plan.deviceName = *name;
    }
    if (!compileAll(plan) || !checkVariations(plan) || !checkDrafts(plan) || !checkRequests(plan))
      return std::nullopt;
    for (const Variation &variation : variations)
      if (!llvm::is_contained(plan.params, variation.param))
        plan.params.push_back(variation.param);
    addPoints(plan);
    plan.key = keyOf(plan);
    return plan;
  }

private:
  const SweepCommand &command;
  Diagnostics &diags;
  std::vector<Variation> variations;
  std::set<std::string> names; ///< of the pipelines
  std::set<std::string> models;

  bool bad(const std::string &option, const std::string &why) { return badOption(diags, option, why); }

  template <class T> bool once(const std::string &option, const std::vector<T> &values) {
    for (size_t i = 0; i < values.size(); ++i)
      if (std::count(values.begin(), values.begin() + i, values[i]))
        return bad(fmt::format("{} {}", option, values[i]), "it is given twice");
    return true;
  }

  bool checkOptions() {
    const bool reference = command.device == Device::Reference;
    const bool looped = llvm::any_of(command.controls, [](Control c) { return c != Control::Resident; });
    struct {
      bool wrong;
      const char *option, *why;
    } rules[] = {
        {command.configs.empty() && command.compile.models.empty(), "megalith sweep",
         "needs `--model=[NAME=]DIR`, or `--config=path` for random weights"},
        {!command.configs.empty() && !command.compile.models.empty(), "--config",
         "it asks for random weights, and `--model` for those of a checkpoint; give one of the two"},
        {!command.configs.empty() && reference, "--config",
         "the reference executor has no random weights; give it a checkpoint with `--model`, or choose another device"},
        {reference && looped, "--control", "only `--device=cuda` and `--device=cpu` launch a kernel"},
        {reference && command.ticksPerLaunch > 0, "--ticks-per-launch",
         "only `--device=cuda` and `--device=cpu` launch a kernel"},
        {reference && command.wholeKernel, "--whole-kernel", "only `--device=cuda` and `--device=cpu` run a kernel"},
        {command.device == Device::Cpu && llvm::is_contained(command.controls, Control::Graph), "--control graph",
         "only `--device=cuda` has CUDA graphs"},
    };
    for (const auto &rule : rules)
      if (rule.wrong)
        return bad(rule.option, rule.why);
    std::vector<std::string> controls;
    for (Control control : command.controls)
      controls.push_back(controlName(control));
    std::vector<NamedFile> read = command.inputs();
    for (const auto &[name, path] : command.configs)
      read.push_back({"--config", path});
    return once("--requests", command.requests) && once("--tokens", command.tokens) &&
           once("--context", command.contexts) && once("--control", controls) && once("FILE", command.operands) &&
           once("--acceptance", command.acceptance) && checkOutputs(command.files(Value::Output), read, diags);
  }

  bool readVariations() {
    for (const std::string &text : command.vary) {
      const auto [left, right] = llvm::StringRef(text).split('=');
      const auto [front, back] = left.split(':');
      const bool named = front.size() != left.size();
      Variation variation{text, named ? front.str() : "", named ? back.str() : left.str(), {}};
      llvm::SmallVector<llvm::StringRef> values;
      right.split(values, ',');
      for (llvm::StringRef value : values)
        variation.values.push_back(value.trim().str());
      if (variation.param.empty() || (named && variation.pipeline.empty()) ||
          llvm::any_of(variation.values, [](const std::string &value) { return value.empty(); }))
        return bad("--vary " + text, "expected `PARAM=a,b,...` or `PIPELINE:PARAM=a,b,...`");
      for (const auto &[name, value] : command.compile.params)
        if (name == variation.param)
          return bad("--vary " + text, "`--set` gives this param a value already");
      for (const Variation &other : variations)
        if (other.param == variation.param &&
            (other.pipeline == variation.pipeline || other.pipeline.empty() || variation.pipeline.empty()))
          return bad("--vary " + text, "`--vary " + other.text + "` gives this param values already");
      if (!once("--vary " + text + ":", variation.values))
        return false;
      variations.push_back(std::move(variation));
    }
    return true;
  }

  bool checkProfiles() {
    for (const std::string &profile : command.acceptance)
      if (profile != "none" && !got(tools::Acceptance::parse(profile), diags))
        return false;
    return true;
  }

  /// Says which pipeline an error of several was about.
  bool of(const std::string &file) {
    if (command.operands.size() > 1)
      diags.note("of the pipeline `" + file + "`");
    return false;
  }

  bool compileAll(SweepPlan &plan) {
    for (const std::string &file : command.operands) {
      ProgramOptions options = command.compile;
      options.file = file;
      if (!command.configs.empty()) {
        options.models = command.configs;
        options.weights = false;
      }
      options.modelsOfOthers = command.operands.size() > 1;
      auto program = Program::compile(options);
      if (!got(program, diags))
        return of(file);
      diags.adopt(program->messages());
      if (!checkOutputs(command.files(Value::Output), filesRead(*program), diags))
        return false;
      reportAccepted(*program, diags);
      const std::string name = program->name();
      if (!names.insert(name).second)
        return bad("FILE " + file, "another file has a pipeline of this name, `" + name + "`; rename one of them");
      for (const tools::PoolSize &pool : tools::poolsOf(*program))
        models.insert(pool.name);
      if (program->vocabulary() < 1)
        return bad("FILE " + file, "its pipeline has no model, and requests have tokens of one");
      if (!addKernels(*program, plan))
        return false;
    }
    for (const auto &[name, path] : command.configs.empty() ? command.compile.models : command.configs)
      if (!name.empty() && !models.count(name))
        return bad(fmt::format("--{} {}=...", command.configs.empty() ? "model" : "config", name),
                   "no pipeline of the sweep has such a model");
    // Others are compared with them.
    llvm::stable_sort(plan.kernels, [](const SweepKernel &a, const SweepKernel &b) { return !a.drafts && b.drafts; });
    return true;
  }

  /// A kernel for each combination of the params that vary for this pipeline.
  bool addKernels(const Program &program, SweepPlan &plan) {
    const std::vector<std::string> params = tools::paramNames(program);
    std::vector<std::map<std::string, std::string>> combinations = {{}};
    for (const Variation &variation : variations) {
      if (!variation.pipeline.empty() && variation.pipeline != program.name())
        continue;
      if (!llvm::is_contained(params, variation.param)) {
        bad("--vary " + variation.text,
            fmt::format("the pipeline `{}` has no param `{}`", program.name(), variation.param));
        diags.note(variation.pipeline.empty() && command.operands.size() > 1
                       ? "`--vary PIPELINE:" + variation.text + "` varies it in one pipeline only"
                       : fmt::format("its params are {}", fmt::join(params, ", ")));
        return false;
      }
      std::vector<std::map<std::string, std::string>> longer;
      for (const auto &combination : combinations)
        for (const std::string &value : variation.values) {
          longer.push_back(combination);
          longer.back()[variation.param] = value;
        }
      combinations = std::move(longer);
    }
    for (const auto &combination : combinations) {
      std::optional<Program> varied = program;
      if (!combination.empty()) {
        auto again = tools::recompile(program, {combination.begin(), combination.end()});
        if (!got(again, diags)) {
          std::string values;
          for (const auto &[name, value] : combination)
            values += fmt::format("{}`{}={}`", values.empty() ? "" : ", ", name, value);
          diags.note(fmt::format("with {} of `--vary`, in the pipeline `{}`", values, program.name()));
          return false;
        }
        varied = std::move(*again);
      }
      const bool drafts = tools::takesDrafts(*varied);
      plan.kernels.push_back({std::move(*varied), combination, drafts});
    }
    return true;
  }

  bool checkVariations(const SweepPlan &plan) {
    for (const Variation &variation : variations)
      if (!variation.pipeline.empty() && !names.count(variation.pipeline)) {
        bad("--vary " + variation.text, "no pipeline of the sweep is called `" + variation.pipeline + "`");
        diags.suggest(variation.pipeline, std::vector<std::string>(names.begin(), names.end()));
        return false;
      }
    return !plan.kernels.empty();
  }

  bool checkDrafts(const SweepPlan &plan) {
    for (const std::string &profile : command.acceptance)
      if (profile != "none" && llvm::none_of(plan.kernels, [](const SweepKernel &k) { return k.drafts; }))
        return bad("--acceptance " + profile,
                   "no pipeline of the sweep looks up drafts (`ngram_lookup`) or has a second model");
    return true;
  }

  bool checkRequests(const SweepPlan &plan) {
    const int64_t context = *std::max_element(command.contexts.begin(), command.contexts.end());
    const int64_t tokens = *std::max_element(command.tokens.begin(), command.tokens.end());
    for (const SweepKernel &kernel : plan.kernels)
      if (!got(tools::checkRequests(kernel.program, makeRequests(kernel.program, context, 1, tokens)), diags)) {
        diags.note(fmt::format("a request of `--context {}` and `--tokens {}`, in the pipeline `{}`", context, tokens,
                               kernel.program.name()));
        return false;
      }
    return true;
  }

  /// In order; the host's loop first.
  void addPoints(SweepPlan &plan) const {
    std::vector<Control> controls = command.controls;
    llvm::stable_sort(controls, [](Control a, Control b) { return a == Control::Host && b != Control::Host; });
    for (size_t kernel = 0; kernel < plan.kernels.size(); ++kernel)
      for (int64_t context : command.contexts)
        for (int64_t tokens : command.tokens)
          for (int64_t requests : command.requests)
            for (const std::string &acceptance :
                 plan.kernels[kernel].drafts ? command.acceptance : std::vector<std::string>{"none"})
              for (Control control : controls)
                plan.points.push_back({kernel, context, tokens, requests, acceptance, control});
  }

  std::string keyOf(const SweepPlan &plan) const {
    std::vector<std::string> controls;
    for (Control control : command.controls)
      controls.push_back(controlName(control));
    std::string all = fmt::format(
        "{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", int(command.device), plan.deviceName,
        fmt::join(command.requests, " "), fmt::join(command.tokens, " "), fmt::join(command.contexts, " "),
        fmt::join(command.vary, "\n"), fmt::join(controls, " "), fmt::join(command.acceptance, "\n"),
        fmt::join(command.compile.accept, "\n"), command.acceptanceSeed, command.ticksPerLaunch, command.repeats);
    const KernelOptions options{.wholeKernel = command.wholeKernel, .cpuArch = command.cpuArch};
    for (const SweepKernel &kernel : plan.kernels)
      all += tools::identityOf(kernel.program, options) + "\n";
    return llvm::toHex(llvm::BLAKE3::hash<8>(llvm::arrayRefFromStringRef(all)), /*LowerCase=*/true);
  }
};

} // namespace

std::optional<SweepPlan> planSweep(const SweepCommand &command, Diagnostics &diags) {
  return Planner(command, diags).run();
}

} // namespace megalith::tool
