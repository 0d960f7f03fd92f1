//===- Verifier.h - the rules of Ops.def, one operation at a time ---------===//
//
// Verifier.cpp walks the module (structure, scoping, levels). The type rules stand in
// VerifyControl.cpp (with VerifyValues.cpp, VerifyCalls.cpp), VerifyDeclarations.cpp and
// VerifyTensor.cpp. Every function reports the first violation and returns false.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_IR_VERIFIER_H
#define MEGALITH_IR_VERIFIER_H

#include "megalith/IR/IR.h"
#include "megalith/Support/Diagnostics.h"
#include <fmt/format.h>
#include <optional>
#include <set>

namespace megalith::ir {

inline const Type f32 = Type::scalar(Scalar::F32), i32 = Type::scalar(Scalar::I32);
inline const Type boolean = Type::scalar(Scalar::Bool);

/// A value of this type; a bool is a flag, 0 or 1.
bool holds(Number value, Scalar type);
/// Sequences or tables of the same elements, whatever their capacities.
inline bool alike(const Type &a, const Type &b) { return a.isList() && a.kind == b.kind && a.elem == b.elem; }
/// A sequence or table of type `from` always fits into one of type `to`.
inline bool fits(const Type &from, const Type &to) {
  return alike(from, to) && from.inner <= to.inner && (to.size == 0 || (from.size != 0 && from.size <= to.size));
}
/// `from` may stand where `to` is wanted.
inline bool storable(const Type &from, const Type &to) { return from == to || fits(from, to); }

class Verifier {
public:
  Verifier(const Module &module, Diagnostics &diags) : module(module), diags(diags) {}
  bool run();
  /// What executors and plan take for granted beyond that.
  bool runWhole();

private:
  // Structure (Verifier.cpp)
  bool checkNames();
  bool checkPolicyCycles();
  bool checkRegion(const Operation &parent, const Region &region);
  bool checkOp(const Operation &op, const Operation &parent);
  bool checkCounts(const Operation &op);
  bool checkPlace(const Operation &op, const Operation &parent);
  bool checkAttributes(const Operation &op);
  bool checkEffects(const Operation &op, const Operation &parent);
  bool checkRounds(const Operation &op, const Operation &parent);
  bool define(const Operation &op, Value v);

  // A whole module (VerifyWhole.cpp)
  bool checkParams();
  bool checkStates();
  bool checkPlaces();
  bool checkSites();
  bool checkParts();
  bool checkLoops(const Operation &tick);
  bool checkModel(const Operation &op);
  bool checkWindows(const Operation &attention, const Operation &model, int64_t layers);
  /// By the pass that ran last.
  bool isTickLevel() const;

  // Type rules; operands are known to be defined, and all counts to be right.
  bool checkControlOp(const Operation &op);
  bool checkAdmission(const Operation &op, const std::string &state);
  bool checkOrder(const Operation &op);
  bool checkInput(const Operation &op);
  bool isNumbers(const Operation &op, unsigned i);
  bool checkDeclaration(const Operation &op);
  bool checkArithmetic(const Operation &op);
  bool checkSequenceOp(const Operation &op);
  bool checkCall(const Operation &op);
  bool checkLastRow(const Operation &op);
  bool checkReduce(const Operation &op);
  std::string reducedWords(const Operation &reduce) const;
  bool checkResults(const Operation &op);
  bool checkPolicyOp(const Operation &op);
  bool checkGoto(const Operation &op);
  bool checkTensorOp(const Operation &op);
  bool checkElementwise(const Operation &op);
  bool checkWeightRead(const Operation &op);
  bool checkProduct(const Operation &op);
  bool checkRepeat(const Operation &op);
  bool checkGroup(const Operation &op);
  bool checkTurned(const Operation &op);
  bool checkPair(const Operation &product, const std::vector<const Operation *> &products);
  bool checkSegment(const Operation &op);
  /// The weight `@name` of the enclosing model, legal to read here; null after a report.
  const Operation *weight(const Operation &op);
  const Operation *weightNamed(llvm::StringRef name) const;
  bool checkView(const Operation &op);
  bool checkScheme(const Operation &op);

  // Helpers
  bool fail(const Operation &op, std::string text);
  bool declared(const Operation &op, Op kind, llvm::StringRef name);
  bool resultIs(const Operation &op, Type type);
  bool operandIs(const Operation &op, unsigned i, Type type);
  /// The region of `op` ends in a yield of these types.
  bool yields(const Operation &op, std::vector<Type> types, unsigned region = 0);
  /// The one value that a region yields; no type after a report.
  std::optional<Type> yielded(const Operation &op, unsigned region = 0);
  bool checkOver(const Operation &op);
  bool checkBufferOp(const Operation &op);
  bool checkBufferRange(const Operation &op);
  const Operation *bufferNamed(const Operation &op, llvm::StringRef name);
  /// A pipeline of buffers has other parts.
  bool checkBuffers();
  const Operation *terminator(const Operation &op, unsigned region = 0) const;
  const Type &operandType(const Operation &op, unsigned i) const { return module.type(op.operands[i]); }

  const Module &module;
  Diagnostics &diags;
  bool tickLevel = false;           ///< after `form-ticks`
  bool tensor = false;              ///< inside a segment
  const Operation *model = nullptr; ///< the model being checked
  bool seated = true;               ///< the stage or part being checked has a slot
  const Operation *pure = nullptr;  ///< around here: a region that must change nothing
  int64_t resumed = -1;             ///< the call site after which the part stands
  int64_t repeatCount = 0;          ///< of the enclosing `repeat`; 0 outside
  std::vector<bool> defined;        ///< visible here
  std::vector<bool> seen;           ///< defined anywhere so far
};

} // namespace megalith::ir
#endif
