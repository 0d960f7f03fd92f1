//===- IR.h - operations, values, regions ---------------------------------===//
//
// One tree of operations holds a whole compilation: `module` contains params,
// fields, states, pools, policies, stages (pipe level) or the tick (tick level),
// and the models with their segments (tensor level). Every level has the same
// textual form, printed by print() and read back by parse():
//
//   %a, %b = mnemonic @name(%x, %y) {key = value} : type, type @0:12:5 { ... }
//
// Operations are values; a pass builds a new module from an old one. docs/ir.md
// documents every operation's attributes and semantics.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_IR_IR_H
#define MEGALITH_IR_IR_H

#include "megalith/Contract/Limits.h"
#include "megalith/IR/Attributes.h"
#include "megalith/Support/SourceLoc.h"
#include "megalith/Support/WeightView.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cassert>
#include <map>
#include <string>
#include <vector>

namespace megalith::ir {

/// The type of a value.
///   scalar   `i32`
///   seq      `token<64>`          vector with capacity 64 and a run-time length
///                                 (capacity 0, `token<>`: unbounded, a view of what the request has)
///   table    `token<4, 3>`        at most 4 sequences of at most 3, each with a length of its own
///   rows     `[R, 2048] bf16`     one line of 2048 per row of the pass; `[R, 1] f32` = one scalar per row
///   vector   `[2048] bf16`        a weight vector, the same for every row
///   kv       `kv`                 orders attention after the append of this layer's K and V
struct Type {
  enum Kind : uint8_t { ScalarKind, Seq, Table, Rows, Vector, Kv } kind = ScalarKind;
  Scalar elem = Scalar::I32;
  int64_t size = 0;  ///< capacity (seq), sequences (table), columns (rows), length (vector)
  int64_t inner = 0; ///< of a table: capacity of each sequence

  static Type scalar(Scalar s) { return {ScalarKind, s, 0}; }
  static Type seq(int64_t capacity, Scalar s = Scalar::Token) { return {Seq, s, capacity}; }
  static Type table(int64_t rows, int64_t capacity, Scalar s) { return {Table, s, rows, capacity}; }
  static Type rows(int64_t columns, Scalar s) { return {Rows, s, columns}; }
  static Type vector(int64_t length, Scalar s) { return {Vector, s, length}; }
  static Type kv() { return {Kv, Scalar::BF16, 0}; }
  bool is(Scalar s) const { return kind == ScalarKind && elem == s; }
  bool isList() const { return kind == Seq || kind == Table; }
  /// What stands at one place of a sequence or table.
  Type item() const { return kind == Table ? seq(inner, elem) : scalar(elem); }
  bool operator==(const Type &) const = default;
  std::string str() const;
};

/// A value: the index of its entry in Module::values. Ids are unique in a module.
struct Value {
  uint32_t id = UINT32_MAX;
  explicit operator bool() const { return id != UINT32_MAX; }
  bool operator==(const Value &) const = default;
  auto operator<=>(const Value &) const = default;
};

struct Operation;

struct Region {
  std::vector<Value> args;
  std::vector<Operation> ops;
};

struct Operation {
  Op op = Op::Module;
  /// The symbol printed as `@name`: a declaration's own name, or the one it refers to.
  std::string name;
  llvm::SmallVector<Value, 3> operands;
  llvm::SmallVector<Value, 1> results;
  Attributes attrs;
  std::vector<Region> regions;
  SourceLoc loc;
  /// Where IR text has the operation; no place when lowering or a pass made it.
  SourceLoc written;

  /// `op.get<attr::pages>()`: what Attributes.def says of that name, or its default there.
  template <typename Name> AttrRead<Name> get() const { return attrs.get<Name>(op); }
  /// Whether it stands there by itself.
  template <typename Name> bool has() const { return attrs.find(Name::text) != nullptr; }
  template <typename Name> void set(AttrValue<Name> value) { attrs.set<Name>(std::move(value)); }
  /// A word that the language has for it, too.
  template <typename Name> void setWord(llvm::StringRef text) { set<Name>(*wordNamed<AttrValue<Name>>(text)); }
  template <typename Name> void erase() { attrs.erase<Name>(); }
  /// The names of the flags that are on, in the order of the list.
  std::vector<std::string> flags() const;
  Region &region(unsigned i = 0) { return regions[i]; }
  const Region &region(unsigned i = 0) const { return regions[i]; }
  Value result(unsigned i = 0) const { return results[i]; }
};

/// What is known of a value besides its place: type and a name hint.
struct ValueInfo {
  Type type;
  std::string hint;
};

/// A whole compilation.
class Module {
public:
  Operation root; ///< Op::Module; `after` = the last pass run ("lower" at first)
  std::vector<ValueInfo> values;

