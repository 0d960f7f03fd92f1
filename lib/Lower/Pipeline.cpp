#include "megalith/Lower/Pipeline.h"
#include "Declarations.h"
#include "StageBody.h"
#include "megalith/IR/Calls.h"
#include <set>
#include <utility>

namespace megalith {

using namespace ir;

namespace {
/// Makes the declarations; code goes through StageBody.
class PipelineLowering {
public:
  PipelineLowering(const CheckedPipeline &pipeline, Module &module) : pipeline(pipeline), module(module) {}

  void run(const SourceFiles &files) {
    beginModule(module, pipeline.name, pipeline.loc, files);
    module.root.set<attr::fault>(pipeline.fault);
    if (!pipeline.cancel.empty())
      module.root.set<attr::cancel>(pipeline.cancel);
    if (!pipeline.deadline.empty())
      module.root.set<attr::deadline>(pipeline.deadline);
    for (const CheckedParam &p : pipeline.params)
      lowerParam(module, p);
    for (const CheckedField &f : pipeline.fields)
      field(add(Op::Field, f.name, f.loc), f);
    for (const CheckedInput &i : pipeline.inputs)
      input(add(Op::Input, i.name, i.loc), i);
    for (const CheckedState &s : pipeline.states)
      state(s);
    for (const CheckedPool &p : pipeline.pools) {
      Operation &o = add(Op::Pool, p.name, p.loc);
      o.set<attr::pages>(p.pages);
      o.set<attr::page_tokens>(p.pageTokens);
      o.set<attr::watermark>(p.watermark);
      o.setWord<attr::on_full>(p.onFull);
      if (p.reserve)
        o.set<attr::reserve>(*p.reserve);
      if (p.index)
        o.set<attr::index_pages>(true);
      if (p.fp8)
        o.set<attr::format>(WeightFormat::E4m3);
      if (p.bf16Windows)
        o.set<attr::bf16_windows>(true);
    }
    for (const auto &[name, loc] : pipeline.metrics)
      add(Op::Metric, name, loc);
    for (const CheckedGauge &g : pipeline.gauges)
      add(Op::Gauge, g.name, g.loc).set<attr::type>(scalarOf(g.elem));
    for (const CheckedPolicy &p : pipeline.policies)
      policy(p);
    for (const CheckedStage &s : pipeline.stages)
      for (size_t i = 0; i < s.on.size(); ++i)
        // A stage on several states is one stage on each, with call sites of its own.
        stage(s, s.on[i], i == 0 ? s.name : s.name + "." + s.on[i]);
    for (const CheckedPool &p : pipeline.pools) {
      int64_t most = 0;
      for (const Operation *stage : std::as_const(module).all(Op::Stage))
        most = std::max(most, rowsBeyond(stage->region(), p.name));
      module.find(Op::Pool, p.name)->set<attr::rows_beyond>(most);
    }
  }

private:
  /// How many rows the calls of one run of a stage can write after the last token that the
  /// request may come to have: what a pool needs beside prompt and budget.
  int64_t rowsBeyond(const Region &stage, const std::string &pool) const {
    std::set<Value> views; // of the request's tokens
    int64_t written = 0, drafts = 0, most = 0;
    const auto look = [&](const Operation &op, int64_t rounds) {
      if (op.op == Op::Tokens || (op.op == Op::SeqSlice && views.count(op.operands[0])))
        views.insert(op.result());
      if (op.op != Op::Call || op.name != pool)
        return;
      const int64_t rows = rounds * mostRows(module, op);
      if (op.get<attr::kv>() == KvUse::Draft) {
        most = std::max(most, written + drafts + rows);
        drafts += rows;                          // the next ones go after them
      } else if (!views.count(op.operands[0])) { // what the request has is counted already
        written += rows;
        most = std::max(most, written - 1); // the first is its last token
      }
    };
    forEachInRounds(stage, look);
    return most;
  }

