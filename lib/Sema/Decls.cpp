//===- Decls.cpp - names, fields and pools --------------------------------===//
#include "Declarations.h"
#include "llvm/ADT/StringRef.h"
#include <cmath>

namespace megalith::sema {

bool Declarations::declare(const ast::Name &name, const std::string &what) {
  const bool reserved = ctx.isReserved(name.text);
  auto [it, fresh] = ctx.declared.emplace(name.text, what);
  if (reserved)
    diags.report(Diag::ReservedName, name.loc, name.text, what);
  else if (!fresh)
    diags.report(Diag::DuplicateName, name.loc, name.text, it->second);
  else
    return true;
  ctx.bad.insert(name.text);
  return false;
}

void Declarations::checkNames() {
  for (const ast::ModelRef &m : ctx.in.models)
    if (declare(m.name, "a model"))
      ctx.out.models.push_back(m.name.text);
}

std::optional<CheckedField> Declarations::checkField(const ast::FieldDecl &decl, bool isInput) {
  CheckedField field;
  field.name = decl.name.text;
  field.loc = decl.name.loc;
  const std::string &type = decl.type.text;
  if (type == "rows") {
    diags.report(Diag::Unsupported, decl.type.loc, "a field of rows of a result",
                 "what reducers read of them, in a field of `token[n]` or `f32[n]`");
    return std::nullopt;
  }
  const auto named = type == "logits" && !isInput ? Elem::Kept : elemNamed(type);
  if (!named) {
    diags.report(Diag::UnknownType, decl.type.loc, type, "a field", "i32, f32, bool or token");
    diags.suggest(type, {"i32", "f32", "bool", "token", "logits"});
    return std::nullopt;
  }
  const Elem elem = *named;
  if (elem == Elem::Kept && decl.dims.size() != 1) {
    diags.report(Diag::TypeMismatch, decl.type.loc, fmt::format("the type of `{}`", field.name),
                 "`logits[n]`, with the number of rows that it keeps at most",
                 decl.dims.empty() ? "`logits`" : "a table");
    return std::nullopt;
  }
  if (decl.dims.empty()) {
    field.type = Type::scalar(elem);
  } else {
    if (decl.dims.size() > 2) {
      diags.report(Diag::Unsupported, decl.type.loc, "a table with more than two dimensions",
                   fmt::format("`{}[rows, n]`", type));
      return std::nullopt;
    }
    std::vector<int64_t> sizes;
    for (const ast::ExprPtr &dim : decl.dims) {
      const std::string what = fmt::format("the capacity of `{}`", field.name);
      auto size = constantInt(ctx, *dim, what);
      if (!size)
        return std::nullopt;
      const int64_t most = isInput && decl.dims.size() == 1 ? mostInputCapacity : mostCapacity;
      if (*size < 1 || *size > most) {
        diags.report(Diag::TypeMismatch, dim->loc, what, fmt::format("from 1 to {}", most), *size);
        return std::nullopt;
      }
      sizes.push_back(*size);
    }
    field.type = sizes.size() == 1 ? Type::sequence(sizes[0], elem) : Type::tableOf(sizes[0], sizes[1], elem);
    if (!isInput && !hasRoom(ctx, field.type, fmt::format("`{}`", field.name), decl.type.loc))
      return std::nullopt;
    if (isInput && field.type.table && sizes[0] * sizes[1] > mostInputCapacity) {
      diags.report(Diag::TypeMismatch, decl.type.loc, fmt::format("the number of elements of `{}`", field.name),
                   fmt::format("at most {}", mostInputCapacity), sizes[0] * sizes[1]);
      return std::nullopt;
    }
  }
  field.init.elem = elem;
  if (decl.range && !isInput) {
    diags.report(Diag::Unsupported, decl.range->loc, "a range of a field", "`in a..b` for an input only");
    return std::nullopt;
  }
  if (decl.init && !isInput) {
    Scope scope;
    if (!field.type.isScalar()) {
      diags.report(Diag::Unsupported, decl.init->loc, "an initial value of a sequence", "none: sequences start empty");
      return std::nullopt;
    }
    ExprRef init = with(scope).expect(*decl.init, elem, fmt::format("the initial value of `{}`", field.name));
    if (!init)
      return std::nullopt;
    auto value = constant(ctx, *init, fmt::format("the initial value of `{}`", field.name));
    if (!value)
      return std::nullopt;
    field.init = *value;
  }
  return field;
}

/// What an input is where a request does not have it.
bool Declarations::checkDefault(const ast::Expr &e, CheckedInput &input) {
  const std::string what = fmt::format("the default of input `{}`", input.name);
  Scope scope;
  ExprRef v = with(scope).value(e);
  if (!v)
    return false;
  v = convert(adopt(v, input.type), input.type.elem);
  if (!v->type.sameShape(input.type) || v->type.elem != input.type.elem) {
    diags.report(Diag::TypeMismatch, e.loc, what, input.type.str(), v->type.str());
    return false;
  }
  if (input.type.table) {
    if ((v->kind == Expr::SeqMake || v->kind == Expr::SeqConst) && v->args.empty())
      return true;
    diags.report(Diag::Unsupported, e.loc, "a default with rows", "`input([])`, which has none");
    return false;
  }
  if (!input.type.seq) {
    auto scalar = constant(ctx, *v, what);
    if (!scalar)
      return false;
    input.init = *scalar;
    if (!input.type.is(Elem::I32) || (scalar->intValue >= input.range.lo && scalar->intValue <= input.range.hi))
      return true;
    diags.report(
        Diag::InputRange, e.loc, input.name,
        fmt::format("allows {} to {}, but its default is {}", input.range.lo, input.range.hi, scalar->intValue));
    return false;
  }
  if (v->kind != Expr::SeqMake && v->kind != Expr::SeqConst) {
    diags.report(Diag::NotConstant, e.loc, what);
    return false;
  }
  for (const ExprRef &arg : v->args) {
    auto item = constant(ctx, *arg, "an element of " + what);
    if (!item)
      return false;
    input.items.push_back(*item);
  }
  if (static_cast<int64_t>(input.items.size()) <= input.type.capacity)
    return true;
  diags.report(Diag::TypeMismatch, e.loc, what, fmt::format("at most {}", plural(input.type.capacity, "element")),
               input.items.size());
  return false;
}

std::optional<CheckedInput> Declarations::checkInput(const ast::FieldDecl &decl) {
  auto field = checkField(decl, /*isInput=*/true);
  if (!field)
    return std::nullopt;
  CheckedInput input;
  input.name = field->name;
  input.type = field->type;
  input.init = field->init;
  input.loc = field->loc;
  input.required = !decl.init;
  if (decl.range) {
    if (!input.type.is(Elem::I32)) {
      diags.report(Diag::TypeMismatch, decl.range->loc, fmt::format("input `{}`, which has a range,", input.name),
                   "i32", input.type.str());
      return std::nullopt;
    }
    const std::string what = fmt::format("a bound of input `{}`", input.name);
    auto lo = constantInt(ctx, *decl.range->args[0], what), hi = constantInt(ctx, *decl.range->args[1], what);
    if (!lo || !hi)
      return std::nullopt;
    if (*lo >= *hi) {
      diags.report(Diag::InputRange, decl.range->loc, input.name, fmt::format("is empty: it ends before {}", *hi));
      return std::nullopt;
    }
    input.range = {*lo, *hi - 1};
  }
  if (decl.init && !checkDefault(*decl.init, input))
    return std::nullopt;
  return input;
}

void Declarations::checkFields() {
  for (const ast::FieldDecl &decl : ctx.in.fields) {
    if (!declare(decl.name, decl.input ? "an input of the request" : "a field"))
      continue;
    bool good = false;
    if (!decl.input) {
      if (auto field = checkField(decl); (good = field.has_value()))
        ctx.out.fields.push_back(std::move(*field));
    } else if (auto input = checkInput(decl); (good = input.has_value())) {
      ctx.out.inputs.push_back(std::move(*input));
    }
    if (!good)
      ctx.bad.insert(decl.name.text);
  }
}

void Declarations::checkPools() {
  bool oddPool = false; // perhaps it is that of a model that seems to have none
  for (const ast::PoolDecl &decl : ctx.in.pools) {
    if (!ctx.isModel(decl.name.text)) {
      oddPool = true;
      if (ctx.firstUse(decl.name.text))
        ctx.reportUnknown(Diag::UnknownModel, decl.name.loc, decl.name.text, ctx.out.models);
      continue;
    }
    CheckedPool pool;
    pool.name = decl.name.text;
    pool.loc = decl.name.loc;
    auto positive = [&](const ast::ExprPtr &e, const char *key, int64_t &into) {
      if (!e) {
        diags.report(Diag::MissingKey, decl.name.loc, fmt::format("pool `{}`", pool.name), key);
        return;
      }
      auto v = constantInt(ctx, *e, fmt::format("`{}`", key));
      if (v && *v < 1)
        diags.report(Diag::BadPool, e->loc, key, pool.name, fmt::format("at least 1, is {}", *v));
      else if (v)
        into = *v;
    };
    positive(decl.pages, "pages", pool.pages);
    positive(decl.pageTokens, "page_tokens", pool.pageTokens);
    // Positions, and sums of two of them, are 32-bit integers.
    constexpr int64_t mostTokens = limits::positions;
    if (decl.pages && pool.pageTokens > 0 && pool.pages > mostTokens / pool.pageTokens)
      diags.report(Diag::BadPool, decl.pages->loc, "pages", pool.name,
                   fmt::format("at most {} with pages of {} tokens, is {}", mostTokens / pool.pageTokens,
                               pool.pageTokens, pool.pages));
    if (decl.watermark)
      if (auto w = constant(ctx, *decl.watermark)) {
        // Pressure compares integers, so that every executor agrees: whole percents.
        double share = w->elem == Elem::F32 ? w->floatValue : static_cast<double>(w->intValue);
        pool.watermark = share > 0 && share <= 1 ? std::llround(share * 100) : 0;
        if (pool.watermark < 1 || std::abs(share * 100 - pool.watermark) > 1e-4)
          diags.report(Diag::BadPool, decl.watermark->loc, "watermark", pool.name,
                       "a whole number of percents, from 0.01 to 1.0");
      }
    if (!decl.onFull.text.empty()) {
      pool.onFull = decl.onFull.text;
      if (pool.onFull == "preempt")
        diags.report(Diag::Unsupported, decl.onFull.loc, "`on_full: preempt`", "`fail` or `wait`");
      else if (pool.onFull != "fail" && pool.onFull != "wait") {
        diags.report(Diag::BadPool, decl.onFull.loc, "on_full", pool.name, "`fail` or `wait`");
        diags.suggest(pool.onFull, {"fail", "wait"});
      }
    }
    if (!decl.dtype.text.empty()) {
      pool.fp8 = decl.dtype.text == "fp8";
      if (!pool.fp8 && decl.dtype.text != "bf16") {
        diags.report(Diag::BadPool, decl.dtype.loc, "dtype", pool.name, "`bf16` or `fp8`");
        diags.suggest(decl.dtype.text, {"bf16", "fp8"});
      }
    }
    const ModelFacts *model = ctx.model(pool.name);
    if (!decl.windows.text.empty()) {
      const auto wrong = [&](const char *must) {
        diags.report(Diag::BadPool, decl.windows.loc, "windows", pool.name, must);
      };
      pool.bf16Windows = decl.windows.text == "bf16";
      if (!pool.bf16Windows)
        wrong("`bf16`");
      else if (!pool.fp8)
        wrong("left out unless `dtype: fp8`: K and V of all layers are in bf16");
      else if (model && !model->hasWindow)
        wrong("left out: no layer of this model has a window");
      else if (model && model->kvWindow > 0)
        wrong("left out: all layers of this model have a window, so that none would have `fp8`");
    }
    if (decl.reserve && pool.onFull != "wait")
      diags.report(Diag::BadPool, decl.reserve->loc, "reserve", pool.name,
                   "left out unless `on_full: wait`: a pool that fails reserves nothing");
    else if (decl.reserve && !(decl.reserve->kind == ast::Expr::Path && decl.reserve->text == "budget"))
      if (auto tokens = constantInt(ctx, *decl.reserve, "`reserve`")) {
        pool.reserve = tokens;
        if (*tokens < 0 || *tokens >= mostTokens)
          diags.report(Diag::BadPool, decl.reserve->loc, "reserve", pool.name,
                       fmt::format("`budget`, or a number of tokens from 0 to {}, is {}", mostTokens - 1, *tokens));
      }
    if (decl.index && decl.index->kind == ast::Expr::Path && decl.index->text == "auto")
      pool.index = !model || model->kvWindow == 0;
    else if (decl.index)
      if (const auto on = constant(ctx, *decl.index)) {
        pool.index = on->intValue != 0;
        if (on->elem != Elem::Bool)
          diags.report(Diag::TypeMismatch, decl.index->loc, "`index`", "bool", elemName(on->elem));
        else if (pool.index && model && model->kvWindow > 0)
          diags.report(Diag::BadPool, decl.index->loc, "index", pool.name,
                       fmt::format("left out: all layers of this model see {} positions at most, so that a request "
                                   "gives its first pages back, and nobody could find them",
                                   model->kvWindow));
      }
    ctx.out.pools.push_back(std::move(pool));
  }
  for (const ast::ModelRef &m : ctx.in.models) {
    bool found = false;
    for (const ast::PoolDecl &decl : ctx.in.pools)
      found |= decl.name.text == m.name.text;
    if (!found && !oddPool && ctx.isModel(m.name.text))
      diags.report(Diag::MissingPool, m.name.loc, m.name.text);
  }
}

} // namespace megalith::sema
