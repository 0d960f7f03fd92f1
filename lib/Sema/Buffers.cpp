//===- Buffers.cpp - pipelines of buffers ---------------------------------===//
//
// Elements in expressions, and declarations. Stages stand in BufferStages.cpp.
//===----------------------------------------------------------------------===//
#include "megalith/Sema/Buffers.h"
#include "BufferStages.h"
#include "Declarations.h"
#include "llvm/ADT/STLExtras.h"
#include <map>

namespace megalith::sema {

//===--- elements of buffers in expressions ---------------------------------===//

const CheckedBuffer *Expressions::bufferOf(const ast::Expr &e, std::vector<const ast::Expr *> &indices) const {
  const ast::Expr *base = &e;
  for (; base->kind == ast::Expr::Index; base = base->args[0].get())
    for (size_t i = base->args.size(); i-- > 1;)
      indices.insert(indices.begin(), base->args[i].get());
  return base->kind == ast::Expr::Path ? ctx.buffer(base->text) : nullptr;
}

bool Expressions::checkIndices(const std::vector<const ast::Expr *> &written, std::vector<ExprRef> &indices) {
  for (const ast::Expr *index : written)
    indices.push_back(expect(*index, Elem::I32, "an index"));
  return !llvm::is_contained(indices, nullptr);
}

std::optional<Elem> elemOf(llvm::StringRef dtype) {
  if (dtype == "i64")
    return Elem::I32;
  return dtype == "f16" || dtype == "bf16" ? std::nullopt : elemNamed(dtype);
}

std::string dimensions(size_t n) { return plural(n, "dimension"); }

ExprRef Expressions::checkElement(const ast::Expr &e, const CheckedBuffer &buffer,
                                  const std::vector<const ast::Expr *> &written) {
  ctx.used.insert(buffer.name);
  if (written.size() != buffer.shape.size()) {
    diags.report(Diag::BufferIndices, e.loc, buffer.name, dimensions(buffer.shape.size()),
                 written.size() == 1 ? "1 index" : fmt::format("{} indices", written.size()));
    return nullptr;
  }
  std::vector<ExprRef> indices;
  if (!checkIndices(written, indices))
    return nullptr;
  const auto elem = elemOf(buffer.dtype);
  if (!elem) {
    diags.report(Diag::OnlyCopied, e.loc, buffer.name, buffer.dtype);
    return nullptr;
  }
  ctx.bufferReads.push_back({buffer.name, indices, e.loc});
  const auto known = ctx.holds.find(buffer.name);
  return make(Expr::BufferAt, Type::scalar(*elem), e.loc, indices, Name{buffer.name},
              known == ctx.holds.end() ? Range() : known->second);
}

//===--- declarations --------------------------------------------------------===//

void Declarations::checkDims() {
  for (const ast::DimDecl &decl : ctx.in.dims) {
    if (!declare(decl.name, "a dim"))
      continue;
    const std::string what = fmt::format("a bound of dim `{}`", decl.name.text);
    const auto least = constantInt(ctx, *decl.range->args[0], what),
               most = constantInt(ctx, *decl.range->args[1], what);
    if (!least || !most)
      continue;
    if (*least < 0 || *most < *least || *most > limits::dim)
      diags.report(Diag::BufferShape, decl.range->loc,
                   fmt::format("dim `{}` must be a range within 0..{}, found {}..{}", decl.name.text, int(limits::dim),
                               *least, *most));
    else
      ctx.buffers.dims.push_back({decl.name.text, *least, *most, decl.name.loc});
  }
}

/// A sum of products of dims: by the dims of a product, how often it stands there.
using Polynomial = std::map<std::vector<std::string>, int64_t>;

static std::optional<Polynomial> polynomialOf(const Expr &e) {
  if (const auto c = evaluate(e))
    return c->elem == Elem::I32 ? std::optional(c->intValue ? Polynomial{{{}, c->intValue}} : Polynomial())
                                : std::nullopt;
  if (e.kind == Expr::DimRead)
    return Polynomial{{{e.name()}, 1}};
  if (e.kind != Expr::Binary)
    return std::nullopt;
  const auto a = polynomialOf(*e.args[0]), b = polynomialOf(*e.args[1]);
  const BinaryOp op = e.as<BinaryOp>();
  if (!a || !b || (op != BinaryOp::Add && op != BinaryOp::Sub && op != BinaryOp::Mul))
    return std::nullopt;
  Polynomial sum = op == BinaryOp::Mul ? Polynomial() : *a;
  if (op != BinaryOp::Mul)
    for (const auto &[dims, count] : *b)
      sum[dims] += op == BinaryOp::Add ? count : -count;
  else
    for (const auto &[x, n] : *a)
      for (const auto &[y, m] : *b) {
        std::vector<std::string> dims = x;
        dims.insert(dims.end(), y.begin(), y.end());
        llvm::sort(dims);
        sum[dims] += n * m;
      }
  std::erase_if(sum, [](const auto &term) { return term.second == 0; });
  return sum;
}

bool isSize(const Expr &e) { return polynomialOf(e).has_value(); }

bool sameSize(const Expr &a, const Expr &b) {
  const auto x = polynomialOf(a), y = polynomialOf(b);
  return x && y && *x == *y;
}

void Declarations::checkBuffers() {
  std::set<std::string> sized; ///< dims that are a size of some buffer
  for (const ast::BufferDecl &decl : ctx.in.buffers) {
    if (!declare(decl.name, "a buffer"))
      continue;
    CheckedBuffer buffer;
    buffer.name = decl.name.text;
    buffer.loc = decl.name.loc;
    buffer.dtype = decl.dtype.text;
    bool good = llvm::is_contained(bufferTypes, buffer.dtype);
    if (!good) {
      diags.report(Diag::BufferType, decl.dtype.loc, decl.dtype.text, decl.name.text);
      diags.suggest(decl.dtype.text, std::vector<std::string>(std::begin(bufferTypes), std::end(bufferTypes)));
    }
    if (decl.shape.empty() || decl.shape.size() > limits::bufferRank) {
      diags.report(Diag::BufferShape, decl.shapeLoc,
                   fmt::format("buffer `{}` must have from 1 to {} dimensions, found {}", buffer.name,
                               int(limits::bufferRank), decl.shape.size()));
      good = false;
    }
    Scope scope;
    for (const ast::ExprPtr &size : decl.shape) {
      ExprRef v = with(scope).expect(*size, Elem::I32, fmt::format("a size of `{}`", buffer.name));
      if (v && !polynomialOf(*v)) {
        diags.report(
            Diag::BufferShape, size->loc,
            fmt::format("a size of buffer `{}` must be made of dims and numbers by `+`, `-` and `*`", buffer.name));
        v = nullptr;
      }
      if (v && v->kind == Expr::DimRead)
        sized.insert(v->name());
      good = good && v;
      buffer.shape.push_back(v);
    }
    if (good)
      ctx.buffers.buffers.push_back(std::move(buffer));
    else
      ctx.bad.insert(decl.name.text);
  }
  if (!diags.hasErrors())
    for (const CheckedDim &dim : ctx.buffers.dims)
      if (!sized.count(dim.name))
        diags.report(Diag::UnknownDim, dim.loc, dim.name);
}

} // namespace megalith::sema

namespace megalith {

std::optional<CheckedBuffers> checkBuffers(const ast::PipelineFile &pipeline,
                                           const std::vector<std::pair<std::string, std::string>> &sets,
                                           Diagnostics &diags) {
  const unsigned before = diags.errors();
  const std::vector<ModelFacts> none;
  sema::Context ctx(pipeline, none, sets, diags);
  sema::Declarations declarations(ctx);
  ctx.buffers.name = pipeline.name.text;
  ctx.buffers.loc = pipeline.name.loc;
  declarations.checkNames();
  declarations.checkParams();
  declarations.checkDims();
  declarations.checkBuffers();
  if (pipeline.buffers.empty())
    diags.report(Diag::BufferShape, pipeline.name.loc, "a pipeline of buffers must have one buffer at least");
  if (diags.errors() != before)
    return std::nullopt;
  sema::checkBufferStages(ctx);
  if (diags.errors() != before)
    return std::nullopt;
  ctx.buffers.params = ctx.out.params;
  return std::move(ctx.buffers);
}

} // namespace megalith
