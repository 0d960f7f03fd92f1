#include "ModelConfig.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <cassert>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

namespace megalith {
namespace {

using namespace graph;
using MaybeNode = std::optional<NodeId>;

struct FunctionInfo {
  const char *name;
  size_t min, max;
  const char *arguments;
};

const FunctionInfo graphFunctions[] = {
#define GRAPH_FUNCTION(Id, Name, Min, Max, Arguments) {Name, Min, Max, Arguments},
#include "megalith/Sema/ModelFunctions.def"
};

struct ElementwiseInfo {
  graph::Elementwise id;
  const char *name;
  size_t arity;
};

const ElementwiseInfo elementwiseTable[] = {
#define ELEMENTWISE(Id, Name, Arity) {graph::Elementwise::Id, Name, Arity},
#include "megalith/Sema/ModelFunctions.def"
};

const ElementwiseInfo *findElementwise(llvm::StringRef name) {
  for (const ElementwiseInfo &info : elementwiseTable)
    if (name == info.name)
      return &info;
  return nullptr;
}

/// The names that `e` reads, in order.
void collectReads(const ast::Expr &e, std::vector<std::string> &out) {
  if (e.kind == ast::Expr::Path)
    out.push_back(e.text);
  for (const ast::ExprPtr &arg : e.args)
    if (arg)
      collectReads(*arg, out);
  for (const auto &[name, arg] : e.named)
    collectReads(*arg, out);
}

/// The names that statements read before they assign them.
llvm::StringSet<> readBeforeAssigned(llvm::ArrayRef<ast::Stmt> statements) {
  llvm::StringSet<> reads, assigned;
  for (const ast::Stmt &s : statements) {
    std::vector<std::string> here;
    for (const ast::ExprPtr &value : s.values)
      collectReads(*value, here);
    for (const std::string &name : here)
      if (!assigned.contains(name))
        reads.insert(name);
    if (s.kind == ast::Stmt::Assign)
      assigned.insert(s.target.text);
  }
  return reads;
}

class GraphChecker {
public:
  GraphChecker(const ast::ModelFile &file, CheckedModel &model, Diagnostics &diags)
      : file(file), model(model), g(model.graph), diags(diags), weightUsed(model.weights.size()) {}

  bool run() {
    unsigned errorsBefore = diags.errors();
    block = &g.before;
    for (size_t i = 0; i < file.graph.size(); ++i) {
      const ast::Stmt &s = file.graph[i];
      if (s.kind == ast::Stmt::Repeat)
        checkRepeat(s, llvm::ArrayRef(file.graph).drop_front(i + 1));
      else
        checkAssign(s);
    }
    // What is not used is often what an error kept from being used.
    if (diags.errors() == errorsBefore)
      checkEnd();
    return diags.errors() == errorsBefore;
  }

private:
  /// One assignment of a name.
  struct Definition {
    std::string name;
    NodeId node;
    SourceLoc loc;
    bool used = false;
  };

  //===--- statements -----------------------------------------------------===//

  void checkAssign(const ast::Stmt &s) {
    assert(s.kind == ast::Stmt::Assign && s.values.size() == 1 && "the parser knows no other");
    const std::string &name = s.target.text;
    MaybeNode value = eval(*s.values[0]);
    const char *taken = model.config.count(name) ? "a config name" : nullptr;
    if (findWeight(name))
      taken = "a weight";
    else if (name == "tokens" || name == "position")
      taken = "a name of the language";
    if (taken)
      diags.report(Diag::NameTaken, s.target.loc, name, taken);
    // A name whose value is wrong exists nevertheless: no message at its uses.
    if (value && g.nodes[*value].hint.empty())
      g.nodes[*value].hint = name;
    define(name, value ? *value : Broken, s.target.loc);
  }

