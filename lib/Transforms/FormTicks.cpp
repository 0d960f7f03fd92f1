//===- FormTicks.cpp - stages become one static list of parts and passes --===//
//
// A stage is cut at each of its model calls into parts; the list of all parts in
// file order, with the pass of every model at its last call site, is the tick:
//
//   stage @verify {before; %b = call @m(%rows) {site = 1}; after}
//     part @verify.0 {before; issue @m(%rows) {site = 1}}
//     pass @m
//     part @verify.1 {%b = results @m {site = 1}; after}
//
// A part after an earlier call site of the same model follows that model's pass.
// A value that lives across a call is computed again when it is a constant, an input, a setting of sampling or a view
// of inputs or of the request's tokens (none of which change while a call is pending); otherwise
// it is kept in a request field named `stage.value`.
//===----------------------------------------------------------------------===//
#include "ControlUtil.h"
#include "megalith/Transforms/Passes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

namespace megalith::transforms {

using namespace ir;

namespace {

/// One stage cut into its parts; calls[k] stands between part k and part k + 1. It may be an `enter`: where a loop
/// begins, and after its last piece. A loop in another one has that one's number: their pieces are one row.
struct SplitStage {
  Operation stage;
  std::vector<Region> pieces;
  std::vector<Operation> calls;
  std::vector<int64_t> loops; ///< of the pieces; -1: none
  std::vector<int64_t> after; ///< the sites that the pieces go on after; -1: the first one
};

bool isLoop(const Operation &op) { return op.op == Op::For && op.has<attr::rounds>(); }

class TickFormer {
public:
  explicit TickFormer(Module &module) : module(module) {}

  void run() {
    std::vector<Operation> kept;
    std::vector<SplitStage> stages;
    std::map<std::string, int64_t> lastSite;
    for (const Operation *stage : module.all(Op::Stage))
      walk(stage->region(), [&](const Operation &op) {
        if (op.op == Op::Call)
          nextSite = std::max(nextSite, op.get<attr::site>() + 1);
      });
    for (Operation &op : module.ops()) {
      if (op.op != Op::Stage) {
        kept.push_back(std::move(op));
        continue;
      }
      stages.push_back(split(std::move(op)));
      const SplitStage &s = stages.back();
      for (size_t k = 0; k < s.calls.size(); ++k)
        if (s.calls[k].op == Op::Call && s.loops[k] < 0)
          lastSite[s.calls[k].name] = s.calls[k].get<attr::site>();
    }
    module.ops() = std::move(kept);
    for (SplitStage &s : stages) {
      lastCalls(s, lastSite);
      carryValues(s);
    }
    breakCircles();
    insertFields(module, std::move(fields));

    Operation tick;
    tick.op = Op::Tick;
    list = &tick.regions.emplace_back().ops;
    std::vector<Placed> first; // of the stages
    for (SplitStage &s : stages) {
      const std::vector<std::vector<Operation>> passes = passesAfter(s, lastSite);
      for (size_t k = 0; k < s.pieces.size(); ++k) {
        Placed placed{part(s, k), passes[k]};
        if (s.loops[k] >= 0)
          inLoop[s.loops[k]].push_back(std::move(placed));
        else if (k > 0 && s.calls[k - 1].op == Op::Enter)
          afterLoop.emplace(s.loops[k - 1], std::move(placed));
        else
          (k ? after[s.calls[k - 1].name] : first).push_back(std::move(placed));
      }
    }
    for (Placed &p : first) {
      list->push_back(std::move(p.part));
      for (const Operation &call : p.passes)
        place(call);
    }
    // The tick stands before the models, which end the module.
    auto models = llvm::find_if(module.ops(), [](const Operation &o) { return o.op == Op::Model; });
    module.ops().insert(models, std::move(tick));
  }

private:
  SplitStage split(Operation stage) {
    SplitStage s;
    s.pieces.emplace_back();
    s.loops.push_back(-1);
    s.after.push_back(-1);
    std::vector<Operation> ops = std::move(stage.region().ops);
    stage.regions.clear();
    s.stage = std::move(stage);
    cut(s, ops, -1);
    return s;
  }