  Operation &add(Op op, const std::string &name, SourceLoc loc) { return declare(module, op, name, loc); }

  Operation &addTo(Region &region, Op op, const std::string &name, SourceLoc loc) {
    Builder builder(module, region);
    builder.loc = loc;
    Operation &o = builder.create(op);
    o.name = name;
    return o;
  }

  static void field(Operation &o, const CheckedField &f) {
    o.set<attr::type>(scalarOf(f.type.elem));
    const Type type = typeOf(f.type);
    if (type.kind == Type::Table)
      o.set<attr::rows>(type.size);
    if (type.isList())
      o.set<attr::capacity>(type.kind == Type::Table ? type.inner : type.size);
    else
      o.set<attr::init>(numberOf(f.init));
    if (f.inferred)
      o.set<attr::inferred>(true);
    if (f.type.elem == sema::Elem::Kept)
      o.set<attr::logits>(true);
  }

  static void input(Operation &o, const CheckedInput &i) {
    o.set<attr::type>(scalarOf(i.type.elem));
    if (!i.type.isScalar())
      o.set<attr::capacity>(i.type.capacity);
    if (i.type.table)
      o.set<attr::rows>(i.type.rows);
    if (i.range != sema::Range()) {
      o.set<attr::least>(i.range.lo);
      o.set<attr::most>(i.range.hi);
    }
    if (i.required)
      return;
    o.set<attr::optional>(true);
    if (i.type.isScalar())
      o.set<attr::init>(numberOf(i.init));
    else if (!i.items.empty())
      setList(o, i.type.elem, i.items);
  }

  void state(const CheckedState &s) {
    Operation &o = add(Op::State, s.name, s.loc);
    if (s.initial)
      o.set<attr::initial>(true);
    if (s.terminal)
      o.set<attr::terminal>(true);
    if (s.parked)
      o.set<attr::parked>(true);
    if (s.slot)
      o.set<attr::slot>(true);
    if (s.preemptible)
      o.set<attr::preemptible>(true);
    if (!s.next.empty())
      o.set<attr::next>(s.next);
  }

  void policy(const CheckedPolicy &p) {
    Region body;
    for (const CheckedField &f : p.state)
      field(addTo(body, Op::PolicyState, f.name, f.loc), f);
    if (!p.observeArgs.empty()) {
      Region code;
      for (const std::string &arg : p.observeArgs)
        code.args.push_back(module.newValue(Type::scalar(Scalar::I32), arg));
      StageBody observe(pipeline, module, code, p.name, site);
      observe.observeArgs = code.args;
      observe.statements(p.observe);
      addTo(body, Op::PolicyObserve, "", p.observeLoc).regions[0] = std::move(code);
    }
    for (const CheckedOutput &out : p.outputs) {
      Region code;
      StageBody output(pipeline, module, code, p.name, site);
      output.yield(output.expression(*out.value), out.value->loc);
      addTo(body, Op::PolicyOutput, out.name, out.loc).regions[0] = std::move(code);
    }
    Operation &o = add(Op::Policy, p.name, p.loc);
    o.set<attr::per>(Per::Request);
    o.regions[0] = std::move(body);
  }

  void stage(const CheckedStage &s, const std::string &on, const std::string &name) {
    Region code;
    StageBody body(pipeline, module, code, "", site);
    body.order(s.order);
    body.statements(s.body);
    body.go(s);
    Operation &o = add(Op::Stage, name, s.loc);
    o.set<attr::on>(on);
    if (s.limit)
      o.set<attr::limit>(*s.limit);
    o.regions[0] = std::move(code);
  }

  const CheckedPipeline &pipeline;
  Module &module;
  int64_t site = 0;
};
} // namespace

ir::Module lowerPipeline(const CheckedPipeline &pipeline, const SourceFiles &files) {
  Module module;
  PipelineLowering(pipeline, module).run(files);
  return module;
}

} // namespace megalith
