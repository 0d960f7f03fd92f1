//===- Calls.cpp - builtin functions and model calls ----------------------===//
#include "Checker.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <algorithm>

namespace megalith::sema {

namespace {
struct FunctionInfo {
  const char *name, *params;
  Function id;
};
const FunctionInfo functions[] = {
#define FUNCTION(Id, Name, Params, Result, Text) {Name, Params, Function::Id},
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
  if (firstUse(e.text))
    reportUnknown(Diag::UnknownFunction, e.loc, e.text, functionNames(scope));
  return nullptr;
}

ExprRef Checker::checkFunction(Function f, const ast::Expr &e, Scope &scope) {
  if (f == Function::PrefixWhile || f == Function::Count)
    return checkBinder(f, e, scope);

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
    return nullptr;
  }

  switch (f) {
  case Function::Len: {
    ExprRef s = value(*args[0], scope);
    if (!s)
      return nullptr;
    if (!s->type.seq) {
      diags.report(Diag::TypeMismatch, args[0]->loc, "the argument of `len`", "a sequence", s->type.str());
      return nullptr;
    }
    auto v = make(Expr::SeqLen, Type::scalar(Elem::I32), e.loc, {s});
    v->range = {0, std::min(s->type.capacity, mostPositions())};
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
  default:
    return nullptr;
  }
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
      return nullptr;
    }
  }
  Range range = values[0]->range;
  for (const ExprRef &v : values)
    range = f == Function::Min ? Range{std::min(range.lo, v->range.lo), std::min(range.hi, v->range.hi)}
                               : Range{std::max(range.lo, v->range.lo), std::max(range.hi, v->range.hi)};
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
  for (const ast::ExprPtr &row : table.args) {
    ExprRef threshold = expect(*row->args[0], x->type.elem, "a threshold of `tiers`", scope);
    ExprRef v = value(*row->args[1], scope);
    if (!threshold || !v)
      return nullptr;
    items.push_back(threshold);
    items.push_back(v);
  }
  Range range = items[2]->range;
  for (size_t i = 2; i < items.size(); i += 2) {
    bool same = unify(items[2], items[i]) && !items[i]->type.seq;
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
  ExprRef s = value(*args[0], scope);
  ExprRef width = expect(*args[1], Elem::I32, "argument `width` of `ngram_lookup`", scope);
  if (!s || !width)
    return nullptr;
  if (!s->type.seq) {
    diags.report(Diag::TypeMismatch, args[0]->loc, "the first argument of `ngram_lookup`", "a sequence", s->type.str());
    return nullptr;
  }
  int64_t ngram = 3;
  if (args[2]) {
    ExprRef n = expect(*args[2], Elem::I32, "argument `ngram` of `ngram_lookup`", scope);
    auto c = n ? constant(*n, "argument `ngram` of `ngram_lookup`") : std::nullopt;
    if (!c)
      return nullptr;
    if (c->intValue < 1 || c->intValue > 16)
      diags.report(Diag::BadArgument, n->loc, "ngram", "ngram_lookup", fmt::format("from 1 to 16, is {}", c->intValue));
    else
      ngram = c->intValue;
  }
  // It goes through the whole sequence.
  if (Scope inner = scope; !scope.binders.empty() &&
                           !checkRounds(inner, std::min(s->type.capacity, mostPositions()), "`ngram_lookup`", e.loc))
    return nullptr;
  int64_t capacity = std::min(asLength(width->range.hi), s->type.capacity);
  auto v = make(Expr::NgramLookup, Type::sequence(capacity), e.loc, {s, width});
  v->ngram = ngram;
  v->pieces = s->pieces;
  return v;
}

ExprRef Checker::checkBinder(Function f, const ast::Expr &e, Scope &scope) {
  if (!e.binder || e.args.size() != 2 || !e.named.empty()) {
    diags.report(Diag::ArgumentCount, e.loc, e.text, "`i in 0..n, condition`",
                 plural(e.args.size() + e.named.size(), "argument"));
    return nullptr;
  }
  const ast::Expr &range = *e.args[0];
  bool fromZero =
      range.kind == ast::Expr::Range && range.args[0]->kind == ast::Expr::IntLiteral && range.args[0]->intValue == 0;
  if (!fromZero) {
    diags.report(Diag::BadArgument, range.loc, e.binder->text, e.text, "a range `0..n`");
    return nullptr;
  }
  ExprRef n = expect(*range.args[1], Elem::I32, fmt::format("the range of `{}`", e.text), scope);
  Scope inner = scope;
  inner.noCalls = inner.noEffects = f == Function::Count ? "`count`" : "`prefix_while`";
  Range index{0, INT32_MAX};
  if (n) {
    index.hi = std::max<int64_t>(0, n->range.hi - 1);
    if (!checkRounds(inner, n->range.hi, fmt::format("`{}`", e.text), range.args[1]->loc))
      n = nullptr;
  }
  if (scope.locals.count(e.binder->text) || declared.count(e.binder->text)) {
    diags.report(Diag::DuplicateName, e.binder->loc, e.binder->text,
                 declared.count(e.binder->text) ? declared[e.binder->text] : "a local");
    return nullptr;
  }
  inner.binders.emplace_back(e.binder->text, index);
  ExprRef condition = expect(*e.args[1], Elem::Bool, fmt::format("the condition of `{}`", e.text), inner);
  if (!n || !condition)
    return nullptr;
  auto v =
      make(f == Function::Count ? Expr::CountIf : Expr::PrefixWhile, Type::scalar(Elem::I32), e.loc, {n, condition});
  v->index = inner.binders.size() - 1;
  v->name = e.binder->text;
  v->range = {0, std::max<int64_t>(0, n->range.hi)};
  return v;
}

/// A stage runs while all others wait, so its loops have bounds: each as many rounds as a request has positions, a few
/// more for what goes beyond them, and all that stand in each other together not very many.
bool Checker::checkRounds(Scope &inner, int64_t most, const std::string &what, SourceLoc loc) {
  constexpr int64_t beyond = 1024, together = int64_t(1) << 24;
  const int64_t limit = mostPositions() + beyond;
  const bool nested = !inner.binders.empty();
  if (most > limit) {
    diags.report(Diag::RangeBound, loc, what, most < INT32_MAX ? std::to_string(most) : "any number of", limit);
    return false;
  }
  const int64_t rounds = inner.rounds * std::max<int64_t>(1, most);
  if (nested && rounds > together) {
    diags.report(Diag::RangeBound, loc, what + " and the ranges around it", rounds, together);
    return false;
  }
  inner.rounds = rounds;
  return true;
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
  if (!s->type.seq) {
    diags.report(Diag::TypeMismatch, args[0]->loc, "the argument of `append`", "a token or a sequence", s->type.str());
    return nullptr;
  }
  if (scope.locally)
    scope.locally->changes.push_back("tokens");
  auto v = make(Expr::Append, Type::scalar(Elem::I32), e.loc, {s});
  v->range = {0, std::min(s->type.capacity, mostPositions())};
  return v;
}

ExprRef Checker::checkModelCall(const ast::Expr &e, Scope &scope) {
  std::string what = fmt::format("a call of `{}`", e.text);
  if (scope.noCalls || scope.kind != Scope::Stage) {
    diags.report(Diag::EffectNotAllowed, e.loc, what, scope.noCalls ? scope.noCalls : "a constant");
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
  auto word = [](const ast::Expr &a) {
    return a.kind == ast::Expr::Path || a.kind == ast::Expr::StringLiteral ? a.text : "";
  };
  for (const auto &[name, arg] : e.named) {
    if (name.text == "chunk") {
      ExprRef n = expect(*arg, Elem::I32, "argument `chunk`", scope);
      auto c = n ? constant(*n, "argument `chunk`") : std::nullopt;
      failed |= !c || c->intValue < 1;
      if (c && c->intValue < 1)
        diags.report(Diag::BadArgument, arg->loc, "chunk", e.text, fmt::format("at least 1, is {}", c->intValue));
      else if (c)
        call->chunk = c->intValue;
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
    } else {
      diags.report(Diag::UnknownArgument, name.loc, e.text, name.text);
      diags.suggest(name.text, {"chunk", "keep", "kv"});
      failed = true;
    }
  }
  ExprRef fed = value(*e.args[0], scope);
  if (!fed || failed)
    return nullptr;
  if (!fed->type.seq) {
    diags.report(Diag::TypeMismatch, e.args[0]->loc, fmt::format("what `{}` is fed", e.text),
                 "a sequence such as `[x]`", fed->type.str());
    return nullptr;
  }
  int64_t rows = fed->type.capacity;
  if (call->chunk && call->draft) {
    diags.report(Diag::ChunkedDraft, e.loc);
    return nullptr;
  }
  if (call->chunk)
    rows = std::min({rows, call->chunk, rowsPerPass()});
  if (rows >= Unbounded) {
    diags.report(Diag::CallUnbounded, e.loc);
    return nullptr;
  }
  if (rows > rowsPerPass()) {
    diags.report(Diag::CallTooLarge, e.loc, rows, rowsPerPass());
    return nullptr;
  }
  call->args.push_back(fed);
  call->type.capacity = rows;
  call->reductions = std::make_shared<Reductions>();
  *call->reductions = {{}, scope.locally->changes.size(), scope.locally->all.size(), scope.binders.size()};
  scope.locally->changes.push_back("kv " + call->name);
  return call;
}

} // namespace megalith::sema