  void cut(SplitStage &s, std::vector<Operation> &ops, int64_t loop) {
    for (Operation &op : ops) {
      if (isLoop(op)) {
        splitLoop(s, op, loop);
        continue;
      }
      for (const Region &inner : op.regions)
        walk(inner, [](const Operation &o) {
          assert(o.op != Op::Call && "a call inside a region is rejected before lowering");
        });
      if (op.op == Op::Call)
        close(s, op, loop, op.get<attr::site>());
      else
        s.pieces.back().ops.push_back(std::move(op));
    }
  }

  /// Ends the last piece with `end`; the next one is of `loop`, and goes on after `site`.
  static void close(SplitStage &s, Operation end, int64_t loop, int64_t site) {
    s.calls.push_back(std::move(end));
    s.pieces.emplace_back();
    s.loops.push_back(loop);
    s.after.push_back(site);
  }

  /// A loop with calls, in the loop `around` (-1: in none): its counter is a field, and its body's pieces stand in one
  /// entry of the tick.
  void splitLoop(SplitStage &s, Operation &loop, int64_t around) {
    const int64_t number = around < 0 ? loopCount++ : around, inside = nextSite++, after = nextSite++;
    const Value counter = loop.region().args[0], low = loop.operands[0], high = loop.operands[1];
    const Type i32 = Type::scalar(Scalar::I32);
    const std::string hint = module.hint(counter).str();
    const std::string field = newField(s.stage.name + "." + (hint.empty() ? "round" : hint), i32, loop.loc);
    counters.insert(field);
    Builder builder(module, s.pieces.back());
    builder.loc = loop.loc;
    // Sets the counter, and goes on in the loop or after it.
    const auto enter = [&](Value count, int64_t next, int64_t site) {
      builder.setRegion(s.pieces.back());
      builder.create(Op::FieldSet, {count}).name = field;
      const Value more = builder.create(Op::Lt, {count, high}, {Type::scalar(Scalar::Bool)}).result();
      Operation end;
      end.op = Op::Enter;
      end.loc = loop.loc;
      end.operands = {more};
      end.set<attr::inside>(inside);
      end.set<attr::outside>(after);
      end.set<attr::rounds>(loop.get<attr::rounds>());
      close(s, std::move(end), next, site);
    };
    enter(low, number, inside);
    Operation get;
    get.op = Op::FieldGet;
    get.name = field;
    get.loc = loop.loc;
    get.results = {counter};
    s.pieces.back().ops.push_back(std::move(get));
    cut(s, loop.region().ops, number);
    builder.setRegion(s.pieces.back());
    const Value one = builder.constant(INT64_C(1));
    const Value next = builder.create(Op::Add, {counter, one}, {i32}).result();
    enter(next, around, after);
  }

