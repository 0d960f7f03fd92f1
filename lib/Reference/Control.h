//===- Control.h - control operations of one request -----------------------===//
//
// Statements, and what they read of the request. Values.h has the operations on values.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_REFERENCE_CONTROL_H
#define MEGALITH_LIB_REFERENCE_CONTROL_H

#include "Machine.h"
#include "Values.h"

namespace megalith::reference {

/// Interprets control operations for one request.
class Control : Values {
public:
  Control(Machine &machine, Running &r, int64_t tick)
      : Values(machine.program.module, r.env), machine(machine), program(machine.program), r(r), tick(tick) {
    if (r.env.empty())
      r.env.resize(program.module.values.size());
  }

  /// Where the operations of a region ended.
  enum class Flow { End, Yield, Goto, Suspended };
  Flow runRegion(const ir::Region &region, size_t first);
  int target = -1; ///< of the `goto`
  std::vector<int64_t> keysOf(const ir::Operation &order);

private:
  void evaluate(const ir::Region &region) override { runRegion(region, 0); }
  Flow runOp(const ir::Operation &op);
  /// One that control does not branch at: gives its results, and has its effects.
  void compute(const ir::Operation &op);
  void requestValue(const ir::Operation &op);
  int32_t hostNumber(ir::HostNumber number) const;
  void poolValue(const ir::Operation &op);
  void keep(int pool, int64_t count);
  void keepPath(int pool, const ir::Operation &op);
  void takeRows(const ir::Operation &op);
  void append(const ir::Operation &op);
  void setField(const ir::Operation &op);
  void repeat(const ir::Operation &op);
  void observe(const ir::Operation &op);
  void suspend(const ir::Operation &op);
  ReducerInput inputOf(const ir::Operation &reduce);
  void lookup(const ir::Operation &op);
  void forced(const ir::Operation &op);

  const ir::Operation &policy(const std::string &name) const;

  Machine &machine;
  const Program &program;
  Running &r;
  int64_t tick;
};

} // namespace megalith::reference
#endif
