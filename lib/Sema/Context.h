//===- Context.h - what all parts of a check know, and have said ----------===//
#ifndef MEGALITH_LIB_SEMA_CONTEXT_H
#define MEGALITH_LIB_SEMA_CONTEXT_H

#include "Scope.h"
#include "megalith/Sema/Buffers.h"
#include <memory>
#include <set>

namespace megalith::sema {

/// A name that is assigned in one stage and read in another.
struct Inferred {
  bool typed = false;
  std::vector<const ast::StageDecl *> setBy;
};

struct Uses {
  std::map<std::string, SourceLoc> freeReads; ///< first read before any assignment
  std::set<std::string> assigned;
  bool appends = false, commits = false;
  std::map<std::string, SourceLoc> drafts; ///< models that are fed drafts after their KV: the first such call
  std::set<std::string> keeps;             ///< models whose KV is kept, by a call or by `kv.M.keep`
  std::string called;                      ///< the model of the first call
  SourceLoc lastFed;                       ///< where that call is, if what it feeds begins with `last`
};

/// What makes a sequence longer in a loop, or moves a number: for notes.
struct Growth {
  SourceLoc loc;
  std::string text;
};

/// Locals that blocks change, by the name of the field that keeps each: all that it can be.
struct Variable {
  Type type;
  SourceLoc loc;
  std::string name;
};

/// What a stage reads of a buffer.
struct BufferRead {
  std::string name;
  std::vector<ExprRef> indices;
  SourceLoc loc;
};

/// What is known of the file so far.
struct Known {
  CheckedPipeline out;

  /// Names whose declaration had an error: their uses stay silent.
  std::set<std::string> bad;
  /// Names and states that were reported as unknown, states without slot that were reported.
  std::set<std::string> unknown, unknownStates, slotless;
  bool looksAhead = false; ///< what is checked is checked again
  bool oddStages = false;  ///< a stage is on no state, or on one that has a stage: others may miss theirs
  std::map<std::string, std::string> declared; ///< name -> "a param", "a field", ...

  /// Fields that keep rows of logits: by name the model, and where that was first said.
  std::map<std::string, std::pair<std::string, SourceLoc>> keptOf;
  std::map<std::string, Inferred> inferred;
  std::map<const ast::StageDecl *, Uses> uses;
  /// Params, fields, inputs, policies with their parts, and models that something reads or calls.
  std::set<std::string> used;
  const Locals *here = nullptr; ///< of the stage or policy that is checked
  std::map<std::string, Growth> growths;
  std::map<std::string, Variable> variables;
  CheckedBuffers buffers;               ///< of a pipeline of buffers
  std::map<std::string, Range> holds;   ///< what all elements of a buffer are known to be
  std::vector<BufferRead> bufferReads;  ///< of the stage that is checked
  std::set<const ast::Stmt *> changing; ///< assignments of a local that a block further inside changes
  /// State -> the stage on it.
  std::map<std::string, const ast::StageDecl *> stageOn;
  /// Rounds of loops that may still be looked at ahead.
  std::shared_ptr<int64_t> roundsAhead = std::make_shared<int64_t>(4000);
};

class Context : public Known {
public:
  Context(const ast::PipelineFile &in, const std::vector<ModelFacts> &facts,
          const std::vector<std::pair<std::string, std::string>> &sets, Diagnostics &diags)
      : in(in), facts(facts), sets(sets), diags(diags) {}
  /// The same, to look ahead: what it finds goes to `unheard`.
  Context(const Context &other, Diagnostics &unheard)
      : Known(other), in(other.in), facts(other.facts), sets(other.sets), diags(unheard) {
    looksAhead = true;
  }

  const ast::PipelineFile &in;
  const std::vector<ModelFacts> &facts;
  const std::vector<std::pair<std::string, std::string>> &sets;
  Diagnostics &diags;

  /// Whether a name has a meaning in this file already. Buffers have no request: its names are free.
  bool isReserved(const std::string &name) const;

  // One mistake, one error.
  /// Whether to report that nothing has this name: not when that was done, or when its declaration had an error.
  bool firstUse(const std::string &name) { return !bad.count(name) && unknown.insert(name).second; }
  void reportUnknown(Diag id, SourceLoc loc, const std::string &name, const std::vector<std::string> &candidates);
  void reportUnknownPool(SourceLoc path, const std::string &name);
  void reportUnknownName(const ast::Expr &e, Scope &scope);
  void reportUnknownState(const ast::Name &name, bool (*fits)(const CheckedState &));
  /// False after a report: a request has no slot there, or it is a policy.
  bool needsSlot(const std::string &what, SourceLoc loc, const Scope &scope);
  std::vector<std::string> visibleNames(const Scope &scope) const;
  std::vector<std::string> functionNames(const Scope &scope) const;

  /// Whether it is a state's name, or chooses between such names.
  bool namesState(const ast::Expr &e) const;
  bool isModel(const std::string &name) const;
  const CheckedPool *pool(const std::string &name) const;
  CheckedField *field(const std::string &name);
  const CheckedInput *input(const std::string &name) const;
  const CheckedParam *param(const std::string &name) const;
  const CheckedPolicy *policy(const std::string &name) const;
  const CheckedState *state(const std::string &name) const;
  const CheckedDim *dim(const std::string &name) const;
  const CheckedBuffer *buffer(const std::string &name) const;
  const ModelFacts *model(const std::string &name) const;
  int64_t slots() const;
  int64_t rowsPerPass() const;
  /// The positions of a request, at most: the smallest pool's, or 65,536 when that has fewer.
  int64_t mostPositions() const;
};

//===--- checks of values: null, false or nothing after a report ------------===//

/// As a value of this type, whatever its length. The report begins with `what`.
ExprRef as(Context &ctx, ExprRef e, const Type &type, const std::string &what, const std::string &wanted);
/// Of what `e` is checked as: no logits, and nothing that can only be named.
ExprRef plain(Context &ctx, const ExprRef &v, const ast::Expr &e);
/// The one type of all these: written numbers take that of the others, wherever they stand.
bool alike(Context &ctx, std::vector<ExprRef> &items, const std::string &what);
/// Sequences have room for `mostCapacity` elements; tables for so many rows, and `mostCells` elements.
/// `of`: what gives it that length, for a note.
bool hasRoom(Context &ctx, const Type &type, const std::string &what, SourceLoc loc, const Expr *of = nullptr);
/// A sequence of all that its operands are put together of. Each is looked at at every element, so there is a limit.
ExprRef together(Context &ctx, std::shared_ptr<Expr> sequence, int pieces);
/// At the end of a stage: of calls of more rows than may be read only the last row is.
void checkLargeReads(Context &ctx, const Locals &locals);
ExprRef concat(Context &ctx, ExprRef a, ExprRef b, SourceLoc loc);
/// Whether a bound or an index counts from the end: a negative constant, or what is written with a minus in front.
bool fromEnd(Context &ctx, ExprRef &bound, const ast::Expr &e, bool isIndex = false);
/// The number that an operation on written numbers is.
ExprRef folded(Context &ctx, const ExprRef &e);
std::optional<Constant> constant(Context &ctx, const ast::Expr &e);
std::optional<Constant> constant(Context &ctx, const Expr &e, const std::string &what);
std::optional<int64_t> constantInt(Context &ctx, const ast::Expr &e, const std::string &what);

/// Whether a name has a meaning in the language already.
bool reservedWord(llvm::StringRef name);
bool isPredefined(llvm::StringRef name);

} // namespace megalith::sema
#endif
