//===- TensorEmitter.h - the parts of the tensor half's writer ------------===//
//
// TensorConstants.cpp writes the structs of constants; Tensor.cpp the segments and their phases;
// Groups.cpp what fused groups share, and maps; Products.cpp the streamed products
// with their epilogues.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_EMIT_TENSOREMITTER_H
#define MEGALITH_LIB_EMIT_TENSOREMITTER_H

#include "Vectors.h"

namespace megalith::emit {

class TensorEmitter {
public:
  TensorEmitter(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const Names &names,
                const SourceFiles &files, const EmitOptions &options)
      : w(w), module(module), plan(plan), planned(plan.models[names.number]), names(names), files(files),
        options(options), model(*module.find(ir::Op::Model, planned.name)), weights(weightIndices(model)) {}

  void run();
  /// The same model in passes that run whole (Wide.cpp).
  void runWide();

private:
  CodeWriter &w;
  const ir::Module &module;
  const plan::Plan &plan;
  const plan::ModelPlan &planned;
  const Names &names;
  const SourceFiles &files;
  const EmitOptions &options;
  const ir::Operation &model;
  std::map<std::string, int> weights;
  bool inLayers = false;
  bool severalChains = false; ///< of a map: their names are in braces
  bool wide = false;          ///< of passes that run whole

  using Slice = std::vector<const ir::Operation *>;

  /// The next line is the user's: blame what follows on it.
  void at(SourceLoc loc) {
    if (options.lineDirectives && loc)
      w.sourceLine(loc.line, files.name(loc.file));
  }
  void ours() {
    if (options.lineDirectives)
      w.resumeLines();
  }
  std::function<void(SourceLoc)> marker() {
    return [this](SourceLoc loc) { at(loc); };
  }
  std::string place(SourceLoc loc) const;
  std::string placeExpr(const plan::Place &place) const { return "b." + names.rows(planned, place); }

  void emitPool();
  void emitBuffers();
  void emitMatrix(const plan::Matrix &m, const std::string &name);
  void emitPlaces();
  void emitImages();
  bool several() const { return plan.models.size() > 1; }
  /// Phases first, each a function of its own: ptxas then gives each the registers
  /// it needs; in one body the largest would spill for all.
  void emitSegment(const plan::Segment &segment, const Names::Segment &name);
  void emitWindows(const plan::Segment &segment, const std::string &name);
  /// Where a phase stores a value: of a variant for many rows in its image, when it has one.
  std::string storeExpr(const plan::Place &place) const;
  std::string imageExpr(const plan::Place &place) const;
  std::string counterExpr(const plan::Buffer &buffer, const char *params = "p") const;
  std::map<const plan::Buffer *, std::string> writes; ///< in how many passes of more than one row tile before this one
  void emitCalls(llvm::ArrayRef<plan::Phase> phases, bool layers);
  /// Phases [from, to) in front of the layers. `late`: a pass may do without.
  void emitFirst(llvm::ArrayRef<plan::Phase> phases, size_t from, size_t to, bool late);
  std::string widePass, wideUse; ///< how often a product was made before in passes of more than one row tile: outside
                                 ///< the layers, and in them
  /// The sum of a segment's chunks that a CTA's producer copies before it knows the pass, at most.
  std::string chunksAhead(const plan::Segment &segment) const;
  std::string stampExpr(const plan::Phase &phase) const;
  /// The attention of any layer, where `name` is a template of what K and V of its layers are.
  void emitByFormat(const std::string &name);
  void emitPhase(const plan::Phase &phase, bool layers);
  /// What all functions of the tensor half begin with.
  void emitPhaseBegin();
  void emitPhaseComment(const plan::Phase &phase);
  void emitCopy(const plan::Phase &phase);
  void emitOrder(const plan::Phase &phase);
  std::string orderExpr(int matrix) const;
  void emitAttention(const plan::Phase &phase);
  /// A function for the queries, and for the pass's own keys and values, that attention makes.
  void emitMadeRows(const plan::Phase &phase, const std::string &name);

  // --- passes that run whole (Wide.cpp) ---------------------------------------

  /// A warp's work on a row: a map, or a product's operand.
  void emitRowWork(const plan::Phase &phase, const std::string &name);
  /// The buffers of such passes.
  void emitWideBuffers();
  /// In other passes, behind one of them: what the last layer takes of rows that ran there.
  void emitLateBegin(const std::string &name);
  /// The table of steps, with the operands' buffers.
  void emitWideSteps(std::vector<plan::Place> &operands);
  /// What becomes of the products of a range.
  void emitEnd(const plan::Phase &phase, const plan::PairRange &r, const std::string &name);
  std::string endName(const plan::Phase &phase, const plan::PairRange &r) const;
  /// What the roles call (device/wide).
  void emitWideModel(llvm::ArrayRef<plan::Place> operands);
  /// The place that a stream takes its operand from in passes of many rows.
  plan::Place operandPlace(const plan::Phase &phase);
  const plan::Segment &body() const { return planned.segments[0]; }

  // --- groups ---------------------------------------------------------------

  static ir::Value scalarAfter(const Group &group, const Slice &slice, ir::Value result);
  static bool isReduction(ir::Op op) { return op == ir::Op::ReduceSum || op == ir::Op::ReduceMax; }

