#include "Origin.h"
#include "Tensor.h"
#include "Wide.h"
#include "device/Shape.h"
#include "megalith/Emit/Control.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::emit {

using ir::Op;
namespace attr = ir::attr;

static void emitIncludes(CodeWriter &w, const ir::Module &module, const char *header, const char *second = nullptr) {
  w.line();
  if (const size_t models = module.all(Op::Model).size(); models > 1)
    w.line("#define MEGALITH_MODELS {}", models);
  w.line("#include \"megalith/{}\"", header);
  if (second)
    w.line("#include \"megalith/{}\"", second);
  w.line();
  w.line("namespace abi = megalith::abi;");
  w.line("using namespace megalith::device;");
  w.line();
}

/// The matrices of the model's results, the logits' first.
static std::vector<std::string> headMatrices(const plan::ModelPlan &planned, const Names &names) {
  std::vector<std::string> heads(planned.results.size());
  for (const plan::Segment &segment : planned.segments)
    segment.forEach([&](const plan::Phase &phase, bool) {
      if (phase.result >= 0)
        heads[phase.result] = names.matrix(phase.matrix);
    });
  return heads;
}

static void emitControlHeader(CodeWriter &w, const ir::Module &module, const std::string &tensorFile) {
  w.line(kControlUnit);
  w.line("//");
  w.comment(fmt::format("Pipeline `{}`, made by megalith. Linked with the tensor unit ({}), it is one resident kernel. "
                        "Units.cuh says what crosses.",
                        module.root.name, tensorFile));
  w.line("//");
  emitOrigin(w, module, false);
  emitParams(w, module);
  w.line("//");
  w.comment("Reading order: the request and its states, one function per stage, and last the ticks, which the resident "
            "loop calls.");
  emitIncludes(w, module, "ControlUnit.cuh");
}

static void emitTensorHeader(CodeWriter &w, const ir::Module &module, const plan::Plan &plan) {
  w.line(kTensorUnit);
  w.line("//");
  w.comment("The models, made by megalith. Linked with the control unit of a pipeline, it is one resident kernel. "
            "Nothing here is a pipeline's own: all that plan the same models alike share it.");
  w.line("//");
  emitOrigin(w, module, true);
  w.comment(fmt::format("plan     {}: {} CTAs of {} warps, a ring of {} x {} bytes", plan.profile.name, plan.ctas,
                        plan.ctaThreads() / 32, plan.ring.stages, plan.ring.stageBytes));
  w.line("//");
  w.comment("Reading order: constants, the models' segments, and last what the resident loop (Resident.cuh) calls.");
  emitIncludes(w, module, "TensorUnit.cuh", plan.wide() ? "WidePass.cuh" : nullptr);
}

static void emitWideHeader(CodeWriter &w, const ir::Module &module, const std::string &tensorFile) {
  w.line(kWideUnit);
  w.line("//");
  w.comment(fmt::format("The models in passes of more than {} rows, made by megalith. The tensor unit ({}) calls the "
                        "roles at the end.",
                        int(shape::kMaxRows), tensorFile));
  w.line("//");
  emitOrigin(w, module, true);
  w.line("//");
  w.comment("Reading order: constants and buffers, what becomes of each product's sums, work on rows, and the table of "
            "steps.");
  emitIncludes(w, module, "WideUnit.cuh");
}

static std::string tokenTable(const ir::Module &module, const plan::ModelPlan &planned, const Names &names) {
  if (!planned.tokenTable)
    return "{}";
  const auto indices = weightIndices(*module.find(ir::Op::Model, planned.name));
  return fmt::format("{{weightAt({}, {}), {}, {}}}", names.params(), indices.at(planned.tokenTable->weight),
                     planned.tokenTable->rowBytes, planned.tokenTable->rows);
}

static void emitMember(CodeWriter &w, const std::string &signature, const std::string &body) {
  w.line("__device__ __forceinline__ static {} {{ {} }}", signature, body);
}

