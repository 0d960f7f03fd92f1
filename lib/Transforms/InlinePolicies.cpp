//===- InlinePolicies.cpp - policies become fields and arithmetic ---------===//
//
//   policy.read @p {output = "o"}   the body of `policy.output @o`
//   observe @p(%a, %b)              the body of `policy.observe` on %a, %b
//   policy.get/set @p {state = "s"} field.get/set @"p.s"
//
// An output is evaluated where it is read; it may read other outputs of any policy.
//===----------------------------------------------------------------------===//
#include "ControlUtil.h"
#include "megalith/Transforms/Passes.h"

namespace megalith::transforms {

using namespace ir;

namespace {

class Inliner {
public:
  explicit Inliner(Module &module) : module(module), policies(module.root.region()) {}

  void run() {
    std::vector<Operation> kept, fields;
    for (Operation &op : module.ops()) {
      if (op.op == Op::Policy) {
        for (const Operation &state : op.region().ops)
          if (state.op == Op::PolicyState)
            fields.push_back(field(op, state));
        continue;
      }
      if (op.op == Op::Stage)
        rewrite(op.region(), /*isOutput=*/false);
      kept.push_back(std::move(op));
    }
    module.ops() = std::move(kept);
    insertFields(module, std::move(fields));
  }

private:
  static std::string fieldName(const std::string &policy, const std::string &state) { return policy + "." + state; }

  static Operation field(const Operation &policy, const Operation &state) {
    Operation op;
    op.op = Op::Field;
    op.name = fieldName(policy.name, state.name);
    op.attrs = state.attrs;
    op.loc = state.loc;
    return op;
  }

  const Operation &child(const std::string &policy, Op kind, llvm::StringRef name) const {
    for (const Operation &p : policies.ops)
      if (p.op == Op::Policy && p.name == policy)
        for (const Operation &o : p.region().ops)
          if (o.op == kind && o.name == name)
            return o;
    assert(false && "the verifier checked policy references");
    return policies.ops.front();
  }

  using Map = std::map<Value, Value>;

  /// `isOutput`: the region is one evaluation of an output. Nothing changes in it, so
  /// that another output is computed once however often it is read.
  void rewrite(Region &region, bool isOutput, Map map = {}) {
    std::vector<Operation> out;
    std::map<std::pair<std::string, std::string>, Value> known;
    for (Operation &op : region.ops) {
      for (Value &v : op.operands)
        if (auto it = map.find(v); it != map.end())
          v = it->second;
      switch (op.op) {
      case Op::PolicyGet:
      case Op::PolicySet:
        op.name = fieldName(op.name, op.get<attr::state>());
        op.op = op.op == Op::PolicyGet ? Op::FieldGet : Op::FieldSet;
        op.attrs.clear();
        out.push_back(std::move(op));
        break;
      case Op::PolicyRead: {
        std::string output = op.get<attr::output>();
        Value &value = known[{op.name, output}];
        if (isOutput && value) {
          map[op.result()] = value;
          break;
        }
        Region body = copy(child(op.name, Op::PolicyOutput, output), {});
        map[op.result()] = value = body.ops.back().operands[0];
        if (std::string &hint = module.values[value.id].hint; hint.empty()) // its name in the pipeline: the output's
          hint = module.hint(op.result()).str();
        body.ops.pop_back();
        std::move(body.ops.begin(), body.ops.end(), std::back_inserter(out));
        break;
      }
      case Op::Observe: {
        Region body = copy(child(op.name, Op::PolicyObserve, ""), op.operands);
        std::move(body.ops.begin(), body.ops.end(), std::back_inserter(out));
        break;
      }
      default:
        for (Region &inner : op.regions)
          rewrite(inner, isOutput, map);
        out.push_back(std::move(op));
      }
    }
    region.ops = std::move(out);
  }

  /// The body of an output or observe with its arguments replaced, itself rewritten.
  Region copy(const Operation &from, llvm::ArrayRef<Value> arguments) {
    const Region &source = from.region();
    Map map;
    for (size_t i = 0; i < arguments.size(); ++i)
      map[source.args[i]] = arguments[i];
    Region body;
    for (const Operation &op : source.ops)
      body.ops.push_back(clone(module, op, map));
    rewrite(body, from.op == Op::PolicyOutput);
    return body;
  }

  Module &module;
  /// The policies as they were: stages are rewritten while bodies are copied from here.
  const Region policies;
};

} // namespace

Module inlinePolicies(Module module) {
  Inliner(module).run();
  return module;
}

} // namespace megalith::transforms
