//===- Values.h - operations on values ------------------------------------===//
//
// What an operation gives by its operands alone: arithmetic, sequences, and what goes through a range. Of a request
// (Control.h), and of an item of a stage over buffers (Buffers.cpp).
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_REFERENCE_VALUES_H
#define MEGALITH_LIB_REFERENCE_VALUES_H

#include "Program.h"
#include "megalith/Requests/Trace.h"

namespace megalith::reference {

enum class Fault : int32_t {
#define FAULT(Enum, Code, Name, Text, Numbers) Enum = Code,
#include "megalith/Contract/Faults.def"
};
const char *faultName(Fault fault);

/// Thrown by operations that end the request, or the call.
struct FaultSignal {
  Fault fault;
  SourceLoc loc; ///< of the operation
  FaultNumbers numbers = {};
};

class Values {
public:
  /// `env` has room for all values of the module, or gets it before the first operation.
  Values(const ir::Module &module, std::vector<Val> &env) : module(module), env(env) {}
  virtual ~Values() = default;

protected:
  /// Runs a region that yields.
  virtual void evaluate(const ir::Region &region) = 0;

  void arithmetic(const ir::Operation &op);
  void choose(const ir::Operation &op);
  void sequence(const ir::Operation &op);
  std::pair<int32_t, int32_t> range(const ir::Operation &op);
  void over(const ir::Operation &op); ///< of a range
  void follow(const ir::Operation &op);
  void tree(const ir::Operation &op);

  Val &value(ir::Value v) { return env[v.id]; }
  Val &operand(const ir::Operation &op, unsigned i) { return value(op.operands[i]); }
  Val &result(const ir::Operation &op) { return value(op.result()); }
  void set(const ir::Operation &op, int32_t i) { result(op).i = i; }
  bool isF32(ir::Value v) const { return module.type(v).is(ir::Scalar::F32); }

  const ir::Module &module;

private:
  const Val &body(const ir::Operation &op, int32_t i, unsigned which = 0);
  int32_t countWhile(const ir::Operation &op, bool stopAtFirst);
  void fold(const ir::Operation &op);
  void stored(const ir::Operation &op);
  Val item(const ir::Operation &op, const Val &list, int64_t i) const;

  std::vector<Val> &env;
};

} // namespace megalith::reference
#endif