  /// Gives every piece the values that earlier pieces and calls made.
  void carryValues(SplitStage &s) {
    owner.clear();
    definition.clear();
    for (size_t k = 0; k < s.pieces.size(); ++k) {
      for (const Operation &op : s.pieces[k].ops)
        for (Value v : op.results) {
          owner[v] = k;
          definition[v] = op;
        }
      if (k < s.calls.size())
        for (Value v : s.calls[k].results)
          owner[v] = k + 1;
    }
    // A result that is used after a further call is a value of piece k + 1 like any other.
    for (size_t k = 0; k < s.calls.size(); ++k)
      addResults(s.calls[k], s.pieces[k + 1]);
    saved.clear();
    for (size_t k = 0; k < s.pieces.size(); ++k) {
      std::set<Value> foreign;
      auto look = [&](const Operation &op) {
        for (Value v : op.operands)
          if (auto it = owner.find(v); it != owner.end() && it->second < k)
            foreign.insert(v);
      };
      walk(s.pieces[k], look);
      if (k < s.calls.size())
        walkAll(s.calls[k], look);
      std::map<Value, Value> map;
      std::vector<Operation> front;
      for (Value v : foreign)
        bring(s, v, k, map, front);
      auto replace = [&](Operation &op) {
        for (Value &v : op.operands)
          if (auto it = map.find(v); it != map.end())
            v = it->second;
      };
      walk(s.pieces[k], replace);
      if (k < s.calls.size())
        walkAll(s.calls[k], replace);
      // After the `results` that the part starts with.
      auto &ops = s.pieces[k].ops;
      auto at = llvm::find_if(ops, [](const Operation &o) { return o.op != Op::Results; });
      ops.insert(at, std::make_move_iterator(front.begin()), std::make_move_iterator(front.end()));
    }
    // Only now: every piece has been looked at.
    for (const auto &[value, field] : saved)
      save(s.pieces[owner[value]], value, field);
  }

  /// Calls `f` on a call and on its reducers.
  template <class F> static void walkAll(Operation &call, F f) {
    f(call);
    for (Region &region : call.regions)
      walk(region, f);
  }

  void addResults(const Operation &call, Region &after) {
    std::vector<Operation> front;
    for (size_t i = 0; i < call.results.size(); ++i) {
      Operation &r = front.emplace_back();
      r.op = Op::Results;
      r.name = call.name;
      r.loc = call.loc;
      r.results = {call.results[i]};
      r.set<attr::site>(call.get<attr::site>());
      r.set<attr::index>(static_cast<int64_t>(i));
      definition[call.results[i]] = r;
    }
    after.ops.insert(after.ops.begin(), front.begin(), front.end());
  }

  /// Makes `v` of an earlier piece available in piece k; returns its new value.
  Value bring(const SplitStage &s, Value v, size_t k, std::map<Value, Value> &map, std::vector<Operation> &front) {
    if (auto it = map.find(v); it != map.end())
      return it->second;
    const Operation &def = definition[v];
    Type type = module.type(v);
    bool isView = type.kind == Type::Seq && type.size == 0 && def.op != Op::Results;
    const bool isCounter = def.op == Op::FieldGet && counters.count(def.name);
    if (isCounter || def.op == Op::Const || def.op == Op::InputGet || def.op == Op::Sampling || isView) {
      for (Value operand : def.operands)
        bring(s, operand, k, map, front);
      front.push_back(clone(module, def, map));
      return map[v];
    }
    std::string field = fieldFor(s, v);
    Operation &get = front.emplace_back();
    get.op = Op::FieldGet;
    get.name = field;
    get.loc = def.loc;
    std::string hint = module.hint(v).str();
    get.results = {module.newValue(fieldType(type), hint)};
    return map[v] = get.result();
  }

  /// A field is no longer than the longest sequence that there can be; types may say less.
  static Type fieldType(Type type) {
    if (type.isList())
      type.size = std::min<int64_t>(type.size, 1024);
    return type;
  }

  /// The field that keeps `v`; made on first use.
  const std::string &fieldFor(const SplitStage &s, Value v) {
    std::string &name = saved[v];
    if (!name.empty())
      return name;
    std::string hint = module.hint(v).str();
    name = newField(s.stage.name + "." + (hint.empty() ? "value" : hint), fieldType(module.type(v)), definition[v].loc);
    return name;
  }

  std::string newField(const std::string &base, const Type &type, SourceLoc loc) {
    auto taken = [&](const std::string &n) {
      return module.find(Op::Field, n) || llvm::any_of(fields, [&](const Operation &f) { return f.name == n; });
    };
    std::string name = base;
    for (unsigned i = 1; taken(name); ++i)
      name = base + "_" + llvm::utostr(i);
    Operation &field = fields.emplace_back();
    field.op = Op::Field;
    field.name = name;
    field.loc = loc;
    field.set<attr::type>(type.elem);
    field.set<attr::inferred>(true);
    if (type.kind == Type::Table)
      field.set<attr::rows>(type.size);
    if (type.isList())
      field.set<attr::capacity>(type.kind == Type::Table ? type.inner : type.size);
    else if (type.elem == Scalar::F32)
      field.set<attr::init>(0.0);
    else
      field.set<attr::init>(int64_t(0));
    return name;
  }

