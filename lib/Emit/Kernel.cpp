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
  w.comment(fmt::format("plan     {}: {} CTAs of {} warps, a ring of {} x {} bytes", plan.profile.name, plan.ctas, shape::kCtaThreads / 32,
                        plan.ring.stages, plan.ring.stageBytes));
  w.line("//");
  w.comment("Reading order: the request and its states, one function per stage, the model's segments, and the "
            "resident loop last.");
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
  return fmt::format("{{weightAt(p.models[0], {}), {}, {}}}", indices.at(planned.tokenTable->weight), planned.tokenTable->rowBytes,
                     planned.tokenTable->rows);
}

static void emitLoop(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const Names &names) {
  const plan::ModelPlan &planned = plan.models[0];
  const std::string pool = names.kv();
  const bool wide = plan.rowsPerPass > shape::kTileRows;
  const size_t events = stampEvents(planned).size();
  auto stamp = [&](const char *what, size_t event) {
    if (plan.knobs.stamps)
      w.line("stamp{}(grid, {});", what, event);
  };
  auto pass = [&](size_t segment) {
    const std::string name = "phases::" + names.segments[segment].function;
    return fmt::format("(pass.numRows == kOneRow ? {0}<kOneRow>() : {1})", name,
                       wide ? fmt::format("pass.numRows <= kTileRows ? {0}<kTileRows>() : {0}<kMaxRows>()", name)
                            : name + "<kTileRows>()");
  };
  w.line();
  w.comment("The resident kernel: one CTA per SM, launched once. CTA 0 runs the control code; all CTAs run the "
            "passes together; warp 8 of each streams weights, and warp 9 brings the activations of passes of many rows.");
  w.line("extern \"C\" __global__ void __launch_bounds__(kCtaThreads, 1)");
  auto fn = w.scope("megalith_run(const __grid_constant__ abi::LaunchParams p)", "megalith_run");
  w.line("Shared &shared = sharedOfCta();");
  w.line("PassShared &pass = shared.pass;");
  w.line("GridEdges &grid = shared.grid;");
  w.line("Control &control = shared.control;");
  w.line("ringInit<WeightRing::stages>(&shared.sync, p);");
  {
    auto first = w.scope("if (threadIdx.x == 0)");
    w.line("shared.params = p;");
    w.line("startStream(shared.sync, k{}Steps, p.models[0].stream);", names.segments[0].role);
    w.line("grid = {&shared.params, &shared.sync.stopped};");
    w.line("startPasses(pass, WeightRing::lent);");
  }
  w.line("if (threadIdx.x < kConsumerWarps)");
  w.line("  shared.places[threadIdx.x] = {0, 0, 0};");
  w.line("__syncthreads();");
  w.line();
  {
    auto producer = w.scope("if (warpId() == kConsumerWarps)", "producer");
    w.line("if (laneId() >= Producer<WeightRing>::lanes)");
    w.line("  return;");
    w.line("Producer<WeightRing> producer{{shared.ring, &shared.sync}};");
    {
      auto loop = w.scope(fmt::format("while (producer.nextPass() && stream{}(producer))",
                                      names.segments[0].role));
      for (size_t i = 1; i < planned.segments.size(); ++i) {
        w.line("if (producer.headFollows() && !stream{}(producer))", names.segments[i].role);
        w.line("  break;");
      }
    }
    w.line("producer.drain();");
    w.line("return;");
  }
  {
    auto windowWarp = w.scope("if (warpId() > kConsumerWarps)", "windows");
    if (wide) {
      w.line("if (laneId() >= WindowProducer<Stream>::lanes)");
      w.line("  return;");
      w.line("WindowProducer<Stream> windows(&shared.sync, &grid, shared.scratch);");
      const auto windows = [&](size_t i) { return fmt::format("phases::{}(windows)", names.segments[i].windows); };
      {
        auto loop = w.scope(fmt::format("while (windows.nextPass() && {})", windows(0)));
        for (size_t i = 1; i < planned.segments.size(); ++i) {
          w.line("if (shared.sync.wide.wantLogits && !{})", windows(i));
          w.line("  break;");
        }
        w.line("windows.finishPass();");
      }
      w.line("windows.drain();");
    }
    w.line("return;");
  }
  w.line();
  w.line("startControl(control, p, pass);");
  {
    auto loop = w.scope("for (bool behindPass = false;; behindPass = true)", "tick");
    if (plan.knobs.stamps)
      w.line("const u64 began = nanoseconds(); // which tick it is shows later");
    w.line("if (threadIdx.x == 0)");
    w.line("  awaitPlanRead(shared.sync);");
    w.line("if (blockIdx.x == 0)");
    w.line("  controlTicks(behindPass);");
    w.line("else");
    w.line("  awaitPass(grid, 0, pass);");
    w.line("consumerSync();");
    w.line("if (pass.done)");
    w.line("  break;");
    w.line("if (threadIdx.x == 0)");
    w.line("  grid.tick = pass.tick;");
    if (plan.knobs.stamps)
      w.line("stampWord(grid, 0, began);");
    stamp("End", 0);
    {
      w.comment("The others go on meanwhile.");
      auto planner = w.scope("if (warpId() == kConsumerWarps - 1)");
      w.line("planPass<{}, Stream>(pass);", pool);
      w.line("if (laneId() == 0)");
      w.line("  announcePlan(shared.sync, pass);");
    }
    w.line("if (!{})", pass(0));
    w.line("  break;");
    if (plan.knobs.words) {
      w.line("char *const last = p.models[0].workspace + (pass.sets.current ^ 1) * Workspace::setBytes;");
      if (plan.wideRows) {
        w.line("if (pass.sets.rowsBefore > kTileRows) // the rest they have as images");
        w.line("  clearRecords<Workspace::rowBytes, Workspace::wideBegin, Workspace::wideEnd>(last, pass.sets.rowsBefore);");
        w.line("else");
      }
      w.line("{}clearWords(last, pass.sets.rowsBefore == 1 ? Workspace::narrowBytes : pass.sets.rowsBefore * Workspace::rowBytes);", plan.wideRows ? "  " : "");
    }
    if (planned.segments.size() > 1) {
      w.line("if (pass.wantLogits && !{})", pass(1));
      w.line("  break;");
    }
    w.line("leavePass(grid);");
    stamp("Begin", events - 1);
    {
      w.line("if (blockIdx.x == 0 && !finishPass<{}>(grid, Edges::pass, Edges::best, pass, Tagged::best, {}))", pool, tokenTable(module, planned));
      w.line("  break;");
    }
    stamp("End", events - 1);
  }
  w.line("consumerSync();");
  w.line("if (threadIdx.x == 0)");
  w.line("  storeFlag(&shared.sync.leave, 1);");
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
  emitLoop(w, module, plan, names);
  return w.text();
}

} // namespace megalith::emit
