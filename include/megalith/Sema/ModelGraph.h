//===- ModelGraph.h - a model's graph after checking ----------------------===//
//
// Names are gone: every value is a node, nodes refer to nodes, and each has a
// shape. Rounding and the arithmetic of norms are not spelled out yet; that is
// lowering's part.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_SEMA_MODELGRAPH_H
#define MEGALITH_SEMA_MODELGRAPH_H

#include "megalith/Support/SourceLoc.h"
#include <cstdint>
#include <string>
#include <vector>

namespace megalith::graph {

/// Elementwise operations; see IR/Elementwise.def.
enum class Elementwise : uint8_t {
#define ELEMENTWISE1(Id, function, Name) Id,
#define ELEMENTWISE2(Id, function, Name) Id,
#define ROUNDING(Id, function, Name)
#include "megalith/IR/Elementwise.def"
};

/// The shape of a node: one number, a vector of weights, or one line per row.
struct Shape {
  enum Kind : uint8_t { Number, Vector, Rows } kind = Number;
  int64_t columns = 1;
  bool operator==(const Shape &) const = default;
  /// As messages spell it: `a number`, `[64]`, `[R, 2048]`.
  std::string str() const;
};

/// Index into Graph::nodes.
using NodeId = uint32_t;
/// Index into CheckedModel::weights.
using WeightId = uint32_t;

struct Node {
  enum Kind : uint8_t {
    Number,      ///< `value`
    Vector,      ///< the weight vector weights[0]
    Embed,       ///< the line of weights[0] at the row's token, or at its position
    MatMul,      ///< inputs[0] . weights[0]^T, plus the vector inputs[1] if there is one
    Elementwise, ///< `function` of the inputs; of vectors and numbers alone a vector, which is not rounded
    RmsNorm,     ///< inputs[0] with the vector inputs[1]; value = eps; blocks of that vector's length
    LayerNorm,   ///< inputs[0] with the vector inputs[1] and the bias inputs[2]; value = eps
    SoftCap,     ///< inputs[0], bent towards value = cap
    Rope,        ///< inputs[0], per block of head_dim columns
    Attention,   ///< inputs = q, k, v; value = scale of the scores, bent towards `cap`; keys in `window`
    Carried,     ///< a loop value at the start of an iteration
    LoopResult   ///< the same value after the last iteration
  } kind = Number;
  graph::Elementwise function = graph::Elementwise::Add;
  std::vector<NodeId> inputs = {};
  std::vector<WeightId> weights = {};
  double value = 0;
  bool once = false;       ///< RmsNorm: only the product with the weight is rounded
  bool byPosition = false; ///< Embed
  double cap = 0;          ///< Attention: 0: none
  /// Attention: positions up to its own that a row sees, of all layers or of each; 0: all. Empty: all, in all layers.
  std::vector<int64_t> window = {};
  Shape shape;
  std::string hint = {}; ///< the name that the file gives to the value, if any
  SourceLoc loc;
};

/// One value that goes around the repeat.
struct Carried {
  NodeId initial, argument, next, result;
};

/// A whole graph: nodes of `before`, then `layers` times `body`, then `after`.
struct Graph {
  std::vector<Node> nodes;
  std::vector<NodeId> before, body, after;
  bool hasRepeat = false;
  SourceLoc repeatLoc;
  std::vector<Carried> carried;
  NodeId logits = 0;
  std::vector<std::pair<std::string, NodeId>> results = {}; ///< others that pipelines may read, of the same shape
};

} // namespace megalith::graph
#endif
