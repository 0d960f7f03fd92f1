#include "GraphChecker.h"
#include "Notes.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

namespace megalith {

using namespace graph;

struct ElementwiseInfo {
  graph::Elementwise id;
  const char *name;
  size_t arity;
};

static const ElementwiseInfo elementwiseTable[] = {
#define ELEMENTWISE1(Id, function, Name) {graph::Elementwise::Id, Name, 1},
#define ELEMENTWISE2(Id, function, Name) {graph::Elementwise::Id, Name, 2},
#define ROUNDING(Id, function, Name)
#include "megalith/IR/Elementwise.def"
};

static const ElementwiseInfo *findElementwise(llvm::StringRef name) {
  for (const ElementwiseInfo &info : elementwiseTable)
    if (name == info.name)
      return &info;
  return nullptr;
}

//===--- expressions ------------------------------------------------------===//

MaybeNode GraphChecker::eval(const ast::Expr &e) {
  // `hidden / heads` is an integer division with its own checks.
  if (e.kind != ast::Expr::Path && isConstant(e, model.config)) {
    auto value = evaluateConstant(e, model.config, diags);
    if (!value)
      return std::nullopt;
    return number(e, *value);
  }
  switch (e.kind) {
  case ast::Expr::Path:
    return evalPath(e);
  case ast::Expr::Index:
  case ast::Expr::Slice:
    if (const ast::Expr *name = viewedName(e); name && (findWeight(name->text) || conditionalWeight(name->text)))
      return evalWeightVector(e);
    return evalEmbed(e);
  case ast::Expr::Call:
    return evalCall(e);
  case ast::Expr::Unary:
    if (e.text == "-")
      return evalElementwise(e, *findElementwise("neg"));
    break;
  case ast::Expr::Binary: {
    if (e.text == "+") {
      for (size_t side : {0, 1})
        if (lacksAddend(e, side))
          return eval(*e.args[1 - side]);
      // A linear layer with bias is one operation: its product is rounded once,
      // after the addition.
      if (isMatmul(*e.args[0]) && isVector(*e.args[1]))
        return evalProduct(*e.args[0], e.args[1].get());
      if (isMatmul(*e.args[1]) && isVector(*e.args[0]))
        return evalProduct(*e.args[1], e.args[0].get());
    }
    if (const ElementwiseInfo *info = findElementwise(e.text))
      return evalElementwise(e, *info);
    break;
  }
  default:
    break;
  }
  diags.report(Diag::GraphExpression, e.loc);
  return std::nullopt;
}

bool GraphChecker::lacksAddend(const ast::Expr &sum, size_t side) {
  const ast::Expr &term = *sum.args[side], &other = *sum.args[1 - side];
  const ast::Expr *name = term.kind == ast::Expr::Path ? &term : viewedName(term);
  CheckedWeight *weight = name ? conditionalWeight(name->text) : nullptr;
  if (!weight || isVector(other) || isConstant(other, model.config))
    return false;
  addends.insert(&term);
  weight->used |= !findWeight(name->text);
  return !findWeight(name->text);
}

MaybeNode GraphChecker::number(const ast::Expr &e, const ConfigValue &value) {
  if (auto v = asNumber(value)) {
    if (std::isfinite(static_cast<float>(*v)))
      return add({.kind = Node::Number, .value = *v, .shape = {}, .loc = e.loc});
    diags.report(Diag::FloatRange, e.loc, std::isnan(*v) ? std::fabs(*v) : *v); // a NaN has no sign to speak of
    return std::nullopt;
  }
  diags.report(Diag::ConstantType, e.loc, "a graph", "a number", describe(value));
  return std::nullopt;
}

MaybeNode GraphChecker::evalPath(const ast::Expr &e) {
  if (auto local = environment.find(e.text); local != environment.end()) {
    Definition &definition = definitions[local->second];
    definition.used = true;
    return definition.node == Broken ? MaybeNode() : definition.node;
  }
  if (model.config.count(e.text)) {
    const std::optional<ConfigValue> value = evaluateConstant(e, model.config, diags);
    return value ? number(e, *value) : std::nullopt;
  }
  if (e.text == noneWord)
    return number(e, NoValue());
  if (findWeight(e.text))
    return evalWeightVector(e);
  if (e.text == "tokens" || e.text == "position")
    diags.report(Diag::MisplacedName, e.loc, e.text,
                 e.text == "tokens" ? "`weight[tokens]`" : "`rope(x, position)` and `weight[position]`");
  else if (!insideNames.contains(e.text))
    reportUnknown(e);
  else if (unknownNames.insert(e.text).second)
    diags.report(Diag::LoopLocal, e.loc, e.text);
  return std::nullopt;
}

MaybeNode GraphChecker::evalWeightVector(const ast::Expr &e) {
  std::optional<WeightId> w = useWeight(e, 1, "an operator");
  if (!w)
    return std::nullopt;
  return add(
      {.kind = Node::Vector, .weights = {*w}, .shape = {Shape::Vector, model.weights[*w].shape[0]}, .loc = e.loc});
}

void GraphChecker::reportUnknown(const ast::Expr &e) {
  if (const CheckedWeight *weight = conditionalWeight(e.text)) {
    reportConditional(e, *weight);
    return;
  }
  if (!unknownNames.insert(e.text).second)
    return;
  diags.report(Diag::UnknownGraphName, e.loc, e.text);
  std::vector<std::string> names;
  for (const Definition &d : definitions)
    names.push_back(d.name);
  for (const CheckedWeight &w : model.weights)
    if (!w.part)
      names.push_back(w.name);
  for (const auto &[name, value] : model.config)
    names.push_back(name);
  diags.suggest(e.text, names);
}

void GraphChecker::reportConditional(const ast::Expr &e, const CheckedWeight &weight) {
  diags.report(Diag::ConditionalWeight, e.loc, weight.name, weight.condition);
  diags.note(weight.loc, "the weight is declared here");
}

MaybeNode GraphChecker::evalEmbed(const ast::Expr &e) {
  const bool named = e.kind == ast::Expr::Index && e.args.size() == 2 && e.args[1]->kind == ast::Expr::Path;
  const bool byPosition = named && e.args[1]->text == "position";
  if (!byPosition && !(named && e.args[1]->text == "tokens")) {
    diags.report(Diag::GraphExpression, e.loc);
    return std::nullopt;
  }
  std::optional<WeightId> w = useWeight(*e.args[0], 2, byPosition ? "[position]" : "[tokens]");
  if (!w)
    return std::nullopt;
  if (const CheckedWeight &weight = model.weights[*w]; weight.part || weight.transposed) {
    diags.report(Diag::TableView, e.args[0]->loc, weight.name, weight.part ? "a view" : "transposed");
    return std::nullopt;
  }
  if (byPosition && (!model.positionTable || model.weights[*w].shape[0] < model.weights[*model.positionTable].shape[0]))
    model.positionTable = *w; // the shortest
  return add({.kind = Node::Embed,
              .weights = {*w},
              .byPosition = byPosition,
              .shape = {Shape::Rows, model.weights[*w].shape[1]},
              .loc = e.args[0]->loc});
}

MaybeNode GraphChecker::evalCall(const ast::Expr &e) {
  if (const ElementwiseInfo *info = findElementwise(e.text))
    return evalElementwise(e, *info);
  std::vector<std::string> names;
#define GRAPH_FUNCTION(Id, Name, Min, Max, Arguments)                                                                  \
  if (e.text == Name) {                                                                                                \
    if (checkArguments(e, Min, Max, Arguments))                                                                        \
      return eval##Id(e);                                                                                              \
    if (e.text == "layer_norm" && e.args.size() < Min)                                                                 \
      diags.note("a norm without a bias has `0 * weight` in its place, one without a weight `0 * w + 1` with any "     \
                 "vector w of that length");                                                                           \
    return std::nullopt;                                                                                               \
  }                                                                                                                    \
  names.push_back(Name);
#include "megalith/Sema/ModelFunctions.def"
  for (const ElementwiseInfo &info : elementwiseTable)
    names.push_back(info.name);
  if (!diags.reportOnce(Diag::UnknownGraphFunction, e.loc, e.text))
    return std::nullopt;
  if (const std::optional<WeightId> w = findWeight(e.text); w && model.weights[*w].shape.size() == 2)
    diags.note(fmt::format("`{0}` is a weight; its rows are read as `{0}[tokens]` and `{0}[position]`", e.text));
  else if (!sema::noteGuess(diags, e.text, sema::Guess::Graph))
    diags.suggest(e.text, names);
  return std::nullopt;
}

MaybeNode GraphChecker::evalElementwise(const ast::Expr &e, const ElementwiseInfo &info) {
  if (!checkArguments(e, info.arity, info.arity, info.arity == 1 ? "x" : "x, y"))
    return std::nullopt;
  std::vector<NodeId> inputs;
  for (const ast::ExprPtr &arg : e.args)
    if (MaybeNode input = eval(*arg))
      inputs.push_back(*input);
  if (inputs.size() != info.arity)
    return std::nullopt;
  // Without rows it is a vector: nobody rounds what the weights alone make.
  Shape shape{Shape::Number, 1};
  for (NodeId input : inputs)
    shape.kind = std::max(shape.kind, g.nodes[input].shape.kind);
  for (NodeId input : inputs)
    if (g.nodes[input].shape.kind == shape.kind)
      shape.columns = std::max(shape.columns, g.nodes[input].shape.columns);
  bool matches = true;
  for (NodeId input : inputs) {
    const Shape &other = g.nodes[input].shape;
    if (other.kind == Shape::Rows)
      matches &= other.columns == 1 || other.columns == shape.columns;
    else
      matches &= shape.columns % other.columns == 0;
  }
  if (!matches) {
    diags.report(Diag::ElementwiseShape, e.loc, e.text, g.nodes[inputs[0]].shape.str(), g.nodes[inputs[1]].shape.str());
    return std::nullopt;
  }
  if (shape.kind == Shape::Number) {
    diags.report(Diag::NeedsRows, e.loc, e.text, shape.str());
    return std::nullopt;
  }
  return add(
      {.kind = Node::Elementwise, .function = info.id, .inputs = std::move(inputs), .shape = shape, .loc = e.loc});
}

MaybeNode GraphChecker::evalMatMul(const ast::Expr &e) { return evalProduct(e, nullptr); }

MaybeNode GraphChecker::evalProduct(const ast::Expr &e, const ast::Expr *bias) {
  if (!checkArguments(e, 2, 2, "x, weight"))
    return std::nullopt;
  MaybeNode x = evalRows(*e.args[0], "matmul");
  std::optional<WeightId> w = useWeight(*e.args[1], 2, "matmul");
  if (!x || !w)
    return std::nullopt;
  const CheckedWeight &weight = model.weights[*w];
  const Node &input = g.nodes[*x];
  if (input.shape.columns != weight.shape[1]) {
    diags.report(Diag::MatmulShape, e.loc, ast::written(*e.args[0]), input.shape.str(), weight.name,
                 fmt::format("{}", weight.shape), weight.shape[1]);
    diags.note(weight.loc, "the weight is declared here");
    return std::nullopt;
  }
  Node node{
      .kind = Node::MatMul, .inputs = {*x}, .weights = {*w}, .shape = {Shape::Rows, weight.shape[0]}, .loc = e.loc};
  if (bias) {
    MaybeNode b = evalVector(*bias, "+");
    if (!b)
      return std::nullopt;
    const Shape &shape = g.nodes[*b].shape;
    if (node.shape.columns % shape.columns != 0) {
      diags.report(Diag::ElementwiseShape, bias->loc, "+", node.shape.str(), shape.str());
      return std::nullopt;
    }
    node.inputs.push_back(*b);
  }
  return add(std::move(node));
}

MaybeNode GraphChecker::evalRmsNorm(const ast::Expr &e) { return evalNorm(e, Node::RmsNorm); }
MaybeNode GraphChecker::evalLayerNorm(const ast::Expr &e) { return evalNorm(e, Node::LayerNorm); }

MaybeNode GraphChecker::evalNorm(const ast::Expr &e, Node::Kind kind) {
  MaybeNode x = evalRows(*e.args[0], e.text);
  std::vector<NodeId> vectors;
  for (size_t i = 1; i + 1 < e.args.size(); ++i)
    if (MaybeNode vector = evalVector(*e.args[i], e.text))
      vectors.push_back(*vector);
  MaybeNode eps = evalPositive(e, "eps");
  std::optional<bool> once = evalOnce(e);
  if (!x || !eps || !once || vectors.size() + 2 != e.args.size())
    return std::nullopt;
  Shape shape = g.nodes[*x].shape;
  for (size_t i = 0; i < vectors.size(); ++i) {
    // The first vector's length is the length of a block; its bias has the same.
    const int64_t block = g.nodes[vectors[0]].shape.columns, length = g.nodes[vectors[i]].shape.columns;
    if (shape.columns % block == 0 && length == block)
      continue;
    diags.report(Diag::NormShape, e.loc, shape.columns, e.text, length, ast::written(*e.args[i + 1]));
    return std::nullopt;
  }
  std::vector<NodeId> inputs = {*x};
  inputs.insert(inputs.end(), vectors.begin(), vectors.end());
  return add({.kind = kind,
              .inputs = std::move(inputs),
              .value = g.nodes[*eps].value,
              .once = *once,
              .shape = shape,
              .loc = e.loc});
}

std::optional<bool> GraphChecker::evalOnce(const ast::Expr &e) {
  return e.named.empty() ? std::optional(false) : evalBool(*e.named[0].second, "once of `" + e.text + "`");
}

std::optional<bool> GraphChecker::evalBool(const ast::Expr &arg, const std::string &what) {
  if (!isConstant(arg, model.config)) {
    diags.report(Diag::ConstantType, arg.loc, what, "true or false", "`" + ast::written(arg) + "`");
    return std::nullopt;
  }
  std::optional<ConfigValue> value = evaluateConstant(arg, model.config, diags);
  if (value && std::holds_alternative<bool>(*value))
    return std::get<bool>(*value);
  if (value)
    diags.report(Diag::ConstantType, arg.loc, what, "true or false", describe(*value));
  return std::nullopt;
}

MaybeNode GraphChecker::evalSoftCap(const ast::Expr &e) {
  MaybeNode x = evalRows(*e.args[0], e.text);
  if (isNone(*e.args[1]))
    return x;
  MaybeNode cap = evalPositive(e, "cap");
  if (!x || !cap)
    return std::nullopt;
  return add(
      {.kind = Node::SoftCap, .inputs = {*x}, .value = g.nodes[*cap].value, .shape = g.nodes[*x].shape, .loc = e.loc});
}

//===--- arguments --------------------------------------------------------===//

const ast::Expr *GraphChecker::namedArgument(const ast::Expr &e, llvm::StringRef name) {
  for (const auto &[given, value] : e.named)
    if (given.text == name)
      return value.get();
  return nullptr;
}

MaybeNode GraphChecker::evalRows(const ast::Expr &e, llvm::StringRef user) {
  MaybeNode value = eval(e);
  if (!value || g.nodes[*value].shape.kind == Shape::Rows)
    return value;
  diags.report(Diag::NeedsRows, e.loc, user.str(), g.nodes[*value].shape.str());
  return std::nullopt;
}

MaybeNode GraphChecker::evalVector(const ast::Expr &e, const std::string &user) {
  if (isVector(e))
    return eval(e);
  auto local = e.kind == ast::Expr::Path ? environment.find(e.text) : environment.end();
  if (local == environment.end() || definitions[local->second].node != Broken)
    useWeight(e, 1, user); // says why not
  return std::nullopt;
}

MaybeNode GraphChecker::evalNumber(const ast::Expr &e, const std::string &what) {
  MaybeNode value = eval(e);
  if (!value || g.nodes[*value].kind == Node::Number)
    return value;
  diags.report(Diag::ConstantType, e.loc, what, "a number", g.nodes[*value].shape.str());
  return std::nullopt;
}

MaybeNode GraphChecker::evalPositive(const ast::Expr &e, const std::string &what) {
  const ast::Expr &arg = *e.args.back();
  MaybeNode value = evalNumber(arg, what + " of `" + e.text + "`");
  if (!value || static_cast<float>(g.nodes[*value].value) > 0)
    return value;
  diags.report(Diag::ConstantType, arg.loc, what + " of `" + e.text + "`", "a number above 0 in f32",
               fmt::format("{}", g.nodes[*value].value));
  return std::nullopt;
}

std::optional<std::vector<ConfigValue>> GraphChecker::evalByLayer(const ast::Expr &e) {
  std::vector<std::string> names;
  collectReads(e, names);
  const bool differs = llvm::any_of(names, [&](const std::string &name) { return model.layerConfig.count(name); });
  if (!differs || !inRepeat) { // outside a name that differs by layer has no value
    std::optional<ConfigValue> value = evaluateConstant(e, model.config, diags);
    return value ? std::optional(std::vector{*value}) : std::nullopt;
  }
  std::vector<ConfigValue> values;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    std::optional<ConfigValue> value = evaluateInLayer(e, model.config, model.layerConfig, layer, diags);
    if (!value)
      return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

bool GraphChecker::checkArguments(const ast::Expr &e, size_t min, size_t max, const char *takes) {
  for (const auto &[name, value] : e.named) {
    if (llvm::StringRef(takes).contains(", " + name.text + "="))
      continue;
    diags.report(Diag::UnknownArgument, name.loc, e.text, name.text);
    diags.note(fmt::format("`{}` takes ({})", e.text, takes));
    return false;
  }
  if (e.args.size() >= min && e.args.size() <= max)
    return true;
  diags.report(Diag::GraphArguments, e.loc, e.text, takes,
               e.args.size() == 1 ? "1 argument" : fmt::format("{} arguments", e.args.size()));
  return false;
}

std::optional<WeightId> GraphChecker::findWeight(llvm::StringRef name) const {
  for (size_t i = 0; i < model.weights.size(); ++i)
    if (name == model.weights[i].name)
      return i;
  return std::nullopt;
}

CheckedWeight *GraphChecker::conditionalWeight(llvm::StringRef name) {
  for (auto *list : {&model.weights, &model.absent})
    for (CheckedWeight &weight : *list)
      if (!weight.condition.empty() && name == weight.name)
        return &weight;
  return nullptr;
}

std::optional<WeightId> GraphChecker::useWeight(const ast::Expr &e, size_t rank, const std::string &user) {
  std::optional<WeightId> w;
  if (e.kind == ast::Expr::Path)
    w = findWeight(e.text);
  else if (const ast::Expr *name = viewedName(e)) {
    if (std::optional<WeightId> of = findWeight(name->text))
      return useView(e, *of, rank);
    if (const CheckedWeight *absent = conditionalWeight(name->text)) {
      reportConditional(e, *absent);
      return std::nullopt;
    }
  }
  if (!w) {
    bool known = e.kind != ast::Expr::Path || environment.count(e.text) || model.config.count(e.text);
    if (known)
      diags.report(Diag::NotAWeight, e.loc, user,
                   rank == 2 ? "the name of a weight here"
                             : "a vector here: the name of a weight, or weights and numbers");
    else
      reportUnknown(e);
    return std::nullopt;
  }
  CheckedWeight &weight = model.weights[*w];
  weight.used = true;
  if (!weight.condition.empty() && !addends.count(&e)) {
    reportConditional(e, weight);
    return std::nullopt;
  }
  if (weight.shape.size() > 2 && rank == 2) // the leading dimensions are the rows
    return useView(e, *w, rank);
  weight.usedWhole = true;
  if (weight.shape.size() != rank) {
    diags.report(Diag::WeightUse, e.loc, weight.name, fmt::format("{}", weight.shape),
                 rank == 1 ? "a vector" : "a matrix");
    diags.note(weight.loc, "the weight is declared here");
    return std::nullopt;
  }
  if (weight.perLayer && !inRepeat) {
    diags.report(Diag::LayerWeightOutside, e.loc, weight.name);
    return std::nullopt;
  }
  return w;
}

bool GraphChecker::isNone(const ast::Expr &e) const {
  auto value = e.kind == ast::Expr::Path ? model.config.find(e.text) : model.config.end();
  return (e.kind == ast::Expr::Path && e.text == noneWord) ||
         (value != model.config.end() && std::holds_alternative<NoValue>(value->second));
}

bool GraphChecker::isMatmul(const ast::Expr &e) const { return e.kind == ast::Expr::Call && e.text == "matmul"; }

bool GraphChecker::isVector(const ast::Expr &e) const {
  if (viewedWeight(e))
    return true;
  if (e.kind == ast::Expr::Path) {
    if (auto local = environment.find(e.text); local != environment.end()) {
      const NodeId node = definitions[local->second].node;
      return node != Broken && g.nodes[node].shape.kind == Shape::Vector;
    }
    std::optional<WeightId> w = findWeight(e.text);
    return w && model.weights[*w].shape.size() == 1;
  }
  const bool computes = e.kind == ast::Expr::Call ? findElementwise(e.text) && e.named.empty()
                                                  : e.kind == ast::Expr::Unary || e.kind == ast::Expr::Binary;
  const auto isPart = [&](const ast::ExprPtr &arg) { return isVector(*arg) || isConstant(*arg, model.config); };
  return computes && llvm::all_of(e.args, isPart) && !isConstant(e, model.config);
}

} // namespace megalith