/// What the resident loop of device/Resident.cuh calls of a model.
static void emitModel(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const Names &names) {
  const plan::ModelPlan &planned = plan.models[names.number];
  const bool many = plan.rowsAtOnce > shape::kTileRows;
  w.line();
  w.comment("What the resident loop (Resident.cuh) takes of this model.");
  auto s = w.record("struct Model");
  w.line("using Workspace = ::{};", names.outside("Workspace"));
  w.line("using Pool = {};", names.kv());
  w.line("static constexpr bool head = {};", planned.segments.size() > 1);
  w.line("static constexpr int bestEdge = Edges::best;");
  w.line("static constexpr long long best = Flagged::best;");
  emitMember(w, "void start(const abi::LaunchParams &p)",
             fmt::format("startStream(sharedOfCta().sync, k{}Steps, {}.stream, {});", names.segments[0].role,
                         names.params(), names.number));
  if (plan.knobs.stamps) {
    const size_t first = plan::firstStamp(plan, names.number);
    w.line("static constexpr int firstEvent = {}, lastEvent = {};", first,
           first + plan::stampEvents(planned).size() - 1);
  }
  if (plan.wide()) {
    const std::string wide = "::" + names.outside("Wide");
    emitMember(
        w, "void beginWide()",
        fmt::format("wide::begin<{}>(sharedOfCta().wide().pass, sharedOfCta().pass.numRows, wideDone());", wide));
    emitMember(
        w, "u32 *wideDone()",
        fmt::format("return reinterpret_cast<u32 *>(sharedOfCta().params.flagged + {}ll);", planned.wide.doneOffset));
    emitMember(w, "void endWide()",
               fmt::format("wide::clear(wideDone(), {});",
                           shape::ceilDiv<int64_t>(plan.rowsPerPass, shape::kWideCountedRows)));
    emitMember(w, "bool runWide()",
               fmt::format("return wide::consume<{}>(sharedOfCta().wide().pass, "
                           "sharedOfCta().grid);",
                           wide));
    emitMember(w, "void bringWide(int role)", fmt::format("wide::bring<{}>(role);", wide));
  }
  emitMember(w, "TokenTable tokens(const abi::LaunchParams &p)",
             fmt::format("return {};", tokenTable(module, planned, names)));
  w.line("static constexpr bool reduces = {};", planned.reducing.any);
  if (planned.reducing.any) {
    const auto words = [](const char *is, const char *of) {
      return fmt::format("reinterpret_cast<{}Words4 *>(sharedOfCta().params.flagged + Flagged::{})", is, of);
    };
    emitMember(
        w, "bool settle()",
        fmt::format("return ::settlePass<{}>(sharedOfCta().grid, Edges::best, sharedOfCta().pass, "
                    "sharedOfCta().draws, Kept{{sharedOfCta().params.selection}}, {}, {}, sharedOfCta().scratch);",
                    llvm::join(headMatrices(planned, names), ", "), words("const ", "best"), words("", "drawn")));
    emitMember(
        w, "void reduceDraws()",
        fmt::format("::reduceDraws(sharedOfCta().grid, Edges::best, sharedOfCta().pass, sharedOfCta().draws, {}{});",
                    words("const ", "drawn"), planned.results.size() > 1 ? ", " + words("const ", "best") : ""));
    emitMember(w, "void finishQueries()",
               "if (sharedOfCta().draws.queries > 0) ::finishQueries(sharedOfCta().grid, Edges::best, "
               "sharedOfCta().draws, Kept{sharedOfCta().params.selection}, sharedOfCta().scratch);");
  }
  if (plan.wide())
    emitMember(w, "int chunksAhead()",
               plan.models.size() > 1 ? "return chunksAheadOf(sharedOfCta().pass.guess);"
                                      : fmt::format("return ::{}();", names.outside("chunksAhead")));
  for (size_t i = 0; i < planned.segments.size(); ++i) {
    const Names::Segment &name = names.segments[i];
    emitMember(w, fmt::format("bool stream{}(Producer<WeightRing> &producer)", name.role),
               fmt::format("return ::{}(producer);", names.outside("stream" + name.role)));
    if (many)
      emitMember(w, fmt::format("bool bring{}(WindowProducer<Stream> &windows)", name.role),
                 fmt::format("return phases::{}(windows);", name.windows));
    const std::string run = "phases::" + name.function;
    emitMember(w, fmt::format("bool run{}(int numRows)", name.role),
               fmt::format("return numRows == kOneRow ? {0}<kOneRow>() : {1};", run,
                           many ? fmt::format("numRows <= kTileRows ? {0}<kTileRows>() : {0}<kMaxRows>()", run)
                                : run + "<kTileRows>()"));
  }
}