  void checkRepeat(const ast::Stmt &s, llvm::ArrayRef<ast::Stmt> rest) {
    if (s.target.text != "layer") {
      diags.report(Diag::RepeatCollection, s.target.loc, s.target.text);
      return;
    }
    if (g.hasRepeat) {
      diags.report(Diag::RepeatTwice, s.target.loc);
      diags.note(g.repeatLoc, "the other one");
      return;
    }
    g.hasRepeat = true;
    g.repeatLoc = s.target.loc;
    auto layers = model.config.find("layers");
    auto *count = layers == model.config.end() ? nullptr : std::get_if<int64_t>(&layers->second);
    if (!count || *count <= 0 || *count > 1 << 20)
      diags.report(Diag::LayersMissing, s.target.loc);
    else
      model.layers = *count;

    llvm::StringSet<> liveIn = readBeforeAssigned(s.body), liveOut = readBeforeAssigned(rest);
    std::vector<std::string> carriedNames;
    for (const ast::Stmt &inner : s.body) {
      const std::string &name = inner.target.text;
      if (inner.kind != ast::Stmt::Assign || !insideNames.insert(name).second)
        continue;
      auto outer = environment.find(name);
      if (outer == environment.end() || !(liveIn.contains(name) || liveOut.contains(name)))
        continue;
      definitions[outer->second].used = true;
      carriedNames.push_back(name);
    }

    llvm::StringMap<size_t> outerEnvironment = environment;
    for (const std::string &name : carriedNames) {
      NodeId initial = definitions[environment[name]].node;
      NodeId argument = Broken;
      if (initial != Broken) {
        argument = add({.kind = Node::Carried, .shape = g.nodes[initial].shape, .hint = name,
                        .loc = s.target.loc});
      }
      g.carried.push_back({initial, argument, Broken, Broken});
      define(name, argument, s.target.loc, /*used=*/true);
    }
    block = &g.body;
    inRepeat = true;
    for (const ast::Stmt &inner : s.body) {
      if (inner.kind == ast::Stmt::Repeat)
        diags.report(Diag::RepeatTwice, inner.target.loc);
      else
        checkAssign(inner);
    }
    inRepeat = false;
    block = &g.after;

    llvm::StringMap<size_t> inner = std::move(environment);
    environment = std::move(outerEnvironment);
    for (size_t i = 0; i < carriedNames.size(); ++i) {
      const std::string &name = carriedNames[i];
      graph::Carried &carried = g.carried[i];
      Definition &last = definitions[inner[name]];
      last.used = true;
      carried.next = last.node;
      if (carried.next != Broken && carried.initial != Broken) {
        const Shape &before = g.nodes[carried.initial].shape, &end = g.nodes[carried.next].shape;
        if (!(before == end) || before.kind != Shape::Rows)
          diags.report(Diag::LoopShape, last.loc, name, before.str(), end.str());
        carried.result = add(
            {.kind = Node::LoopResult, .shape = before, .hint = name, .loc = s.target.loc});
      }
      define(name, carried.result, s.target.loc, /*used=*/liveIn.contains(name));
    }
  }

  void checkEnd() {
    auto logits = environment.find("logits");
    if (logits == environment.end()) {
      diags.report(Diag::MissingLogits, file.name.loc, file.name.text);
      return;
    }
    Definition &definition = definitions[logits->second];
    definition.used = true;
    g.logits = definition.node;
    const Shape &shape = g.nodes[g.logits].shape;
    for (const Node &node : g.nodes) {
      if (node.kind != Node::Embed)
        continue;
      const CheckedWeight &weight = model.weights[node.weights[0]];
      Shape expected{Shape::Rows, weight.shape[0]};
      if (!(shape == expected)) {
        diags.report(Diag::LogitsShape, definition.loc, shape.str(), expected.str(), weight.name);
        return;
      }
      model.hidden = weight.shape[1];
    }
    if (shape.kind != Shape::Rows) {
      diags.report(Diag::NeedsRows, definition.loc, "logits", shape.str());
      return;
    }
    model.vocab = shape.columns;
    for (const Definition &d : definitions)
      if (!d.used)
        diags.report(Diag::UnusedGraphValue, d.loc, d.name);
    for (size_t i = 0; i < weightUsed.size(); ++i)
      if (!weightUsed[i])
        diags.report(Diag::UnusedWeight, model.weights[i].loc, model.weights[i].name);
  }

