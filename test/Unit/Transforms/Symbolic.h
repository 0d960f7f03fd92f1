//===- Symbolic.h - what a model computes, as one number per value --------===//
//
// Two values get the same number exactly when they are the same operations on
// the same inputs, however `stream` and `map` group them. A pass that only
// regroups operations leaves the numbers of logits and KV appends as they were.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TEST_UNIT_TRANSFORMS_SYMBOLIC_H
#define MEGALITH_TEST_UNIT_TRANSFORMS_SYMBOLIC_H

#include "megalith/IR/IR.h"
#include "megalith/IR/Text.h"
#include <map>
#include <set>
#include <string>

namespace megalith::test {

class Symbolic {
public:
  struct Meaning {
    int logits = 0;           ///< of the last segment's first result
    std::set<int> appends;    ///< every kv.append
    std::multiset<int> plain; ///< every operation that is no group, constant or copy of one
  };

  /// `model` must stand in `module`. Numbers are comparable between calls.
  Meaning of(const ir::Module &module, const ir::Operation &model) {
    Meaning meaning;
    std::map<ir::Value, int> env;
    std::vector<int> passed;
    for (const ir::Operation &child : model.region().ops) {
      if (child.op != ir::Op::Segment)
        continue;
      for (size_t i = 0; i < child.region().args.size(); ++i)
        env[child.region().args[i]] = passed[i];
      passed = run(module, child.region(), env, meaning);
    }
    meaning.logits = passed.empty() ? -1 : passed.front();
    return meaning;
  }

  int number(const std::string &text) { return numbers.try_emplace(text, numbers.size()).first->second; }

private:
  std::vector<int> run(const ir::Module &module, const ir::Region &region, std::map<ir::Value, int> &env,
                       Meaning &meaning) {
    for (const ir::Operation &op : region.ops) {
      std::string text = ir::mnemonic(op.op).str() + "@" + op.name;
      for (ir::Value v : op.operands)
        text += "," + std::to_string(env.at(v));
      switch (op.op) {
      case ir::Op::Yield: {
        std::vector<int> result;
        for (ir::Value v : op.operands)
          result.push_back(env.at(v));
        return result;
      }
      case ir::Op::Stream:
      case ir::Op::Map: {
        std::vector<int> result = run(module, op.region(), env, meaning);
        for (size_t i = 0; i < op.results.size(); ++i)
          env[op.results[i]] = result[i];
        break;
      }
      case ir::Op::Repeat: {
        for (size_t i = 0; i < op.region().args.size(); ++i)
          env[op.region().args[i]] = number("argument " + std::to_string(i));
        for (int v : run(module, op.region(), env, meaning))
          text += ";" + std::to_string(v);
        for (size_t i = 0; i < op.results.size(); ++i)
          env[op.results[i]] = number(text + "#" + std::to_string(i));
        break;
      }
      default: {
        for (const auto &[key, value] : op.attrs)
          if (key != "pair" && key != "partner" && !(key == "dim" && op.op == ir::Op::MatMul))
            text += " " + key + "=" + attribute(value);
        int id = number(text + module.type(op.result()).str());
        env[op.result()] = id;
        if (op.op == ir::Op::KvAppend)
          meaning.appends.insert(id);
        if (op.op != ir::Op::Const && op.op != ir::Op::WeightGet && op.op != ir::Op::RopeCos &&
            op.op != ir::Op::RopeSin)
          meaning.plain.insert(id);
      }
      }
    }
    return {};
  }

  static std::string attribute(const ir::Attr &attr) {
    if (auto *i = std::get_if<int64_t>(&attr))
      return std::to_string(*i);
    if (auto *f = std::get_if<double>(&attr))
      return std::to_string(*f);
    if (auto *s = std::get_if<std::string>(&attr))
      return *s;
    return "?";
  }

  std::map<std::string, int> numbers;
};

} // namespace megalith::test
#endif