/// What the resident loop of device/Resident.cuh calls of this kernel.
static void emitKernel(CodeWriter &w, const plan::Plan &plan, const std::vector<Names> &names) {
  w.line();
  w.comment("What the resident loop (Resident.cuh) takes of this kernel.");
  auto s = w.record("struct Kernel");
  w.line("using Shared = ::Shared;");
  w.line("using Ring = WeightRing;");
  w.line("using Stream = ::Stream;");
  std::vector<std::string> models, starts;
  for (const Names &of : names) {
    models.push_back(of.outside("Model"));
    starts.push_back(of.outside("Model::start(p);"));
  }
  w.line("using Models = ModelList<{}>; // by their numbers", fmt::join(models, ", "));
  w.line("static constexpr bool many = {}, words = {}, stamps = {}, queries = {};", plan.rowsAtOnce > shape::kTileRows,
         plan.knobs.words, plan.knobs.stamps != 0, plan.reduces());
  if (plan.wide())
    w.line("static constexpr bool wide = true; // passes run whole");
  w.line("static constexpr int passEdge = {};", plan.passEdge);
  emitMember(w, "Shared &shared()", "return sharedOfCta();");
  if (plan.wide())
    starts.push_back("wide::startSync(sharedOfCta().wideSync);");
  emitMember(w, "void start(const abi::LaunchParams &p)", llvm::join(starts, " "));
}

/// The warps beside the consumers, where none has to wait for a wide pass.
static void emitWarpsBeside(CodeWriter &w) {
  {
    auto producer = w.scope("if (warpId() == kConsumerWarps)", "producer");
    w.line("if (laneId() >= Producer<WeightRing>::lanes)");
    w.line("  return;");
    w.line("Producer<WeightRing> producer{{sharedOfCta().ring, &sharedOfCta().sync}};");
    w.line("streamPasses<Kernel>(producer);");
    w.line("producer.drain();");
    w.line("return;");
  }
  {
    auto windowWarp = w.scope("if (warpId() > kConsumerWarps)", "windows");
    w.line("bringWindows<Kernel>();");
    w.line("return;");
  }
}

static void emitLoop(CodeWriter &w, const plan::Plan &plan) {
  w.line();
  w.comment("The resident kernel: one CTA per SM, launched once.");
  w.line("extern \"C\" __global__ void __launch_bounds__({}, 1)", plan.wide() ? "kWideCtaThreads" : "kCtaThreads");
  auto fn = w.scope("megalith_run(const __grid_constant__ abi::LaunchParams p)", "megalith_run");
  w.line("startResident<Kernel>(p);");
  if (plan.wide()) {
    w.line("if (warpId() >= kConsumerWarps)");
    w.line("  return runBeside<Kernel>();");
  } else {
    emitWarpsBeside(w);
  }
  w.line("runTicks<Kernel>(p);");
}

/// What the host compares of the control and the tensor unit.
static void emitFacts(CodeWriter &w, const char *unit, const char *facts) {
  w.line();
  w.line("extern \"C\" __device__ const UnitFacts megalith_{}_facts = {};", unit, facts);
}

