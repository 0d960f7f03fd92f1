#include "megalith/Lower/Model.h"
#include "llvm/ADT/STLExtras.h"
#include <cassert>
#include <utility>

namespace megalith {

using namespace ir;
using graph::Node;
using graph::NodeId;

namespace {

Op elementwiseOp(graph::Elementwise function) {
  switch (function) {
#define ELEMENTWISE1(Id, function, name)                                                                               \
  case graph::Elementwise::Id:                                                                                         \
    return Op::Id;
#define ELEMENTWISE2 ELEMENTWISE1
#define ROUNDING(Id, function, name)
#include "megalith/IR/Elementwise.def"
  }
  assert(false && "not an elementwise function");
  return Op::Add;
}

class Lowering {
public:
  Lowering(const CheckedModel &model, Module &module, Region &segment)
      : model(model), module(module), segment(segment), b(module, segment), values(model.graph.nodes.size()) {}

  void run() {
    const graph::Graph &g = model.graph;
    for (NodeId id : g.before)
      lower(id);
    if (g.hasRepeat)
      lowerRepeat();
    for (NodeId id : g.after)
      lower(id);
    b.loc = g.nodes[g.logits].loc;
    std::vector<Value> results = {values[g.logits]};
    for (const auto &[name, node] : g.results)
      results.push_back(values[node]);
    b.create(Op::Yield, results);
  }

private:
  void lowerRepeat() {
    const graph::Graph &g = model.graph;
    std::vector<Value> initial;
    std::vector<Type> types;
    for (const graph::Carried &c : g.carried) {
      initial.push_back(values[c.initial]);
      // Both ends of the loop are results of `round` or of another loop.
      types.push_back(module.type(values[c.initial]));
    }
    b.loc = g.repeatLoc;
    Operation &repeat = b.create(Op::Repeat, initial, types);
    repeat.set<attr::count>(model.layers);
    repeat.regions.resize(1);
    for (size_t i = 0; i < g.carried.size(); ++i) {
      const graph::Carried &c = g.carried[i];
      values[c.argument] = module.newValue(types[i], g.nodes[c.argument].hint);
      values[c.result] = repeat.result(i);
      module.values[repeat.result(i).id].hint = g.nodes[c.result].hint;
      repeat.region().args.push_back(values[c.argument]);
    }
    // `repeat` stays where it is: nothing is added to the segment meanwhile.
    b.setRegion(repeat.region());
    for (NodeId id : g.body)
      lower(id);
    std::vector<Value> next;
    for (const graph::Carried &c : g.carried)
      next.push_back(values[c.next]);
    b.loc = g.repeatLoc;
    b.create(Op::Yield, next);
    b.setRegion(segment);
  }

  //===--- building blocks ------------------------------------------------===//

  Type rows(int64_t columns) { return Type::rows(columns, Scalar::F32); }
  int64_t columns(Value v) { return module.type(v).size; }

  Value round(Value v, llvm::StringRef hint = "") {
    return b.value(Op::Round, {v}, Type::rows(columns(v), Scalar::BF16), hint);
  }
  Value elementwise(Op op, llvm::ArrayRef<Value> operands, llvm::StringRef hint = "") {
    // Rows count before vectors, and both before numbers.
    const bool isVector = llvm::none_of(operands, [&](Value v) { return module.type(v).kind == Type::Rows; });
    int64_t n = 1;
    for (Value v : operands)
      if (module.type(v).kind == (isVector ? Type::Vector : Type::Rows))
        n = std::max(n, columns(v));
    return b.value(op, operands, isVector ? Type::vector(n, Scalar::F32) : rows(n), hint);
  }
  Value unary(Op op, Value a) { return elementwise(op, {a}); }
  Value binary(Op op, Value x, Value y) { return elementwise(op, {x, y}); }
  Value weight(graph::WeightId id) {
    const CheckedWeight &w = model.weights[id];
    Operation &op = b.create(Op::WeightGet, {}, {Type::vector(w.shape[0], Scalar::BF16)}, w.name);
    op.name = w.name;
    return op.result();
  }
  Value sumOverBlocks(Value v, int64_t groups) {
    Operation &op = b.create(Op::ReduceSum, {v}, {rows(groups)});
    op.set<attr::groups>(groups);
    // Whole rows are cut like the operands of products, whose warps add up their own part.
    op.set<attr::tree>(groups == 1 ? SumTree::Parts8 : SumTree::Lanes32);
    return op.result();
  }
  /// Mean over blocks of `length` columns, as a product with the reciprocal.
  Value mean(Value v, int64_t length) {
    Value sum = sumOverBlocks(v, columns(v) / length);
    return binary(Op::Mul, sum, b.constant(1.0 / static_cast<double>(length)));
  }
  /// 1 / sqrt(v + eps)
  Value rsqrtOf(Value v, double eps) { return unary(Op::Rsqrt, binary(Op::Add, v, b.constant(eps))); }

  //===--- nodes ----------------------------------------------------------===//

