#include "megalith/Plan/Plan.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
using ir::Region;
using ir::Scalar;
using ir::Value;

static const DeviceProfile profiles[] = {
    {"h200", 132, 232448, 4800},
    {"h100", 132, 232448, 3350},
    {"a100", 108, 166912, 1555},
    {"b200", 148, 232448, 8000},
    {"cpu", 4, 232448, 20}, // the CPU executor: as many CTAs as show how they work together
};

const DeviceProfile *findProfile(llvm::StringRef name) {
  for (const DeviceProfile &p : profiles)
    if (name == p.name)
      return &p;
  return nullptr;
}

std::vector<std::string> profileNames() {
  std::vector<std::string> names;
  for (const DeviceProfile &p : profiles)
    names.push_back(p.name);
  return names;
}

bool applyKnob(Knobs &knobs, llvm::StringRef setting, Diagnostics &diags) {
  auto [key, value] = setting.split('=');
  if (key == "order") {
    if (value != "ascending" && value != "descending") {
      diags.report(Diag::BadPlanValue, {}, key.str(), value.str(), "`ascending` or `descending`");
      return false;
    }
    knobs.order = value.str();
    return true;
  }
  struct {
    const char *name;
    int64_t *target;
    int64_t low, high;
  } integers[] = {{"ctas", &knobs.ctas, 1, 1024},
                  {"ring", &knobs.ring, 2, 16},
                  {"chunk", &knobs.chunk, 4096, 65536},
                  {"stamps", &knobs.stamps, 0, 1}};
  for (auto &entry : integers)
    if (key == entry.name) {
      int64_t number;
      if (value.getAsInteger(10, number) || number < entry.low || number > entry.high) {
        diags.report(Diag::BadPlanValue, {}, key.str(), value.str(),
                     fmt::format("a number from {} to {}", entry.low, entry.high));
        return false;
      }
      *entry.target = number;
      return true;
    }
  std::vector<std::string> known = {"chunk", "ctas", "order", "ring", "stamps"};
  diags.report(Diag::UnknownPlanKey, {}, key.str());
  diags.suggest(key, known);
  diags.note("known keys: " + llvm::join(known, ", "));
  return false;
}

namespace {

int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// Bytes of shared memory beside ring and scratch: the pass table, barriers, and control's state,
/// of which some words stand for each slot.
int64_t controlShared(int64_t slots, int64_t gauges) {
  return 8192 + std::max<int64_t>(128, 72 + 4 * gauges) * slots;
}
constexpr int64_t kSumBytes = 2 * 8 * 4 * 16 * 8 * 4; ///< two buffers of Stream.cuh's sums

class Planner {
public:
  Planner(const ir::Module &module, Plan &plan, Diagnostics &diags)
      : module(module), plan(plan), diags(diags) {}

  bool run() {
    auto models = module.all(Op::Model);
    if (models.size() != 1) {
      diags.report(Diag::PlanUnsupported, {},
                   fmt::format("a kernel for {} models; one model per pipeline can be compiled",
                               models.size()));
      return false;
    }
    // Control.cuh keeps a slot's gauges of a tick as bits of one word.
    if (auto gauges = module.all(Op::Gauge); gauges.size() > 32)
      return unsupported(*gauges[32], fmt::format("{} traced gauges; 32 at most", gauges.size()));
    const Operation &model = *models[0];
    plan.model = model.name;
    plan.rowsPerPass = module.param("rows_per_pass");
    plan.ctas = plan.knobs.ctas ? plan.knobs.ctas : plan.profile.smCount;
    uses = ir::countUses(module, module.root.region());
    plan.edges.push_back({"tick plan", {}});
    for (const Operation &segment : model.region().ops)
      if (segment.op == Op::Segment)
        if (!planSegment(segment, model))
          return false;
    lowerEdges();
    layOut(model);
    return !diags.hasErrors();
  }

private:
  const ir::Module &module;
  Plan &plan;
  Diagnostics &diags;
  std::vector<unsigned> uses;
  int64_t nextFirst = 0;
  std::vector<Value> forwarded; ///< body's yields, in order, for the head's arguments

  bool unsupported(const Operation &op, std::string what) {
    diags.report(Diag::PlanUnsupported, op.loc, what);
    return false;
  }

