//===- StageBody.h - statements and expressions to operations -------------===//
#ifndef MEGALITH_LIB_LOWER_STAGEBODY_H
#define MEGALITH_LIB_LOWER_STAGEBODY_H

#include "megalith/IR/IR.h"
#include "megalith/Sema/Buffers.h"
#include <map>

namespace megalith {

/// Lowers the code of one stage, `observe` or output into one region.
class StageBody {
public:
  /// `policy` is the policy whose code this is, or empty. `site` numbers the
  /// calls of the whole pipeline.
  StageBody(const CheckedPipeline &pipeline, ir::Module &module, ir::Region &region, std::string policy, int64_t &site)
      : pipeline(pipeline), module(module), builder(module, region), region(&region), policy(std::move(policy)),
        site(site) {}

  /// Values of the arguments of `observe`.
  std::vector<ir::Value> observeArgs;

  void statements(const std::vector<sema::Stmt> &body);
  ir::Value expression(const sema::Expr &e);
  ir::Value constants(const sema::Expr &e);
  void go(const CheckedStage &stage);
  /// Of those that wait for a slot; it stands in front of all statements.
  void order(const std::vector<sema::ExprRef> &keys);
  void yield(ir::Value v, SourceLoc loc);

  // Of a stage over buffers (Buffers.cpp).
  void bind(ir::Region &r, const std::string &name, int depth);
  void statements(const std::vector<BufferStmt> &body);
  void yield(const std::vector<sema::ExprRef> &list, SourceLoc loc);

private:
  void statement(const BufferStmt &s);
  void statement(const sema::Stmt &s);
  void branch(const sema::Stmt &s);
  void repeat(const sema::Stmt &s);
  ir::Value request(const sema::Expr &e);
  template <class Attr> ir::Value named(ir::Op op, const sema::Expr &e, const std::string &of, const std::string &what);
  std::vector<ir::Value> arguments(const sema::Expr &e);
  ir::Value binary(const sema::Expr &e);
  ir::Value tiers(const sema::Expr &e);
  ir::Value at(const sema::Expr &e);
  ir::Value slice(const sema::Expr &e);
  ir::Value filter(const sema::Expr &e);
  ir::Value over(const sema::Expr &e);
  ir::Value choose(SourceLoc loc, ir::Value condition, ir::Type type, llvm::function_ref<ir::Value()> first,
                   llvm::function_ref<ir::Value()> second);
  ir::Value select(const sema::Expr &e);
  ir::Value lookup(const sema::Expr &e);
  const std::vector<ir::Value> &call(const sema::Expr &e);
  ir::Value rowBound(const sema::Expr &e, bool fromEnd);
  ir::Value fieldRead(const sema::Expr &e);
  void readFieldsOf(const sema::Expr &e);
  ir::Value fromEnd(ir::Value base, const sema::Expr &bound);
  ir::Operation &add(ir::Op op, SourceLoc loc, llvm::ArrayRef<ir::Value> operands, ir::Type type,
                     llvm::StringRef name = "");
  ir::Value emit(ir::Op op, SourceLoc loc, llvm::ArrayRef<ir::Value> operands, ir::Type type,
                 llvm::StringRef name = "") {
    return add(op, loc, operands, type, name).result();
  }
  ir::Region inRegion(llvm::function_ref<void(ir::Region &)> lower);

  const CheckedPipeline &pipeline;
  ir::Module &module;
  ir::Builder builder;
  ir::Region *region;
  std::string policy;
  int64_t &site;
  std::map<int, ir::Value> locals;
  std::map<const sema::Expr *, std::vector<ir::Value>> calls; ///< the results of those that were lowered
  std::vector<ir::Value> binders;
  ir::Value treeParents; ///< of the last `tree`
  /// What a field is known to hold since it was last read or set, on this path
  /// and since the last call.
  std::map<std::string, ir::Value> known;
};

inline const ir::Type i32 = ir::Type::scalar(ir::Scalar::I32);
inline const ir::Type boolean = ir::Type::scalar(ir::Scalar::Bool);
/// What a field's name says to a reader: that of a local has its stage in front.
inline std::string shortName(llvm::StringRef name) { return name.substr(name.find_last_of('.') + 1).str(); }
/// Whether the value may end the request: an index may be outside its sequence.
using sema::mayFault;
ir::Scalar scalarOf(sema::Elem e);
ir::Type typeOf(const sema::Type &t);

} // namespace megalith
#endif
