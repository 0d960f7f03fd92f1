#include "megalith/Emit/Calls.h"
#include "BodyBuilder.h"
#include "IndexRanges.h"
#include "Origin.h"
#include "StatementWriter.h"
#include "device/CallAbi.h"
#include "megalith/IR/Buffers.h"
#include "megalith/Text/Json.h"
#include "llvm/ADT/STLExtras.h"
#include <set>

namespace megalith::emit {

namespace {

/// Names of dims and buffers, as members.
struct CallNames {
  explicit CallNames(const Module &module) {
    NameSet ofDims, ofBuffers, ofStages{"T"};
    for (const Operation *op : module.all(Op::Dim))
      dims[op->name] = ofDims.claim(cppName(op->name));
    for (const Operation *op : module.all(Op::Buffer))
      buffers[op->name] = ofBuffers.claim(cppName(op->name));
    for (const Operation *op : module.all(Op::Items))
      stages[op->name] = ofStages.claim(typeName(op->name));
  }
  std::map<std::string, std::string> dims, buffers, stages;
};

/// The statements of a stage, in terms of `t`, who goes through it, the dims `d` and the buffers `x`.
class CallBody : public BodyBuilder {
public:
  CallBody(const Module &module, const CallNames &names, const Operation &stage)
      : BodyBuilder(module, stage.region(1), Locals::ofItems()), names(names), ranges(module, stage) {}

  /// The name of the item's number.
  std::string item() { return indexOf(part, {}); }

  /// What an item looks at whatever it finds: `t.bring(x.draft(i, j))`, and for ranges `t.each(d.g, [&](int j) {...})`.
  /// In front of run(), on a body of its own.
  std::vector<std::string> ahead() {
    std::vector<std::string> lines;
    for (const Operation &op : part.ops) {
      if (op.op == Op::DimGet || op.op == Op::Const)
        emitValue(op);
      if (op.op == Op::PrefixWhile && op.operands.size() == 1)
        ahead(op, lines);
    }
    return lines;
  }
  /// Where copy number `number` of an item begins, and all that it may copy, if that is known in front.
  std::string source(const Operation &copy) {
    const auto lead = static_cast<size_t>(copy.get<attr::lead>());
    const llvm::ArrayRef<Value> from = llvm::ArrayRef<Value>(copy.operands).drop_front(lead + 2);
    const Operation &buffer = *module.find(Op::Buffer, copy.get<attr::from>());
    std::string text = "x." + names.buffers.at(buffer.name);
    for (const auto &[d, v] : llvm::enumerate(from.drop_back(2))) {
      if (!ranges.inside(v, buffer, d) || !known(v))
        return "";
      text += "[" + textOf(v) + "]";
    }
    const Value low = from[from.size() - 2];
    if (!known(low) || textOf(low) != "0")
      return "";
    return fmt::format("{0}.slice(0, x.{1}.sizes[{2}])", text, names.buffers.at(buffer.name), from.size() - 2);
  }
  void defineConstants() {
    ir::walk(part, [&](const Operation &op) {
      if (op.op == Op::DimGet || op.op == Op::Const)
        emitValue(op);
    });
  }

private:
  /// Whether it is written out wherever it is used, and what as: the item's number, a dim, a constant.
  bool known(Value v) const {
    const auto it = values.find(v.id);
    return it != values.end() && it->second.free;
  }
  std::string textOf(Value v) const { return values.at(v.id).expression.inLine(0); }
  /// `x.draft(i, j)`, with `name` in place of `index`; empty where it is not known in front, or may be outside.
  std::string placeAhead(const Operation &at, Value index, const std::string &name) const {
    std::string text;
    for (const auto &[d, v] : llvm::enumerate(at.operands)) {
      if (!ranges.inside(v, *module.find(Op::Buffer, at.name), d) || (v != index && !known(v)))
        return "";
      text += (d ? ", " : "") + (v == index ? name : textOf(v));
    }
    return "x." + names.buffers.at(at.name) + "(" + text + ")";
  }
  /// What a prefix_while looks at, and an element at its end: what it finds must not change how long it takes.
  void ahead(const Operation &op, std::vector<std::string> &lines) {
    if (!known(op.operands[0]))
      return;
    const std::string end = textOf(op.operands[0]);
    std::set<std::string> places;
    ir::walk(op.region(), [&](const Operation &at) {
      if (at.op == Op::BufferAt)
        if (const std::string place = placeAhead(at, op.region().args[0], "j"); !place.empty())
          places.insert(place);
    });
    std::string all;
    for (const std::string &place : places)
      all += fmt::format(" t.bring({});", place);
    if (!all.empty())
      lines.push_back(fmt::format("t.each({}, [&](int j) {{{} }});", end, all));
    ir::walk(part, [&](const Operation &at) {
      if (at.op == Op::BufferAt && llvm::is_contained(at.operands, op.result()))
        if (const std::string place = placeAhead(at, op.result(), end); !place.empty())
          lines.push_back(fmt::format("if (laneId() == 0) t.bring({});", place));
    });
  }
  const char *templated() const override { return "t.template "; }
  /// A call tells the first fault, with its numbers, as the reference executor does.
  bool ordersFaults() const override { return true; }