  const Operation *weight(const Operation &model, llvm::StringRef name) {
    for (const Operation &op : model.region().ops)
      if (op.op == Op::Weight && op.name == name)
        return &op;
    return nullptr;
  }

  /// All uses of `v` are `round`: it may be stored rounded.
  bool onlyRounded(Value v) {
    bool only = true;
    ir::walk(module.root.region(), [&](const Operation &op) {
      if (llvm::is_contained(op.operands, v) && op.op != Op::Round)
        only = false;
    });
    return only;
  }

  /// `base`, with a number when a buffer has that name.
  std::string bufferName(const std::string &base) {
    std::string name = base;
    for (int n = 2; llvm::any_of(plan.buffers, [&](const Buffer &other) { return other.name == name; }); ++n)
      name = base + std::to_string(n);
    return name;
  }

  /// A buffer for `v`, named after it, else after the phase that writes it.
  int newBuffer(Value v, const std::string &phase) {
    const ir::Type &type = module.type(v);
    Buffer b;
    b.name = bufferName(module.hint(v).empty() ? phase : module.hint(v).str());
    b.dtype = type.elem == Scalar::F32 && onlyRounded(v) ? Scalar::BF16 : type.elem;
    b.columns = type.size;
    b.stride = roundUp(type.size, 8);
    plan.buffers.push_back(b);
    return plan.buffers.size() - 1;
  }

  int newEdge(std::string name, SourceLoc loc) {
    plan.edges.push_back({std::move(name), loc});
    return plan.edges.size() - 1;
  }

  /// Values that the operands of `op`'s products depend on, inside its region.
  std::set<uint32_t> prologueValues(const Operation &op) {
    std::set<uint32_t> needed;
    const auto &ops = op.region().ops;
    for (const Operation &inner : llvm::reverse(ops)) {
      bool wanted = inner.op == Op::MatMul;
      for (Value r : inner.results)
        wanted |= needed.count(r.id) != 0;
      if (wanted)
        for (Value v : inner.operands)
          needed.insert(v.id);
    }
    return needed;
  }

  static bool reads(const Region &region, Value v) {
    bool found = false;
    ir::walk(region, [&](const Operation &op) { found |= llvm::is_contained(op.operands, v); });
    return found;
  }
  static bool reads(const Operation &op, Value v) {
    return llvm::is_contained(op.operands, v) ||
           llvm::any_of(op.regions, [&](const Region &region) { return reads(region, v); });
  }

  /// A result of `op` may take over the buffer of a value that `op` reads only at
  /// the columns it writes and that nobody reads later.
  int reusable(const Operation &op, Value result, Value yielded, llvm::ArrayRef<const Operation *> later) {
    const auto &ops = op.region().ops;
    std::set<uint32_t> defined;
    bool rotates = false;
    for (const Operation &inner : ops) {
      for (Value r : inner.results)
        defined.insert(r.id);
      rotates |= inner.op == Op::RotateHalf;
    }
    // With several results another thread may still read what this one overwrites.
    if (op.results.size() != 1 || (op.op == Op::Map && rotates))
      return -1;
    int candidate = -1;
    std::set<uint32_t> inPrologue;
    if (op.op == Op::Stream)
      inPrologue = prologueValues(op);
    for (const Operation &inner : ops)
      for (Value u : inner.operands) {
        auto it = plan.bufferOf.find(u.id);
        if (it == plan.bufferOf.end() || defined.count(u.id) || inPrologue.count(u.id))
          continue;
        if (module.type(u) != module.type(result))
          continue;
        // The only readers are this operation's own; the layers' loop rereads
        // nothing from before it except its arguments, which this may be.
        bool readLater = llvm::any_of(later, [&](const Operation *next) { return reads(*next, u); });
        if (readLater || !overwritable.count(u.id) || !elementOf(op, yielded, u))
          continue;
        // A loop-carried buffer first: the next iteration then finds it in place.
        if (loopBuffers.count(it->second))
          return it->second;
        if (candidate < 0)
          candidate = it->second;
      }
    return candidate;
  }

  /// `value` is computed in `op`'s region from `u` without a reduction over u's
  /// columns in the same sweep (maps reduce before they write, so they may).
  bool elementOf(const Operation &op, Value value, Value u) {
    std::set<uint32_t> slice = {value.id};
    for (const Operation &inner : llvm::reverse(op.region().ops)) {
      bool wanted = false;
      for (Value r : inner.results)
        wanted |= slice.count(r.id) != 0;
      if (wanted)
        for (Value v : inner.operands)
          slice.insert(v.id);
    }
    return slice.count(u.id) != 0;
  }

