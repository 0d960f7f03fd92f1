//===- GraphChecker.h - checks a model's graph ----------------------------===//
//
// One pass over the statements of a model file. It makes the nodes of the graph, with their shapes, and reports what is
// wrong. Statements stand in ModelGraph.cpp, expressions in ModelNodes.cpp, ModelAttention.cpp, ModelRope.cpp and
// ModelViews.cpp.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_SEMA_GRAPHCHECKER_H
#define MEGALITH_LIB_SEMA_GRAPHCHECKER_H

#include "ModelConfig.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <set>

namespace megalith {

struct ElementwiseInfo; // of ModelNodes.cpp

/// None: what was wrong has been reported.
using MaybeNode = std::optional<graph::NodeId>;

/// The names that `e` reads, in order.
void collectReads(const ast::Expr &e, std::vector<std::string> &out);

class GraphChecker {
public:
  GraphChecker(const ast::ModelFile &file, CheckedModel &model, Diagnostics &diags)
      : file(file), model(model), g(model.graph), diags(diags) {}

  bool run();

private:
  using Node = graph::Node;
  using NodeId = graph::NodeId;
  using Shape = graph::Shape;
  using WeightId = graph::WeightId;

  /// One assignment of a name.
  struct Definition {
    std::string name;
    NodeId node;
    SourceLoc loc;
    bool used = false;
  };

  //===--- statements -----------------------------------------------------===//

  void checkAssign(const ast::Stmt &s);
  void checkRepeat(const ast::Stmt &s, llvm::ArrayRef<ast::Stmt> rest);
  void checkEnd();
  void checkResults(const Shape &shape);

  //===--- expressions ----------------------------------------------------===//

  MaybeNode eval(const ast::Expr &e);
  MaybeNode number(const ast::Expr &e, const ConfigValue &value);
  MaybeNode evalPath(const ast::Expr &e);
  /// A weight as a vector.
  MaybeNode evalWeightVector(const ast::Expr &e);
  /// Reports each name once.
  void reportUnknown(const ast::Expr &e);
  /// A weight that may be absent stands where it has to be there.
  void reportConditional(const ast::Expr &e, const CheckedWeight &weight);
  MaybeNode evalEmbed(const ast::Expr &e);
  MaybeNode evalCall(const ast::Expr &e);
  MaybeNode evalElementwise(const ast::Expr &e, const ElementwiseInfo &info);
  // A call of a function that is not elementwise; the number of its arguments is right.
#define GRAPH_FUNCTION(Id, Name, Min, Max, Arguments) MaybeNode eval##Id(const ast::Expr &e);
#include "megalith/Sema/ModelFunctions.def"
  /// Whether term `side` of `sum` is a weight that is absent. One that is there may stand there from now on.
  bool lacksAddend(const ast::Expr &sum, size_t side);
  MaybeNode evalProduct(const ast::Expr &e, const ast::Expr *bias);
  MaybeNode evalNorm(const ast::Expr &e, Node::Kind kind);
  std::optional<bool> evalOnce(const ast::Expr &e);

  //===--- arguments ------------------------------------------------------===//

  /// The argument that a call has by this name; null when it has none.
  static const ast::Expr *namedArgument(const ast::Expr &e, llvm::StringRef name);
  /// `softcap` of `attention`; 0: none.
  std::optional<double> evalCap(const ast::Expr &e);
  /// `window` of `attention`, as graph::Node has it.
  std::optional<std::vector<int64_t>> evalWindow(const ast::Expr &e);
  MaybeNode evalRows(const ast::Expr &e, llvm::StringRef user);
  /// A weight vector, or an expression of weight vectors and numbers.
  MaybeNode evalVector(const ast::Expr &e, const std::string &user);
  MaybeNode evalNumber(const ast::Expr &e, const std::string &what);
  /// The value of a constant that may differ by layer: one when no name of it does, else one for each layer.
  std::optional<std::vector<ConfigValue>> evalByLayer(const ast::Expr &e);
  /// A number above 0, the last argument of the call `e`.
  MaybeNode evalPositive(const ast::Expr &e, const std::string &what);
  /// Reports a wrong number of arguments, and arguments by a name that the function does not have.
  bool checkArguments(const ast::Expr &e, size_t min, size_t max, const char *takes);
  std::optional<WeightId> findWeight(llvm::StringRef name) const;
  /// The weight of this name that is there under a condition only.
  CheckedWeight *conditionalWeight(llvm::StringRef name);
  /// The weight that `e` names or is a view of. As a matrix (rank 2) or a vector (rank 1).
  std::optional<WeightId> useWeight(const ast::Expr &e, size_t rank, const std::string &user);
  /// The literal `none`, or a name for it.
  bool isNone(const ast::Expr &e) const;
  bool isMatmul(const ast::Expr &e) const;
  /// Whether `e` is something for evalVector.
  bool isVector(const ast::Expr &e) const;

  //===--- views of weights (ModelViews.cpp) ------------------------------===//

  /// Of `w[i, a:b]` the name `w`, which is none of the graph; null: `e` is something else.
  const ast::Expr *viewedName(const ast::Expr &e) const;
  /// The weight of which `e` is a view.
  std::optional<WeightId> viewedWeight(const ast::Expr &e) const;
  std::optional<WeightId> useView(const ast::Expr &e, WeightId of, size_t rank);
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;
  /// The part of each dimension, and whether the dimension is left.
  bool evalSubscript(const ast::Expr &e, WeightId of, Ranges &ranges, std::vector<bool> &kept);
  std::optional<int64_t> evalIndex(const ast::Expr &e, const std::string &what);
  /// The view of these ranges, made when it is new.
  std::optional<WeightId> view(const ast::Expr &e, WeightId of, const Ranges &ranges, const std::vector<bool> &kept,
                               size_t rank);
  void checkParts();
  /// Reports a wrong `head_dim` at its first use only.
  bool checkHeadDim(const ast::Expr &e);
  bool checkHeadColumns(const ast::Expr &e, llvm::StringRef what, const Shape &shape);
  /// How the call turns heads, in `rope` of the model; every `rope` of a graph does the same.
  bool checkRopeConfig(const ast::Expr &e);
  std::optional<int> ropeDims(const ast::Expr &arg);
  bool ropeByLayer(const ast::Expr *base, const ast::Expr *where, CheckedModel &out);
  std::optional<bool> evalBool(const ast::Expr &arg, const std::string &what);

  //===--- nodes ----------------------------------------------------------===//

  NodeId add(Node node);
  void define(const std::string &name, NodeId node, SourceLoc loc, bool used = false);

  static constexpr NodeId Broken = UINT32_MAX;

  const ast::ModelFile &file;
  CheckedModel &model;
  graph::Graph &g;
  Diagnostics &diags;
  std::vector<NodeId> *block = nullptr;
  bool inRepeat = false;
  SourceLoc attentionLoc, ropeLoc;
  std::set<const ast::Expr *> addends; ///< where weights that may be absent stand right
  std::vector<Definition> definitions;
  llvm::StringMap<size_t> environment; ///< name -> its latest definition
  llvm::StringSet<> insideNames;       ///< assigned somewhere inside the repeat
  llvm::StringSet<> unknownNames;      ///< already reported
  bool headDimReported = false, ropeReported = false;
};

} // namespace megalith
#endif
