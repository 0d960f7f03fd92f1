//===- Builtins.cpp - signatures, and what calls have for them ------------===//
#include "Expressions.h"
#include "Notes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace megalith::sema {

static std::vector<Builtin> parsed() {
  std::vector<Builtin> list = {
#define FUNCTION(Id, Name, Where, Operation, Params, Result, Text)                                                     \
  {Function::Id, Name, "`" Name "`", Builtin::Where, ir::Op::Operation, Params, Result},
#include "megalith/Sema/Builtins.def"
  };
  for (Builtin &f : list) {
    llvm::SmallVector<llvm::StringRef, 4> parts;
    if (!f.binds())
      f.text.split(parts, ", ");
    for (llvm::StringRef part : parts) {
      if (part == "...") {
        f.variadic = true;
        continue;
      }
      const bool optional = part.consume_back("?");
      const auto [name, type] = part.split(": ");
      f.params.push_back({name.str(), type, optional});
    }
  }
  return list;
}

llvm::ArrayRef<Builtin> builtins() {
  static const std::vector<Builtin> list = parsed();
  return list;
}

const Builtin *findBuiltin(llvm::StringRef name) {
  const auto *found = llvm::find_if(builtins(), [&](const Builtin &f) { return f.name == name; });
  return found == builtins().end() ? nullptr : found;
}

size_t Builtin::required() const {
  return llvm::count_if(params, [](const Parameter &p) { return !p.optional; });
}

std::string Builtin::count() const {
  if (variadic)
    return fmt::format("{} or more arguments", required());
  return required() == params.size() ? plural(required(), "argument")
                                     : fmt::format("{} to {} arguments", required(), params.size());
}

const ast::Expr *Arguments::writtenFor(llvm::StringRef name) const {
  for (const auto &[parameter, e] : llvm::zip(of.params, written))
    if (name == parameter.name)
      return e;
  return nullptr;
}

ExprRef Arguments::valueOf(llvm::StringRef name) const {
  for (const auto &[parameter, v] : llvm::zip(of.params, values))
    if (name == parameter.name)
      return v;
  return nullptr;
}

/// Whether a constant, or a value here, may use it at all.
bool Expressions::mayCall(const Builtin &f, const ast::Expr &e) {
  const bool constant = scope.kind == Scope::Params;
  if (scope.kind == Scope::Items) {
    const bool plain = f.where == Builtin::Constant && f.id != Function::Len;
    const bool ofRange = f.binds() && f.id != Function::Map && f.id != Function::Filter && f.id != Function::Scan &&
                         f.id != Function::Top && f.id != Function::Sort;
    if (plain || ofRange || f.id == Function::Tiers || (f.id == Function::ArgMax && e.binder))
      return true;
    diags.report(Diag::EffectNotAllowed, e.loc, f.quoted, "a stage over buffers");
    if (f.id == Function::Scan || f.id == Function::Sort)
      diags.note("in a stage without `over` it gives a whole buffer its value: `- offset: scan(i in 0..b, ...)`");
    return false;
  }
  if (f.where == Builtin::Effect && (scope.noEffects || constant))
    diags.report(Diag::EffectNotAllowed, e.loc, f.quoted, scope.noEffects ? scope.noEffects : "a constant");
  else if (f.where != Builtin::Constant && constant)
    diags.report(Diag::NotConstant, e.loc, f.quoted);
  else
    return true;
  return false;
}

