//===- Calls.h - what a call of a model can feed --------------------------===//
#ifndef MEGALITH_IR_CALLS_H
#define MEGALITH_IR_CALLS_H

#include "megalith/IR/IR.h"
#include "llvm/ADT/ArrayRef.h"
#include <map>

namespace megalith::ir {

/// Rows that one pass can have of this `call` or `issue`: what it is fed, but at most `chunk` and
/// `rows_per_pass`, and limits::readRows of one of which more than the last row is read, or whose rows may be no chain.
/// The one place that says so for the IR; lib/Sema/Calls.cpp has checked the same of the YAML.
int64_t mostRows(const Module &module, const Operation &call);
/// By what is fed and the two bounds of a call alone; 0: as many as there are.
int64_t mostRows(const Type &fed, int64_t chunk, int64_t most);

/// Rows of a pass that calls with `chunk` have at most, all together, while another request holds a slot. As many as a
/// pass has where the module says nothing.
int64_t rowsBeside(const Module &module);

/// What a `call` or `issue` makes of its logits: its `reduce` operations, one for each of the call's results. Without
/// any no logits are wanted.
llvm::ArrayRef<Operation> reducersOf(const Operation &call);

/// Whether a `reduce` of a call or issue is the argmax of all rows that are read: Row::result alone.
bool isBestOfRows(const Operation &call, const Operation &reduce);

/// Whether a `reduce` reads the logits, and no other result of its model.
bool readsLogits(const Operation &reduce);

/// The operand that the attribute `with` of an operation names so; none where it has none.
Value operandNamed(const Operation &op, Operand name);

/// Whether a reducer with this operand has a result for some of the call's rows alone.
bool choosesRows(Operand operand);

/// Whether rows of the model may be no chain: some call says what its rows hang on, or what they see.
bool mayBeTrees(const Module &module, llvm::StringRef model);

/// Whether rows that a run of a stage has fed count for a later call of it, or for what the stage reads: it may call
/// the model with `kv = "draft"` twice, or reads `kv.drafts`. Of trees they always do.
bool draftsContinue(const Module &module, llvm::StringRef model);

/// The operations of a stage, and those of its loops with calls: fn(operation, how often a run comes to it at most).
template <class Fn> void forEachInRounds(const Region &code, Fn fn, int64_t rounds = 1) {
  for (const Operation &op : code.ops) {
    fn(op, rounds);
    if (op.op == Op::For && op.has<attr::rounds>())
      forEachInRounds(op.region(), fn, rounds * op.get<attr::rounds>());
  }
}

/// The `enter` that a part of a tick ends in; null: it ends in something else, or is a pass.
const Operation *enterOf(const Operation &entry);

/// How often a run of a stage comes at most to each entry of a tick's list: the rounds of the loops around it.
std::vector<int64_t> roundsOfEntries(const Operation &tick);

/// Whether some calls stand in loops of the tick.
bool hasLoops(const Module &module);

/// Whether some loop with calls stands in another one.
bool loopsNest(const Module &module);

/// Why the rows of the model never say how likely the tokens of a prompt were; empty: they do, where the pipeline feeds
/// it. Rows of calls with `kv = "draft"` do not count. Nor do calls that begin with the request's last token: of a
/// prompt nothing comes after it.
std::string whyNoPromptRows(const Module &module, llvm::StringRef model);

/// Room for the tokens that the calls of one stage feed to the model in a run: a pass of rows for each call and round.
/// Without a name: to the only one.
int64_t callTokens(const Module &module, llvm::StringRef model);

/// Rows that earlier calls of a run of one stage may have fed to the model before another call of it, where these may
/// be trees; else 0.
int64_t earlierRows(const Module &module, llvm::StringRef model);

/// The fields that keep rows of logits.
std::vector<const Operation *> keptFields(const Module &module);

/// Tokens of a row that a field keeps: those of the model whose calls it keeps rows of; of none 0. Where fields keep
/// rows of models with other numbers of tokens, `other` becomes a reducer that says so.
int64_t keptVocab(const Module &module, const Operation *&other);

/// Why the pipeline has no settings of requests that change rows of logits (docs/language.md, "Settings that follow a
/// row's own text"): all tokens that the first model gives have to be drawn under them. `byText`: of those that go by
/// the text in front of a token, which has to be known. Empty: it has them.
std::string whyNoEdits(const Module &module, bool byText);

/// Tokens of the model that has most.
int64_t mostVocab(const Module &module);

} // namespace megalith::ir
#endif