  /// Stores `v` right after its definition.
  void save(Region &piece, Value v, const std::string &field) {
    for (size_t i = 0; i < piece.ops.size(); ++i) {
      if (!llvm::is_contained(piece.ops[i].results, v))
        continue;
      Operation set;
      set.op = Op::FieldSet;
      set.name = field;
      set.operands = {v};
      set.loc = piece.ops[i].loc;
      // `results` stay together at the front of their part.
      do
        ++i;
      while (i < piece.ops.size() && piece.ops[i].op == Op::Results);
      piece.ops.insert(piece.ops.begin() + i, std::move(set));
      return;
    }
    assert(false && "a carried value is defined at the top of its piece");
  }

  Operation part(SplitStage &s, size_t k) const {
    Operation p;
    p.op = Op::Part;
    p.name = s.pieces.size() == 1 ? s.stage.name : s.stage.name + "." + llvm::utostr(k);
    p.loc = s.stage.loc;
    std::string state = s.stage.get<attr::on>();
    const Operation *declared = module.find(Op::State, state);
    p.set<attr::stage>(s.stage.name);
    p.set<attr::state>(state);
    p.set<attr::kind>(declared && declared->has<attr::slot>() ? PartKind::Slot : PartKind::Admit);
    if (s.stage.has<attr::limit>())
      p.set<attr::limit>(s.stage.get<attr::limit>());
    if (s.after[k] >= 0)
      p.set<attr::after_site>(s.after[k]);
    if (s.loops[k] >= 0)
      p.set<attr::loop>(s.loops[k]);
    p.regions.push_back(std::move(s.pieces[k]));
    if (k < s.calls.size() && s.calls[k].op == Op::Enter) {
      p.region().ops.push_back(s.calls[k]);
    } else if (k < s.calls.size()) {
      Operation issue = s.calls[k];
      issue.op = Op::Issue;
      issue.results.clear();
      p.set<attr::before_site>(issue.get<attr::site>());
      p.region().ops.push_back(std::move(issue));
    }
    return p;
  }

  /// A part, and calls whose pass follows it.
  struct Placed {
    Operation part;
    std::vector<Operation> passes;
  };