/// Finds what stands for each parameter. False after a report.
bool Expressions::match(Arguments &args) {
  const auto &[f, e] = std::tie(args.of, args.call);
  const size_t given = e.args.size() + e.named.size();
  bool good = f.variadic || given <= f.params.size();
  args.written.resize(f.params.size());
  for (size_t i = 0; i < e.args.size(); ++i) {
    if (i < f.params.size())
      args.written[i] = e.args[i].get();
    else if (f.variadic)
      args.written.push_back(e.args[i].get());
  }
  for (const auto &[name, value] : e.named) {
    const auto it = llvm::find_if(f.params, [&, name = name.text](const Parameter &p) { return p.name == name; });
    if (it == f.params.end()) {
      std::vector<std::string> names;
      for (const Parameter &p : f.params)
        names.push_back(p.name);
      diags.report(Diag::UnknownArgument, name.loc, e.text, name.text);
      diags.suggest(name.text, names);
      return false;
    }
    const ast::Expr *&slot = args.written[it - f.params.begin()];
    good &= !slot;
    slot = value.get();
  }
  for (const auto &[parameter, written] : llvm::zip(f.params, args.written))
    good &= written || parameter.optional;
  if (good)
    return true;
  diags.report(Diag::ArgumentCount, e.loc, e.text, f.count(), given);
  if ((f.id == Function::Min || f.id == Function::Max) && e.args.size() == 1)
    noteRange(diags, e.text, *e.args[0]);
  return false;
}

/// Checks what is given for each parameter that has a type. False after a report.
bool Expressions::take(Arguments &args) {
  bool good = true;
  args.values.resize(args.of.params.size());
  for (size_t i = 0; i < args.of.params.size(); ++i) {
    const Parameter &p = args.of.params[i];
    if (!args.written[i] || p.type.empty())
      continue;
    const bool unnamed = p.name == "x" || p.name == "s";
    args.values[i] = taken(*args.written[i], p, args,
                           !unnamed                  ? fmt::format("argument `{}` of {}", p.name, args.of.quoted)
                           : args.of.required() == 1 ? fmt::format("the argument of {}", args.of.quoted)
                                                     : fmt::format("the first argument of {}", args.of.quoted));
    good &= args.values[i] != nullptr;
  }
  return good;
}

ExprRef Expressions::taken(const ast::Expr &e, const Parameter &p, Arguments &args, const std::string &what) {
  if (const auto [least, most] = p.type.split(".."); !most.empty()) {
    const ExprRef n = expect(e, Elem::I32, what);
    const auto c = n ? constant(ctx, *n, what) : std::nullopt;
    if (!c)
      return nullptr;
    args.count = c->intValue;
    if (args.count >= std::stoll(least.str()) && args.count <= std::stoll(most.str()))
      return n;
    diags.report(Diag::BadArgument, e.loc, p.name, args.of.name.str(),
                 fmt::format("from {} to {}, is {}", least.str(), most.str(), args.count));
    return nullptr;
  }
  if (p.type == "number") {
    const ExprRef v = value(e);
    if (!v || v->type.is(Elem::I32) || v->type.is(Elem::F32))
      return v;
    diags.report(Diag::TypeMismatch, e.loc, what, "i32 or f32", v->type.str());
    return nullptr;
  }
  if (const auto [one, each] = p.type.split(" or "); !each.empty()) { // for all rows, or one for each
    const Elem elem = *elemNamed(one);
    const ExprRef v = convert(value(e), elem);
    if (!v || v->type.is(elem))
      return v;
    if (v->type.seq && v->type.elem == elem)
      return hasRoom(ctx, v->type, what, e.loc, v.get()) ? v : nullptr;
    diags.report(Diag::TypeMismatch, e.loc, what, fmt::format("{}, or a sequence with one for each row", one),
                 v->type.str());
    noteCast(diags, v->type, elem, e);
    return nullptr;
  }
  llvm::StringRef name = p.type;
  const bool table = name.consume_back("[,]"), seq = name.consume_back("[]");
  const Elem elem = *elemNamed(name);
  if (!table && !seq)
    return expect(e, elem, what);
  return as(ctx, value(e), table ? Type::tableOf(0, 0, elem) : Type::sequence(0, elem), what,
            fmt::format("a {} of {}", table ? "table" : "sequence", elem == Elem::Token ? "tokens" : elemName(elem)));
}

} // namespace megalith::sema