  Value input(const Node &node, size_t i) {
    const Node &from = model.graph.nodes[node.inputs[i]];
    if (from.kind == Node::Number)
      return b.constant(from.value);
    if (from.kind == Node::Vector)
      return weight(from.weights[0]);
    if (from.shape.kind == graph::Shape::Vector) { // as a weight: anew for each use
      const SourceLoc user = std::exchange(b.loc, from.loc);
      Value vector = elementwise(from, from.hint);
      b.loc = user;
      return vector;
    }
    return values[node.inputs[i]];
  }
  Value elementwise(const Node &node, llvm::StringRef hint = "") {
    llvm::SmallVector<Value, 2> operands;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      operands.push_back(input(node, i));
    return elementwise(elementwiseOp(node.function), operands, hint);
  }

  void lower(NodeId id) {
    const Node &node = model.graph.nodes[id];
    b.loc = node.loc;
    values[id] = lower(node);
  }

  Value lower(const Node &node) {
    switch (node.kind) {
    case Node::Embed: {
      const CheckedWeight &w = model.weights[node.weights[0]];
      Operation &op = b.create(Op::Embed, {}, {Type::rows(node.shape.columns, Scalar::BF16)}, node.hint);
      op.name = w.name;
      if (node.byPosition)
        op.set<attr::by>(By::Position);
      return op.result();
    }
    case Node::MatMul: {
      Operation &op = b.create(Op::MatMul, {input(node, 0)}, {rows(node.shape.columns)});
      op.name = model.weights[node.weights[0]].name;
      op.set<attr::tree>(SumTree::Split8);
      Value product = op.result();
      if (node.inputs.size() == 2)
        product = binary(Op::Add, product, input(node, 1));
      return round(product, node.hint);
    }
    case Node::Elementwise:
      return round(elementwise(node), node.hint);
    case Node::RmsNorm: {
      Value x = input(node, 0);
      int64_t length = model.graph.nodes[node.inputs[1]].shape.columns;
      Value scale = rsqrtOf(mean(binary(Op::Mul, x, x), length), node.value);
      Value normed = binary(Op::Mul, x, scale);
      if (!node.once)
        normed = round(normed);
      return round(binary(Op::Mul, input(node, 1), normed), node.hint);
    }
    case Node::LayerNorm: {
      Value x = input(node, 0);
      int64_t length = model.graph.nodes[node.inputs[1]].shape.columns;
      Value centred = binary(Op::Sub, x, mean(x, length));
      Value scale = rsqrtOf(mean(binary(Op::Mul, centred, centred), length), node.value);
      Value scaled = binary(Op::Mul, centred, scale);
      scaled = binary(Op::Mul, scaled, input(node, 1));
      return round(binary(Op::Add, scaled, input(node, 2)), node.hint);
    }
    case Node::SoftCap: {
      // As written out, `tanh(x / cap) * cap`: a checkpoint's own code rounds after each of the three.
      Value ratio = round(binary(Op::Div, input(node, 0), b.constant(node.value)));
      Value bent = round(unary(Op::Tanh, ratio));
      return round(binary(Op::Mul, bent, b.constant(node.value)), node.hint);
    }
    case Node::Rope: {
      Value x = input(node, 0);
      Value direct = round(binary(Op::Mul, x, angle(Op::RopeCos, columns(x))));
      Operation &rotate = b.create(Op::RotateHalf, {x}, {rows(columns(x))});
      setHeads(rotate);
      Value rotated = rotate.result();
      rotated = round(binary(Op::Mul, rotated, angle(Op::RopeSin, columns(x))));
      return round(binary(Op::Add, direct, rotated), node.hint);
    }
    case Node::Attention: {
      Operation &append = b.create(Op::KvAppend, {input(node, 1), input(node, 2)}, {Type::kv()});
      append.set<attr::kv_heads>(model.kvHeads);
      append.set<attr::dim>(model.headDim);
      Value kv = append.result();
      Operation &attention = b.create(Op::Attention, {input(node, 0), kv}, {rows(node.shape.columns)});
      attention.set<attr::heads>(model.heads);
      attention.set<attr::kv_heads>(model.kvHeads);
      attention.set<attr::dim>(model.headDim);
      attention.set<attr::scale>(node.value);
      attention.set<attr::tree>(SumTree::Rounds8);
      if (!node.window.empty())
        attention.set<attr::window>(node.window);
      if (node.cap > 0)
        attention.set<attr::cap>(node.cap);
      return round(attention.result(), node.hint);
    }
    case Node::Number:
    case Node::Vector:
    case Node::Carried:
    case Node::LoopResult:
      break;
    }
    assert(false && "not in a block");
    return Value();
  }

  Value angle(Op op, int64_t columns) {
    Operation &o = b.create(op, {}, {Type::rows(columns, Scalar::BF16)}, op == Op::RopeCos ? "cos" : "sin");
    setHeads(o);
    return o.result();
  }
  void setHeads(Operation &op) {
    op.set<attr::dim>(model.headDim);
    if (model.rope->headDim != model.headDim)
      op.set<attr::turned>(model.rope->headDim);
    if (model.adjacentRope)
      op.set<attr::adjacent>(true);
  }

