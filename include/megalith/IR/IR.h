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

#include "megalith/Support/SourceLoc.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cassert>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace megalith::ir {

enum class Op : uint16_t {
#define OP(Enum, Mnemonic, Operands, Results, Regions, Levels) Enum,
#include "megalith/IR/Ops.def"
};

/// Number of operations in Ops.def.
constexpr unsigned numOps = 0
#define OP(Enum, Mnemonic, Operands, Results, Regions, Levels) +1
#include "megalith/IR/Ops.def"
    ;

struct OpInfo {
  const char *mnemonic;
  int operands, results, regions; ///< exact counts; -1 = any
  const char *levels;             ///< letters of Ops.def
};
const OpInfo &opInfo(Op op);
llvm::StringRef mnemonic(Op op);

/// Element types.
enum class Scalar : uint8_t { I32, I64, U32, F32, BF16, F16, Bool, Token };
llvm::StringRef scalarName(Scalar s);

/// The type of a value.
///   scalar   `i32`
///   seq      `token<64>`          vector with capacity 64 and a run-time length
///                                 (capacity 0, `token<>`: unbounded, a view of the request's tokens)
///   rows     `[R, 2048] bf16`     one line of 2048 per row of the pass; `[R, 1] f32` = one scalar per row
///   vector   `[2048] bf16`        a weight vector, the same for every row
///   kv       `kv`                 orders attention after the append of this layer's K and V
struct Type {
  enum Kind : uint8_t { ScalarKind, Seq, Rows, Vector, Kv } kind = ScalarKind;
  Scalar elem = Scalar::I32;
  int64_t size = 0; ///< capacity (seq), columns (rows), length (vector)

  static Type scalar(Scalar s) { return {ScalarKind, s, 0}; }
  static Type seq(int64_t capacity, Scalar s = Scalar::Token) { return {Seq, s, capacity}; }
  static Type rows(int64_t columns, Scalar s) { return {Rows, s, columns}; }
  static Type vector(int64_t length, Scalar s) { return {Vector, s, length}; }
  static Type kv() { return {Kv, Scalar::BF16, 0}; }
  bool is(Scalar s) const { return kind == ScalarKind && elem == s; }
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

/// Attribute: bool prints as `key` (true only), i64, f64 (always with a point or
/// exponent), string ("..."), list of i64, list of string.
using Attr = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                          std::vector<std::string>>;

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
  std::map<std::string, Attr, std::less<>> attrs;
  std::vector<Region> regions;
  SourceLoc loc;

  bool has(llvm::StringRef key) const { return attrs.find(std::string_view(key)) != attrs.end(); }
  int64_t getInt(llvm::StringRef key, int64_t otherwise = 0) const;
  double getFloat(llvm::StringRef key, double otherwise = 0) const;
  bool getBool(llvm::StringRef key) const;
  std::string getString(llvm::StringRef key, llvm::StringRef otherwise = "") const;
  std::vector<int64_t> getInts(llvm::StringRef key) const;
  std::vector<std::string> getStrings(llvm::StringRef key) const;
  void set(llvm::StringRef key, Attr value) { attrs[key.str()] = std::move(value); }
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
  void setType(Value v, Type t) { values[v.id].type = t; }
  llvm::StringRef hint(Value v) const { return values[v.id].hint; }

  std::vector<Operation> &ops() { return root.regions[0].ops; }
  const std::vector<Operation> &ops() const { return root.regions[0].ops; }
  std::string after() const { return root.getString("after"); }

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

/// Number of uses of each value below `region` (index = value id).
std::vector<unsigned> countUses(const Module &module, const Region &region);

} // namespace megalith::ir
#endif