  std::set<uint32_t> overwritable; ///< values whose buffer this region owns
  std::set<int> loopBuffers;       ///< of the arguments of `repeat`

  bool planOps(const Region &region, const Operation &model, int64_t layers, std::vector<Phase> &phases,
               Segment *segment) {
    for (size_t i = 0; i < region.ops.size(); ++i) {
      const Operation &op = region.ops[i];
      std::vector<const Operation *> later;
      for (size_t j = i + 1; j < region.ops.size(); ++j)
        later.push_back(&region.ops[j]);
      switch (op.op) {
      case Op::Yield:
        break;
      case Op::WeightGet:
      case Op::Const:
        return unsupported(op, fmt::format("`{}` outside a fused group", ir::mnemonic(op.op).str()));
      case Op::Repeat: {
        if (!segment || segment->repeatCount)
          return unsupported(op, "more than one `repeat`, or a nested one");
        segment->repeatCount = op.getInt("count");
        if (!planRepeat(op, model, *segment, later))
          return false;
        break;
      }
      case Op::Stream:
      case Op::Map:
      case Op::Attention: {
        // Behind the repeat, phases go to `after`.
        std::vector<Phase> &target = segment && segment->repeatCount ? segment->after : phases;
        if (!planPhase(op, model, layers, target, later))
          return false;
        break;
      }
      default:
        return unsupported(op, fmt::format("`{}` outside a fused group; run the fusion passes first",
                                           ir::mnemonic(op.op).str()));
      }
    }
    return true;
  }

  bool planPhase(const Operation &op, const Operation &model, int64_t layers, std::vector<Phase> &phases,
                 llvm::ArrayRef<const Operation *> later) {
    Phase phase;
    phase.op = &op;
    if (op.op == Op::Stream) {
      phase.kind = Phase::Stream;
      if (!planMatrix(op, model, layers, phase))
        return false;
      phase.name = plan.matrices[phase.matrix].name;
    } else {
      if (op.op == Op::Map && !checkMap(op))
        return false;
      phase.kind = op.op == Op::Map ? Phase::Map : Phase::Attention;
      Value first = op.results.empty() ? Value() : op.results[0];
      phase.name = first && !module.hint(first).empty() ? module.hint(first).str()
                   : op.op == Op::Map                   ? "map"
                                                        : "attention";
    }
    if (op.op == Op::Attention) {
      plan.bufferOf[op.result().id] = newBuffer(op.result(), phase.name);
      overwritable.insert(op.result().id);
    } else {
      const Operation &yield = op.region().ops.back();
      for (auto [result, yielded] : llvm::zip(op.results, yield.operands)) {
        const ir::Type &type = module.type(result);
        if (type.kind == ir::Type::Kv || type.elem == Scalar::Token)
          continue;
        int buffer = reusable(op, result, yielded, later);
        plan.bufferOf[result.id] = buffer >= 0 ? buffer : newBuffer(result, phase.name);
        overwritable.insert(result.id);
      }
    }
    phase.edge = newEdge(phase.name, op.loc);
    phases.push_back(std::move(phase));
    return true;
  }

  /// Maps store eight columns at a time, and keep no best logit.
  bool checkMap(const Operation &op) {
    for (const Operation &inner : op.region().ops) {
      if (inner.op == Op::ArgMax)
        return unsupported(inner, "an `argmax` over logits that come from two products or from none");
      int64_t groups = inner.getInt("groups", 1);
      if (groups > 1 && module.type(inner.operands[0]).size / groups % 8)
        return unsupported(inner, fmt::format("a norm or reduction over blocks of {} columns; blocks must be multiples of 8",
                                              module.type(inner.operands[0]).size / groups));
    }
    return true;
  }

