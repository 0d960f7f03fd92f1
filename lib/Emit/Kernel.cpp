#include "Tensor.h"
#include "device/Shape.h"
#include "megalith/Emit/Control.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::emit {

using ir::Op;
namespace attr = ir::attr;

static void emitHeader(CodeWriter &w, const ir::Module &module, const plan::Plan &plan) {
  w.comment(fmt::format("Pipeline `{}`: one resident kernel, made by megalith.", module.root.name));
  w.line("//");
  for (const ir::Operation *model : module.all(Op::Model))
    w.comment(fmt::format("model    {} ({})", model->name, model->get<attr::graph>()));
  for (const ir::Operation *model : module.all(Op::Model))
    for (const std::string &name : model->get<attr::accepted>())
      w.comment(fmt::format("accepted {} of {}'s checkpoint, on the user's word (--accept)", name, model->name));
  for (const ir::Operation *file : module.all(Op::File))
    w.comment(fmt::format("source   {}", file->get<attr::path>()));
  std::string params;
  for (const ir::Operation *param : module.all(Op::Param)) {
    const ir::Number value = param->get<attr::value>();
    params += (params.empty() ? "" : ", ") + param->name + " = " +
              (value.isReal()   ? fmt::format("{}", static_cast<float>(value.real()))
               : value.isFlag() ? std::string(value.truth() ? "true" : "false")
                                : std::to_string(value.whole()));
  }
  w.comment("params   " + params);
  w.comment(fmt::format("plan     {}: {} CTAs of {} warps, a ring of {} x {} bytes", plan.profile.name, plan.ctas,
                        shape::kCtaThreads / 32, plan.ring.stages, plan.ring.stageBytes));
  w.line("//");
  w.comment("Reading order: the request and its states, one function per stage, the model's segments, and last what "
            "the resident loop calls.");
  w.line();
  w.line("#include \"megalith/Device.cuh\"");
  w.line();
  w.line("namespace abi = megalith::abi;");
  w.line("using namespace megalith::device;");
  w.line();
}

static std::string tokenTable(const ir::Module &module, const plan::ModelPlan &planned) {
  if (!planned.tokenTable)
    return "{}";
  const auto indices = weightIndices(*module.all(ir::Op::Model)[0]);
  return fmt::format("{{weightAt(p.models[0], {}), {}, {}}}", indices.at(planned.tokenTable->weight),
                     planned.tokenTable->rowBytes, planned.tokenTable->rows);
}

/// What the resident loop of device/Resident.cuh calls of this kernel.
static void emitKernel(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const Names &names) {
  const plan::ModelPlan &planned = plan.models[0];
  const bool many = plan.rowsPerPass > shape::kTileRows, head = planned.segments.size() > 1;
  w.line();
  w.comment("What the resident loop (Resident.cuh) takes of this kernel.");
  auto s = w.record("struct Kernel");
  w.line("using Shared = ::Shared;");
  w.line("using Ring = WeightRing;");
  w.line("using Stream = ::Stream;");
  w.line("using Workspace = ::Workspace;");
  w.line("using Pool = {};", names.kv());
  w.line("static constexpr bool many = {}, words = {}, head = {}, stamps = {};", many, plan.knobs.words, head,
         plan.knobs.stamps != 0);
  w.line("static constexpr int passEdge = Edges::pass, bestEdge = Edges::best;");
  w.line("static constexpr long long best = Tagged::best;");
  if (plan.knobs.stamps)
    w.line("static constexpr int lastEvent = {};", stampEvents(planned).size() - 1);
  const auto function = [&](const std::string &signature, const std::string &body) {
    w.line("__device__ __forceinline__ static {} {{ {} }}", signature, body);
  };
  function("Shared &shared()", "return sharedOfCta();");
  function("void start(const abi::LaunchParams &p)",
           fmt::format("startStream(shared().sync, k{}Steps, p.models[0].stream);", names.segments[0].role));
  function("void control(bool behindPass)", "controlTicks(behindPass);");
  function("TokenTable tokens(const abi::LaunchParams &p)", fmt::format("return {};", tokenTable(module, planned)));
  for (size_t i = 0; i < planned.segments.size(); ++i) {
    const Names::Segment &name = names.segments[i];
    function(fmt::format("bool stream{}(Producer<WeightRing> &producer)", name.role),
             fmt::format("return ::stream{}(producer);", name.role));
    if (many)
      function(fmt::format("bool bring{}(WindowProducer<Stream> &windows)", name.role),
               fmt::format("return phases::{}(windows);", name.windows));
    const std::string run = "phases::" + name.function;
    function(fmt::format("bool run{}(int numRows)", name.role),
             fmt::format("return numRows == kOneRow ? {0}<kOneRow>() : {1};", run,
                         many ? fmt::format("numRows <= kTileRows ? {0}<kTileRows>() : {0}<kMaxRows>()", run)
                              : run + "<kTileRows>()"));
  }
}

static void emitLoop(CodeWriter &w) {
  w.line();
  w.comment("The resident kernel: one CTA per SM, launched once.");
  w.line("extern \"C\" __global__ void __launch_bounds__(kCtaThreads, 1)");
  auto fn = w.scope("megalith_run(const __grid_constant__ abi::LaunchParams p)", "megalith_run");
  w.line("startResident<Kernel>(p);");
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
  w.line("runTicks<Kernel>(p);");
}

std::string emitCuda(const ir::Module &module, const plan::Plan &plan, const SourceFiles &files,
                     const EmitOptions &options) {
  const Names names(*module.all(Op::Model)[0], plan.models[0]);
  CodeWriter w;
  w.setFileName(options.fileName);
  emitHeader(w, module, plan);
  ControlOptions control;
  control.lineDirectives = options.lineDirectives;
  emitControl(w, module, &files, control);
  w.line();
  emitTensor(w, module, plan, names, files, options);
  w.line();
  w.comment("The order in which each CTA's weights arrive, the same in every pass.");
  emitProducer(w, plan, names);
  w.line();
  emitPack(w, module, plan, names);
  emitKernel(w, module, plan, names);
  emitLoop(w);
  return w.text();
}

} // namespace megalith::emit