  void emitValue(const Operation &op) override {
    if (op.op == Op::DimGet)
      return define(op, Code("d." + names.dims.at(op.name)), true);
    BodyBuilder::emitValue(op);
  }

  Code expression(const Operation &op) override {
    if (op.op != Op::BufferAt)
      return BodyBuilder::expression(op);
    Code code = Code("t.at(").add(place(op.name, op.operands)).addLine(op.loc.line).add(")");
    code.mayFault = true;
    code.reads.merge(readsOf(op));
    return code;
  }

  /// `x.draft(i, j)` where all indices are known to be inside, else `x.draft[i][j]`.
  Code place(const std::string &buffer, llvm::ArrayRef<Value> indices, bool whole = true) {
    Code code("x." + names.buffers.at(buffer));
    const Operation &declared = *module.find(Op::Buffer, buffer);
    bool inside = whole;
    for (const auto &[d, v] : llvm::enumerate(indices))
      inside = inside && ranges.inside(v, declared, d);
    if (inside) {
      code.add("(");
      for (const auto &[d, v] : llvm::enumerate(indices))
        code.add(d ? ", " : "").add(use(v));
      return code.add(")");
    }
    for (Value v : indices)
      code.add("[").add(use(v)).add("]");
    return code;
  }
  /// `x.kv[i].slice(low, high)`
  Code slice(const std::string &buffer, llvm::ArrayRef<Value> operands) {
    Code code = place(buffer, operands.drop_back(2), false);
    return code.add(".slice(").add(use(operands[operands.size() - 2])).add(", ").add(use(operands.back())).add(")");
  }

  void emit(const Operation &op) override {
    const llvm::ArrayRef<Value> operands = op.operands;
    switch (op.op) {
    case Op::BufferSet: {
      settleFaults(operands);
      const Code to = place(op.name, operands.drop_front());
      return effect(op, Code("t.set(").add(to).add(", ").add(use(operands[0])).addLine(op.loc.line).add(")"));
    }
    case Op::BufferCopy: {
      settleFaults(operands);
      const auto lead = static_cast<size_t>(op.get<attr::lead>());
      Code code = Code("t.copy(").add(slice(op.name, operands.take_front(lead + 2))).add(", ");
      code.add(slice(op.get<attr::from>(), operands.drop_front(lead + 2)));
      if (copies > 0)
        code.add(fmt::format(", CopyNumber<{}>()", copies));
      ++copies;
      return effect(op, code.addLine(op.loc.line).add(")"));
    }
    case Op::BufferScan:
    case Op::BufferSort: {
      hoist(op, true);
      Code code(fmt::format("t.{}(x.{}, ", op.op == Op::BufferScan ? "scan" : "sort", names.buffers.at(op.name)));
      code.add(use(operands[0]));
      const bool inTurn = takesWarpFor(op.region());
      const std::string index = indexOf(op.region(), op.loc);
      const Body body = bodyOf(op.region());
      for (const Code &value : body.yields) {
        const Code function = lambda(index, body, value);
        code.add(", ").add(inTurn ? Code("t.inTurn(").add(function).add(")") : function);
      }
      return effect(op, code.add(")"));
    }
    case Op::Yield:
      return;
    default:
      BodyBuilder::emit(op);
    }
  }

  const CallNames &names;
  const IndexRanges ranges;
  int copies = 0;
};

const char *elementOf(Scalar dtype) {
  switch (dtype) {
  case Scalar::I64:
    return "long long";
  case Scalar::F32:
    return "float";
  case Scalar::Bool:
    return "Flag";
  case Scalar::F16:
  case Scalar::BF16:
    return "Half";
  default:
    return "int";
  }
}

size_t rankOf(const Operation &buffer) { return buffer.region().ops.back().operands.size(); }

std::string bufferType(const Operation &buffer) {
  return fmt::format("Buffer<{}, {}>", elementOf(buffer.get<attr::dtype>()), rankOf(buffer));
}

class CallEmitter {
public:
  CallEmitter(const Module &module, const plan::CallPlan &plan, const SourceFiles &files, const EmitOptions &options)
      : module(module), plan(plan), names(module), writer(w, module, &files, options.lineDirectives) {}

