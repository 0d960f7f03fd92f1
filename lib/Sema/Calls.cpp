//===- Calls.cpp - builtin functions and model calls ----------------------===//
#include "Checker.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>

namespace megalith::sema {

namespace {
struct FunctionInfo {
  const char *name, *params, *quoted;
  Function id;
};
const FunctionInfo functions[] = {
#define FUNCTION(Id, Name, Params, Result, Text) {Name, Params, "`" Name "`", Function::Id},
#include "megalith/Sema/Builtins.def"
};

/// The parameter list of Builtins.def, taken apart.
struct Parameters {
  std::vector<std::string> names;
  size_t required = 0;
  bool variadic = false;

  explicit Parameters(llvm::StringRef text) {
    llvm::SmallVector<llvm::StringRef, 4> parts;
    text.split(parts, ',');
    for (llvm::StringRef part : parts) {
      part = part.trim();
      if (part == "...") {
        variadic = true;
        continue;
      }
      required += !part.ends_with("?");
      names.push_back(part.rtrim('?').str());
    }
  }
  std::string count() const {
    if (variadic)
      return fmt::format("{} or more arguments", required);
    if (required == names.size())
      return plural(required, "argument");
    return fmt::format("{} to {} arguments", required, names.size());
  }
};
} // namespace

ExprRef Checker::checkCall(const ast::Expr &e, Scope &scope) {
  if (isModel(e.text))
    return checkModelCall(e, scope);
  for (const FunctionInfo &f : functions)
    if (e.text == f.name)
      return checkFunction(f.id, e, scope);
  if (!firstUse(e.text))
    return nullptr;
  diags.report(Diag::UnknownFunction, e.loc, e.text);
  if (scope.kind == Scope::Params || !noteGuess(e.text, Guess::Function))
    diags.suggest(e.text, functionNames(scope));
  return nullptr;
}

ExprRef Checker::checkFunction(Function f, const ast::Expr &e, Scope &scope) {
  switch (f) {
  case Function::Min:
  case Function::Max:
  case Function::ArgMax:
    if (!e.binder) // of values, or of logits
      break;
    [[fallthrough]];
  case Function::PrefixWhile:
  case Function::Count:
  case Function::ArgMin:
  case Function::Map:
  case Function::Sum:
  case Function::All:
  case Function::Any:
  case Function::Find:
  case Function::Scan:
  case Function::Top:
  case Function::Sort:
    return checkBinder(f, e, scope);
  default:
    break;
  }

  Parameters params(functions[static_cast<int>(f)].params);
  std::vector<const ast::Expr *> args(params.names.size(), nullptr);
  size_t given = e.args.size() + e.named.size();
  bool good = params.variadic ? given >= params.required : given >= params.required && given <= params.names.size();
  for (size_t i = 0; i < e.args.size(); ++i) {
    if (i < args.size())
      args[i] = e.args[i].get();
    else if (params.variadic)
      args.push_back(e.args[i].get());
  }
  for (const auto &[name, value] : e.named) {
    auto it = std::find(params.names.begin(), params.names.end(), name.text);
    if (it == params.names.end()) {
      diags.report(Diag::UnknownArgument, name.loc, e.text, name.text);
      diags.suggest(name.text, params.names);
      return nullptr;
    }
    const ast::Expr *&slot = args[it - params.names.begin()];
    good &= !slot;
    slot = value.get();
  }
  for (size_t i = 0; i < params.required; ++i)
    good &= args[i] != nullptr;
  if (!good) {
    diags.report(Diag::ArgumentCount, e.loc, e.text, params.count(), given);
    if ((f == Function::Min || f == Function::Max) && e.args.size() == 1)
      noteRange(e.text, *e.args[0]);
    return nullptr;
  }

  switch (f) {
  case Function::Len: {
    ExprRef s = check(*args[0], scope);
    if (s && s->type.elem != Elem::Kept) // of kept rows the number is known, too
      s = plain(s, *args[0]);
    if (!s)
      return nullptr;
    if (s->type.isScalar()) {
      diags.report(Diag::TypeMismatch, args[0]->loc, "the argument of `len`", "a sequence", s->type.str());
      return nullptr;
    }
    if (s->kind == Expr::SeqConst || s->type.elem == Elem::None)
      return intConst(s->type.length(), e.loc);
    auto v = make(Expr::SeqLen, Type::scalar(Elem::I32), e.loc, {s});
    v->range = {0, std::min(s->type.length(), mostPositions())};
    return v;
  }
  case Function::Min:
  case Function::Max:
    return checkMinMax(f, args, e, scope);
  case Function::Ratio: {
    ExprRef a = expect(*args[0], Elem::I32, "the first argument of `ratio`", scope);
    ExprRef b = expect(*args[1], Elem::I32, "the second argument of `ratio`", scope);
    return a && b ? make(Expr::Ratio, Type::scalar(Elem::F32), e.loc, {a, b}) : nullptr;
  }
  case Function::Tiers:
    return checkTiers(args, e, scope);
  case Function::Append:
    return checkAppend(args, e, scope);
  case Function::NgramLookup:
    return checkNgram(args, e, scope);
  case Function::ArgMax:
  case Function::Sample:
  case Function::MaxProb:
  case Function::LogSumExp:
  case Function::Entropy:
  case Function::Prob:
  case Function::TopK:
    return checkReducer(f, args, e, scope);
  case Function::Uniform:
    return checkUniform(args, e, scope);
  case Function::Follow:
    return checkFollow(args, e, scope);
  case Function::Tree:
    return checkTree(args, e, scope);
  default:
    return checkMath(f, args, e, scope);
  }
}

ExprRef Checker::checkMath(Function f, const std::vector<const ast::Expr *> &args, const ast::Expr &e, Scope &scope) {
  std::vector<ExprRef> values;
  bool failed = false;
  const bool floats = f == Function::Exp || f == Function::Log || f == Function::Pow || f == Function::Sqrt;
  for (const ast::Expr *arg : args) {
    ExprRef v = value(*arg, scope);
    if (floats)
      v = convert(v, Elem::F32);
    values.push_back(v);
    failed |= !v;
  }
  if (failed)
    return nullptr;
  const auto wants = [&](bool good, const char *what) {
    if (!good)
      diags.report(Diag::TypeMismatch, args[0]->loc, fmt::format("the argument of `{}`", e.text), what,
                   values[0]->type.str());
    return good;
  };
  const Type type = values[0]->type;
  if (floats) {
    for (size_t i = 0; i < values.size(); ++i)
      if (const Type &given = values[i]->type; !given.is(Elem::F32)) {
        diags.report(Diag::TypeMismatch, values[i]->loc, fmt::format("the argument of `{}`", e.text), "f32",
                     given.str());
        noteCast(given, Elem::F32, *args[i]);
        return nullptr;
      }
    auto v = make(Expr::Math, Type::scalar(Elem::F32), e.loc, values);
    v->function = f;
    return v;
  }
  switch (f) {
  case Function::Abs: {
    if (!wants(type.is(Elem::I32) || type.is(Elem::F32), "i32 or f32"))
      return nullptr;
    auto v = make(Expr::Math, type, e.loc, values);
    v->function = f;
    if (const Range r = values[0]->range; type.is(Elem::I32) && r.lo > INT32_MIN)
      v->range = {r.lo > 0 ? r.lo : r.hi < 0 ? -r.hi : 0, std::max(-r.lo, r.hi)};
    return v;
  }
  case Function::Clamp: { // min(max(x, low), high)
    if (!alike(values, "an argument of `clamp`") ||
        !wants(values[0]->type.is(Elem::I32) || values[0]->type.is(Elem::F32), "i32 or f32"))
      return nullptr;
    const auto pick = [&](Function g, const ExprRef &a, const ExprRef &b) {
      auto v = make(Expr::MinMax, a->type, e.loc, {a, b});
      v->function = g;
      v->range = ir::intervalOf(g == Function::Min ? ir::Op::Min : ir::Op::Max, a->range, b->range);
      return v;
    };
    return pick(Function::Min, pick(Function::Max, values[0], values[1]), values[2]);
  }
  case Function::ToF32:
    if (type.is(Elem::F32))
      return values[0];
    if (!wants(type.is(Elem::I32), "i32")) {
      noteCast(type, Elem::F32, *args[0]);
      return nullptr;
    }
    return make(Expr::Cast, Type::scalar(Elem::F32), e.loc, values);
  default: { // ToI32
    if (type.is(Elem::I32))
      return values[0];
    if (!wants(type.isScalar(), "f32, token or bool"))
      return nullptr;
    auto v = make(Expr::Cast, Type::scalar(Elem::I32), e.loc, values);
    if (type.is(Elem::Bool))
      v->range = {0, 1};
    return v;
  }
  }
}

ExprRef Checker::checkFollow(const std::vector<const ast::Expr *> &args, const ast::Expr &e, Scope &scope) {
  static const char *const names[] = {"rows", "parents", "best"};
  std::vector<ExprRef> values;
  int64_t most = Unbounded;
  bool failed = false;
  for (size_t i = 0; i < 3; ++i) {
    const Type type = Type::sequence(0, i == 1 ? Elem::I32 : Elem::Token);
    values.push_back(as(value(*args[i], scope), type, fmt::format("argument `{}` of `follow`", names[i]),
                        i == 1 ? "a sequence of i32" : "a sequence of tokens"));
    failed |= !values.back();
    if (values.back())
      most = std::min(most, values.back()->type.capacity);
  }
  values.push_back(args[3] ? expect(*args[3], Elem::I32, "argument `root` of `follow`", scope) : intConst(0, e.loc));
  if (failed || !values.back())
    return nullptr;
  if (most >= Unbounded) {
    diags.report(Diag::UnboundedSequence, e.loc, "the arguments of `follow`");
    return nullptr;
  }
  if (Scope inner = scope; !checkRounds(inner, most, "`follow`", e.loc))
    return nullptr;
  auto v = make(Expr::Follow, Type::sequence(most, Elem::I32), e.loc, values);
  v->range = {0, std::max<int64_t>(0, most - 1)};
  return v;
}

/// `t: tree(...)` makes two values, which are `t.rows` and `t.parents`.
ExprRef Checker::checkTree(const std::vector<const ast::Expr *> &args, const ast::Expr &e, Scope &scope) {
  ExprRef last = expect(*args[0], Elem::Token, "argument `last` of `tree`", scope);
  ExprRef table =
      as(value(*args[1], scope), Type::tableOf(0, 0, Elem::Token), "argument `table` of `tree`", "a table of tokens");
  if (!last || !table)
    return nullptr;
  const int64_t most = 1 + table->type.rows * table->type.capacity;
  const Type type = Type::sequence(most);
  if (!hasRoom(type, "the rows of `tree`", e.loc))
    return nullptr;
  if (Scope inner = scope; !checkRounds(inner, most, "`tree`", e.loc))
    return nullptr;
  return make(Expr::TreePart, type, e.loc, {last, table});
}

ExprRef Checker::checkMinMax(Function f, const std::vector<const ast::Expr *> &args, const ast::Expr &e, Scope &scope) {
  std::vector<ExprRef> values;
  for (const ast::Expr *arg : args)
    values.push_back(value(*arg, scope));
  if (std::find(values.begin(), values.end(), nullptr) != values.end())
    return nullptr;
  // Written numbers take the type of the others, wherever they stand.
  for (const ExprRef &other : values)
    if (!other->literal)
      for (ExprRef &v : values)
        v = convert(v, other->type.elem);
  for (ExprRef &v : values) {
    bool good = unify(values[0], v) && (v->type.is(Elem::I32) || v->type.is(Elem::F32));
    if (!good) {
      diags.report(Diag::OperandTypes, e.loc, e.text, "only i32 or only f32", values[0]->type.str(), v->type.str());
      const size_t at = &v - values.data();
      if (const bool first = values[0]->type.is(Elem::I32); v->type.is(first ? Elem::F32 : Elem::I32))
        noteCast(Type::scalar(Elem::I32), Elem::F32, *args[first ? 0 : at]);
      return nullptr;
    }
  }
  Range range = values[0]->range;
  for (const ExprRef &v : values)
    range = ir::intervalOf(f == Function::Min ? ir::Op::Min : ir::Op::Max, range, v->range);
  auto v = make(Expr::MinMax, values[0]->type, e.loc, values);
  v->function = f;
  v->range = range;
  return v;
}

ExprRef Checker::checkTiers(const std::vector<const ast::Expr *> &args, const ast::Expr &e, Scope &scope) {
  ExprRef x = value(*args[0], scope);
  const ast::Expr &table = *args[1];
  bool shaped = table.kind == ast::Expr::List && !table.args.empty();
  for (const ast::ExprPtr &row : table.args)
    shaped &= row->kind == ast::Expr::List && row->args.size() == 2;
  if (!shaped) {
    diags.report(Diag::BadArgument, table.loc, "table", "tiers", "a list of pairs `[[threshold, value], ...]`");
    return nullptr;
  }
  if (!x)
    return nullptr;
  if (!x->type.is(Elem::I32) && !x->type.is(Elem::F32)) {
    diags.report(Diag::TypeMismatch, args[0]->loc, "the first argument of `tiers`", "i32 or f32", x->type.str());
    return nullptr;
  }
  std::vector<ExprRef> items = {x};
  // The first one that x reaches is taken. So none is reached behind one that is as low, or that x always reaches; the
  // last one stands for all others as well.
  const auto known = [&](const ExprRef &v) { return evaluate(*v); };
  const auto numberOf = [](const Constant &c) {
    return c.elem == Elem::F32 ? c.floatValue : static_cast<double>(c.intValue);
  };
  const bool open = x->type.is(Elem::I32) && !known(x);
  const ExprRef *always = nullptr;
  for (const ast::ExprPtr &row : table.args) {
    ExprRef threshold = expect(*row->args[0], x->type.elem, "a threshold of `tiers`", scope);
    ExprRef v = value(*row->args[1], scope);
    if (!threshold || !v)
      return nullptr;
    const bool last = row == table.args.back();
    const auto at = known(threshold);
    const auto written = [](const ast::Expr &e) { return ast::written(e); };
    if (always) {
      diags.report(Diag::TierUnreached, row->args[0]->loc, written(*row->args[0]),
                   fmt::format("`{}` is at least {}", written(*args[0]), x->range.lo));
      return nullptr;
    }
    for (size_t i = 1; i < items.size(); i += 2) {
      const auto before = known(items[i]);
      const double own = at ? numberOf(*at) : 0, other = before ? numberOf(*before) : 0;
      const bool hidden =
          at && before ? (last ? own > other : own >= other) : !at && !last && sameExpr(*threshold, *items[i]);
      if (hidden) {
        const std::string earlier = written(*table.args[i / 2]->args[0]);
        diags.report(Diag::TierUnreached, row->args[0]->loc, written(*row->args[0]),
                     fmt::format("what reaches it takes the tier of `{}` before it", earlier));
        diags.note("the first tier whose threshold is reached is taken: the greatest threshold stands first");
        return nullptr;
      }
    }
    items.push_back(threshold);
    if (open && at && threshold->literal && x->range.lo >= at->intValue)
      always = &items.back();
    items.push_back(v);
  }
  Range range = items[2]->range;
  for (size_t i = 2; i < items.size(); i += 2) {
    bool same = unify(items[2], items[i]) && items[i]->type.isScalar();
    if (!same) {
      diags.report(Diag::OperandTypes, items[i]->loc, "tiers", "values of one type", items[2]->type.str(),
                   items[i]->type.str());
      return nullptr;
    }
    range = hull(range, items[i]->range);
  }
  auto v = make(Expr::Tiers, items[2]->type, e.loc, items);
  v->range = range;
  return v;
}

ExprRef Checker::checkNgram(const std::vector<const ast::Expr *> &args, const ast::Expr &e, Scope &scope) {
  const auto tokens = [&](const ast::Expr &arg, const char *what) {
    return as(value(arg, scope), Type::sequence(0), what, "a sequence of tokens");
  };
  ExprRef s = tokens(*args[0], "the first argument of `ngram_lookup`");
  ExprRef width = expect(*args[1], Elem::I32, "argument `width` of `ngram_lookup`", scope);
  ExprRef from = args[3] ? tokens(*args[3], "argument `from` of `ngram_lookup`") : nullptr;
  if (!s || !width || (args[3] && !from))
    return nullptr;
  constexpr int64_t mostNgram = 16;
  int64_t ngram = 3;
  ExprRef n;
  if (args[2]) {
    n = expect(*args[2], Elem::I32, "argument `ngram` of `ngram_lookup`", scope);
    if (!n)
      return nullptr;
    const auto c = evaluate(*n);
    const Range range = c ? Range::of(c->intValue) : n->range;
    if (c && (c->intValue < 1 || c->intValue > mostNgram))
      diags.report(Diag::BadArgument, n->loc, "ngram", "ngram_lookup",
                   fmt::format("from 1 to {}, is {}", mostNgram, c->intValue));
    else if (range.hi > mostNgram) {
      diags.report(Diag::BadArgument, n->loc, "ngram", "ngram_lookup",
                   fmt::format("at most {}; write `min(..., {})`", mostNgram, mostNgram));
      return nullptr;
    } else
      ngram = std::max<int64_t>(1, range.hi);
    if (c)
      n = nullptr;
  }
  int64_t matches = 0;
  if (args[4]) {
    ExprRef k = expect(*args[4], Elem::I32, "argument `matches` of `ngram_lookup`", scope);
    const auto c = k ? constant(*k, "argument `matches` of `ngram_lookup`") : std::nullopt;
    if (!c)
      return nullptr;
    if (c->intValue < 1 || c->intValue > 64) {
      diags.report(Diag::BadArgument, k->loc, "matches", "ngram_lookup",
                   fmt::format("from 1 to 64, is {}", c->intValue));
      return nullptr;
    }
    matches = c->intValue;
  }
  // It goes through the whole sequence.
  const ExprRef &searched = from ? from : s;
  if (Scope inner = scope;
      (scope.rounds > 1 || matches) &&
      !checkRounds(inner, std::min(searched->type.capacity, mostPositions()), "`ngram_lookup`", e.loc))
    return nullptr;
  int64_t capacity = std::min(asLength(width->range.hi), searched->type.capacity);
  const Type type = matches ? Type::tableOf(matches, capacity, Elem::Token) : Type::sequence(capacity);
  if (matches && !hasRoom(capacity >= Unbounded ? Type::sequence(capacity) : type, "what `ngram_lookup` finds", e.loc))
    return nullptr;
  auto v = make(Expr::NgramLookup, type, e.loc, {s, width, from, n});
  v->ngram = ngram;
  v->matches = matches;
  v->pieces = matches ? 1 : searched->pieces;
  return v;
}

bool Checker::checkRange(const ast::Expr &range, const std::string &what, Scope &scope, Scope &inner, ExprRef &low,
                         ExprRef &high, int64_t &most) {
  Scope bounds = scope;
  bounds.noCalls = bounds.noEffects = "a range";
  low = expect(*range.args[0], Elem::I32, "the range of " + what, bounds);
  high = expect(*range.args[1], Elem::I32, "the range of " + what, bounds);
  if (!low || !high)
    return false;
  most = mostBetween(*low, *high);
  if (checkRounds(inner, most, what, range.args[1]->loc, high.get()))
    return true;
  most = 1;
  return false;
}

ExprRef Checker::checkBinder(Function f, const ast::Expr &e, Scope &scope) {
  const bool top = f == Function::Top, sort = f == Function::Sort;
  if (!e.binder || e.args.size() != (top ? 3 : 2) || !e.named.empty()) {
    const bool condition = f == Function::PrefixWhile || f == Function::Count || f == Function::All ||
                           f == Function::Any || f == Function::Find;
    diags.report(Diag::ArgumentCount, e.loc, e.text,
                 top         ? "`i in a..b, value, k`"
                 : sort      ? "`i in a..b, [key, ...]`"
                 : condition ? "`i in a..b, condition`"
                             : "`i in a..b, value`",
                 plural(e.args.size() + e.named.size(), "argument"));
    const bool chosen = !e.args.empty() && e.args[0]->kind == ast::Expr::Conditional;
    if (!e.binder && chosen)
      diags.note("a choice in front of `..` stands in parentheses: `i in (a if c else b)..n`");
    else if (!e.binder && !e.args.empty() && f != Function::Map)
      noteRange(e.text, *e.args[0]);
    return nullptr;
  }
  if (reservedWord(e.binder->text)) {
    diags.report(Diag::ReservedName, e.binder->loc, e.binder->text, "the number of a range");
    return nullptr;
  }
  Scope inner = scope;
  const std::string what = fmt::format("`{}`", e.text);
  for (const FunctionInfo &info : functions)
    if (info.id == f)
      inner.noCalls = inner.noEffects = info.quoted;
  ExprRef low, high;
  int64_t most = 0;
  const bool bounded = checkRange(*e.args[0], what, scope, inner, low, high, most);
  Range index{0, INT32_MAX};
  if (low && high)
    index = {low->range.lo, std::max(low->range.lo, high->range.hi - 1)};
  if (scope.locals.count(e.binder->text) || declared.count(e.binder->text)) {
    diags.report(Diag::DuplicateName, e.binder->loc, e.binder->text,
                 declared.count(e.binder->text) ? declared[e.binder->text] : "a local");
    return nullptr;
  }
  auto v = make(Expr::Over, Type::scalar(Elem::I32), e.loc, {low, high});
  v->function = f;
  v->index = inner.binders.size();
  v->name = e.binder->text;
  v->range = index;
  v->rounds = most;
  inner.binders.emplace_back(e.binder->text, index);
  ExprRef done = checkOver(f, v, e, scope, inner, most);
  return bounded ? done : nullptr;
}

/// `v` has its range, in args and `range`; it gets what is computed for each of it.
ExprRef Checker::checkOver(Function f, std::shared_ptr<Expr> v, const ast::Expr &e, Scope &scope, Scope &inner,
                           int64_t most) {
  const Range index = v->range;
  const auto number = [&](const ast::Expr &of) -> ExprRef {
    ExprRef n = value(of, inner);
    if (!n || n->type.is(Elem::I32) || n->type.is(Elem::F32))
      return n;
    diags.report(Diag::TypeMismatch, n->loc, fmt::format("the value of `{}`", e.text), "i32 or f32", n->type.str());
    return nullptr;
  };
  const auto made = [&](Type type) -> ExprRef {
    v->type = type;
    return hasRoom(type, fmt::format("what `{}` makes", e.text), e.loc, v->args[1].get()) ? v : nullptr;
  };
  // Of an empty range there is none.
  const Range places{std::min<int64_t>(-1, index.lo), index.hi};
  switch (f) {
  case Function::PrefixWhile:
  case Function::Count:
  case Function::All:
  case Function::Any:
  case Function::Find: {
    ExprRef condition = expect(*e.args[1], Elem::Bool, fmt::format("the condition of `{}`", e.text), inner);
    if (!condition)
      return nullptr;
    v->args.push_back(condition);
    v->range = f == Function::Find ? places : Range{0, most};
    if (f == Function::All || f == Function::Any) {
      v->type = Type::scalar(Elem::Bool);
      v->range = {};
    }
    return v;
  }
  case Function::Map: {
    ExprRef item = value(*e.args[1], inner);
    if (!item)
      return nullptr;
    if (item->type.table || item->type.capacity >= Unbounded) {
      diags.report(Diag::TypeMismatch, item->loc, "the value of `map`", "a number, bool, token or short sequence",
                   item->type.str());
      return nullptr;
    }
    v->args.push_back(item);
    v->range = item->range;
    return made(item->type.seq ? Type::tableOf(most, item->type.capacity, item->type.elem)
                               : Type::sequence(most, item->type.elem));
  }
  case Function::Top: {
    ExprRef by = number(*e.args[1]);
    ExprRef k = expect(*e.args[2], Elem::I32, "argument `k` of `top`", scope);
    if (!by || !k)
      return nullptr;
    v->args.push_back(by);
    v->args.push_back(k);
    return hasRoom(Type::sequence(most), "the range of `top`", e.loc)
               ? made(Type::sequence(std::max<int64_t>(0, std::min(most, k->range.hi)), Elem::I32))
               : nullptr;
  }
  case Function::Sort: {
    constexpr size_t mostKeys = 8;
    const bool list = e.args[1]->kind == ast::Expr::List;
    std::vector<const ast::Expr *> keys;
    if (list)
      for (const ast::ExprPtr &key : e.args[1]->args)
        keys.push_back(key.get());
    else
      keys.push_back(e.args[1].get());
    if (keys.empty() || keys.size() > mostKeys) {
      diags.report(Diag::BadArgument, e.args[1]->loc, "keys", "sort", fmt::format("from 1 to {} numbers", mostKeys));
      return nullptr;
    }
    for (const ast::Expr *key : keys) {
      v->args.push_back(number(*key));
      if (!v->args.back())
        return nullptr;
    }
    return made(Type::sequence(most, Elem::I32));
  }
  default: { // Sum, Min, Max, ArgMin, ArgMax, Scan
    ExprRef item = number(*e.args[1]);
    if (!item)
      return nullptr;
    v->args.push_back(item);
    const Range r = item->range;
    const bool integer = item->type.is(Elem::I32);
    // Sums of 0 to `most` of them.
    const int64_t least = std::min<int64_t>(0, r.lo) * most, greatest = std::max<int64_t>(0, r.hi) * most;
    const Range sums = integer && least >= INT32_MIN && greatest <= INT32_MAX ? Range{least, greatest} : Range();
    if (f == Function::ArgMin || f == Function::ArgMax) {
      v->range = places;
      return v;
    }
    v->range = f == Function::Sum || f == Function::Scan ? sums : integer ? hull(r, Range::of(0)) : Range();
    v->type = item->type;
    return f == Function::Scan ? made(Type::sequence(most, item->type.elem)) : v;
  }
  }
}

/// A stage runs while all others wait, so its loops have bounds: each as many rounds as a request has positions, a few
/// more for what goes beyond them, and all of a stage together not very many.
bool Checker::checkRounds(Scope &inner, int64_t most, const std::string &what, SourceLoc loc, const Expr *of) {
  constexpr int64_t beyond = 1024, together = int64_t(1) << 24;
  const int64_t limit = mostPositions() + beyond;
  const bool nested = inner.rounds > 1;
  const auto tooMany = [&](const std::string &which, const std::string &rounds, int64_t allowed) {
    diags.report(Diag::RangeBound, loc, which, rounds, allowed);
    return false;
  };
  if (most > limit) {
    tooMany(what, most < INT32_MAX ? std::to_string(most) : "any number of", limit);
    if (of)
      noteBound(*of);
    return false;
  }
  const int64_t rounds = inner.rounds * std::max<int64_t>(1, most);
  if (nested && rounds > together)
    return tooMany(what + " and the ranges around it", std::to_string(rounds), together);
  // A range in another one takes the place of that one's rounds.
  if (inner.locally) {
    const int64_t all = inner.locally->rounds + rounds - (nested ? inner.rounds : 0);
    if (inner.locally->rounds < 0) // it was said
      return false;
    if (const int64_t allowed = std::max(together, 4 * limit); all > allowed) {
      inner.locally->rounds = -1;
      tooMany(fmt::format("{} and all ranges and loops before it in the {}", what,
                          inner.kind == Scope::Policy ? "policy" : "stage"),
              std::to_string(all), allowed);
      diags.note("nothing else happens while a stage runs: all other requests wait, and none can be taken back");
      return false;
    }
    inner.locally->rounds = all;
  }
  inner.rounds = rounds;
  return true;
}

/// The first constant that `e`, a token or a sequence of tokens, may give and that `good` does not hold for.
template <class Good> static const Expr *wrongConstant(const Expr &e, Good good) {
  if (e.kind == Expr::Const)
    return good(e.intValue) ? nullptr : &e;
  const bool gives = e.kind == Expr::Select || e.kind == Expr::SeqConcat || e.kind == Expr::SeqMake ||
                     e.kind == Expr::SeqConst || e.kind == Expr::Cast;
  if (!gives)
    return nullptr;
  for (const ExprRef &arg : llvm::drop_begin(e.args, e.kind == Expr::Select ? 1 : 0))
    if (const Expr *wrong = arg ? wrongConstant(*arg, good) : nullptr)
      return wrong;
  return nullptr;
}

ExprRef Checker::checkAppend(const std::vector<const ast::Expr *> &args, const ast::Expr &e, Scope &scope) {
  if (scope.noEffects || scope.kind == Scope::Params) {
    diags.report(Diag::EffectNotAllowed, e.loc, "`append`", scope.noEffects ? scope.noEffects : "a constant");
    return nullptr;
  }
  ExprRef s = convert(value(*args[0], scope), Elem::Token);
  if (!s)
    return nullptr;
  if (s->type.is(Elem::Token))
    s = make(Expr::SeqMake, Type::sequence(1), s->loc, {s});
  if (!s->type.isSequence(Elem::Token)) {
    diags.report(Diag::TypeMismatch, args[0]->loc, "the argument of `append`", "a token or a sequence of tokens",
                 s->type.str());
    noteNoTokens(*s, Elem::Token);
    return nullptr;
  }
  const auto first =
      llvm::find_if(facts, [&](const ModelFacts &f) { return !in.pools.empty() && f.name == in.pools[0].name.text; });
  const int64_t vocab = first == facts.end() ? 0 : first->vocab;
  if (const Expr *wrong =
          wrongConstant(*s, [&](int64_t token) { return token >= 0 && (vocab == 0 || token < vocab); })) {
    diags.report(Diag::AppendToken, wrong->loc, wrong->intValue,
                 vocab == 0 ? "the vocabulary" : fmt::format("the vocabulary of `{}`", first->name),
                 vocab == 0 ? "has no negative tokens" : fmt::format("has the tokens 0 to {}", vocab - 1));
    return nullptr;
  }
  if (scope.locally)
    scope.locally->changes.push_back("tokens");
  auto v = make(Expr::Append, Type::scalar(Elem::I32), e.loc, {s});
  if (args[1]) {
    ExprRef stop = as(value(*args[1], scope), Type::sequence(0), "argument `stop` of `append`", "a sequence of tokens");
    if (!stop)
      return nullptr;
    if (stop->type.capacity >= Unbounded) {
      diags.report(Diag::UnboundedSequence, stop->loc, "argument `stop` of `append`");
      return nullptr;
    }
    v->args.push_back(stop);
  }
  v->range = {0, std::min(s->type.capacity, mostPositions())};
  return v;
}

/// What the rows of a call hang on, or what they see: `given`, of these names.
bool Checker::checkFreeRows(Expr &call, const std::vector<const ast::Name *> &names,
                            const std::vector<ExprRef> &given) {
  if (names.empty())
    return true;
  const ast::Name &name = *names[0];
  const std::string what = fmt::format("argument `{}` of `{}`", name.text, call.name);
  if (names.size() > 1) {
    diags.report(Diag::FreeRows, names[1]->loc, names[1]->text,
                 fmt::format("has no `{}=`: rows of a tree see their own paths", name.text));
    return false;
  }
  if (call.chunk) {
    diags.report(Diag::FreeRows, name.loc, name.text, "is fed at once: it has no `chunk=`");
    return false;
  }
  if (name.text == "parents" && !call.draft) {
    diags.report(Diag::FreeRows, name.loc, name.text,
                 fmt::format("feeds drafts: give `kv=draft`, and say with `kv.{}.keep: n, path=p` which rows to keep",
                             call.name));
    return false;
  }
  const bool alike = name.text == "visible" && given[0]->type.isScalar();
  const ExprRef v = as(given[0], alike ? Type::scalar(Elem::I32) : Type::sequence(0, Elem::I32), what,
                       name.text == "visible" ? "i32, or a sequence of i32" : "a sequence of i32");
  if (!v)
    return false;
  if (v->type.seq && v->type.capacity >= Unbounded) {
    diags.report(Diag::UnboundedSequence, v->loc, what);
    return false;
  }
  const int64_t least = name.text == "visible" ? 1 : -1;
  if (v->range.hi < least) {
    diags.report(Diag::BadArgument, v->loc, name.text, call.name,
                 fmt::format("at least {}, is at most {}", least, v->range.hi));
    return false;
  }
  call.member = name.text;
  call.args.push_back(v);
  return true;
}

ExprRef Checker::checkModelCall(const ast::Expr &e, Scope &scope) {
  std::string what = fmt::format("a call of `{}`", e.text);
  used.insert(e.text);
  if (scope.noCalls || scope.kind != Scope::Stage) {
    diags.report(Diag::EffectNotAllowed, e.loc, what, scope.noCalls ? scope.noCalls : "a constant");
    if (scope.kind == Scope::Stage)
      noteNoCall(e.text, scope.noCalls);
    return nullptr;
  }
  if (!needsSlot(what, e.loc, scope))
    return nullptr;
  if (e.args.size() != 1) {
    diags.report(Diag::ArgumentCount, e.loc, e.text, "one sequence of tokens, then named arguments", e.args.size());
    return nullptr;
  }
  auto call = make(Expr::ModelCall, {Elem::Logits, true, 0}, e.loc);
  call->name = e.text;
  bool failed = false;
  std::vector<const ast::Name *> free; // `parents` or `visible`
  std::vector<ExprRef> rows;
  auto word = [](const ast::Expr &a) {
    return a.kind == ast::Expr::Path || a.kind == ast::Expr::StringLiteral ? a.text : "";
  };
  for (const auto &[name, arg] : e.named) {
    if (name.text == "chunk" || name.text == "most") {
      const std::string which = fmt::format("argument `{}`", name.text);
      ExprRef n = expect(*arg, Elem::I32, which, scope);
      auto c = n ? constant(*n, which) : std::nullopt;
      failed |= !c || c->intValue < 1;
      if (c && c->intValue < 1)
        diags.report(Diag::BadArgument, arg->loc, name.text, e.text, fmt::format("at least 1, is {}", c->intValue));
      else if (c)
        (name.text == "chunk" ? call->chunk : call->most) = c->intValue;
    } else if (name.text == "keep") {
      if (word(*arg) != "none") {
        diags.report(Diag::BadArgument, arg->loc, "keep", e.text, "`none`");
        failed = true;
      }
      call->keepNone = true;
    } else if (name.text == "kv") {
      if (word(*arg) != "draft" && word(*arg) != "commit") {
        diags.report(Diag::BadArgument, arg->loc, "kv", e.text, "`draft` or `commit`");
        diags.suggest(word(*arg), {"draft", "commit"});
        failed = true;
      }
      call->draft = word(*arg) == "draft";
    } else if (name.text == "parents" || name.text == "visible") {
      free.push_back(&name);
      rows.push_back(value(*arg, scope));
      failed |= !rows.back();
    } else if (name.text == "pages" || name.text == "positions") {
      diags.report(Diag::Unsupported, name.loc, fmt::format("`{}=` of a call", name.text),
                   "`parents=` or `visible=`, which say where rows stand and what they see");
      failed = true;
    } else {
      diags.report(Diag::UnknownArgument, name.loc, e.text, name.text);
      diags.suggest(name.text, {"chunk", "keep", "kv", "most", "parents", "visible"});
      failed = true;
    }
  }
  ExprRef fed = value(*e.args[0], scope);
  fed = as(fed, Type::sequence(0), fmt::format("what `{}` is fed", e.text), "a sequence such as `[x]`");
  if (!fed || failed || !checkFreeRows(*call, free, rows))
    return nullptr;
  int64_t most = fed->type.capacity;
  if (call->most && most <= call->most)
    call->most = 0; // it never has more
  if (call->most)
    most = call->most;
  if (call->chunk && call->draft) {
    diags.report(Diag::ChunkedDraft, e.loc);
    return nullptr;
  }
  if (call->chunk && !call->keepNone) {
    // Other requests would decide what is read.
    diags.report(Diag::ChunkedLogits, e.loc);
    diags.note(
        fmt::format("how many rows of it one tick serves depends on the load. To read rows of many tokens, feed a "
                    "piece at a time: `{0}(tokens[kv.{0}.len:-1][:{1}])`",
                    e.text, std::min(call->chunk, rowsPerPass())));
    return nullptr;
  }
  if (call->chunk)
    most = std::min({most, call->chunk, rowsPerPass()});
  if (most >= Unbounded) {
    diags.report(Diag::CallUnbounded, e.loc,
                 call->keepNone ? "add `chunk=` or cut the tokens with a slice"
                                : "cut the tokens with a slice such as `[:8]`, or say with `most=` how many there are");
    noteBound(*fed);
    return nullptr;
  }
  if (most > rowsPerPass()) {
    diags.report(Diag::CallTooLarge, e.loc, most, rowsPerPass(), call->keepNone ? " or add `chunk=`" : "");
    noteBound(*fed);
    return nullptr;
  }
  call->args.insert(call->args.begin(), fed);
  call->type.capacity = most;
  call->reductions = std::make_shared<Reductions>();
  *call->reductions = {{}, scope.locally->changes.size(), scope.locally->all.size(), scope.binders.size(), scope.depth};
  scope.locally->changes.push_back("kv " + call->name);
  // The stage waits here. What the fields are behind it is not for it to say. In a loop it still is how long they have
  // become: storing one checks it.
  for (const CheckedField &f : out.fields)
    if (auto flow = scope.flows.find(f.name); !f.local && flow != scope.flows.end()) {
      if (scope.loops > 0 || f.type.elem == Elem::Kept)
        flow->second.range = {};
      else
        scope.flows.erase(flow);
    }
  scope.call = call;
  return call;
}

} // namespace megalith::sema
