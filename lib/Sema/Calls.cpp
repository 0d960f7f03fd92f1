//===- Calls.cpp - model calls and `append` -------------------------------===//
#include "Expressions.h"
#include "Notes.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::sema {

/// The first constant that `e`, a token or a sequence of tokens, may give and that `good` does not hold for.
template <class Good> static const Expr *wrongConstant(const Expr &e, Good good) {
  if (e.kind == Expr::Const)
    return good(e.as<Number>().intValue) ? nullptr : &e;
  const bool gives = e.kind == Expr::Select || e.kind == Expr::SeqConcat || e.kind == Expr::SeqMake ||
                     e.kind == Expr::SeqConst || e.kind == Expr::Cast;
  if (!gives)
    return nullptr;
  for (const ExprRef &arg : llvm::drop_begin(e.args, e.kind == Expr::Select ? 1 : 0))
    if (const Expr *wrong = arg ? wrongConstant(*arg, good) : nullptr)
      return wrong;
  return nullptr;
}

ExprRef Expressions::checkAppend(Arguments &args) {
  ExprRef s = convert(value(*args.written[0]), Elem::Token);
  if (!s)
    return nullptr;
  if (s->type.is(Elem::Token))
    s = make(Expr::SeqMake, Type::sequence(1), s->loc, {s});
  if (!s->type.isSequence(Elem::Token)) {
    diags.report(Diag::TypeMismatch, args.written[0]->loc, "the argument of `append`",
                 "a token or a sequence of tokens", s->type.str());
    noteNoTokens(diags, *s, Elem::Token);
    return nullptr;
  }
  const ModelFacts *first = ctx.in.pools.empty() ? nullptr : ctx.model(ctx.in.pools[0].name.text);
  const int64_t vocab = first ? first->vocab : 0;
  if (const Expr *wrong =
          wrongConstant(*s, [&](int64_t token) { return token >= 0 && (vocab == 0 || token < vocab); })) {
    diags.report(Diag::AppendToken, wrong->loc, wrong->as<Number>().intValue,
                 vocab == 0 ? "the vocabulary" : fmt::format("the vocabulary of `{}`", first->name),
                 vocab == 0 ? "has no negative tokens" : fmt::format("has the tokens 0 to {}", vocab - 1));
    return nullptr;
  }
  if (scope.locally)
    scope.locally->changes.push_back("tokens");
  auto v = make(Expr::Append, Type::scalar(Elem::I32), args.call.loc, {s}, {},
                {0, std::min(s->type.capacity, ctx.mostPositions())});
  if (!take(args))
    return nullptr;
  if (const ExprRef stop = args.valueOf("stop")) {
    if (stop->type.capacity >= Unbounded) {
      diags.report(Diag::UnboundedSequence, stop->loc, "argument `stop` of `append`");
      return nullptr;
    }
    v->args.push_back(stop);
  }
  return v;
}

/// What the rows of a call hang on, or what they see: `given`, of these names.
bool Expressions::checkFreeRows(Call &call, const std::vector<const ast::Name *> &names, std::vector<ExprRef> &given) {
  if (names.empty())
    return true;
  const ast::Name &name = *names[0];
  const std::string what = fmt::format("argument `{}` of `{}`", name.text, call.model);
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
                             call.model));
    return false;
  }
  const bool alike = name.text == "visible" && given[0]->type.isScalar();
  const ExprRef v = as(ctx, given[0], alike ? Type::scalar(Elem::I32) : Type::sequence(0, Elem::I32), what,
                       name.text == "visible" ? "i32, or a sequence of i32" : "a sequence of i32");
  if (!v)
    return false;
  if (v->type.seq && v->type.capacity >= Unbounded) {
    diags.report(Diag::UnboundedSequence, v->loc, what);
    return false;
  }
  const int64_t least = name.text == "visible" ? 1 : -1;
  if (v->range.hi < least) {
    diags.report(Diag::BadArgument, v->loc, name.text, call.model,
                 fmt::format("at least {}, is at most {}", least, v->range.hi));
    return false;
  }
  call.rows = name.text;
  given[0] = v;
  return true;
}