  Unit run() {
    const std::string fileName = module.root.name + ".call.cu";
    w.setFileName(fileName);
    header();
    call();
    w.line();
    {
      const auto space = w.space("stages");
      for (const auto &[number, stage] : llvm::enumerate(plan.stages))
        this->stage(stage, static_cast<int64_t>(number));
    }
    w.line();
    std::vector<std::string> all;
    for (const plan::CallStage &stage : plan.stages)
      all.push_back("stages::" + names.stages.at(stage.op->name));
    w.line("using Stages = StageList<{}>;", fmt::join(all, ", "));
    w.line();
    w.comment("A launch: all stages, or one.");
    w.line("extern \"C\" __global__ void __launch_bounds__(kCallThreads)");
    {
      const auto entry = w.scope("megalith_call(const __grid_constant__ Call call)", "megalith_call");
      w.line("runCall<Stages>(call);");
    }
    return {fileName, w.text()};
  }

private:
  void header() {
    w.line(kCallUnit);
    w.line("//");
    w.comment(fmt::format("Pipeline `{}`, made by megalith: a kernel that other programs call. Call.cuh says how its "
                          "CTAs share the work.",
                          module.root.name));
    w.line("//");
    emitOrigin(w, module, false);
    emitParams(w, module);
    w.line("//");
    w.comment("Reading order: what a call brings, and one struct for each stage.");
    w.line();
    w.line("#include \"megalith/CallUnit.cuh\"");
    w.line();
    w.line("namespace abi = megalith::abi;");
    w.line("using namespace megalith::device;");
    w.line();
  }

  void call() {
    {
      const auto s = w.record("struct Dims");
      for (const Operation *dim : module.all(Op::Dim))
        w.line("int {}; // {} to {}", names.dims.at(dim->name), dim->get<attr::least>(), dim->get<attr::most>());
    }
    {
      const auto s = w.record("struct Buffers");
      for (const Operation *buffer : module.all(Op::Buffer)) {
        std::string shape;
        for (size_t d = 0; d < rankOf(*buffer); ++d)
          shape += (d ? ", " : "") + ir::infixOf(ir::polishOf(buffer->region(), d));
        w.line("{} {}; // [{}]{}", bufferType(*buffer), names.buffers.at(buffer->name), shape,
               buffer->get<attr::written>() ? ", written" : "");
      }
    }
    w.comment("The kernel's parameter.");
    {
      const auto s = w.record("struct Call");
      w.line("abi::CallHeader header;");
      w.line("abi::StageWork work[{}];", plan.stages.size());
      w.line("Dims dims;");
      w.line("Buffers buffers;");
    }
    w.line("static_assert(sizeof(Call) == {}, \"the manifest gives the host this layout\");", plan::callBytes(module));
  }

  void stage(const plan::CallStage &stage, int64_t number) {
    const Operation &op = *stage.op;
    CallBody body(module, names, op);
    const std::string item = stage.once ? "" : body.item();
    const std::vector<Statement> statements = body.run();
    w.line();
    w.comment(fmt::format("Stage {}{}{}.", op.name, writer.place(op.loc), taken(stage)));
    const auto s = w.record("struct " + names.stages.at(op.name));
    w.line("static constexpr int number = {}, copies = {};", number, stage.copies);
    const bool automatic = stage.mapping == Mapping::Auto;
    w.line("static constexpr bool once = {}, lanes = {}, warps = {};", stage.once,
           !stage.once && !stage.copies && stage.mapping != Mapping::Warp,
           !stage.once && !stage.copies && (automatic || stage.mapping == Mapping::Warp));
    const bool behind = number > 0 && plan.stages[static_cast<size_t>(number) - 1].scan;
    if (stage.scan)
      scan(stage.scan->name);
    ahead(stage);
    w.line(behind ? "template <class T, class Buffers>" : "template <class T>");
    const auto run = w.scope(fmt::format("static __device__ void run(T &t, const Dims &d, const Buffers &x{})",
                                         stage.once ? "" : ", int " + item));
    writer.function(statements);
  }

  /// What a warp asks for before an item is run, or before it is known to be its own.
  void ahead(const plan::CallStage &stage) {
    const Operation &op = *stage.op;
    if (stage.once)
      return;
    CallBody body(module, names, op);
    const std::string item = body.item();
    std::vector<std::string> lines;
    if (stage.copies) {
      body.defineConstants();
      for (const auto &[number, copy] : llvm::enumerate(ir::plainCopies(op)))
        if (const std::string source = body.source(*copy); !source.empty())
          lines.push_back(stage.copies == 1 ? fmt::format("t.source({});", source)
                                            : fmt::format("if (copy == {}) t.source({});", number, source));
    } else if (stage.mapping == Mapping::Warp || stage.mapping == Mapping::Auto) {
      lines = body.ahead();
    }
    if (lines.empty())
      return;
    w.line("static constexpr bool brings = true; // what an item looks at whatever it finds, in front");
    w.line("template <class T>");
    const auto f = w.scope(fmt::format("static __device__ void ahead(T &t, const Dims &d, const Buffers &x, int {}{})",
                                       item, stage.copies ? ", int copy" : ""));
    for (const std::string &line : lines)
      w.line(llvm::StringRef(line));
  }