  //===--- expressions ----------------------------------------------------===//

  MaybeNode eval(const ast::Expr &e) {
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
      return evalEmbed(e);
    case ast::Expr::Call:
      return evalCall(e);
    case ast::Expr::Unary:
      if (e.text == "-")
        return evalElementwise(e, *findElementwise("neg"));
      break;
    case ast::Expr::Binary: {
      if (e.text == "+") {
        // A linear layer with bias is one operation: its product is rounded once,
        // after the addition.
        if (isMatmul(*e.args[0]) && isVectorWeight(*e.args[1]))
          return evalMatmul(*e.args[0], e.args[1].get());
        if (isMatmul(*e.args[1]) && isVectorWeight(*e.args[0]))
          return evalMatmul(*e.args[1], e.args[0].get());
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

  MaybeNode number(const ast::Expr &e, const ConfigValue &value) {
    if (auto v = asNumber(value))
      return add({.kind = Node::Number, .value = *v, .shape = {}, .loc = e.loc});
    diags.report(Diag::ConstantType, e.loc, "a graph", "a number", describe(value));
    return std::nullopt;
  }

  MaybeNode evalPath(const ast::Expr &e) {
    if (auto local = environment.find(e.text); local != environment.end()) {
      Definition &definition = definitions[local->second];
      definition.used = true;
      return definition.node == Broken ? MaybeNode() : definition.node;
    }
    if (auto value = model.config.find(e.text); value != model.config.end())
      return number(e, value->second);
    if (findWeight(e.text)) {
      std::optional<WeightId> w = useWeight(e, 1, "an operator");
      if (!w)
        return std::nullopt;
      return add({.kind = Node::Vector,
                  .weights = {*w},
                  .shape = {Shape::Vector, model.weights[*w].shape[0]},
                  .loc = e.loc});
    }
    if (e.text == "tokens" || e.text == "position")
      diags.report(Diag::MisplacedName, e.loc, e.text,
                   e.text == "tokens" ? "`weight[tokens]`" : "`rope(x, position)`");
    else if (!insideNames.contains(e.text))
      reportUnknown(e);
    else if (unknownNames.insert(e.text).second)
      diags.report(Diag::LoopLocal, e.loc, e.text);
    return std::nullopt;
  }

  /// Reports each name once.
  void reportUnknown(const ast::Expr &e) {
    if (!unknownNames.insert(e.text).second)
      return;
    diags.report(Diag::UnknownGraphName, e.loc, e.text);
    std::vector<std::string> names;
    for (const Definition &d : definitions)
      names.push_back(d.name);
    for (const CheckedWeight &w : model.weights)
      names.push_back(w.name);
    for (const auto &[name, value] : model.config)
      names.push_back(name);
    diags.suggest(e.text, names);
  }

  MaybeNode evalEmbed(const ast::Expr &e) {
    if (e.args.size() != 2 || e.args[1]->kind != ast::Expr::Path || e.args[1]->text != "tokens") {
      diags.report(Diag::GraphExpression, e.loc);
      return std::nullopt;
    }
    std::optional<WeightId> w = useWeight(*e.args[0], 2, "[tokens]");
    if (!w)
      return std::nullopt;
    return add({.kind = Node::Embed,
                .weights = {*w},
                .shape = {Shape::Rows, model.weights[*w].shape[1]},
                .loc = e.args[0]->loc});
  }

  MaybeNode evalCall(const ast::Expr &e) {
    if (const ElementwiseInfo *info = findElementwise(e.text))
      return evalElementwise(e, *info);
    std::vector<std::string> names;
    for (const FunctionInfo &info : graphFunctions) {
      names.push_back(info.name);
      if (e.text != info.name)
        continue;
      bool scaled = e.text == "attention" && e.named.size() == 1 &&
                    e.named[0].first.text == "scale";
      if (e.text == "attention" && !e.named.empty() && !scaled) {
        const auto &[name, value] = e.named[0].first.text == "scale" ? e.named[1] : e.named[0];
        diags.report(Diag::UnknownArgument, name.loc, e.text, name.text);
        diags.suggest(name.text, std::vector<std::string>{"scale"});
        return std::nullopt;
      }
      if (e.args.size() < info.min || e.args.size() > info.max || (!e.named.empty() && !scaled)) {
        diags.report(Diag::GraphArguments, e.loc, e.text, info.arguments,
                     e.args.size() + e.named.size());
        return std::nullopt;
      }
      if (e.text == "matmul")
        return evalMatmul(e, nullptr);
      if (e.text == "rope")
        return evalRope(e);
      if (e.text == "attention")
        return evalAttention(e);
      return evalNorm(e, e.text == "rms_norm" ? Node::RmsNorm : Node::LayerNorm);
    }
    for (const ElementwiseInfo &info : elementwiseTable)
      names.push_back(info.name);
    diags.report(Diag::UnknownGraphFunction, e.loc, e.text);
    diags.suggest(e.text, names);
    return std::nullopt;
  }

  MaybeNode evalElementwise(const ast::Expr &e, const ElementwiseInfo &info) {
    if (e.args.size() != info.arity || !e.named.empty()) {
      diags.report(Diag::GraphArguments, e.loc, e.text, info.arity == 1 ? "x" : "x, y",
                   e.args.size() + e.named.size());
      return std::nullopt;
    }
    std::vector<NodeId> inputs;
    for (const ast::ExprPtr &arg : e.args)
      if (MaybeNode input = eval(*arg))
        inputs.push_back(*input);
    if (inputs.size() != info.arity)
      return std::nullopt;
    Shape shape{Shape::Number, 1};
    bool matches = true;
    for (NodeId input : inputs) {
      const Shape &other = g.nodes[input].shape;
      if (other.kind != Shape::Rows)
        continue;
      if (shape.kind == Shape::Rows && shape.columns != other.columns)
        matches &= shape.columns == 1 || other.columns == 1;
      shape = {Shape::Rows, std::max(shape.columns, other.columns)};
    }
    for (NodeId input : inputs)
      if (g.nodes[input].shape.kind == Shape::Vector && shape.kind == Shape::Rows)
        matches &= shape.columns % g.nodes[input].shape.columns == 0;
    if (!matches) {
      diags.report(Diag::ElementwiseShape, e.loc, e.text, g.nodes[inputs[0]].shape.str(),
                   g.nodes[inputs[1]].shape.str());
      return std::nullopt;
    }
    if (shape.kind != Shape::Rows) {
      const Shape &found = g.nodes[inputs[0]].shape;
      diags.report(Diag::NeedsRows, e.loc, e.text,
                   found.kind == Shape::Vector || inputs.size() == 1
                       ? found.str()
                       : g.nodes[inputs[1]].shape.str());
      return std::nullopt;
    }
    return add({.kind = Node::Elementwise,
                .function = info.id,
                .inputs = std::move(inputs),
                .shape = shape,
                .loc = e.loc});
  }

  MaybeNode evalMatmul(const ast::Expr &e, const ast::Expr *bias) {
    if (e.args.size() != 2 || !e.named.empty()) {
      diags.report(Diag::GraphArguments, e.loc, e.text, "x, weight",
                   e.args.size() + e.named.size());
      return std::nullopt;
    }
    MaybeNode x = evalRows(*e.args[0], "matmul");
    std::optional<WeightId> w = useWeight(*e.args[1], 2, "matmul");
    if (!x || !w)
      return std::nullopt;
    const CheckedWeight &weight = model.weights[*w];
    const Node &input = g.nodes[*x];
    if (input.shape.columns != weight.shape[1]) {
      diags.report(Diag::MatmulShape, e.loc, ast::print(*e.args[0]), input.shape.str(), weight.name,
                   fmt::format("{}", weight.shape), weight.shape[1]);
      diags.note(weight.loc, "the weight is declared here");
      return std::nullopt;
    }
    Node node{.kind = Node::MatMul,
              .inputs = {*x},
              .weights = {*w},
              .shape = {Shape::Rows, weight.shape[0]},
              .loc = e.loc};
    if (bias) {
      std::optional<WeightId> b = useWeight(*bias, 1, "+");
      if (!b)
        return std::nullopt;
      Shape shape{Shape::Vector, model.weights[*b].shape[0]};
      if (node.shape.columns % shape.columns != 0) {
        diags.report(Diag::ElementwiseShape, bias->loc, "+", node.shape.str(), shape.str());
        return std::nullopt;
      }
      node.weights.push_back(*b);
    }
    return add(std::move(node));
  }

  MaybeNode evalNorm(const ast::Expr &e, Node::Kind kind) {
    MaybeNode x = evalRows(*e.args[0], e.text);
    std::vector<WeightId> weights;
    for (size_t i = 1; i + 1 < e.args.size(); ++i)
      if (std::optional<WeightId> w = useWeight(*e.args[i], 1, e.text))
        weights.push_back(*w);
    MaybeNode eps = evalNumber(*e.args.back(), "eps of `" + e.text + "`");
    if (!x || !eps || weights.size() + 2 != e.args.size())
      return std::nullopt;
    Shape shape = g.nodes[*x].shape;
    for (WeightId w : weights) {
      const CheckedWeight &weight = model.weights[w];
      // The first weight's length is the length of a block; its bias has the same.
      bool fits = w == weights[0] ? shape.columns % weight.shape[0] == 0
                                  : weight.shape == model.weights[weights[0]].shape;
      if (fits)
        continue;
      diags.report(Diag::NormShape, e.loc, shape.columns, e.text, weight.shape[0], weight.name);
      return std::nullopt;
    }
    return add({.kind = kind,
                .inputs = {*x},
                .weights = std::move(weights),
                .value = g.nodes[*eps].value,
                .shape = shape,
                .loc = e.loc});
  }

  MaybeNode evalRope(const ast::Expr &e) {
    MaybeNode x = evalRows(*e.args[0], "rope");
    if (e.args[1]->kind != ast::Expr::Path || e.args[1]->text != "position") {
      diags.report(Diag::GraphArguments, e.args[1]->loc, "rope", "x, position", e.args.size());
      diags.note("the second argument is the word `position`");
      return std::nullopt;
    }
    if (!checkHeadDim(e) || !checkRopeConfig(e) || !x)
      return std::nullopt;
    Shape shape = g.nodes[*x].shape;
    if (!checkHeadColumns(e, "the operand", shape))
      return std::nullopt;
    return add({.kind = Node::Rope, .inputs = {*x}, .shape = shape, .loc = e.loc});
  }

  MaybeNode evalAttention(const ast::Expr &e) {
    MaybeNode q = evalRows(*e.args[0], "attention"), k = evalRows(*e.args[1], "attention"),
              v = evalRows(*e.args[2], "attention");
    double scale = 0;
    if (!e.named.empty()) {
      MaybeNode value = evalNumber(*e.named[0].second, "scale of `attention`");
      if (!value)
        return std::nullopt;
      scale = g.nodes[*value].value;
    }
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
    if (model.heads % model.kvHeads != 0) {
      diags.report(Diag::AttentionHeads, e.loc, model.heads, model.kvHeads);
      return std::nullopt;
    }
    if (e.named.empty())
      scale = 1.0 / std::sqrt(static_cast<double>(model.headDim));
    return add({.kind = Node::Attention,
                .inputs = {*q, *k, *v},
                .value = scale,
                .shape = qs,
                .loc = e.loc});
  }

  //===--- arguments ------------------------------------------------------===//

  MaybeNode evalRows(const ast::Expr &e, llvm::StringRef user) {
    MaybeNode value = eval(e);
    if (!value || g.nodes[*value].shape.kind == Shape::Rows)
      return value;
    diags.report(Diag::NeedsRows, e.loc, user.str(), g.nodes[*value].shape.str());
    return std::nullopt;
  }

  MaybeNode evalNumber(const ast::Expr &e, const std::string &what) {
    MaybeNode value = eval(e);
    if (!value || g.nodes[*value].kind == Node::Number)
      return value;
    diags.report(Diag::ConstantType, e.loc, what, "a number", g.nodes[*value].shape.str());
    return std::nullopt;
  }

  std::optional<WeightId> findWeight(llvm::StringRef name) const {
    for (size_t i = 0; i < model.weights.size(); ++i)
      if (name == model.weights[i].name)
        return i;
    return std::nullopt;
  }

  /// The weight that `e` names, which must have `rank` dimensions.
  std::optional<WeightId> useWeight(const ast::Expr &e, size_t rank, const std::string &user) {
    std::optional<WeightId> w;
    if (e.kind == ast::Expr::Path)
      w = findWeight(e.text);
    if (!w) {
      bool known = e.kind != ast::Expr::Path || environment.count(e.text) ||
                   model.config.count(e.text);
      if (known)
        diags.report(Diag::NotAWeight, e.loc, user);
      else
        reportUnknown(e);
      return std::nullopt;
    }
    const CheckedWeight &weight = model.weights[*w];
    weightUsed[*w] = true;
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

  bool isMatmul(const ast::Expr &e) const {
    return e.kind == ast::Expr::Call && e.text == "matmul";
  }

  bool isVectorWeight(const ast::Expr &e) const {
    if (e.kind != ast::Expr::Path || environment.count(e.text))
      return false;
    std::optional<WeightId> w = findWeight(e.text);
    return w && model.weights[*w].shape.size() == 1;
  }

  /// Reports a wrong `head_dim` at its first use only.
  bool checkHeadDim(const ast::Expr &e) {
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

  bool checkHeadColumns(const ast::Expr &e, llvm::StringRef what, const Shape &shape) {
    if (shape.columns % model.headDim == 0)
      return true;
    diags.report(Diag::HeadColumns, e.loc, what.str(), e.text, shape.columns, model.headDim);
    return false;
  }

  bool checkRopeConfig(const ast::Expr &e) {
    if (model.rope || ropeReported)
      return model.rope.has_value();
    auto theta = model.config.find("rope.theta");
    std::optional<double> value;
    if (theta != model.config.end())
      value = asNumber(theta->second);
    if (!value) {
      diags.report(Diag::RopeMissing, e.loc);
      ropeReported = true;
      return false;
    }
    Result<RopeParams> rope = model.file.rope(model.headDim);
    if (rope) {
      model.rope = *rope;
    } else if (!model.file.find("rope_parameters.rope_theta") &&
               !model.file.find("rope_scaling.rope_type")) {
      // Theta is a default of the model file or stands under a key of its own.
      model.rope = RopeParams{.theta = *value, .headDim = static_cast<int>(model.headDim)};
    } else {
      diags.report(Diag::RopeConfig, e.loc, model.file.path(), rope.error.message);
      ropeReported = true;
      return false;
    }
    return true;
  }

  //===--- nodes ----------------------------------------------------------===//

  NodeId add(Node node) {
    NodeId id = g.nodes.size();
    bool inBlock = node.kind != Node::Number && node.kind != Node::Vector &&
                   node.kind != Node::Carried && node.kind != Node::LoopResult;
    g.nodes.push_back(std::move(node));
    if (inBlock)
      block->push_back(id);
    return id;
  }

  void define(const std::string &name, NodeId node, SourceLoc loc, bool used = false) {
    environment[name] = definitions.size();
    definitions.push_back({name, node, loc, used});
  }

  static constexpr NodeId Broken = UINT32_MAX;

  const ast::ModelFile &file;
  CheckedModel &model;
  Graph &g;
  Diagnostics &diags;
  std::vector<bool> weightUsed;
  std::vector<NodeId> *block = nullptr;
  bool inRepeat = false;
  SourceLoc attentionLoc;
  std::vector<Definition> definitions;
  llvm::StringMap<size_t> environment; ///< name -> its latest definition
  llvm::StringSet<> insideNames;       ///< assigned somewhere inside the repeat
  llvm::StringSet<> unknownNames;      ///< already reported
  bool headDimReported = false, ropeReported = false;
};

} // namespace

bool checkGraph(const ast::ModelFile &file, CheckedModel &model, Diagnostics &diags) {
  return GraphChecker(file, model, diags).run();
}

} // namespace megalith
