#include "GraphChecker.h"
#include <cassert>

namespace megalith {

using namespace graph;

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
static llvm::StringSet<> readBeforeAssigned(llvm::ArrayRef<ast::Stmt> statements) {
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

bool GraphChecker::run() {
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

void GraphChecker::checkAssign(const ast::Stmt &s) {
  assert(s.kind == ast::Stmt::Assign && s.values.size() == 1 && "the parser knows no other");
  const std::string &name = s.target.text;
  MaybeNode value = eval(*s.values[0]);
  const char *taken = model.config.count(name) ? "a config name" : nullptr;
  if (findWeight(name) || conditionalWeight(name))
    taken = "a weight";
  else if (name == "tokens" || name == "position" || name == noneWord)
    taken = "a name of the language";
  if (taken)
    diags.report(Diag::NameTaken, s.target.loc, name, taken);
  // A name whose value is wrong exists nevertheless: no message at its uses.
  if (value && g.nodes[*value].hint.empty())
    g.nodes[*value].hint = name;
  define(name, value ? *value : Broken, s.target.loc);
}

void GraphChecker::checkRepeat(const ast::Stmt &s, llvm::ArrayRef<ast::Stmt> rest) {
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
  if (!count || *count <= 0 || *count > mostLayers)
    diags.report(Diag::LayersMissing, s.target.loc, "`repeat: layer`");
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
      argument = add({.kind = Node::Carried, .shape = g.nodes[initial].shape, .hint = name, .loc = s.target.loc});
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
      carried.result = add({.kind = Node::LoopResult, .shape = before, .hint = name, .loc = s.target.loc});
    }
    define(name, carried.result, s.target.loc, /*used=*/liveIn.contains(name));
  }
}

void GraphChecker::checkEnd() {
  std::string nameOfLogits = "logits";
  for (const auto &[name, value] : file.results)
    if (name.text == "logits")
      nameOfLogits = value.text;
  auto logits = environment.find(nameOfLogits);
  if (logits == environment.end()) {
    diags.report(Diag::MissingLogits, file.name.loc, file.name.text);
    return;
  }
  Definition &definition = definitions[logits->second];
  definition.used = true;
  g.logits = definition.node;
  const Shape &shape = g.nodes[g.logits].shape;
  for (const Node &node : g.nodes) {
    if (node.kind != Node::Embed || node.byPosition)
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
  checkResults(shape);
  for (const Definition &d : definitions)
    if (!d.used)
      diags.report(Diag::UnusedGraphValue, d.loc, d.name);
  for (const CheckedWeight &weight : model.weights)
    if (!weight.alias.empty() && weight.used) {
      CheckedWeight &storage = model.weights[*findWeight(weight.alias)];
      storage.used = true;
      storage.usedWhole |= weight.usedWhole;
    }
  checkParts();
  for (const auto *list : {&model.weights, &model.absent})
    for (const CheckedWeight &weight : *list)
      if (!weight.used)
        diags.report(Diag::UnusedWeight, weight.loc, weight.name);
}

/// What else pipelines may read, each of the `shape` of the logits.
void GraphChecker::checkResults(const Shape &shape) {
  std::map<NodeId, std::string> names = {{g.logits, "logits"}};
  for (const auto &[name, value] : file.results) {
    if (name.text == "logits")
      continue;
    const auto it = environment.find(value.text);
    if (it == environment.end()) {
      diags.report(Diag::UnknownGraphName, value.loc, value.text);
      continue;
    }
    Definition &definition = definitions[it->second];
    definition.used = true;
    if (definition.node == Broken)
      continue;
    if (const Shape &own = g.nodes[definition.node].shape; !(own == shape))
      diags.report(Diag::ResultShape, value.loc, value.text, own.str(), shape.str());
    else if (const auto [first, isNew] = names.try_emplace(definition.node, name.text); !isNew)
      diags.report(Diag::ResultTwice, value.loc, value.text, first->second, name.text);
    else
      g.results.emplace_back(name.text, definition.node);
  }
}

NodeId GraphChecker::add(Node node) {
  NodeId id = g.nodes.size();
  bool inBlock = node.shape.kind == Shape::Rows && node.kind != Node::Carried && node.kind != Node::LoopResult;
  g.nodes.push_back(std::move(node));
  if (inBlock)
    block->push_back(id);
  return id;
}

void GraphChecker::define(const std::string &name, NodeId node, SourceLoc loc, bool used) {
  environment[name] = definitions.size();
  definitions.push_back({name, node, loc, used});
}

bool checkGraph(const ast::ModelFile &file, CheckedModel &model, Diagnostics &diags) {
  return GraphChecker(file, model, diags).run();
}

} // namespace megalith