  static bool isLast(const Operation &call, const std::map<std::string, int64_t> &lastSite) {
    if (call.op != Op::Call)
      return false;
    const auto last = lastSite.find(call.name);
    return last != lastSite.end() && last->second == call.get<attr::site>();
  }
  /// The call before call k that a pass of the tick serves: none of a loop. `none` where there is none.
  static constexpr size_t none = SIZE_MAX;
  static size_t callBefore(const SplitStage &s, size_t k) {
    while (k-- > 0)
      if (s.calls[k].op == Op::Call && s.loops[k] < 0)
        return k;
    return none;
  }
  /// The piece that a model's pass follows: the one that ends in its last call, or the first one of several such calls
  /// in a row. Loops between them have passes of their own.
  static size_t pieceOf(const SplitStage &s, size_t call) {
    for (size_t before; (before = callBefore(s, call)) != none && s.calls[before].name == s.calls[call].name;)
      call = before;
    return call;
  }
  /// Notes which pass each model's pass has to come after.
  void lastCalls(const SplitStage &s, const std::map<std::string, int64_t> &lastSite) {
    for (size_t k = 0; k < s.calls.size(); ++k)
      if (s.loops[k] < 0 && isLast(s.calls[k], lastSite)) {
        fileOrder.push_back(s.calls[k].name);
        const size_t before = callBefore(s, pieceOf(s, k));
        if (before != none)
          follows[s.calls[k].name] = s.calls[before].name;
      }
  }
  /// A stage may call `a`, then `b`, then `a` again, so that each pass would follow the other. The one whose last call
  /// comes first in the file does not wait.
  void breakCircles() {
    for (const std::string &name : fileOrder) {
      size_t steps = 0; // another circle may be farther on
      for (auto next = follows.find(name); next != follows.end() && steps <= fileOrder.size(); ++steps)
        if (next->second == name) {
          follows.erase(name);
          break;
        } else {
          next = follows.find(next->second);
        }
    }
  }
  /// For each piece of a stage, the calls whose pass follows it.
  std::vector<std::vector<Operation>> passesAfter(const SplitStage &s,
                                                  const std::map<std::string, int64_t> &lastSite) const {
    std::vector<std::vector<Operation>> passes(s.pieces.size());
    for (size_t k = 0; k < s.calls.size(); ++k)
      if (s.loops[k] >= 0 ? s.calls[k].op == Op::Call : s.calls[k].op == Op::Enter)
        passes[k].push_back(s.calls[k]);
      else if (isLast(s.calls[k], lastSite))
        passes[follows.count(s.calls[k].name) ? pieceOf(s, k) : 0].push_back(s.calls[k]);
    return passes;
  }

  void place(const Operation &op) {
    if (op.op == Op::Enter)
      placeLoop(op);
    else
      placePass(op);
  }

  /// The loop that `enter` leads to, and what continues after it.
  void placeLoop(const Operation &enter) {
    const auto loop = llvm::find_if(inLoop, [&](const auto &entry) {
      return entry.second.front().part.template get<attr::after_site>() == enter.get<attr::inside>();
    });
    for (Placed &p : loop->second) {
      list->push_back(std::move(p.part));
      for (const Operation &call : p.passes) {
        Operation &pass = list->emplace_back();
        pass.op = Op::Pass;
        pass.name = call.name;
        pass.loc = call.loc;
        pass.set<attr::loop>(loop->first);
      }
    }
    Placed &next = afterLoop.at(loop->first);
    list->push_back(std::move(next.part));
    for (const Operation &call : next.passes)
      place(call);
  }

  /// All parts after calls of the model follow its pass, in file order: they read the results before another pass has
  /// some. Passes that these parts end in come after them.
  void placePass(const Operation &call) {
    Operation &pass = list->emplace_back();
    pass.op = Op::Pass;
    pass.name = call.name;
    pass.loc = call.loc;
    std::vector<Operation> due;
    for (Placed &p : after[call.name]) {
      list->push_back(std::move(p.part));
      llvm::append_range(due, p.passes);
    }
    for (const Operation &next : due)
      place(next);
  }

  Module &module;
  std::map<Value, size_t> owner; ///< piece that makes a value
  std::map<Value, Operation> definition;
  std::map<Value, std::string> saved; ///< field of each value kept across a call
  std::vector<Operation> fields;
  std::vector<Operation> *list = nullptr;
  std::map<std::string, std::vector<Placed>> after; ///< parts that continue after a call, by model
  std::map<std::string, std::string> follows;       ///< models whose pass comes after another one's
  std::map<int64_t, std::vector<Placed>> inLoop;    ///< pieces of loops, by their numbers
  std::map<int64_t, Placed> afterLoop;
  std::set<std::string> counters; ///< fields of loops
  int64_t loopCount = 0, nextSite = 0;
  std::vector<std::string> fileOrder; ///< models, in the order of their last calls
};

} // namespace

Module formTicks(Module module) {
  if (!module.all(Op::Buffer).empty()) // a call has no ticks
    return module;
  TickFormer(module).run();
  // What was computed again after a call may not be needed before it.
  dropUnused(module);
  return module;
}

} // namespace megalith::transforms
