#include "megalith/Plan/Plan.h"
#include "llvm/ADT/STLExtras.h"
#include <set>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
using ir::Value;

namespace {

class Verifier {
public:
  Verifier(const Plan &plan, const ir::Module &module, Diagnostics &diags)
      : plan(plan), module(module), diags(diags) {}

  bool run() { return checkEdges() && checkBuffers() && checkMatrices() && checkValues(); }

private:
  const Plan &plan;
  const ir::Module &module;
  Diagnostics &diags;
  /// The values that each buffer holds while the phases are gone through.
  std::map<int, std::set<uint32_t>> holds;

  bool fail(std::string what, SourceLoc loc) {
    diags.report(Diag::PlanInvalid, loc, what);
    return false;
  }

  bool checkEdges() {
    std::set<int> edges;
    for (const Segment &segment : plan.segments)
      for (const auto *phases : {&segment.before, &segment.repeated, &segment.after})
        for (const Phase &phase : *phases)
          if (phase.edge <= 0 || phase.edge >= (int)plan.edges.size() || !edges.insert(phase.edge).second)
            return fail(fmt::format("phase `{}` has no edge of its own", phase.name), place(phase));
    return true;
  }

  bool checkBuffers() {
    for (size_t i = 0; i < plan.buffers.size(); ++i)
      for (size_t j = i + 1; j < plan.buffers.size(); ++j) {
        const Buffer &a = plan.buffers[i], &b = plan.buffers[j];
        if (a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes)
          return fail(fmt::format("buffers `{}` and `{}` overlap", a.name, b.name), {});
      }
    return true;
  }

  bool checkMatrices() {
    for (const Matrix &m : plan.matrices) {
      if (m.group * m.chunkBlocks * 4096 > plan.stageBytes || m.blocks % m.chunkBlocks)
        return fail(fmt::format("chunks of `{}` do not fit the ring", m.name), m.loc);
      int64_t pairs = 0;
      for (const PairRange &r : m.ranges) {
        if (r.pairBegin % 4 || r.pairBegin < pairs)
          return fail(fmt::format("pairs of `{}` are not laid out in tiles", r.weight), m.loc);
        pairs = r.pairBegin + r.pairs;
      }
      if (pairs > m.groups * m.group * 4)
        return fail(fmt::format("`{}` has more rows than its tiles", m.name), m.loc);
    }
    return true;
  }

  // --- values: the phases in order, the layers twice ---------------------------

  bool checkValues() {
    llvm::ArrayRef<Value> yielded;
    for (const Segment &segment : plan.segments) {
      const ir::Region &body = segment.op->region();
      if (!bind(body.args, yielded, segment.op->loc) || !checkPhases(segment.before))
        return false;
      auto repeat = llvm::find_if(body.ops, [](const Operation &op) { return op.op == Op::Repeat; });
      if (segment.repeatCount && repeat != body.ops.end()) {
        llvm::ArrayRef<Value> carried = repeat->operands;
        for (int iteration = 0; iteration < 2; ++iteration) {
          if (!bind(repeat->region().args, carried, repeat->loc) || !checkPhases(segment.repeated))
            return false;
          carried = repeat->region().ops.back().operands;
        }
        if (!bind(repeat->results, carried, repeat->loc))
          return false;
      }
      if (!checkPhases(segment.after))
        return false;
      yielded = body.ops.back().operands;
    }
    return true;
  }

  /// From here on `names` stand for `values`, which must be in their buffers.
  bool bind(llvm::ArrayRef<Value> names, llvm::ArrayRef<Value> values, SourceLoc loc) {
    for (auto [name, value] : llvm::zip(names, values)) {
      auto it = plan.bufferOf.find(name.id);
      if (it != plan.bufferOf.end() && !checkHolds(it->second, value, "the loop or segment", loc))
        return false;
    }
    for (auto &[buffer, held] : holds)
      for (Value name : names)
        held.erase(name.id);
    for (Value name : names)
      if (auto it = plan.bufferOf.find(name.id); it != plan.bufferOf.end())
        holds[it->second].insert(name.id);
    return true;
  }

  bool checkHolds(int buffer, Value v, const std::string &reader, SourceLoc loc) {
    const std::set<uint32_t> &held = holds[buffer];
    if (held.count(v.id))
      return true;
    return fail(fmt::format("{} reads buffer `{}`, which {}", reader, plan.buffers[buffer].name,
                            held.empty() ? "nothing wrote" : "holds another value by then"),
                loc);
  }

  bool checkPhases(const std::vector<Phase> &phases) {
    return llvm::all_of(phases, [&](const Phase &phase) { return checkPhase(phase); });
  }

  bool checkPhase(const Phase &phase) {
    if (phase.kind == Phase::Copy) {
      if (holds[phase.from].empty())
        return fail(fmt::format("phase `{}` reads what nothing wrote", phase.name), {});
      holds[phase.to] = holds[phase.from];
      return true;
    }
    // Everything read from outside the phase must have been written before it.
    std::set<uint32_t> inside;
    bool ok = true;
    auto check = [&](const Operation &op) {
      for (Value r : op.results)
        inside.insert(r.id);
      for (Value v : op.operands) {
        auto it = plan.bufferOf.find(v.id);
        if (ok && !inside.count(v.id) && it != plan.bufferOf.end())
          ok = checkHolds(it->second, v, fmt::format("phase `{}`", phase.name), op.loc);
      }
    };
    check(*phase.op);
    for (const ir::Region &region : phase.op->regions)
      ir::walk(region, check);
    if (!ok)
      return false;
    std::set<int> results;
    for (Value r : phase.op->results) {
      auto it = plan.bufferOf.find(r.id);
      if (it == plan.bufferOf.end())
        continue;
      if (!results.insert(it->second).second)
        return fail(fmt::format("two results of phase `{}` share a buffer", phase.name), place(phase));
    }
    for (int buffer : readByOthers(*phase.op))
      if (results.count(buffer))
        return fail(fmt::format("phase `{}` overwrites buffer `{}` while other CTAs read it", phase.name,
                                plan.buffers[buffer].name),
                    place(phase));
    for (Value r : phase.op->results)
      if (auto it = plan.bufferOf.find(r.id); it != plan.bufferOf.end())
        holds[it->second] = {r.id};
    return true;
  }

  /// Buffers that a phase reads at other columns than those it writes.
  std::set<int> readByOthers(const Operation &op) {
    std::set<int> buffers;
    auto add = [&](Value v) {
      if (auto it = plan.bufferOf.find(v.id); it != plan.bufferOf.end())
        buffers.insert(it->second);
    };
    if (op.op == Op::Attention)
      for (Value v : op.operands)
        add(v);
    if (op.op != Op::Stream)
      return buffers;
    // The operand of the products, and what it is computed from.
    std::set<uint32_t> needed;
    for (const Operation &inner : llvm::reverse(op.region().ops))
      if (inner.op == Op::MatMul || llvm::any_of(inner.results, [&](Value r) { return needed.count(r.id); }))
        for (Value v : inner.operands) {
          needed.insert(v.id);
          add(v);
        }
    return buffers;
  }

  static SourceLoc place(const Phase &phase) { return phase.op ? phase.op->loc : SourceLoc(); }
};

} // namespace

bool verify(const Plan &plan, const ir::Module &module, Diagnostics &diags) {
  return Verifier(plan, module, diags).run();
}

} // namespace megalith::plan
