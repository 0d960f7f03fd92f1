#include "megalith/Plan/Plan.h"
#include "llvm/ADT/STLExtras.h"
#include <set>

namespace megalith::plan {

using ir::Op;
using ir::Operation;

namespace {

class Verifier {
public:
  Verifier(const Plan &plan, const ir::Module &module, Diagnostics &diags)
      : plan(plan), module(module), diags(diags) {}

  bool run() {
    std::set<int> edges;
    for (const Segment &segment : plan.segments) {
      for (const auto *phases : {&segment.before, &segment.repeated, &segment.after})
        for (const Phase &phase : *phases)
          if (!checkPhase(phase, edges))
            return false;
    }
    for (size_t i = 0; i < plan.buffers.size(); ++i)
      for (size_t j = i + 1; j < plan.buffers.size(); ++j) {
        const Buffer &a = plan.buffers[i], &b = plan.buffers[j];
        if (a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes)
          return fail(fmt::format("buffers `{}` and `{}` overlap", a.name, b.name), {});
      }
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

private:
  const Plan &plan;
  const ir::Module &module;
  Diagnostics &diags;
  std::set<int> written;

  bool fail(std::string what, SourceLoc loc) {
    diags.report(Diag::PlanInvalid, loc, what);
    return false;
  }

  bool checkPhase(const Phase &phase, std::set<int> &edges) {
    SourceLoc loc = phase.op ? phase.op->loc : SourceLoc();
    if (phase.edge <= 0 || phase.edge >= (int)plan.edges.size() || !edges.insert(phase.edge).second)
      return fail(fmt::format("phase `{}` has no edge of its own", phase.name), loc);
    if (phase.kind == Phase::Copy) {
      if (!written.count(phase.from))
        return fail(fmt::format("phase `{}` reads what nothing wrote", phase.name), loc);
      written.insert(phase.to);
      return true;
    }
    // Everything read from outside the phase must have been written before it.
    std::set<uint32_t> inside;
    bool ok = true;
    auto check = [&](const Operation &op) {
      for (ir::Value r : op.results)
        inside.insert(r.id);
      for (ir::Value v : op.operands) {
        auto it = plan.bufferOf.find(v.id);
        if (!inside.count(v.id) && it != plan.bufferOf.end() && !written.count(it->second) && ok)
          ok = fail(fmt::format("phase `{}` reads buffer `{}`, which nothing wrote", phase.name,
                                plan.buffers[it->second].name),
                    op.loc);
      }
    };
    check(*phase.op);
    for (const ir::Region &region : phase.op->regions)
      ir::walk(region, check);
    std::set<int> results;
    for (ir::Value r : phase.op->results) {
      auto it = plan.bufferOf.find(r.id);
      if (it == plan.bufferOf.end())
        continue;
      if (!results.insert(it->second).second)
        return fail(fmt::format("two results of phase `{}` share a buffer", phase.name), loc);
      written.insert(it->second);
    }
    return ok;
  }
};

} // namespace

bool verify(const Plan &plan, const ir::Module &module, Diagnostics &diags) {
  return Verifier(plan, module, diags).run();
}

} // namespace megalith::plan