  /// What the next stage sees where each of its CTAs has scanned for itself.
  void scan(const std::string &scanned) {
    w.line("static constexpr bool scans = true; // each CTA of the next stage may do so for itself");
    std::string values;
    {
      const auto s = w.record("struct Behind");
      for (const Operation *buffer : module.all(Op::Buffer)) {
        const bool own = buffer->name == scanned;
        const std::string &name = names.buffers.at(buffer->name), type = bufferType(*buffer);
        w.line("{}{} {}{};{}", own ? "" : "const ", type, own ? "" : "&", name, own ? " // in shared memory" : "");
        values +=
            (values.empty() ? "" : ", ") + (own ? fmt::format("{{reinterpret_cast<{} *>(shared), {{x.{}.sizes[0]}}}}",
                                                              elementOf(buffer->get<attr::dtype>()), name)
                                                : "x." + name);
      }
    }
    w.line("static __device__ Behind behind(const Buffers &x, char *shared) {{ return {{{}}}; }}", values);
  }

  static std::string taken(const plan::CallStage &stage) {
    if (stage.once)
      return ", once, by a CTA";
    if (stage.copies)
      return ", whose copies are dealt by bytes";
    switch (stage.mapping) {
    case Mapping::Serial:
      return ", item after item";
    case Mapping::Lane:
      return ", a lane an item";
    case Mapping::Warp:
      return ", a warp an item";
    default:
      return ", a lane or a warp an item";
    }
  }

  CodeWriter w;
  const Module &module;
  const plan::CallPlan &plan;
  const CallNames names;
  StatementWriter writer;
};

} // namespace

Unit emitCall(const ir::Module &module, const plan::CallPlan &plan, const SourceFiles &files,
              const EmitOptions &options) {
  return CallEmitter(module, plan, files, options).run();
}

std::string emitCallManifest(const ir::Module &module, const plan::CallPlan &plan) {
  nlohmann::ordered_json json;
  json["call"] = text::utf8(module.root.name);
  json["abi"] = abi::kCallAbiVersion;
  json["file"] = text::utf8(module.path(module.root.loc));
  json["sms"] = plan.profile.smCount;
  json["params_bytes"] = plan::callBytes(module);
  json["sort_words"] = plan.sortWords;
  const auto costs = [](const plan::ItemCosts &of) {
    return nlohmann::ordered_json::array({of.first, of.step, of.stepNumbers, of.itemsOfSm});
  };
  json["lane_costs"] = costs(plan::laneCosts);
  json["warp_costs"] = costs(plan::warpCosts);
  json["dims"] = nlohmann::ordered_json::array();
  for (const Operation *dim : module.all(Op::Dim))
    json["dims"].push_back({{"name", dim->name}, {"least", dim->get<attr::least>()}, {"most", dim->get<attr::most>()}});
  json["buffers"] = nlohmann::ordered_json::array();
  for (const Operation *buffer : module.all(Op::Buffer)) {
    nlohmann::ordered_json shape = nlohmann::ordered_json::array();
    for (size_t d = 0; d < rankOf(*buffer); ++d)
      shape.push_back(ir::polishOf(buffer->region(), d));
    json["buffers"].push_back({{"name", buffer->name},
                               {"dtype", word(buffer->get<attr::dtype>())},
                               {"written", buffer->get<attr::written>()},
                               {"shape", shape}});
  }
  json["stages"] = nlohmann::ordered_json::array();
  for (const plan::CallStage &stage : plan.stages)
    json["stages"].push_back(
        {{"name", stage.op->name},
         {"once", stage.once},
         {"mapping", word(stage.mapping)},
         {"copies", stage.copies},
         {"low", stage.low},
         {"high", stage.high},
         {"span", stage.span},
         {"scan", stage.scan ? ir::polishOf(module.find(Op::Buffer, stage.scan->name)->region(), 0) : ""},
         {"scan_bytes", stage.scan ? ir::bytesOf(module.find(Op::Buffer, stage.scan->name)->get<attr::dtype>()) : 0},
         {"copy_bytes", stage.copyBytes}});
  return text::dump(json, 2);
}

} // namespace megalith::emit