static Unit emitControlUnit(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files,
                            const EmitOptions &options, const std::string &tensorFile) {
  const std::string fileName = module.root.name + ".control.cu";
  CodeWriter w;
  w.setFileName(fileName);
  emitControlHeader(w, module, tensorFile);
  ControlOptions control;
  control.lineDirectives = options.lineDirectives;
  control.controlBegin = plan.shared.controlBegin();
  control.wide = plan.wide();
  control.late = plan.late();
  emitControl(w, module, &files, control);
  w.line();
  w.comment("Before the first tick.");
  {
    const auto start = w.scope("__device__ void controlStart(PassShared &pass)", "controlStart");
    w.line("startControl(controlOfCta<Control>(), paramsOfCta(), pass);");
  }
  w.line();
  w.comment("After the last tick of a launch that another one follows.");
  {
    const auto keep = w.scope("__device__ void controlKeep()", "controlKeep");
    w.line("keepControl(controlOfCta<Control>(), paramsOfCta());");
  }
  emitFacts(w, "control", "factsOfUnit<Config>()");
  return {fileName, w.text()};
}

static Unit emitTensorUnit(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files,
                           const EmitOptions &options, const std::string &fileName) {
  std::vector<Names> names;
  for (size_t i = 0; i < plan.models.size(); ++i)
    names.emplace_back(*module.find(Op::Model, plan.models[i].name), plan, i);
  CodeWriter w;
  w.setFileName(fileName);
  emitTensorHeader(w, module, plan);
  emitShared(w, module, plan);
  if (plan.wide())
    for (const Names &of : names)
      emitWideDeclarations(w, of);
  if (names.size() > 1) {
    w.comment(
        "Chunks that a producer copies before it knows the pass, at most, when the pass before was of this model.");
    w.line("__device__ int chunksAheadOf(int model);");
  }
  for (const Names &of : names) {
    w.line();
    std::optional<CodeWriter::Scope> space;
    if (!of.space.empty())
      space.emplace(w.space(of.space));
    emitTensor(w, module, plan, of, files, options);
    w.line();
    w.comment("The order in which each CTA's weights arrive, the same in every pass.");
    emitProducer(w, plan, of);
    if (plan.wide())
      emitWideParts(w, plan, of);
    emitModel(w, module, plan, of);
  }
  if (names.size() > 1) {
    w.line();
    const auto ahead = w.scope("__device__ __noinline__ int chunksAheadOf(int model)", "chunksAheadOf");
    std::string chosen;
    for (const Names &of : names)
      chosen += of.number + 1 < int(names.size())
                    ? fmt::format("model == {} ? {}() : ", of.number, of.outside("chunksAhead"))
                    : of.outside("chunksAhead") + "()";
    w.line("return {};", chosen);
  }
  w.line();
  emitPack(w, module, plan, names);
  emitKernel(w, plan, names);
  emitLoop(w, plan);
  emitFacts(w, "tensor", "factsOfUnit<Facts>()");
  return {fileName, w.text()};
}

static std::optional<Unit> emitWideUnit(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files,
                                        const EmitOptions &options, const std::string &fileName,
                                        const std::string &tensorFile) {
  if (!plan.wide())
    return std::nullopt;
  CodeWriter w;
  w.setFileName(fileName);
  emitWideHeader(w, module, tensorFile);
  {
    const auto space = w.space("wideUnit");
    emitShared(w, module, plan);
  }
  for (size_t i = 0; i < plan.models.size(); ++i) {
    w.line();
    emitWideModelUnit(w, module, plan, Names(*module.find(Op::Model, plan.models[i].name), plan, i), files, options);
  }
  return Unit{fileName, w.text()};
}

Units emitCuda(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files, const EmitOptions &options) {
  std::string models;
  for (const plan::ModelPlan &model : plan.models)
    models += (models.empty() ? "" : "_") + model.name;
  const std::string tensorFile = models + ".tensors.cu";
  return {emitControlUnit(module, plan, files, options, tensorFile),
          emitTensorUnit(module, plan, files, options, tensorFile),
          emitWideUnit(module, plan, files, options, models + ".wide.cu", tensorFile), std::nullopt};
}

} // namespace megalith::emit