  /// Weights that a group reads beside its products.
  void declareWeights(const Group &group);
  void declareWeights(const Slice &slice);
  void declareRopes(const Slice &slice);
  void declareRopes(const ir::Operation &op);
  void declarePosition(const Slice &slice);
  void declarePartner(const Slice &slice);

  /// A value that leaves the group, and how it is stored.
  struct Sink {
    ir::Value value;
    std::string store; ///< prefix such as `b.q` or `keys`
    bool best = false;
    SourceLoc loc;
  };
  std::vector<Sink> sinks(const Group &group, const ir::Operation &op);
  /// Whether what computes K and V stores them in the pool, too. Else attention does, for a scale is of a whole head;
  /// or in passes that run whole a step of its own. Of a pool that has layers of both kinds it stores those in bf16.
  bool epiloguesKeepKv() const { return !planned.kvInE4m3 || (planned.bf16Layers && !wide); }
  void emitSinkDeclarations(const Group &group);

  void emitMap(const plan::Phase &phase);
  /// One value, which is stored in one place or in several: a warp for each row, or for each block of its columns that
  /// is reduced on its own.
  void emitMapChain(const Group &group, llvm::ArrayRef<Sink> sinks, bool wholeCta = false);
  /// A variable for it: what is stored in several places is computed once.
  std::string nameMade(const std::string &value, SourceLoc loc);
  void emitStores(llvm::ArrayRef<Sink> sinks, const char *method, const char *column, const std::string &value);
  /// The same for block `part` of `row`, where plan::fitsLanes: an expression for the lane's eight columns `c` of it.
  std::string emitBlock(const Group &group, ir::Value value, int64_t parts);
  /// The operand of a stream's products: a CTA for each row.
  void emitOperand(const plan::Phase &phase);
  /// One reduction of columns [0, n) of a row (or of block `part` of a row) by a warp, or of a row by
  /// the CTA. `outer` is the scope that it stands in, with the values `scalars`.
  void emitReduction(const Group &group, const ir::Operation &op, int64_t columns, const std::string &name,
                     const Vectors &outer, const std::map<uint32_t, std::string> &scalars, bool block, bool wholeCta);

  // --- products -------------------------------------------------------------

  /// What the products of a stream multiply with their matrix.
  static ir::Value operandOf(const Group &group, const plan::Matrix &m);
  void emitStream(const plan::Phase &phase);
  /// A thread keeps the best logit that it has seen.
  static bool keepsBest(const plan::Phase &phase) { return phase.result >= 0; }
  /// Places in the flagged words where the best of the phase's result cross.
  std::string flaggedExpr(const plan::Phase &phase, const char *of) const;
  /// Where some CTA has no tiles of the matrix, the others' code is shorter when that is known from here on.
  void emitLeave(const plan::Phase &phase, const plan::Matrix &m);
  /// Each CTA makes the operand for itself: of one row, or where there is nothing to make.
  void emitOwnOperand(const Group &group, const plan::Phase &phase, const plan::Matrix &m);
  /// The one bf16 buffer that an operand is computed from, read at the operand's columns.
  /// None when there are several, or at other columns, too.
  ir::Value sourceOf(const Group &group, ir::Value value, const Slice &slice, const plan::Matrix &m);
  /// Weight vectors that the operand's last step needs at its own columns: loaded before the
  /// wait for the activations.
  std::vector<ir::Value> emitAside(const Slice &slice);
  /// Per-row values that the operand needs: each CTA reduces its rows for itself.
  std::map<uint32_t, std::string> emitReductions(const Group &group, const Slice &slice, ir::Value source,
                                                 const plan::Matrix &m);
  /// The sinks that take the products of a range.
  std::vector<Sink> sinksOf(const Group &group, const std::vector<Sink> &all, const plan::PairRange &r);
  /// Opens the code of a range, with the columns that the thread holds.
  std::optional<CodeWriter::Scope> emitRange(const plan::PairRange &r, const plan::Matrix &m);

  /// A value that an epilogue loads: before the products, into words[at] or values[at].
  struct Early {
    ir::Value value;
    bool words;
    size_t at;
  };
  std::vector<Early> earlyOf(const Group &group, const std::vector<Sink> &mine, const plan::PairRange &r);
  struct EarlyLoads {
    std::vector<std::vector<Early>> ofRange;
    size_t words = 0, values = 0; ///< of a range, at most
    std::optional<size_t> scales; ///< which value the scales of a pair of packed rows are
  };
  /// The operations that make those of them that stand in no buffer.
  static Slice opsOf(const Group &group, llvm::ArrayRef<Early> early);
  void emitEndValue(const Group &group, const plan::PairRange &r, const Sink &sink, llvm::ArrayRef<Early> early,
                    const Early *beside);
  EarlyLoads emitEarly(const Group &group, const plan::Phase &phase, const plan::Matrix &m);
  void emitEpilogue(const Group &group, const plan::Phase &phase, const plan::Matrix &m, const EarlyLoads &early);
  /// The argmax over the logits, and the rows of logits when they are wanted.
  void emitTake(const std::string &value, const plan::PairRange &r, const plan::Phase &phase);
  void emitBest(const plan::Phase &phase);
};

} // namespace megalith::emit
#endif
