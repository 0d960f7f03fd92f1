#include "Verifier.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Text.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <map>

namespace megalith::ir {

bool Verifier::runWhole() {
  if (!module.all(Op::Buffer).empty())
    return checkPlaces() && checkBuffers();
  if (!checkParams() || !checkStates() || !checkPlaces() || !checkSites() || !checkParts())
    return false;
  for (const Operation *op : module.all(Op::Model)) {
    model = op;
    if (!checkModel(*op))
      return false;
  }
  return true;
}

bool Verifier::checkParams() {
  struct Param {
    const char *name;
    int64_t least, most;
  };
  for (const Param &param : {Param{"slots", 1, limits::slots}, {"rows_per_pass", 1, limits::rowsPerPass}}) {
    const Operation *op = module.find(Op::Param, param.name);
    if (!op)
      return fail(module.root, fmt::format("there is no `param @{}`", param.name));
    const int64_t value = op->get<attr::value>().whole();
    if (op->get<attr::type>() != Scalar::I32 || value < param.least || value > param.most)
      return fail(*op, fmt::format("`@{}` must be an i32 from {} to {}", param.name, param.least, param.most));
  }
  const int64_t rows = module.param("rows_per_pass");
  if (const Operation *op = module.find(Op::Param, "rows_beside"))
    if (const int64_t beside = op->get<attr::value>().whole();
        op->get<attr::type>() != Scalar::I32 || beside < 1 || beside > rows)
      return fail(*op, fmt::format("`@rows_beside` must be an i32 from 1 to {}, which is `@rows_per_pass`", rows));
  return true;
}

bool Verifier::checkStates() {
  const auto states = module.all(Op::State);
  if (states.size() > limits::states)
    return fail(module.root, fmt::format("{} states; {} at most", states.size(), limits::states));
  const auto initial = llvm::count_if(states, [](const Operation *s) { return s->get<attr::initial>(); });
  if (initial != 1)
    return fail(module.root, fmt::format("one state is `initial`, found {}", initial));
  for (const Operation *s : states)
    if (s->get<attr::slot>() && (s->get<attr::initial>() || s->get<attr::terminal>()))
      return fail(*s, "a state that is initial or terminal has no slot");
  for (const auto &[key, name] : {std::pair("fault", module.root.get<attr::fault>()),
                                  {"cancel", module.root.get<attr::cancel>()},
                                  {"deadline", module.root.get<attr::deadline>()}}) {
    if (name.empty() && key != llvm::StringRef("fault"))
      continue;
    const Operation *end = module.find(Op::State, name);
    if (!end || !end->get<attr::terminal>())
      return fail(module.root, fmt::format("`{}` must name a terminal state", key));
  }
  for (const Operation *pool : module.all(Op::Pool))
    if (!module.find(Op::Model, pool->name))
      return fail(*pool, "a pool is of the model of that name");
  for (const Operation *m : module.all(Op::Model))
    if (!module.find(Op::Pool, m->name))
      return fail(*m, "a model has a pool of that name");
  return true;
}

/// Places lie in files that the module lists.
bool Verifier::checkPlaces() {
  std::set<int64_t> files;
  for (const Operation *file : module.all(Op::File))
    if (!files.insert(file->get<attr::index>()).second)
      return fail(*file, "two files have this index");
  bool good = true;
  const auto check = [&](const Operation &op) {
    constexpr uint32_t most = 1 << 30; // of what compilers take as a line
    if (good && op.loc && (!files.count(op.loc.file) || op.loc.line > most || op.loc.column > most))
      good = fail(op, fmt::format("the place `@{}:{}:{}` lies in no `file` of the module", op.loc.file, op.loc.line,
                                  op.loc.column));
  };
  check(module.root);
  walk(module.root.region(), check);
  return good;
}

/// Call sites are numbered from 0, each is one place.
bool Verifier::checkSites() {
  std::vector<const Operation *> calls;
  walk(module.root.region(), [&](const Operation &op) {
    if (isCall(op.op))
      calls.push_back(&op);
  });
  std::set<int64_t> sites;
  for (const Operation *call : calls) {
    if (!declared(*call, Op::Model, call->name))
      return false;
    if (!sites.insert(call->get<attr::site>()).second || call->get<attr::site>() >= static_cast<int64_t>(calls.size()))
      return fail(*call,
                  fmt::format("the {} calls have the sites from 0 to {}, each one", calls.size(), calls.size() - 1));
    const std::vector<std::string> &results = module.find(Op::Model, call->name)->get<attr::results>();
    for (const Operation &reduce : reducersOf(*call))
      if (const std::string &of = reduce.get<attr::result>(); !readsLogits(reduce) && !llvm::is_contained(results, of))
        return fail(reduce, fmt::format("model `{}` has no result `{}`", call->name, of));
  }
  return true;
}

/// The list of a tick: one pass for each model that is called, and after it, once for each call, the part that goes
/// on.
bool Verifier::checkParts() {
  const auto ticks = module.all(Op::Tick);
  if (ticks.size() > 1)
    return fail(*ticks[1], "a module has one `tick`");
  if (ticks.empty())
    return !isTickLevel() || fail(module.root, "there is no `tick`");
  if (!checkLoops(*ticks[0]))
    return false;
  std::map<int64_t, const Operation *> issuers;
  std::map<std::string, unsigned> passes; // outside of loops
  const std::vector<Operation> &list = ticks[0]->region().ops;
  for (const Operation &op : list)
    if (op.has<attr::before_site>())
      issuers[op.get<attr::before_site>()] = &op;
    else if (const Operation *end = op.op == Op::Part ? terminator(op) : nullptr; end && end->op == Op::Enter)
      issuers[end->get<attr::inside>()] = issuers[end->get<attr::outside>()] = &op;
  for (const Operation &op : list) {
    if (op.op == Op::Pass && !op.has<attr::loop>() && passes[op.name]++)
      return fail(op, "a model has one pass in a tick");
    if (!op.has<attr::after_site>())
      continue;
    const auto issuer = issuers.find(op.get<attr::after_site>());
    if (issuer == issuers.end())
      return fail(op, "no other part ends in the call that this one comes after");
    const Operation &before = *issuer->second;
    if (before.get<attr::stage>() != op.get<attr::stage>() || before.get<attr::state>() != op.get<attr::state>())
      return fail(op, "the parts before and after a call are of one stage and state");
    // checkLoops() has seen those of a loop.
    if (terminator(before)->op == Op::Issue && !op.has<attr::loop>() && !passes[terminator(before)->name])
      return fail(op, "a part after a call comes after the model's pass");
    issuers.erase(issuer);
  }
  if (!issuers.empty())
    return fail(*issuers.begin()->second, "no part comes after the call");
  return true;
}

/// A loop of the tick: after the part that enters it stand, as neighbours, its parts, with the pass after each one that
/// ends in a call. The last ends in the `enter` of the next round; after it stands the part that goes on. A loop in
/// another one is such a row among that one's parts, and has its number.
bool Verifier::checkLoops(const Operation &tick) {
  const std::vector<Operation> &list = tick.region().ops;
  const auto loopOf = [](const Operation &op) {
    return op.op == Op::Part ? op.get<attr::loop>() : op.op == Op::Pass ? op.get<attr::loop>() : INT64_C(-1);
  };
  const auto continues = [&](size_t at, int64_t site, int64_t loop) {
    return at < list.size() && list[at].op == Op::Part && list[at].get<attr::after_site>() == site &&
           loopOf(list[at]) == loop;
  };
  int64_t sites = 0;
  std::set<int64_t> turns, loops;
  std::vector<const Operation *> all; // in front of their loops
  for (const Operation &op : list) {
    sites += op.op == Op::Part && op.has<attr::before_site>();
    if (const Operation *enter = enterOf(op); enter && turns.insert(enter->get<attr::inside>()).second) {
      turns.insert(enter->get<attr::outside>());
      all.push_back(enter);
    }
  }
  if (!turns.empty() && (turns.size() != 2 * all.size() || *turns.begin() != sites ||
                         *turns.rbegin() + 1 != sites + static_cast<int64_t>(turns.size())))
    return fail(*all.front(), fmt::format("`inside` and `outside` of {} loops are the numbers after the {} "
                                          "calls, each one",
                                          all.size(), sites));
  struct Around {
    const Operation *enter;
    bool hasCall;
  };
  std::vector<Around> around;
  std::map<int64_t, const Operation *> outer; // enters outside of loops whose loop has not come, by `inside`
  for (size_t i = 0; i < list.size(); ++i) {
    const int64_t loop = loopOf(list[i]);
    const Operation *end = list[i].op == Op::Part ? terminator(list[i]) : nullptr;
    if (around.empty() && loop >= 0) {
      const auto entry = outer.find(list[i].op == Op::Part ? list[i].get<attr::after_site>() : -1);
      if (entry == outer.end() || !loops.insert(loop).second)
        return fail(list[i],
                    "a loop begins with the part that an `enter` in front of it names, and stands in one place");
      around.push_back({entry->second, false});
      outer.erase(entry);
    } else if (!around.empty() && loop < 0) {
      return fail(*around.back().enter, "after a loop stands the part that goes on with `outside`");
    }
    if (end && end->op == Op::Enter && around.empty()) {
      outer[end->get<attr::inside>()] = end;
    } else if (end && end->op == Op::Enter) {
      const bool again = around.back().enter->get<attr::inside>() == end->get<attr::inside>();
      if (!again) { // a loop in this one
        if (!continues(i + 1, end->get<attr::inside>(), loop))
          return fail(*end, "there is no loop that this leads to");
        around.push_back({end, false});
        continue;
      }
      const Around ended = around.back();
      around.pop_back();
      if (end->get<attr::outside>() != ended.enter->get<attr::outside>() ||
          end->get<attr::rounds>() != ended.enter->get<attr::rounds>())
        return fail(*end, "the `enter` of the next round is that in front of the loop");
      if (!ended.hasCall)
        return fail(list[i], "a loop of the tick has a call");
      if (!around.empty())
        around.back().hasCall = true;
      if (!continues(i + 1, end->get<attr::outside>(), around.empty() ? -1 : loop))
        return fail(*ended.enter, "after a loop stands the part that goes on with `outside`");
    } else if (!around.empty()) {
      if (!end || end->op != Op::Issue || i + 1 >= list.size() || list[i + 1].op != Op::Pass ||
          list[i + 1].name != end->name || loopOf(list[i + 1]) != loop ||
          !continues(i + 2, end->get<attr::site>(), loop))
        return fail(list[i],
                    "a part of a loop ends in a call, with the pass and the part that continues after it, or in "
                    "`enter`");
      around.back().hasCall = true;
      ++i;
    }
  }
  if (!around.empty())
    return fail(*around.back().enter, "after a loop stands the part that goes on with `outside`");
  return outer.empty() || fail(*outer.begin()->second, "there is no loop that this leads to");
}

/// `window` is that of all layers or has one for each, and the model's `kv_window` is the greatest.
bool Verifier::checkWindows(const Operation &attention, const Operation &model, int64_t layers) {
  const std::vector<int64_t> &windows = attention.get<attr::window>();
  if (windows.size() > 1 && static_cast<int64_t>(windows.size()) != layers)
    return fail(attention,
                fmt::format("`window` has {} entries; one, or one for each of {} layers", windows.size(), layers));
  const int64_t most = windows.empty() || llvm::is_contained(windows, 0) ? 0 : *llvm::max_element(windows);
  if (const Operation *pool = module.find(Op::Pool, model.name);
      pool && pool->get<attr::bf16_windows>() &&
      (most > 0 || llvm::all_of(windows, [](int64_t window) { return window == 0; })))
    return fail(*pool, "`bf16_windows` is of a pool whose model has layers with a window and others");
  return model.get<attr::kv_window>() == most ||
         fail(attention,
              fmt::format("`kv_window` of the model is {}, expected {}", model.get<attr::kv_window>(), most));
}

bool Verifier::checkModel(const Operation &op) {
  double bytes = 0;
  for (const Operation &weight : op.region().ops) {
    if (weight.op != Op::Weight || weight.has<attr::alias>())
      continue;
    const auto own = [&](const std::vector<int64_t> &shape) {
      double product = 2.0 * tensorsOf(weight);
      for (int64_t size : shape)
        product *= size;
      return product;
    };
    bytes += std::max(own(weight.get<attr::shape>()), own(storedShape(weight))); // each has its place in the stream
    if (bytes > limits::weightBytes)
      return fail(weight, "with this one the weights have more than 16 TiB");
  }
  const int64_t vocab = op.get<attr::vocab>();
  const Operation *last = nullptr;
  bool good = true;
  for (const Operation &segment : op.region().ops) {
    if (segment.op != Op::Segment)
      continue;
    last = &segment;
    const auto check = [&](const Operation &inner, int64_t layers) {
      if (!good)
        return;
      if (inner.op == Op::Embed && inner.get<attr::by>() == By::Token &&
          weightNamed(inner.name)->get<attr::shape>()[0] != vocab)
        good = fail(inner, fmt::format("the weight has no line for each of the {} tokens", vocab));
      if (inner.op == Op::KvAppend &&
          (inner.get<attr::kv_heads>() != op.get<attr::kv_heads>() ||
           inner.get<attr::dim>() != op.get<attr::head_dim>() || op.get<attr::kv_layers>() != layers))
        good = fail(inner, "`kv_heads`, `dim` and the number of layers are not the model's");
      if (inner.op == Op::Attention)
        good = checkWindows(inner, op, layers);
      if ((inner.op == Op::RopeCos || inner.op == Op::RopeSin) &&
          (!op.has<attr::rope_theta>() || inner.get<attr::dim>() != op.get<attr::head_dim>() ||
           inner.get<attr::turned>() != op.get<attr::rope_turned>()))
        good = fail(inner, "`dim` or `turned` is not the model's, or the model has no `rope_theta`");
    };
    for (const Operation &outer : segment.region().ops) {
      check(outer, 1);
      for (const Region &region : outer.regions)
        walk(region,
             [&](const Operation &inner) { check(inner, outer.op == Op::Repeat ? outer.get<attr::count>() : 1); });
    }
  }
  if (!good)
    return false;
  if (!last)
    return fail(op, "a model has a segment");
  const Operation &end = *terminator(*last);
  const Type result = end.operands.empty() ? Type() : module.type(end.operands[0]);
  const bool reduced = result == Type::rows(1, Scalar::Token);
  if (!reduced && (result.kind != Type::Rows || result.elem == Scalar::Token || result.size != vocab))
    return fail(end, "the last segment yields logits, or their argmax");
  const std::vector<std::string> &names = op.get<attr::results>();
  if (end.operands.size() != 1 + names.size())
    return fail(end, fmt::format("the last segment yields the logits and {} `results`, found {} values", names.size(),
                                 end.operands.size()));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "logits" || std::find(names.begin(), names.begin() + i, names[i]) != names.begin() + i)
      return fail(op, fmt::format("`results` names `{}` twice; the first result is `logits`", names[i]));
    if (const Type type = module.type(end.operands[1 + i]); type != result)
      return fail(
          end, fmt::format("result `{}` must be as the logits, `{}`, found `{}`", names[i], result.str(), type.str()));
  }
  return true;
}

} // namespace megalith::ir
