// Calls of `attention` in a model's graph, and heads.
#include "GraphChecker.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <utility>

namespace megalith {

using namespace graph;

MaybeNode GraphChecker::evalAttention(const ast::Expr &e) {
  MaybeNode q = evalRows(*e.args[0], "attention"), k = evalRows(*e.args[1], "attention"),
            v = evalRows(*e.args[2], "attention");
  std::optional<double> scale;
  if (const ast::Expr *given = namedArgument(e, "scale")) {
    MaybeNode value = evalNumber(*given, "scale of `attention`");
    if (!value)
      return std::nullopt;
    scale = g.nodes[*value].value;
  }
  const std::optional<double> cap = evalCap(e);
  const std::optional<std::vector<int64_t>> window = evalWindow(e);
  if (!cap || !window)
    return std::nullopt;
  if (attentionLoc) {
    diags.report(Diag::AttentionCount, e.loc);
    diags.note(attentionLoc, "the other one");
    return std::nullopt;
  }
  attentionLoc = e.loc;
  if (!checkHeadDim(e) || !q || !k || !v)
    return std::nullopt;
  Shape qs = g.nodes[*q].shape, ks = g.nodes[*k].shape, vs = g.nodes[*v].shape;
  if (!checkHeadColumns(e, "q", qs) || !checkHeadColumns(e, "k", ks))
    return std::nullopt;
  if (!(ks == vs)) {
    diags.report(Diag::AttentionKv, e.loc, ks.str(), vs.str());
    return std::nullopt;
  }
  model.heads = qs.columns / model.headDim;
  model.kvHeads = ks.columns / model.headDim;
  model.kvLayers = inRepeat ? model.layers : 1;
  if (model.heads > limits::heads || model.kvHeads > limits::heads) {
    diags.report(Diag::HeadCount, e.loc, std::max(model.heads, model.kvHeads));
    return std::nullopt;
  }
  if (model.heads % model.kvHeads != 0) {
    diags.report(Diag::AttentionHeads, e.loc, model.heads, model.kvHeads);
    return std::nullopt;
  }
  model.hasWindow = !window->empty();
  if (model.hasWindow && !llvm::is_contained(*window, 0))
    model.kvWindow = *llvm::max_element(*window);
  return add({.kind = Node::Attention,
              .inputs = {*q, *k, *v},
              .value = scale ? *scale : 1.0 / std::sqrt(static_cast<double>(model.headDim)),
              .cap = *cap,
              .window = *window,
              .shape = qs,
              .loc = e.loc});
}

std::optional<double> GraphChecker::evalCap(const ast::Expr &e) {
  const ast::Expr *given = namedArgument(e, "softcap");
  if (!given)
    return 0;
  const std::string what = "softcap of `attention`", expected = "a number above 0 in f32, or `none`";
  if (!isConstant(*given, model.config)) {
    diags.report(Diag::ConstantType, given->loc, what, expected, "`" + ast::written(*given) + "`");
    return std::nullopt;
  }
  const std::optional<ConfigValue> value = evaluateConstant(*given, model.config, diags);
  if (!value || std::holds_alternative<NoValue>(*value))
    return value ? std::optional<double>(0) : std::nullopt;
  const std::optional<double> cap = asNumber(*value);
  if (cap && static_cast<float>(*cap) > 0 && std::isfinite(static_cast<float>(*cap)))
    return cap;
  diags.report(Diag::ConstantType, given->loc, what, expected, describe(*value));
  return std::nullopt;
}

std::optional<std::vector<int64_t>> GraphChecker::evalWindow(const ast::Expr &e) {
  std::vector<int64_t> window;
  const ast::Expr *given = namedArgument(e, "window");
  if (!given)
    return window;
  const std::optional<std::vector<ConfigValue>> values = evalByLayer(*given);
  if (!values)
    return std::nullopt;
  for (const ConfigValue &value : *values) {
    const int64_t *size = std::get_if<int64_t>(&value);
    if (!std::holds_alternative<NoValue>(value) && (!size || *size < 1 || *size > INT32_MAX)) {
      diags.report(Diag::ConstantType, given->loc, "window of `attention`",
                   "an integer from 1 to 2147483647, or `none`", describe(value));
      return std::nullopt;
    }
    window.push_back(size ? *size : 0);
  }
  if (llvm::all_of(window, [](int64_t size) { return size == 0; }))
    window.clear();
  return window;
}

bool GraphChecker::checkHeadDim(const ast::Expr &e) {
  auto found = model.config.find("head_dim");
  auto *dim = found == model.config.end() ? nullptr : std::get_if<int64_t>(&found->second);
  if (dim && *dim > 0 && *dim % 16 == 0 && *dim <= 256) {
    model.headDim = *dim;
    return true;
  }
  if (!std::exchange(headDimReported, true)) {
    if (dim)
      diags.report(Diag::HeadDimSize, e.loc, *dim);
    else
      diags.report(Diag::HeadDimMissing, e.loc, e.text);
  }
  return false;
}

bool GraphChecker::checkHeadColumns(const ast::Expr &e, llvm::StringRef what, const Shape &shape) {
  if (shape.columns % model.headDim == 0)
    return true;
  diags.report(Diag::HeadColumns, e.loc, what.str(), e.text, shape.columns, model.headDim);
  return false;
}

} // namespace megalith