  Value newValue(Type type, llvm::StringRef hint = "");
  const Type &type(Value v) const { return values[v.id].type; }
  llvm::StringRef hint(Value v) const { return values[v.id].hint; }

  std::vector<Operation> &ops() { return root.regions[0].ops; }
  const std::vector<Operation> &ops() const { return root.regions[0].ops; }
  std::string after() const { return root.get<attr::after>(); }

  /// The first child of `module` of that kind and name; null if absent.
  const Operation *find(Op op, llvm::StringRef name) const;
  Operation *find(Op op, llvm::StringRef name);
  /// All children of that kind, in order.
  std::vector<const Operation *> all(Op op) const;
  /// An integer param's value (`param @name {value = ...}`); asserts that it exists.
  int64_t param(llvm::StringRef name) const;
  /// The file that `loc` is in, and `file:line` as UTF-8; empty when there is no place.
  std::string path(SourceLoc loc) const;
  std::string place(SourceLoc loc) const;
};

/// Appends operations to a region, making result values.
class Builder {
public:
  Builder(Module &module, Region &region) : module(module), region(&region) {}
  SourceLoc loc;

  /// `hint` names every result. The operation starts with as many empty regions as
  /// Ops.def says (`if`: one; add the second when there is an else). The reference
  /// holds until the next operation is added to the same region.
  Operation &create(Op op, llvm::ArrayRef<Value> operands = {}, llvm::ArrayRef<Type> results = {},
                    llvm::StringRef hint = "");
  Value value(Op op, llvm::ArrayRef<Value> operands, Type result, llvm::StringRef hint = "") {
    return create(op, operands, {result}, hint).result();
  }
  Value constant(int64_t v, Scalar type = Scalar::I32);
  Value constant(double v, Scalar type = Scalar::F32);
  void setRegion(Region &r) { region = &r; }
  Module &module;

private:
  Region *region;
};

/// Calls `f` on every operation of `region`, parents before children.
void walk(Region &region, llvm::function_ref<void(Operation &)> f);
void walk(const Region &region, llvm::function_ref<void(const Operation &)> f);

/// Replaces every use of `from` below `region` by `to`.
void replaceUses(Region &region, Value from, Value to);

/// A copy of `op` and all below it with values of its own. Operands found in `map` are
/// replaced; `map` receives the copies of the values that `op` defines.
Operation clone(Module &module, const Operation &op, std::map<Value, Value> &map);

/// Capacity of what a field keeps, and of every sequence but views.
inline constexpr int64_t mostCapacity = limits::capacity;

/// The type of a `field`, `policy.state` or `input`. A longer input than a field can be is a view, `token<>`.
Type declaredType(const Operation &declaration);

/// The models in the order of their pools, then those without. Everywhere in a kernel this is their number. Requests
/// have the tokens of the first one.
std::vector<const Operation *> modelsByNumber(const Module &module);

/// The windows of attention in the layers that append K and V, one for each; 0: none.
std::vector<int64_t> windowsOf(const Operation &model);
/// What K and V of these layers are.
std::vector<WeightFormat> kvFormats(const Module &module, const Operation &model);

/// How many tensors of the checkpoint a `weight` is: one, or one for each layer.
int64_t tensorsOf(const Operation &weight);
/// The shape of its tensors.
const std::vector<int64_t> &storedShape(const Operation &weight);
/// Where its elements stand in a tensor.
WeightView viewOf(const Operation &weight);
/// How its tensors are coded. Those of a view are coded as a whole.
WeightScheme schemeOf(const Operation &weight);
/// The weight of this name of a model, or the one whose storage that has.
const Operation &storageOf(const Operation &model, llvm::StringRef name);

/// Number of uses of each value below `region` (index = value id).
std::vector<unsigned> countUses(const Module &module, const Region &region);

} // namespace megalith::ir
#endif
