#include "Tensor.h"
#include "device/Shape.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <optional>
#include <set>

namespace megalith::emit {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;

/// Where a row begins in its tensor.
static std::string firstOfRow(const WeightView &view, const std::string &row, int64_t rows) {
  const std::string offset = view.offset ? fmt::format("{}ll + ", view.offset) : "";
  if (rows <= view.block)
    return fmt::format("{}(long long){} * {}", offset, row, view.rowStride);
  return fmt::format("{0}(long long)({1} / {2}) * {3} + (long long)({1} % {2}) * {4}", offset, row, view.block,
                     view.blockStride, view.rowStride);
}

static void emitWeightRow(CodeWriter &w, const Operation &model, const std::map<std::string, int> &index,
                          const std::string &weight, const std::string &row, int64_t rows) {
  const Operation &op = ir::storageOf(model, weight);
  const WeightView view = ir::viewOf(op);
  w.line("return {} < {} ? RawRow{{raw + {}{}, {}{}}} : RawRow();", row, rows, index.at(weight),
         op.get<attr::layers>() ? " + layer" : "", firstOfRow(view, row, rows),
         view.columnStride == 1 ? "" : fmt::format(", {}", view.columnStride));
}

/// The same of codes, whose scales and zero points stand after them in the table.
static void emitCodedRow(CodeWriter &w, const Operation &model, const std::map<std::string, int> &index,
                         const std::string &weight, const std::string &row, int64_t rows) {
  const Operation &op = ir::storageOf(model, weight);
  const WeightScheme scheme = ir::schemeOf(op);
  const int64_t tensorRows = ir::storedShape(op)[0], columns = ir::storedShape(op)[1], tensors = ir::tensorsOf(op);
  WeightView view = ir::viewOf(op); // in rows of the tensor
  for (int64_t *size : {&view.offset, &view.blockStride, &view.rowStride})
    *size /= columns;
  const int64_t scaleRows = scheme.scaleRows ? scheme.scaleRows : tensorRows,
                scaleColumns = scheme.scaleColumns ? scheme.scaleColumns : columns;
  const auto part = [&](int64_t number) {
    return fmt::format("raw + {}{}", index.at(weight) + number * tensors, op.get<attr::layers>() ? " + layer" : "");
  };
  w.line("if ({} >= {})", row, rows);
  w.line("  return CodedRow();");
  w.line("const int ofTensor = int({});", firstOfRow(view, row, rows));
  w.line("return CodedRow{{{}, {}, {}, ofTensor, {}, {}, ofTensor / {}, {}, {}}};", part(0), part(1),
         scheme.zeros ? part(2) : "nullptr", tensorRows, columns, scaleRows, (tensorRows + scaleRows - 1) / scaleRows,
         (columns + scaleColumns - 1) / scaleColumns);
}

void emitPairColumns(CodeWriter &w, const plan::PairRange &r, const std::string &pair) {
  switch (r.pairing) {
  case plan::Pairing::Adjacent:
    w.line("const int c0 = 2 * {}, c1 = c0 + 1;", pair);
    break;
  case plan::Pairing::Half:
    if (r.turned != r.dim) { // of what is turned, then of the rest
      w.line("const int ofHead = {0} % {1}, turned = ofHead < {2};", pair, r.dim / 2, r.turned / 2);
      w.line("const int c0 = {0} / {1} * {2} + ofHead + (turned ? 0 : {3}), c1 = c0 + (turned ? {3} : {4});", pair,
             r.dim / 2, r.dim, r.turned / 2, (r.dim - r.turned) / 2);
      break;
    }
    w.line("const int c0 = {0} / {1} * {2} + {0} % {1}, c1 = c0 + {1};", pair, r.dim / 2, r.dim);
    break;
  case plan::Pairing::Dual:
    w.line("const int c0 = {};", pair);
    break;
  }
}

bool isReadByRow(const Operation &model, const Operation &weight) {
  const auto index = weightIndices(model);
  bool found = false;
  ir::walk(model.region(),
           [&](const Operation &op) { found |= op.op == Op::Embed && index.at(op.name) == index.at(weight.name); });
  return found;
}

/// Of one model.
static void emitPackModel(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const Names &names) {
  const plan::ModelPlan &planned = plan.models[names.number];
  const Operation &model = *module.find(Op::Model, planned.name);
  const std::string space = names.space.empty() ? "" : names.space + "::";
  auto index = weightIndices(model);
  for (size_t i = 0; i < planned.matrices.size(); ++i) {
    const plan::Matrix &m = planned.matrices[i];
    const std::string type = space + names.matrix(i);
    auto loop = w.scope(fmt::format("for (int layer = 0; layer < {}; ++layer)", std::max<int64_t>(1, m.layers)));
    std::vector<std::string> weights;
    for (const plan::PairRange &r : m.ranges)
      for (const std::string &weight : {r.weight, r.second})
        if (!weight.empty()) {
          const Operation &op = ir::storageOf(model, weight);
          for (int part = 0; part < partsOf(op); ++part) {
            std::string tensor =
                fmt::format("{}{}", index.at(weight) + part * ir::tensorsOf(op), m.layers ? " + layer" : "");
            if (!llvm::is_contained(weights, tensor)) // several may be views of one
              weights.push_back(std::move(tensor));
          }
        }
    const bool coded = m.format != WeightFormat::Bf16;
    const auto emitRow = coded ? emitCodedRow : emitWeightRow;
    w.line("if (!someHere(raw, {}))", fmt::join(weights, ", "));
    w.line("  continue;");
    auto lambda = w.lambda(fmt::format("{1}<{0}>(stream + {0}::offset + layer * {0}::layerBytes, "
                                       "[&](int packedRow) -> {2}",
                                       type, coded ? "packCodes" : "packMatrix", coded ? "CodedRow" : "RawRow"));
    w.line("const int pair = packedRow / 2, odd = packedRow % 2;");
    for (const plan::PairRange &r : m.ranges) {
      auto range = w.scope(fmt::format("if (pair >= {} && pair < {})", r.pairBegin, r.pairBegin + r.pairs), r.weight);
      w.line("const int j = pair - {};", r.pairBegin);
      emitPairColumns(w, r, "j");
      if (r.pairing == plan::Pairing::Dual) {
        auto second = w.scope("if (odd)");
        emitRow(w, model, index, r.second, "c0", r.columns);
      }
      if (r.pairing != plan::Pairing::Dual)
        w.line("const int row = odd ? c1 : c0;");
      emitRow(w, model, index, r.weight, r.pairing == plan::Pairing::Dual ? "c0" : "row", r.columns);
    }
    w.line("return {}();", coded ? "CodedRow" : "RawRow");
  }
  for (const plan::Vector &v : planned.vectors) {
    auto loop =
        w.scope(fmt::format("for (int layer = 0; layer < {}; ++layer)", std::max<int64_t>(1, v.layers)), v.weight);
    const Operation &weight = ir::storageOf(model, v.weight);
    const WeightView view = ir::viewOf(weight);
    const std::string target = fmt::format("stream + {} + layer * {}ll", v.offset, v.bytes);
    const std::string tensor = fmt::format("raw[{}{}]", index.at(v.weight), v.layers ? " + layer" : "");
    if (!weight.has<attr::view>() && ir::storedShape(weight) == weight.get<attr::shape>())
      w.line("packVector({}, {});", target, tensor);
    else
      w.line("packVector({}, {}, {}, [](int i) {{ return {}; }});", target, tensor, v.length,
             firstOfRow(view, "i", v.length));
  }
  std::set<int> kept;
  for (const Operation &op : model.region().ops)
    if (op.op == Op::Weight && !op.has<attr::alias>() && isReadByRow(model, op) &&
        kept.insert(index.at(op.name)).second) {
      auto loop = w.scope(fmt::format("for (int layer = 0; layer < {}; ++layer)", ir::tensorsOf(op)), op.name);
      w.line("keepTensor({}, {} + layer, raw);", names.params(), index.at(op.name));
    }
}

void emitPack(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const std::vector<Names> &names) {
  const bool several = names.size() > 1;
  w.comment("Lays the weights out as the kernel streams them. Packed rows 2j and 2j+1 are the two output "
            "columns that one thread receives together. A launch packs what is there (Packing.cuh)" +
            std::string(several ? ", of one model." : "."));
  w.line("extern \"C\" __global__ void __launch_bounds__(256, 4)");
  auto fn = w.scope(fmt::format("megalith_pack(const __grid_constant__ abi::LaunchParams p, const abi::RawTensor *raw, "
                                "char *stream{})",
                                several ? ", int model" : ""),
                    "megalith_pack");
  for (const Names &of : names) {
    std::optional<CodeWriter::Scope> one;
    if (several)
      one.emplace(w.scope(fmt::format("if (model == {})", of.number), plan.models[of.number].name));
    emitPackModel(w, module, plan, of);
  }
}

/// Vectors that a phase reads.
static std::vector<const plan::Vector *> vectorsOf(const plan::ModelPlan &planned, const plan::Phase &phase) {
  std::vector<const plan::Vector *> used;
  for (const ir::Region &region : phase.op->regions)
    ir::walk(region, [&](const Operation &op) {
      if (op.op == Op::WeightGet)
        if (const plan::Vector *v = &planned.vectorOf(op.name); !llvm::is_contained(used, v))
          used.push_back(v);
    });
  return used;
}

void emitProducer(CodeWriter &w, const plan::Plan &plan, const Names &names) {
  const plan::ModelPlan &planned = plan.models[names.number];
  for (size_t i = 0; i < planned.segments.size(); ++i) {
    const plan::Segment &segment = planned.segments[i];
    if (i > 0)
      w.line();
    const std::string &role = names.segments[i].role, steps = "k" + role + "Steps";
    int count = 0;
    bool attends = false;
    std::pair<int, int> repeats;
    {
      auto list = w.record(fmt::format("__constant__ StreamStep {}[] =", steps));
      auto phases = [&](const std::vector<plan::Phase> &of) {
        for (const plan::Phase &phase : of)
          if (phase.kind == plan::Phase::Attention) {
            w.line("kvStep(),");
            attends = true;
            ++count;
          } else if (phase.kind == plan::Phase::Stream) {
            for (const plan::Vector *v : vectorsOf(planned, phase)) {
              w.line("vectorStep({}, {}, {}), // {}", v->offset, v->layers ? v->bytes : 0, v->bytes, v->weight);
              ++count;
            }
            w.line("matrixStep<{}>({}),", names.matrix(phase.matrix),
                   planned.matrices[phase.matrix].layers ? "true" : "false");
            ++count;
          }
        return count;
      };
      const int first = phases(segment.before), end = segment.repeatCount ? phases(segment.repeated) : first;
      phases(segment.after);
      repeats = {first, end};
    }
    auto fn = w.scope(fmt::format("__device__ __noinline__ bool stream{}(Producer<WeightRing> &producer)", role),
                      "stream" + role);
    w.line("Shared &shared = sharedOfCta();");
    w.line("const abi::LaunchParams &p = shared.params;");
    if (attends && planned.bf16Layers) {
      auto kv = w.record("const auto kv = [&](Producer<WeightRing> &inner, int layer)");
      w.line("if (isInBf16<{}>(layer))", names.kv());
      w.line("  return streamKv<InBf16<{}>>(inner, p, shared.pass, layer);", names.kv());
      w.line("return streamKv<{}>(inner, p, shared.pass, layer);", names.kv());
    } else if (attends)
      w.line("const auto kv = [&](Producer<WeightRing> &inner, int layer) {{ return streamKv<{}>(inner, p, "
             "shared.pass, layer); }};",
             names.kv());
    const bool wide = plan.rowsAtOnce > shape::kTileRows, isPlanned = i > 0;
    w.line("return {}(producer, {}, {}, {}, {}, {}{}, {}.stream, {}){};",
           wide ? "streamSegment<Stream::wideRows>" : "streamSteps", steps, count, repeats.first, repeats.second,
           wide ? "" : "0, ", std::max<int64_t>(1, segment.repeatCount), names.params(), attends ? "kv" : "NoKv()",
           wide || isPlanned ? "" : " && producer.awaitPlan()");
  }
}

} // namespace megalith::emit
