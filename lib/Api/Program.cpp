//===- Program.cpp - a compiled pipeline ----------------------------------===//
#include "State.h"
#include "megalith/IR/Buffers.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Inputs.h"
#include "megalith/IR/Text.h"
#include "megalith/Plan/Plan.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"

namespace megalith {

using namespace api;

std::string version() { return MEGALITH_VERSION; }

std::string profileOfArch(std::string_view arch) {
  const plan::DeviceProfile *profile = plan::findProfileOfArch(llvm::StringRef(arch.data(), arch.size()));
  return profile ? profile->name : "";
}

Messages api::caught(const char *what) {
  return what
             ? failure(Diag::InternalError, text::printable(what, 2000))
             : failure(Diag::OutOfMemory, "there is not enough memory; ask for less, or raise the limit (`ulimit -v`)");
}

std::map<std::string, std::string> tools::shippedPipelines() { return driver::shippedPipelines(); }

driver::CompileOptions api::compileOptions(const ProgramOptions &options) {
  driver::CompileOptions out;
  out.file = options.file;
  out.models = options.models;
  out.modelsOfOthers = options.modelsOfOthers;
  out.sets = options.params;
  out.planSettings = options.plan;
  out.accept = options.accept;
  if (!options.profile.empty())
    out.profile = options.profile;
  out.profileGiven = !options.profile.empty();
  out.irFile = options.irFile;
  out.stopAfter = options.stopAfter;
  out.needWeights = options.weights;
  out.printAfterAll = options.printAfterAll;
  out.timePasses = options.timePasses;
  out.sink = options.sink ? options.sink : [](const std::string &) {};
  return out;
}

Program::Program(std::shared_ptr<State> state) : state(std::move(state)) {}

Expected<Program> Program::compile(const ProgramOptions &options) {
  return guarded<Program>([&]() -> Expected<Program> {
    auto state = std::make_shared<State>();
    for (const auto &[path, text] : options.texts)
      state->sources.give(path, text);
    state->options = compileOptions(options);
    Diagnostics diags(state->sources);
    auto compiled = driver::compile(state->options, diags);
    if (!compiled)
      return diags.messages();
    state->compiled = std::move(*compiled);
    state->messages = diags.messages();
    Program program(std::move(state));
    if (!options.tokenBytes.empty()) {
      auto bytes = readTokenBytes(options.tokenBytes, program.vocabulary());
      if (!bytes)
        return bytes.errors();
      if (Status set = program.setTokenBytes(std::move(*bytes)); !set)
        return set.errors();
    }
    return program;
  });
}

const Messages &Program::messages() const { return state->messages; }
std::string Program::name() const { return state->compiled.module.root.name; }
std::vector<std::string> Program::accepted() const { return state->compiled.accepted(); }
std::map<std::string, std::string> Program::modelFiles() const {
  std::map<std::string, std::string> files;
  for (const driver::LoadedModel &model : state->compiled.models)
    files[model.name] = state->sources.name(model.file).str();
  return files;
}
std::map<std::string, int64_t> Program::converted() const { return state->compiled.converted(); }
std::map<std::string, std::string> Program::formats() const { return state->compiled.formats(); }

std::optional<int64_t> Program::param(std::string_view name) const {
  const ir::Module &module = state->compiled.module;
  const llvm::StringRef key(name.data(), name.size());
  return module.find(ir::Op::Param, key) ? std::optional(module.param(key)) : std::nullopt;
}

const driver::LoadedModel *Program::State::model() const {
  return compiled.models.empty() ? nullptr : &compiled.models.front();
}

int64_t Program::State::vocabulary() const {
  const auto models = ir::modelsByNumber(compiled.module);
  return models.empty() ? 0 : models.front()->get<ir::attr::vocab>();
}

std::string Program::State::whyNoPromptLogprobs() const {
  const auto models = ir::modelsByNumber(compiled.module);
  return models.empty() ? "it has no model" : ir::whyNoPromptRows(compiled.module, models.front()->name);
}

std::shared_ptr<const automata::TokenFormat> Program::State::formatOf(const std::string &text) const {
  std::shared_ptr<automata::Formats> known;
  {
    const std::lock_guard lock(formatsMutex);
    if (!formats && model() && model()->checked.byteVocabulary) {
      std::vector<std::string> bytes(vocabulary());
      for (size_t token = 0; token < std::min<size_t>(256, bytes.size()); ++token)
        bytes[token] = static_cast<char>(token);
      formats = std::make_shared<automata::Formats>(std::make_shared<automata::TokenBytes>(std::move(bytes)));
    }
    known = formats;
  }
  if (!known)
    throw automata::Refused{
        "what the tokens spell is not known here: give `--token-bytes`; programs say it by `setTokenBytes`, Python and "
        "the server read it from the tokenizer",
        {}};
  return known->find(text);
}

Status Program::setTokenBytes(std::vector<std::string> bytes) {
  return guarded<Done>([&]() -> Status {
    if (int64_t(bytes.size()) > vocabulary())
      return failure(Diag::RequestFormat, fmt::format("there are the bytes of {} tokens, and the vocabulary has {}",
                                                      bytes.size(), vocabulary()));
    bytes.resize(vocabulary());
    auto made = std::make_shared<automata::Formats>(std::make_shared<automata::TokenBytes>(std::move(bytes)));
    const std::lock_guard lock(state->formatsMutex);
    state->formats = std::move(made);
    return Done();
  });
}

Expected<Program::AnswerFormat> Program::prepareFormat(const std::string &format) const {
  return guarded<AnswerFormat>([&]() -> Expected<AnswerFormat> {
    try {
      const auto made = state->formatOf(format);
      return AnswerFormat{made->format.automaton.states(), made->masks.count(), made->bytes(), made->format.notes};
    } catch (const automata::Refused &refused) {
      return failure(Diag::RequestFormat, refused.message);
    }
  });
}

int64_t Program::vocabulary() const { return state->vocabulary(); }
int64_t Program::logitsVocabulary() const { return state->vocabulary(); }
bool Program::byteVocabulary() const { return state->model() && state->model()->checked.byteVocabulary; }
std::optional<double> Program::positions() const { return state->model() ? state->model()->positions() : std::nullopt; }
std::string Program::positionsPlace() const { return state->model() ? state->model()->positionsPlace() : ""; }
std::vector<int32_t> Program::eos() const {
  return state->model() ? state->model()->checked.eos : std::vector<int32_t>();
}
bool Program::readsSampling() const { return readsSettings(state->compiled.module); }
std::string Program::whyNoPromptLogprobs() const { return state->whyNoPromptLogprobs(); }
std::vector<Program::RequestState> Program::states() const {
  std::vector<RequestState> states;
  for (const ir::Operation *each : state->compiled.module.all(ir::Op::State))
    states.push_back({each->name, each->get<ir::attr::slot>(), each->get<ir::attr::terminal>()});
  return states;
}
std::vector<Input> Program::inputs() const { return ir::inputsOf(state->compiled.module); }
std::string Program::configFile() const { return state->model() ? state->model()->checked.file.path() : ""; }
std::string Program::ast() const { return state->compiled.ast; }

std::string Program::ir(Ir part) const {
  ir::PrintOptions print;
  if (part == Ir::Control)
    print.part = ir::PrintOptions::Control;
  else if (part == Ir::Models)
    print.part = ir::PrintOptions::Models;
  return ir::print(state->compiled.module, print);
}

std::optional<Source> api::makeSource(Program::State &program, const driver::CompileOptions &options,
                                      const std::vector<std::string> &sourceFiles, Diagnostics &diags) {
  const ir::Module &module = program.compiled.module;
  driver::Source source;
  Source out;
  if (ir::ofBuffers(module)) {
    auto plan = driver::makeCallPlan(module, options, diags);
    if (!plan)
      return std::nullopt;
    source = driver::emitSource(module, *plan, diags);
    out.plan = plan::print(module, *plan);
  } else {
    auto plan = driver::makePlan(module, options, diags);
    if (!plan)
      return std::nullopt;
    source = driver::emitSource(module, *plan, diags);
    out.plan = plan::print(*plan);
  }
  const emit::Units emitted = source.units;
  for (const std::string &file : sourceFiles)
    if (!driver::readEditedSource(file, emitted, source.units, diags))
      return std::nullopt;
  out.cuda = driver::wholeText(source.units);
  out.control = {std::move(source.units.control.fileName), std::move(source.units.control.text)};
  out.tensors = {std::move(source.units.tensors.fileName), std::move(source.units.tensors.text)};
  if (source.units.wide)
    out.wide = {std::move(source.units.wide->fileName), std::move(source.units.wide->text)};
  out.manifest = std::move(source.manifest);
  return out;
}

emit::Units api::unitsOf(const Source &source) {
  emit::Units units{{source.control.fileName, source.control.text},
                    {source.tensors.fileName, source.tensors.text},
                    std::nullopt,
                    std::nullopt};
  if (source.wide)
    units.wide = emit::Unit{source.wide->fileName, source.wide->text};
  return units;
}

Expected<Source> Program::source() const {
  return guarded<Source>([&]() -> Expected<Source> {
    Diagnostics diags(state->sources);
    auto made = makeSource(*state, state->options, {}, diags);
    if (!made)
      return diags.messages();
    return std::move(*made);
  });
}

Expected<Binary> Program::binary(const BinaryOptions &options) const {
  return guarded<Binary>([&]() -> Expected<Binary> {
    Diagnostics diags(state->sources);
    auto source = makeSource(*state, state->options, options.sourceFiles, diags);
    if (!source)
      return diags.messages();
    driver::AssembleOptions how;
    how.arch = options.arch;
    how.needPtx = options.ptx;
    how.whole = options.wholeKernel;
    auto result = driver::assemble(unitsOf(*source), how, diags);
    if (!result)
      return diags.messages();
    Binary out;
    out.code = std::move(result->cubin);
    out.ptx = std::move(result->ptx);
    for (const jit::KernelResources &k : result->kernels)
      out.kernels.push_back({k.kernel, k.registers, k.spillStores, k.spillLoads, k.stackBytes, k.sharedBytes});
    out.milliseconds = result->milliseconds;
    out.cacheHit = result->cacheHit;
    out.how = result->how;
    out.messages = diags.messages();
    return out;
  });
}

std::vector<Program::File> Program::files() const {
  std::vector<File> files;
  for (uint32_t i = 0; i < state->sources.size(); ++i)
    files.push_back({"by the pipeline", state->sources.name(i).str()});
  for (const driver::LoadedModel &model : state->compiled.models) {
    const std::string of = "the checkpoint of `" + model.name + "`";
    const std::string config = model.checked.file.path();
    files.push_back({of, config});
    // Beside it, whether this command reads them or not.
    for (const char *name : {"generation_config.json", "model.safetensors", "model.safetensors.index.json"}) {
      llvm::SmallString<256> path(llvm::sys::path::parent_path(config));
      llvm::sys::path::append(path, name);
      files.push_back({of, path.str().str()});
    }
    if (model.weights)
      for (const std::string &path : model.weights->files())
        files.push_back({of, path});
  }
  return files;
}

} // namespace megalith
