#include "megalith/Driver/Compilation.h"
#include "megalith/Emit/Calls.h"
#include "megalith/Emit/Emit.h"
#include "megalith/IR/Buffers.h"
#include "megalith/IR/Text.h"
#include "megalith/Lower/Buffers.h"
#include "megalith/Lower/Model.h"
#include "megalith/Lower/Pipeline.h"
#include "megalith/Sema/Buffers.h"
#include "megalith/Syntax/Parse.h"
#include "megalith/Transforms/Passes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <map>
#include <set>

namespace megalith::driver {

std::optional<uint32_t> openSource(Diagnostics &diags, const std::string &path, SourceLoc from, uint64_t most) {
  std::string reason;
  auto file = diags.sources().open(path, reason, most);
  if (!file)
    diags.report(Diag::CannotReadFile, from, path, reason);
  return file;
}

void reportCheckpoint(Diagnostics &diags, const FileError &error) {
  SourceLoc loc;
  if (error.line) { // nothing is read a second time
    auto file = diags.sources().find(error.file);
    if (error.text)
      file = diags.sources().add(error.file, *error.text);
    if (file)
      loc = {*file, error.line, std::max(1u, error.column), 1};
  }
  std::string message = error.message;
  if (!loc && !error.file.empty())
    message = error.file + ": " + message;
  diags.report(AnyDiag{diagByKebab(error.kind)}, loc, message);
}

/// The checkpoint directory given for a model: by its name, or the unnamed one.
static std::string directoryFor(const CompileOptions &options, const std::string &name, Diagnostics &diags) {
  for (const auto &[model, directory] : options.models)
    if (model == name)
      return directory;
  for (const auto &[model, directory] : options.models)
    if (model.empty())
      return directory;
  diags.report(Diag::ModelDirectory, {}, name, name);
  return "";
}

/// Without the `a/../` of a pipeline in another folder: the path stands in the text of the tensor unit, which all
/// pipelines of a model share.
static void plainPath(llvm::SmallVectorImpl<char> &path, const SourceFiles &sources) {
  llvm::SmallString<256> plain(llvm::StringRef(path.data(), path.size()));
  llvm::sys::path::remove_dots(plain, /*remove_dot_dot=*/true);
  // Not where a link leads elsewhere, nor where a text was given for it.
  if (!sources.find({path.data(), path.size()}) && llvm::sys::fs::equivalent(path, plain))
    path.assign(plain.begin(), plain.end());
}

/// The model file: `graph:` has its path, or the checkpoint decides.
static std::optional<FoundModel> modelFile(const CompileOptions &options, const ast::ModelRef &ref,
                                           const ConfigFile &config, const Acceptance &acceptance, Diagnostics &diags) {
  for (const auto &[name, path] : options.graphs)
    if (name == ref.name.text)
      return FoundModel{path};
  std::optional<FoundModel> found;
  llvm::SmallString<256> path;
  if (ref.graph.loc) {
    if (!llvm::sys::path::is_absolute(ref.graph.text))
      path = llvm::sys::path::parent_path(options.file);
    llvm::sys::path::append(path, ref.graph.text);
    found.emplace();
  } else {
    found = findModel(options.file, ref.name, config, acceptance, diags);
    if (!found)
      return std::nullopt;
    path = found->path;
  }
  plainPath(path, diags.sources());
  found->path = std::string(path);
  return found;
}

static std::optional<LoadedModel> loadModel(const CompileOptions &options, const ast::ModelRef &ref,
                                            std::string &printed, Acceptance &acceptance, Diagnostics &diags) {
  ModelFindings unused;
  if (options.findings)
    options.findings->emplace_back();
  ModelFindings &findings = options.findings ? options.findings->back() : unused;
  ModelReport *const report = options.findings ? &findings.report : nullptr;
  findings.name = ref.name.text;
  LoadedModel loaded;
  loaded.name = ref.name.text;
  loaded.directory = directoryFor(options, loaded.name, diags);
  if (loaded.directory.empty())
    return std::nullopt;
  auto config = ConfigFile::load(loaded.directory);
  if (!config) {
    reportCheckpoint(diags, config.error);
    return std::nullopt;
  }
  findings.config = *config;
  findings.file = modelFile(options, ref, *config, acceptance, diags);
  if (!findings.file)
    return std::nullopt;
  auto file = openSource(diags, findings.file->path, ref.graph.loc);
  if (!file)
    return std::nullopt;
  findings.parsed = ast::parseModel(diags, *file);
  if (!findings.parsed)
    return std::nullopt;
  printed += ast::print(*findings.parsed);
  loaded.file = *file;
  auto checked = checkModel(*findings.parsed, *config, acceptance, diags, report);
  if (!checked)
    return std::nullopt;
  loaded.checked = std::move(*checked);
  if (options.needWeights) {
    auto weights = SafetensorsFile::load(loaded.directory);
    if (!weights) {
      reportCheckpoint(diags, weights.error);
      return std::nullopt;
    }
    loaded.weights = std::move(*weights.value);
    if (!checkWeights(loaded.checked, *loaded.weights, acceptance, diags, report))
      return std::nullopt;
  }
  if (const auto &quantisation = loaded.checked.quantisation; quantisation && quantisation->quantisesActivations())
    diags.report(Diag::ActivationsKept, {}, config->path(), quantisation->method());
  if (const CheckedModel &of = loaded.checked; of.quantisation && (of.quantisation->scalesKv() || of.hasScalesOfKv))
    diags.report(Diag::ScalesOfKv, {}, config->path());
  findings.accepted = loaded.checked.accepted;
  return loaded;
}

static void reportUnneeded(const CompileOptions &options, const Acceptance &acceptance, Diagnostics &diags) {
  for (const std::string &name : acceptance.unneeded())
    diags.report(Diag::BadOption, {}, "--accept " + name,
                 options.needWeights ? "nothing of the checkpoint needed it; leave it out"
                                     : "no key of config.json needed it, and tensors are not read here; leave it out");
}

bool inspectModel(const CompileOptions &options, Diagnostics &diags) {
  Acceptance acceptance(options.accept);
  std::string printed;
  ast::ModelRef ref; // without a place: no pipeline names it
  ref.name.text = options.models.empty() ? "" : options.models.front().first;
  if (!loadModel(options, ref, printed, acceptance, diags))
    return false;
  reportUnneeded(options, acceptance, diags);
  return !diags.hasErrors();
}

std::string LoadedModel::positionsPlace() const {
  if (checked.positionsOfTable())
    return fmt::format("{} of `{}`", checked.positionsKey(), directory);
  return fmt::format("`{}` ({})", checked.file.path(), checked.positionsKey());
}

std::vector<std::string> Compilation::accepted() const {
  std::vector<std::string> result;
  for (const LoadedModel &model : models)
    for (const std::string &name : model.checked.accepted)
      if (!llvm::is_contained(result, name))
        result.push_back(name);
  return result;
}

std::map<std::string, int64_t> Compilation::converted() const {
  std::map<std::string, int64_t> counts;
  for (const LoadedModel &model : models)
    for (const CheckedWeight &weight : model.checked.weights)
      for (int64_t layer = 0; model.weights && weight.alias.empty() && weight.used && !weight.part &&
                              !weight.scheme.quantised() && layer < (weight.perLayer ? model.checked.layers : 1);
           ++layer)
        if (const TensorView *tensor = model.weights->find(weight.tensorName(layer));
            tensor && isConverted(tensor->dtype))
          ++counts[std::string(dtypeName(tensor->dtype))];
  return counts;
}

std::map<std::string, std::string> Compilation::formats() const {
  std::map<std::string, std::string> result;
  for (const LoadedModel &model : models) {
    std::vector<std::string> found;
    for (const CheckedWeight &weight : model.checked.weights)
      if (weight.scheme.quantised() && weight.used && !llvm::is_contained(found, describe(weight.scheme)))
        found.push_back(describe(weight.scheme));
    if (!found.empty())
      result[model.name] = llvm::join(found, ", ");
  }
  return result;
}

/// Gives the files that IR text lists the numbers that they have in `files`. One that is not there has no lines to
/// show.
static void adoptFiles(ir::Module &module, SourceFiles &files) {
  std::map<uint32_t, uint32_t> numbers;
  for (ir::Operation &op : module.ops()) {
    if (op.op != ir::Op::File)
      continue;
    const std::string path = op.get<ir::attr::path>();
    uint32_t number = 0;
    while (number < files.size() && files.name(number) != path)
      ++number;
    if (number == files.size())
      number = files.add(path, "");
    numbers[static_cast<uint32_t>(op.get<ir::attr::index>())] = number;
    op.set<ir::attr::index>(static_cast<int64_t>(number));
  }
  const auto adopt = [&](ir::Operation &op) {
    if (op.loc)
      op.loc.file = numbers.at(op.loc.file); // verifyWhole
  };
  adopt(module.root);
  ir::walk(module.root.region(), adopt);
}

/// Warns of a stage's call whose model's pass stands in front of it in the tick's list. Calls in a loop have passes of
/// the loop, so that they wait for none.
static void warnOfLatePasses(const ir::Module &module, Diagnostics &diags) {
  for (const ir::Operation *tick : module.all(ir::Op::Tick)) {
    std::set<std::string> passed;
    std::map<int64_t, std::string> modelOf; // of call sites
    std::vector<std::pair<const ir::Operation *, std::string>> late;
    for (const ir::Operation &part : tick->region().ops) {
      if (part.op == ir::Op::Pass) {
        if (!part.has<ir::attr::loop>()) // one of a loop serves no other calls
          passed.insert(part.name);
        continue;
      }
      if (part.op != ir::Op::Part || part.region().ops.empty())
        continue;
      const ir::Operation &issue = part.region().ops.back();
      const bool inLoop = part.has<ir::attr::loop>();
      const auto first = modelOf.find(part.get<ir::attr::after_site>());
      if (issue.op == ir::Op::Enter) { // after a loop it is after the call in front of the loop
        if (!inLoop && first != modelOf.end()) {
          const std::string before = first->second;
          modelOf[issue.get<ir::attr::outside>()] = before;
        }
        continue;
      }
      if (issue.op != ir::Op::Issue || inLoop)
        continue;
      if (first != modelOf.end() && first->second != issue.name && passed.count(issue.name))
        late.emplace_back(&issue, first->second);
      modelOf[issue.get<ir::attr::site>()] = issue.name;
    }
    for (const auto &[call, first] : late) {
      const ir::Operation &issue = *call;
      diags.report(Diag::LatePass, issue.loc, issue.name, first);
      diags.note(
          fmt::format("a model's pass stands at its last call in the file; the last call of `{}` may stand above "
                      "that of `{}`",
                      first, issue.name));
    }
  }
}

namespace {
struct PlanWishes {
  const plan::DeviceProfile *profile;
  plan::Knobs knobs;
};
} // namespace

static std::optional<PlanWishes> readPlanOptions(const CompileOptions &options, Diagnostics &diags) {
  PlanWishes wishes{plan::findProfile(options.profile), {}};
  if (!wishes.profile) {
    auto names = plan::profileNames();
    diags.report(Diag::UnknownProfile, {}, options.profile);
    diags.suggest(options.profile, names);
    diags.note("known profiles: " + llvm::join(names, ", "));
    return std::nullopt;
  }
  for (const std::string &setting : options.planSettings)
    if (!plan::applyKnob(wishes.knobs, setting, diags))
      return std::nullopt;
  return wishes;
}

std::optional<ir::Module> readIr(uint32_t file, Diagnostics &diags) {
  std::optional<ir::Module> module = ir::parse(diags, file);
  if (!module || !ir::verifyWhole(*module, diags))
    return std::nullopt;
  adoptFiles(*module, diags.sources());
  return module;
}

std::optional<Compilation> compile(const CompileOptions &options, Diagnostics &diags) {
  // The reference executor needs no plan; a misspelt wish is one all the same.
  if (!readPlanOptions(options, diags))
    return std::nullopt;
  Compilation result;
  auto file = openSource(diags, options.file);
  if (!file)
    return std::nullopt;
  auto pipeline = ast::parsePipeline(diags, *file);
  if (!pipeline)
    return std::nullopt;
  result.ast = ast::print(*pipeline);
  for (const auto &[name, directory] : options.models)
    if (!name.empty() && !options.modelsOfOthers &&
        llvm::none_of(pipeline->models, [&](const ast::ModelRef &m) { return m.name.text == name; })) {
      diags.report(Diag::UnusedModelDirectory, {}, name);
      diags.note("a directory whose path has a `=` is written `./" + name + "=" + directory + "`");
    }

  Acceptance acceptance(options.accept);
  std::vector<ModelFacts> facts;
  for (const ast::ModelRef &ref : pipeline->models) {
    auto loaded = loadModel(options, ref, result.ast, acceptance, diags);
    if (!loaded)
      return std::nullopt;
    result.models.push_back(std::move(*loaded));
  }
  reportUnneeded(options, acceptance, diags);
  for (const LoadedModel &model : result.models) // stable from here on
    facts.push_back({model.name,
                     model.checked.vocab,
                     [&model](std::string path) { return model.checked.configNumber(path); },
                     model.checked.eos,
                     {},
                     model.checked.kvWindow,
                     model.checked.hasWindow});
  for (size_t i = 0; i < facts.size(); ++i)
    for (const auto &[name, node] : result.models[i].checked.graph.results)
      facts[i].results.push_back(name);
  std::optional<ir::Module> module;
  if (pipeline->ofBuffers) {
    if (const auto checked = checkBuffers(*pipeline, options.sets, diags))
      module = lowerBuffers(*checked, diags.sources());
  } else if (const auto checked = checkPipeline(*pipeline, facts, options.sets, diags)) {
    module = lowerPipeline(*checked, diags.sources());
  }
  if (!module || diags.hasErrors())
    return std::nullopt;
  if (options.irFile.empty()) {
    for (const LoadedModel &model : result.models)
      lowerModel(model.checked, model.name, *module);
    // Other files, such as lists of what is harmless, are no part of the kernel.
    llvm::erase_if(module->root.region().ops, [&](const ir::Operation &op) {
      return op.op == ir::Op::File && op.get<ir::attr::index>() != *file &&
             llvm::none_of(result.models, [&](const LoadedModel &m) { return op.get<ir::attr::index>() == m.file; });
    });
  } else {
    for (const auto &[name, value] : options.sets)
      diags.report(Diag::BadOption, {}, "--set " + name + "=" + value, "an IR file holds its params; edit them there");
    if (diags.hasErrors())
      return std::nullopt;
    auto irFile = openSource(diags, options.irFile);
    if (!irFile)
      return std::nullopt;
    module = readIr(*irFile, diags);
    if (!module)
      return std::nullopt;
  }

  // Edited IR, too, runs with what is accepted now.
  for (const LoadedModel &model : result.models)
    if (ir::Operation *op = module->find(ir::Op::Model, model.name)) {
      op->erase<ir::attr::accepted>();
      if (!model.checked.accepted.empty())
        op->set<ir::attr::accepted>(model.checked.accepted);
    }

  transforms::PassOptions passOptions;
  passOptions.stopAfter = options.stopAfter;
  passOptions.printAfterAll = options.printAfterAll;
  passOptions.time = options.timePasses;
  passOptions.sink = options.sink;
  module = transforms::runPasses(std::move(*module), passOptions, diags);
  if (!module)
    return std::nullopt;
  warnOfLatePasses(*module, diags);
  result.module = std::move(*module);
  return result;
}

std::optional<plan::Plan> makePlan(const ir::Module &module, const CompileOptions &options, Diagnostics &diags) {
  const auto wishes = readPlanOptions(options, diags);
  if (!wishes)
    return std::nullopt;
  auto plan = plan::makePlan(module, *wishes->profile, wishes->knobs, diags);
  if (!plan || !plan::verify(*plan, diags))
    return std::nullopt;
  return plan;
}

std::optional<plan::CallPlan> makeCallPlan(const ir::Module &module, const CompileOptions &options,
                                           Diagnostics &diags) {
  const auto wishes = readPlanOptions(options, diags);
  if (!wishes)
    return std::nullopt;
  return plan::makeCallPlan(module, *wishes->profile, diags);
}

Source emitSource(const ir::Module &module, const plan::CallPlan &plan, Diagnostics &diags) {
  Source source;
  source.units.control = emit::emitCall(module, plan, diags.sources(), {});
  source.manifest = emit::emitCallManifest(module, plan);
  return source;
}

Source emitSource(const ir::Module &module, const plan::Plan &plan, Diagnostics &diags) {
  return {emit::emitCuda(module, plan, diags.sources(), {}), emit::emitManifest(module, plan, diags.sources())};
}

} // namespace megalith::driver
