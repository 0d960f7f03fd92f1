//===- Names.h - the user's names in the emitted source -------------------===//
//
// What a pipeline or a model file names stands in places that hold nothing else, and
// is reached through them, so that it neither meets nor hides a name of the device code
// or of this emitter:
//
//   State::X  Metric::x  Gauge::x      scoped enumerations
//   r.x                                members of `struct Fields`
//   t.r.inputs.x                       members of `struct Inputs`
//   stages::x(t)  calls::X             functions of stages, and where they call the model
//   phases::x  matrices::X  pools::X   functions and constants of a model; of several models all that is of model x
//                                      stands in models::x_
//   b.x(layer)                         members of `struct Buffers`, and of Images
//   x                                  a local of a stage; beside it stand only `t` and `r`,
//                                      whose members are all else that a stage calls
//   x_                                 a weight or a value in a function of a model, which
//                                      has many variables of its own, none with a last `_`
//
// A name stays itself there, but for what the language takes: its keywords get a `_`
// more, and those with a first `_`, which are the compilers' (as are all macros of theirs
// that the source sees, see driver::assemble), a `v` before it.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_EMIT_NAMES_H
#define MEGALITH_LIB_EMIT_NAMES_H

#include "megalith/Plan/Plan.h"
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace megalith::emit {

/// `name` as an identifier: `block.size` -> `block_size`, `float` -> `float_`, `_x` -> `v_x`.
std::string cppName(llvm::StringRef name);
/// `fill_cache` -> `FillCache`.
std::string typeName(llvm::StringRef name);
/// `fill_cache` -> `fillCache`.
std::string functionName(llvm::StringRef name);
/// `h` -> `h_`: in a function of a model.
std::string localName(llvm::StringRef name);

/// Names that stand in one place: no two are equal.
class NameSet {
public:
  /// `own`: what stands there already.
  NameSet(std::initializer_list<std::string> own = {}) : taken(own) {}
  /// `name`, or with a number after it.
  std::string claim(const std::string &name);

private:
  std::set<std::string> taken;
};

/// The variables of one function. A copy is for a scope in it: it meets none of those around it.
class Locals {
public:
  static Locals ofStage() { return Locals(cppName, {"t", "r"}); }
  static Locals ofItems() { return Locals(cppName, {"t", "d", "x", "T"}); }
  static Locals ofModel() { return Locals(localName, {}); }
  /// A new one, called as `hint` says, or `otherwise` where there is no hint. `more` comes after it.
  std::string variable(llvm::StringRef hint, llvm::StringRef otherwise = "", llvm::StringRef more = "");

private:
  Locals(std::string (*word)(llvm::StringRef), NameSet names) : word(word), names(std::move(names)) {}
  std::string (*word)(llvm::StringRef);
  NameSet names;
};

/// The names of the control half of the source, made once.
struct ControlNames {
  explicit ControlNames(const ir::Module &module);

  std::map<std::string, std::string> fields, inputs, states, metrics, gauges, pools; ///< by the name in the IR
  std::vector<std::string> parts;       ///< in `stages`, by position in the tick; "" of a pass
  std::map<int64_t, std::string> sites; ///< in `calls`, by number
};

/// The names of a model's half, made once.
struct Names {
  Names(const ir::Operation &model, const plan::Plan &plan, int number);

  struct Segment {
    std::string role;              ///< "Body" or "Head"
    std::string function, windows; ///< in `phases`
  };
  int number;                        ///< of the model
  std::string space;                 ///< the namespace of all that is the model's; empty where there is one model
  std::string pool;                  ///< in `pools`
  std::vector<std::string> matrices; ///< in `matrices`, by index
  std::vector<std::string> buffers;  ///< in Buffers and Images, by index
  std::vector<Segment> segments;
  std::map<const plan::Phase *, std::string> phases; ///< in `phases`
  std::map<const plan::Phase *, std::string> makers; ///< there: functions of what attention makes for itself
  std::map<std::string, std::string> weights;        ///< locals, by the weight's name
  Locals locals = Locals::ofModel();                 ///< of a function: the weights alone

  std::string matrix(int64_t index) const { return "matrices::" + matrices[index]; }
  std::string kv() const { return "pools::" + pool; }
  /// Its ModelParams.
  std::string params() const { return "p.models[" + std::to_string(number) + "]"; }
  /// What stands in the model's namespace, if it has one, from outside.
  std::string outside(const std::string &name) const { return space.empty() ? name : space + "::" + name; }
  /// The rows of a value, as a member of Buffers and of Images: `x(layer + 1)`.
  std::string rows(const plan::ModelPlan &planned, const plan::Place &place) const;
};

} // namespace megalith::emit
#endif
