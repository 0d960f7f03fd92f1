//===- Notes.cpp - what to write instead ----------------------------------===//
#include "Notes.h"
#include "Builtins.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::sema {

bool noteGuess(Diagnostics &diags, llvm::StringRef name, Guess of) {
  enum Kind { Statement, Name, Function, Method, Graph };
  static const struct {
    Kind kind;
    llvm::StringRef word;
    const char *text;
  } table[] = {
#define GUESSED_STATEMENT(Word, Text) {Statement, Word, Text},
#define GUESSED_GRAPH(Word, Text) {Graph, Word, Text},
#define GUESSED_NAME(Word, Text) {Name, Word, Text},
#define GUESSED_FUNCTION(Word, Text) {Function, Word, Text},
#define GUESSED_METHOD(Word, Text) {Method, Word, Text},
#include "megalith/Sema/Guesses.def"
  };
  const auto [head, last] = name.rsplit('.');
  const Kind kind = of == Guess::Graph       ? Graph
                    : of == Guess::Statement ? Statement
                    : of == Guess::Name      ? Name
                    : last.empty()           ? Function
                                             : Method;
  for (const auto &[known, word, text] : table)
    if (word == (kind == Method ? last : name) && (known == kind || (known == Statement && kind == Name))) {
      diags.note(fmt::format(fmt::runtime(text), head.str()));
      return true;
    }
  if (kind == Method)
    diags.note(fmt::format("values have no functions of their own: `f({})`", head.str()));
  return kind == Method;
}

/// What was written, where it is short enough for a message.
static std::string shown(const ast::Expr &e, const char *otherwise = "x") {
  constexpr size_t most = 40;
  const std::string text = ast::written(e);
  return text.size() > most ? otherwise : text;
}

void noteCast(Diagnostics &diags, const Type &found, Elem wanted, const ast::Expr &e) {
  const std::string x = shown(e);
  if (found.elem == wanted) {
    if (found.seq && !found.table)
      diags.note(fmt::format("an element of it is `{}[0]`", x));
    return;
  }
  if (wanted == Elem::Bool) {
    if (found.seq)
      diags.note(fmt::format("compare its length: `len({}) > 0`", x));
    else if (found.elem == Elem::I32)
      diags.note(fmt::format("compare it: `{} != 0`", x));
    return;
  }
  const bool numbers = found.elem == Elem::I32 || found.elem == Elem::F32;
  const std::string item = found.seq ? x + "[i]" : x;
  std::string cast;
  if (wanted == Elem::F32)
    cast = numbers ? fmt::format("f32({})", item) : fmt::format("f32(i32({}))", item);
  else if (wanted == Elem::I32)
    cast = fmt::format("i32({})", item);
  if (cast.empty() || e.kind == ast::Expr::FloatLiteral || found.table || !(found.seq || found.isScalar()) ||
      found.elem > Elem::Token)
    return;
  diags.note(fmt::format("nothing is converted silently: write `{}`{}",
                         found.seq ? fmt::format("map(i in 0..len({}), {})", x, cast) : cast,
                         found.elem == Elem::F32 ? ", which rounds towards zero" : ""));
}

void noteCasts(Diagnostics &diags, const ExprRef &a, const ExprRef &b, const ast::Expr &e) {
  const Type &x = a->type, &y = b->type;
  if (x.isScalar() && y.isScalar()) {
    // To the one that loses nothing.
    const auto first = [&](Elem from, Elem to) { return x.elem == from && y.elem == to; };
    const auto second = [&](Elem from, Elem to) { return y.elem == from && x.elem == to; };
    for (auto [from, to] : {std::pair(Elem::I32, Elem::F32), std::pair(Elem::Token, Elem::I32)})
      if (first(from, to) || second(from, to))
        noteCast(diags, Type::scalar(from), to, *e.args[first(from, to) ? 0 : 1]);
    if (const bool left = e.args[0]->kind != ast::Expr::IntLiteral; first(Elem::Token, Elem::Token))
      diags.note(fmt::format("the number of a token is `i32({})`", shown(*e.args[left ? 0 : 1])));
  } else if (const bool compares = llvm::StringRef("<=>").contains(e.text.substr(0, 1)) || e.text == "!=";
             compares && x.seq != y.seq && x.elem == y.elem) {
    noteCast(diags, x.seq ? x : y, x.elem, *e.args[x.seq ? 0 : 1]);
  } else if (e.kind == ast::Expr::Binary && x.seq != y.seq && !x.table && !y.table && x.elem == y.elem &&
             (x.elem == Elem::I32 || x.elem == Elem::F32)) {
    const std::string s = shown(*e.args[x.seq ? 0 : 1], "s"), other = shown(*e.args[x.seq ? 1 : 0]);
    diags.note(fmt::format("element by element it is `map(i in 0..len({0}), {1})`", s,
                           x.seq ? fmt::format("{}[i] {} {}", s, e.text, other)
                                 : fmt::format("{} {} {}[i]", other, e.text, s)));
  }
}