  const CheckedModel &model;
  Module &module;
  Region &segment;
  Builder b;
  std::vector<Value> values; ///< by node
};

void setAttributes(const CheckedModel &model, Operation &op) {
  op.set<attr::graph>(model.graphName);
  op.setWord<attr::numerics>(model.numerics);
  op.set<attr::vocab>(model.vocab);
  op.set<attr::hidden>(model.hidden);
  op.set<attr::layers>(model.layers);
  op.set<attr::kv_layers>(model.kvLayers);
  if (model.kvWindow)
    op.set<attr::kv_window>(model.kvWindow);
  op.set<attr::kv_heads>(model.kvHeads);
  op.set<attr::head_dim>(model.headDim);
  if (!model.rope)
    return;
  const RopeParams &rope = *model.rope;
  op.setWord<attr::rope_type>(rope.type);
  op.set<attr::rope_theta>(rope.theta);
  if (rope.type == "linear" || rope.type == "llama3")
    op.set<attr::rope_factor>(rope.factor);
  if (rope.type == "llama3") {
    op.set<attr::rope_low>(rope.lowFreqFactor);
    op.set<attr::rope_high>(rope.highFreqFactor);
    op.set<attr::rope_original>(rope.originalMaxPositions);
  }
  if (rope.type == "yarn" || rope.type == "longrope") {
    const std::vector<float> frequencies = inverseFrequencies(rope);
    op.set<attr::rope_frequencies>(std::vector<double>(frequencies.begin(), frequencies.end()));
    op.set<attr::rope_attention>(rope.attention);
  }
  if (rope.headDim != model.headDim)
    op.set<attr::rope_turned>(rope.headDim);
  if (!model.ropeTables.empty()) {
    op.set<attr::rope_bases>(model.ropeBases);
    op.set<attr::rope_tables>(model.ropeTables);
  }
}

} // namespace

static void lowerWeight(const CheckedModel &model, const CheckedWeight &w, Builder &b) {
  // The tensor of a view of an alias is that of the storage.
  const CheckedWeight *tensor = w.part ? &model.weights[w.part->of] : &w;
  if (w.part && !tensor->alias.empty())
    tensor = &*llvm::find_if(model.weights, [&](const CheckedWeight &other) { return other.name == tensor->alias; });
  b.loc = w.loc;
  Operation &weight = b.create(Op::Weight);
  weight.name = w.name;
  weight.set<attr::shape>(w.shape);
  if (!w.part && !w.alias.empty()) {
    weight.set<attr::alias>(w.alias);
  } else {
    weight.set<attr::from>(tensor->from);
    if (tensor->stored != w.shape)
      weight.set<attr::stored>(tensor->stored);
    const int64_t rows = w.shape[0], columns = w.shape.size() == 2 ? w.shape[1] : 1;
    const WeightView whole = WeightView::whole(rows, columns), transposed = {0, rows, 0, 1, rows};
    if (const WeightView place = w.part ? w.part->place : w.transposed ? transposed : whole; place != whole)
      weight.set<attr::view>({place.offset, place.block, place.blockStride, place.rowStride, place.columnStride});
  }
  if (w.perLayer)
    weight.set<attr::layers>(model.layers);
  if (const WeightScheme &scheme = w.scheme; scheme.quantised()) {
    weight.set<attr::format>(scheme.format);
    if (scheme.scaleRows)
      weight.set<attr::scale_rows>(scheme.scaleRows);
    if (scheme.scaleColumns)
      weight.set<attr::scale_columns>(scheme.scaleColumns);
    if (scheme.zeros)
      weight.set<attr::zeros>(true);
    if (scheme.ordered)
      weight.set<attr::ordered>(true);
  }
}

void lowerModel(const CheckedModel &model, llvm::StringRef name, Module &module) {
  Builder top(module, module.root.region());
  Operation &op = top.create(Op::Model);
  op.name = name.str();
  setAttributes(model, op);
  std::vector<std::string> results;
  for (const auto &[result, node] : model.graph.results)
    results.push_back(result);
  if (!results.empty())
    op.set<attr::results>(results);
  op.regions.resize(1);
  Builder inner(module, op.region());
  for (size_t i = 0; i < model.weights.size(); ++i) {
    const CheckedWeight &w = model.weights[i];
    if (w.part)
      continue;
    // What nothing uses has the warning, and a `weight` where it can be one.
    if (w.usedWhole || (!w.used && w.shape.size() <= 2 && w.alias.empty()))
      lowerWeight(model, w, inner);
    for (const CheckedWeight &view : model.weights)
      if (view.part && view.part->of == i)
        lowerWeight(model, view, inner);
  }
  inner.loc = {};
  Operation &segment = inner.create(Op::Segment);
  segment.name = "forward";
  segment.regions.resize(1);
  Lowering(model, module, segment.region()).run();
}

} // namespace megalith
