//===- Control.h - control operations of one request -----------------------===//
//
// Control.cpp has statements and what they read of the request, ControlValues.cpp the operations on values.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_REFERENCE_CONTROL_H
#define MEGALITH_LIB_REFERENCE_CONTROL_H

#include "Machine.h"

namespace megalith::reference {

/// Interprets control operations for one request.
class Control {
public:
  Control(Machine &machine, Running &r, int64_t tick) : machine(machine), program(machine.program), r(r), tick(tick) {
    if (r.env.empty())
      r.env.resize(program.module.values.size());
  }

  /// Where the operations of a region ended.
  enum class Flow { End, Yield, Goto, Suspended };
  Flow runRegion(const ir::Region &region, size_t first);
  int target = -1; ///< of the `goto`
  std::vector<int64_t> keysOf(const ir::Operation &order);

private:
  Flow runOp(const ir::Operation &op);
  /// One that control does not branch at: gives its results, and has its effects.
  void compute(const ir::Operation &op);
  void arithmetic(const ir::Operation &op);
  void sequence(const ir::Operation &op);
  void requestValue(const ir::Operation &op);
  int32_t hostNumber(ir::HostNumber number) const;
  void poolValue(const ir::Operation &op);
  void keep(int pool, int64_t count);
  void keepPath(int pool, const ir::Operation &op);
  void takeRows(const ir::Operation &op);
  void append(const ir::Operation &op);
  void setField(const ir::Operation &op);
  int32_t countWhile(const ir::Operation &op, bool stopAtFirst);
  std::pair<int32_t, int32_t> range(const ir::Operation &op);
  const Val &body(const ir::Operation &op, int32_t i, unsigned which = 0);
  void over(const ir::Operation &op); ///< of a range
  void fold(const ir::Operation &op);
  void stored(const ir::Operation &op);
  void follow(const ir::Operation &op);
  void tree(const ir::Operation &op);
  void repeat(const ir::Operation &op);
  Val item(const ir::Operation &op, const Val &list, int64_t i) const;
  void observe(const ir::Operation &op);
  void suspend(const ir::Operation &op);
  ReducerInput inputOf(const ir::Operation &reduce);
  void lookup(const ir::Operation &op);

  Val &value(ir::Value v) { return r.env[v.id]; }
  Val &operand(const ir::Operation &op, unsigned i) { return value(op.operands[i]); }
  Val &result(const ir::Operation &op) { return value(op.result()); }
  void set(const ir::Operation &op, int32_t i) { result(op).i = i; }
  bool isF32(ir::Value v) const { return program.module.type(v).is(ir::Scalar::F32); }
  const ir::Operation &policy(const std::string &name) const;

  Machine &machine;
  const Program &program;
  Running &r;
  int64_t tick;
};

} // namespace megalith::reference
#endif