  bool planRepeat(const Operation &op, const Operation &model, Segment &segment,
                  llvm::ArrayRef<const Operation *> later) {
    const Region &body = op.region();
    // Every iteration reads what stands before the loop: it may overwrite nothing of that.
    std::set<uint32_t> outside = std::exchange(overwritable, {});
    for (auto [init, arg] : llvm::zip(op.operands, body.args)) {
      // The loop owns its values' buffers: take the initial value's, or copy it.
      bool readLater = reads(body, init);
      for (const Operation *next : later)
        readLater |= reads(*next, init);
      int from = plan.bufferOf.at(init.id), to = from;
      if (readLater || llvm::count(op.operands, init) > 1) {
        to = newBuffer(arg, "carried");
        segment.before.push_back({Phase::Copy, "copy " + plan.buffers[from].name, nullptr, -1, from, to,
                                  newEdge("copy " + plan.buffers[from].name, op.loc)});
      }
      plan.bufferOf[arg.id] = to;
      overwritable.insert(arg.id);
      loopBuffers.insert(to);
    }
    if (!planOps(body, model, op.getInt("count"), segment.repeated, nullptr))
      return false;
    const Operation &yield = body.ops.back();
    std::vector<std::pair<int, int>> moves;
    for (auto [yielded, arg] : llvm::zip(yield.operands, body.args))
      if (plan.bufferOf.at(yielded.id) != plan.bufferOf.at(arg.id))
        moves.push_back({plan.bufferOf.at(yielded.id), plan.bufferOf.at(arg.id)});
    auto copy = [&](int from, int to) {
      std::string name = "copy " + plan.buffers[from].name;
      segment.repeated.push_back({Phase::Copy, name, nullptr, -1, from, to, newEdge(name, op.loc)});
    };
    // What an earlier copy would overwrite steps aside first: values may change places.
    for (size_t i = 0; i < moves.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (moves[j].second == moves[i].first) {
          plan::Buffer aside = plan.buffers[moves[i].first];
          aside.name = bufferName(aside.name);
          plan.buffers.push_back(aside);
          copy(moves[i].first, plan.buffers.size() - 1);
          moves[i].first = plan.buffers.size() - 1;
          break;
        }
    for (auto [from, to] : moves)
      copy(from, to);
    overwritable = std::move(outside);
    for (auto [result, arg] : llvm::zip(op.results, body.args)) {
      plan.bufferOf[result.id] = plan.bufferOf.at(arg.id);
      overwritable.insert(result.id);
    }
    return true;
  }

  bool planMatrix(const Operation &op, const Operation &model, int64_t layers, Phase &phase) {
    Matrix m;
    m.loc = op.loc;
    m.layers = 0;
    m.k = 0;
    int64_t pairs = 0;
    std::set<size_t> done; // the second product of a dual range
    std::vector<const Operation *> products;
    for (const Operation &inner : op.region().ops)
      if (inner.op == Op::MatMul)
        products.push_back(&inner);
    for (auto [number, product] : llvm::enumerate(products)) {
      const Operation *w = weight(model, product->name);
      if (!w)
        return unsupported(*product, fmt::format("unknown weight `{}`", product->name));
      auto shape = w->getInts("shape");
      m.k = shape[1];
      if (w->getInt("layers"))
        m.layers = layers;
      m.name += (m.name.empty() ? "" : "_") + product->name;
      if (done.count(number))
        continue;
      PairRange range;
      range.weight = product->name;
      range.product = product->result();
      range.columns = shape[0];
      range.dim = product->getInt("dim");
      range.pairBegin = pairs;
      std::string pairing = product->getString("pair", "adjacent");
      if (pairing == "half") {
        range.pairing = Pairing::Half;
        range.pairs = shape[0] / 2;
      } else if (pairing == "dual") {
        const Operation *second = products.at(product->getInt("partner"));
        range.pairing = Pairing::Dual;
        range.second = second->name;
        range.secondProduct = second->result();
        range.pairs = shape[0];
        done.insert(product->getInt("partner"));
      } else {
        range.pairing = Pairing::Adjacent;
        range.pairs = (shape[0] + 1) / 2;
      }
      pairs += roundUp(range.pairs, 4);
      m.ranges.push_back(range);
    }
    m.kPadded = roundUp(m.k, 256);
    m.blocks = m.kPadded / 256;
    int64_t tiles = pairs / 4, best = INT64_MAX;
    // The group that leaves the slowest CTA the least work; among equals the larger.
    for (int64_t group = 4; group >= 1; --group) {
      int64_t work = ((tiles + group - 1) / group + plan.ctas - 1) / plan.ctas * group;
      if (work < best) {
        best = work;
        m.group = group;
      }
    }
    m.groups = (tiles + m.group - 1) / m.group;
    m.chunkBlocks = 1;
    while (m.chunkBlocks * 2 * m.group * 4096 <= plan.knobs.chunk && m.blocks % (m.chunkBlocks * 2) == 0)
      m.chunkBlocks *= 2;
    m.bytes = m.groups * m.blocks * m.group * 4096;
    m.firstCta = nextFirst;
    nextFirst = (nextFirst + m.groups) % plan.ctas;
    phase.matrix = plan.matrices.size();
    plan.matrices.push_back(std::move(m));
    return true;
  }

  bool planSegment(const Operation &op, const Operation &model) {
    Segment segment;
    segment.name = op.name;
    segment.op = &op;
    overwritable.clear();
    const Region &body = op.region();
    for (auto [index, arg] : llvm::enumerate(body.args)) {
      if (index >= forwarded.size())
        return unsupported(op, "a segment with more arguments than the one before yields");
      // `kv` orders an attention behind the append; nothing is stored for it.
      if (module.type(arg).kind != ir::Type::Kv)
        plan.bufferOf[arg.id] = plan.bufferOf.at(forwarded[index].id);
    }
    if (!planOps(body, model, 0, segment.before, &segment))
      return false;
    const Operation &yield = body.ops.back();
    forwarded.assign(yield.operands.begin(), yield.operands.end());
    plan.segments.push_back(std::move(segment));
    return true;
  }

  /// All edges are grid barriers but the last one when only maxima cross it: CTA 0 alone
  /// reads these, and the tick's edge stands before their memory is written again.
  void lowerEdges() {
    const Segment &last = plan.segments.back();
    const std::vector<Phase> &phases = !last.after.empty() || last.repeatCount ? last.after : last.before;
    if (phases.empty() || phases.back().kind != Phase::Stream || phases.back().edge + 1 != (int)plan.edges.size())
      return;
    if (llvm::any_of(phases.back().op->region().ops, [](const Operation &op) { return op.op == Op::ArgMax; }))
      plan.edges[phases.back().edge].lowering = Edge::Tagged;
  }

  void layOut(const Operation &model) {
    int64_t offset = 0;
    plan.stageBytes = 4096;
    for (Matrix &m : plan.matrices) {
      m.offset = offset;
      offset += m.bytes * std::max<int64_t>(1, m.layers);
      plan.stageBytes = std::max(plan.stageBytes, m.group * m.chunkBlocks * 4096);
    }
    plan.streamBytes = offset;
    offset = 0;
    for (Buffer &b : plan.buffers) {
      b.offset = offset;
      b.bytes = plan.rowsPerPass * b.stride * (b.dtype == Scalar::F32 ? 4 : 2);
      offset += roundUp(b.bytes, 256);
    }
    plan.workspaceBytes = offset;
    plan.bestOffset = 0;
    plan.taggedBytes = roundUp(plan.rowsPerPass * plan.ctas * 16, 256);

    int64_t attention = 0;
    ir::walk(model.region(), [&](const Operation &op) {
      if (op.op != Op::Attention)
        return;
      int64_t group = op.getInt("heads") / op.getInt("kv_heads"), dim = op.getInt("dim"), together = 1;
      for (int64_t n = 4; n > 1 && together == 1; --n)
        if (group % n == 0)
          together = n;
      attention = std::max(attention, 4 * (together * dim + 8 * together * (dim + 2)));
    });
    plan.scratchBytes = roundUp(std::max(kSumBytes, attention), 128);
    const int64_t beside =
        controlShared(module.param("slots"), module.all(Op::Gauge).size()) + plan.scratchBytes;
    const int64_t room = plan.profile.sharedBytes - beside;
    int64_t fit = std::min<int64_t>(16, room / plan.stageBytes);
    plan.stages = plan.knobs.ring ? plan.knobs.ring : fit;
    if (plan.stages < 2 || plan.stages > fit) {
      diags.report(Diag::PlanShared, {}, plan.stages, plan.stageBytes, plan.profile.name, fit);
      return;
    }
    plan.sharedBytes = plan.stages * plan.stageBytes + beside;
  }
};

} // namespace

std::optional<Plan> makePlan(const ir::Module &module, const DeviceProfile &profile, const Knobs &knobs,
                             Diagnostics &diags) {
  Plan plan;
  plan.profile = profile;
  plan.knobs = knobs;
  if (!Planner(module, plan, diags).run())
    return std::nullopt;
  return plan;
}

} // namespace megalith::plan