ExprRef Expressions::checkModelCall(const ast::Expr &e) {
  std::string what = fmt::format("a call of `{}`", e.text);
  ctx.used.insert(e.text);
  if (scope.noCalls || scope.kind != Scope::Stage) {
    diags.report(Diag::EffectNotAllowed, e.loc, what, scope.noCalls ? scope.noCalls : "a constant");
    if (scope.kind == Scope::Stage)
      noteNoCall(diags, e.text, scope.noCalls);
    return nullptr;
  }
  if (!ctx.needsSlot(what, e.loc, scope))
    return nullptr;
  if (e.args.size() != 1) {
    diags.report(Diag::ArgumentCount, e.loc, e.text, "one sequence of tokens, then named arguments", e.args.size());
    return nullptr;
  }
  Call call{.model = e.text};
  bool failed = false;
  std::vector<const ast::Name *> free; // `parents` or `visible`
  std::vector<ExprRef> rows;
  auto word = [](const ast::Expr &a) {
    return a.kind == ast::Expr::Path || a.kind == ast::Expr::StringLiteral ? a.text : "";
  };
  for (const auto &[name, arg] : e.named) {
    if (name.text == "chunk" || name.text == "most") {
      const std::string which = fmt::format("argument `{}`", name.text);
      ExprRef n = expect(*arg, Elem::I32, which);
      auto c = n ? constant(ctx, *n, which) : std::nullopt;
      failed |= !c || c->intValue < 1;
      if (c && c->intValue < 1)
        diags.report(Diag::BadArgument, arg->loc, name.text, e.text, fmt::format("at least 1, is {}", c->intValue));
      else if (c)
        (name.text == "chunk" ? call.chunk : call.most) = c->intValue;
    } else if (name.text == "keep") {
      if (word(*arg) != "none") {
        diags.report(Diag::BadArgument, arg->loc, "keep", e.text, "`none`");
        failed = true;
      }
      call.keepNone = true;
    } else if (name.text == "kv") {
      if (word(*arg) != "draft" && word(*arg) != "commit") {
        diags.report(Diag::BadArgument, arg->loc, "kv", e.text, "`draft` or `commit`");
        diags.suggest(word(*arg), {"draft", "commit"});
        failed = true;
      }
      call.draft = word(*arg) == "draft";
    } else if (name.text == "parents" || name.text == "visible") {
      free.push_back(&name);
      rows.push_back(value(*arg));
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
  ExprRef fed = value(*e.args[0]);
  fed = as(ctx, fed, Type::sequence(0), fmt::format("what `{}` is fed", e.text), "a sequence such as `[x]`");
  if (!fed || failed || !checkFreeRows(call, free, rows))
    return nullptr;
  int64_t most = fed->type.capacity;
  if (call.most && most <= call.most)
    call.most = 0; // it never has more
  if (call.most)
    most = call.most;
  if (call.chunk && call.draft) {
    diags.report(Diag::ChunkedDraft, e.loc);
    return nullptr;
  }
  if (call.chunk && !call.keepNone) {
    // Other requests would decide what is read.
    diags.report(Diag::ChunkedLogits, e.loc);
    diags.note(
        fmt::format("how many rows of it one tick serves depends on the load. To read rows of many tokens, feed a "
                    "piece at a time: `{0}(tokens[kv.{0}.len:-1][:{1}])`",
                    e.text, std::min<int64_t>({call.chunk, ctx.rowsPerPass(), limits::readRows})));
    return nullptr;
  }
  if (call.chunk) {
    most = std::min({most, call.chunk, ctx.rowsPerPass()});
    ctx.used.insert("rows_beside");
  }
  if (most >= Unbounded) {
    diags.report(Diag::CallUnbounded, e.loc, limits::capacity,
                 call.keepNone ? "add `chunk=` or cut the tokens with a slice"
                               : "cut the tokens with a slice such as `[:8]`, or say with `most=` how many there are");
    noteBound(ctx, *fed);
    return nullptr;
  }
  const bool isRead = !call.keepNone || !free.empty();
  const bool lastRow = isRead && free.empty() && !call.draft; // it may be that no other is read
  if (const int64_t limit =
          isRead && !lastRow ? std::min<int64_t>(ctx.rowsPerPass(), limits::readRows) : ctx.rowsPerPass();
      most > limit) {
    diags.report(Diag::CallTooLarge, e.loc, most,
                 limit == ctx.rowsPerPass() ? fmt::format("`rows_per_pass` is {}", limit)
                                            : fmt::format("a call that is read has {} at most", limit),
                 call.keepNone && free.empty() ? " or add `chunk=`" : "");
    noteBound(ctx, *fed);
    return nullptr;
  }
  rows.insert(rows.begin(), fed);
  for (ExprRef &given : rows)
    given = guarded(scope.guard, given);
  *call.reductions = {
      {}, scope.guard, scope.locally->changes.size(), scope.locally->all.size(), scope.binders.size(), scope.depth};
  scope.locally->changes.push_back("kv " + call.model);
  // The stage waits here. What the fields are after it is not for it to say. In a loop it still is how long they have
  // become: storing one checks it.
  for (const CheckedField &f : ctx.out.fields)
    if (auto flow = scope.flows.find(f.name); !f.local && flow != scope.flows.end()) {
      if (scope.loops > 0 || f.type.elem == Elem::Kept)
        flow->second.range = {};
      else
        scope.flows.erase(flow);
    }
  scope.call = make(Expr::ModelCall, {Elem::Logits, true, most}, e.loc, rows, std::move(call));
  if (most > limits::readRows && lastRow && !ctx.looksAhead)
    scope.locally->largeReads.push_back(scope.call);
  return scope.call;
}

bool readsLastRow(const Call &call) {
  const auto isLast = [](const Operand &given) {
    return given.name == "first" && given.fromEnd && given.value->kind == Expr::Const &&
           given.value->as<Number>().intValue == -1;
  };
  const auto isOther = [](const Operand &given) {
    return given.name == "last" || given.name == "tokens" || given.name == "kept" || given.name == "minus";
  };
  return !call.draft && call.rows.empty() && !call.reductions->list.empty() &&
         llvm::all_of(call.reductions->list, [&](const Reduction &r) {
           return r.keep.empty() && llvm::any_of(r.with, isLast) && llvm::none_of(r.with, isOther);
         });
}

void checkLargeReads(Context &ctx, const Locals &locals) {
  for (const ExprRef &e : locals.largeReads)
    if (const auto &call = e->as<Call>(); !readsLastRow(call)) {
      ctx.diags.report(
          Diag::CallTooLarge, e->loc, e->type.capacity,
          fmt::format("a call of which more than the last row is read has {} at most", int(limits::readRows)), "");
      noteBound(ctx, *e->args[0]);
    }
}

} // namespace megalith::sema