void noteRange(Diagnostics &diags, const std::string &function, const ast::Expr &e) {
  const std::string s = shown(e, "s");
  const llvm::StringRef takes = findBuiltin(function)->text;
  const bool condition = takes.ends_with("condition");
  diags.note(
      fmt::format(fmt::runtime(condition                ? "of a sequence it is `{0}(i in 0..len({1}), {1}[i] == x)`"
                               : takes.ends_with(", k") ? "of a sequence it is `{0}(i in 0..len({1}), {1}[i], k)`"
                                                        : "of a sequence it is `{0}(i in 0..len({1}), {1}[i])`"),
                  function, s));
}

/// A local that `e` is put together of.
static const Expr *localIn(const Expr &e) {
  switch (e.kind) {
  case Expr::LocalRead:
    return &e;
  case Expr::FieldRead:
    return e.name().find('.') == std::string::npos ? nullptr : &e;
  case Expr::SeqMake:
  case Expr::SeqConcat:
  case Expr::SeqSlice:
  case Expr::SeqAt:
  case Expr::Select:
    for (const ExprRef &arg : e.args)
      if (const Expr *local = arg && arg->type.elem == Elem::I32 ? localIn(*arg) : nullptr)
        return local;
    return nullptr;
  default:
    return nullptr;
  }
}

void noteNoTokens(Diagnostics &diags, const Expr &e, Elem wanted) {
  const Expr *local = wanted == Elem::Token && e.type.elem == Elem::I32 ? localIn(e) : nullptr;
  if (!local)
    return;
  const std::string &name = local->kind == Expr::LocalRead ? local->as<Place>().name : local->name();
  diags.note(
      fmt::format("`{}` has numbers (i32); to have tokens it is declared below `request:`, as `token` or `token[n]`",
                  name.substr(name.find('.') + 1)));
}

/// How much there can be of it: for the greatest part of an expression.
static int64_t mostOf(const Expr &e) { return e.type.isScalar() ? e.range.hi : e.type.length(); }

static bool noteBoundOf(Context &ctx, const Expr &e, unsigned depth) {
  constexpr unsigned deepest = 64;
  if (depth > deepest)
    return false;
  const auto free = [&](const std::string &name) {
    if (depth == 0 || !e.type.is(Elem::I32) || e.range.hi < INT32_MAX)
      return false;
    ctx.diags.note(fmt::format("`{0}` can be any i32 here; `min({0}, N)` bounds it", name));
    return true;
  };
  switch (e.kind) {
  case Expr::FieldRead:
    if (auto it = ctx.growths.find(e.name()); it != ctx.growths.end()) {
      ctx.diags.note(it->second.loc, it->second.text);
      return true;
    }
    return free(e.name().substr(e.name().find_last_of('.') + 1));
  case Expr::InputRead:
    return free(e.name());
  case Expr::ObserveArg:
    return free(e.as<Place>().name);
  case Expr::PolicyOutput:
  case Expr::PolicyState:
    return free(e.name() + "." + e.as<Name>().member);
  case Expr::LocalRead:
    if (const auto at = static_cast<size_t>(e.as<Place>().index);
        ctx.here && at < ctx.here->all.size() && ctx.here->all[at].value)
      return noteBoundOf(ctx, *ctx.here->all[at].value, depth + 1);
    return false;
  case Expr::Const:
  case Expr::ModelCall:
  case Expr::Reduced:
  case Expr::TopParts:
    return false;
  default:
    break;
  }
  // The greatest first: it is what makes the whole so great.
  std::vector<const Expr *> parts;
  for (size_t i = 0; i < e.args.size(); ++i) {
    const bool length = e.kind != Expr::Over || i < 2, condition = e.kind == Expr::Select && i == 0;
    const bool other = (e.kind == Expr::NgramLookup && i != 1) || (e.kind == Expr::SeqAt && i == 1);
    if (e.args[i] && length && !condition && !other)
      parts.push_back(e.args[i].get());
  }
  llvm::stable_sort(parts, [](const Expr *a, const Expr *b) { return mostOf(*a) > mostOf(*b); });
  return llvm::any_of(parts, [&](const Expr *part) { return noteBoundOf(ctx, *part, depth + 1); });
}

void noteBound(Context &ctx, const Expr &e) { noteBoundOf(ctx, e, 0); }

void noteNoCall(Diagnostics &diags, const std::string &model, const char *where) {
  const llvm::StringRef place = where;
  if (place == "a `while`")
    diags.note("a `for` may call: `for: i in 0..n` with `until: c`, where it should end");
  else if (place.starts_with("a conditional") || place.starts_with("an operand"))
    diags.note(fmt::format("let it stand outside, and feed nothing where it is not wanted: `{}([last] if c else [])` "
                           "has no rows then",
                           model));
  else if (place.starts_with("`") && place != "`goto`" && place != "`order`")
    diags.note(
        fmt::format("call it above, for all at once: `best: argmax({}(s, kv=draft))`, and read `best[i]` here", model));
  else
    diags.note("let it stand in a statement of its own above, and read what a reducer gives");
}

} // namespace megalith::sema
