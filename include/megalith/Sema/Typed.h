//===- Typed.h - expressions and statements after checking ----------------===//
//
// The same shape as the AST, with names resolved, types known and literals
// converted. Every node keeps its source range. Integer values carry an interval
// and sequences a capacity: the upper bounds that capacity analysis needs.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_SEMA_TYPED_H
#define MEGALITH_SEMA_TYPED_H

#include "megalith/Contract/Limits.h"
#include "megalith/IR/Scalar.h"
#include "megalith/Support/SourceLoc.h"
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace megalith::sema {

/// Element types of pipeline code. `Logits` is what a model call yields: a lazy value of rows, of
/// which row reducers read some. It is never stored. `Kept` is that of rows of logits which a field keeps: its value is
/// the best token of each, and the rows themselves stand beside it. `None` is that of `[]`, as long as nothing says
/// what else the name can be.
enum class Elem : uint8_t { I32, F32, Bool, Token, Logits, Kept, None };

/// Capacity of a sequence that only views the request's tokens.
inline constexpr int64_t Unbounded = INT64_C(1) << 40;
/// Tokens of a field, and of every sequence that is no view.
inline constexpr int64_t mostCapacity = limits::capacity;
/// Of an input, which is a view, too: no more than a request may have positions with any pool (mostPositions).
inline constexpr int64_t mostInputCapacity = limits::inputCapacity;

struct Type {
  Elem elem = Elem::I32;
  bool seq = false;
  int64_t capacity = 0; ///< of a sequence, or of each row of a table; Unbounded: a view
  bool table = false;   ///< a sequence of sequences (`seq` is false then)
  int64_t rows = 0;     ///< of a table, at most

  static Type scalar(Elem e) { return {e, false, 0}; }
  static Type sequence(int64_t capacity, Elem e = Elem::Token) { return {e, true, capacity}; }
  static Type tableOf(int64_t rows, int64_t capacity, Elem e) { return {e, false, capacity, true, rows}; }
  bool isScalar() const { return !seq && !table; }
  bool is(Elem e) const { return isScalar() && elem == e; }
  bool isSequence(Elem e) const { return seq && elem == e; }
  /// A sequence and a table of the same scalars are of different shapes, whatever their capacities.
  bool sameShape(const Type &other) const { return seq == other.seq && table == other.table; }
  /// How many elements, or rows, there are at most.
  int64_t length() const { return table ? rows : capacity; }
  /// What `s[i]` is.
  Type item() const { return table ? sequence(capacity, elem) : scalar(elem); }
  /// The same with another number of elements or rows at most.
  Type withLength(int64_t most) const {
    Type t = *this;
    (table ? t.rows : t.capacity) = most;
    return t;
  }
  bool operator==(const Type &) const = default;
  /// As the language spells it: `i32`, `token[8]`, `token[]`, `f32[4, 3]`.
  std::string str() const;
};

/// All values that an i32 expression can have.
using Range = ir::Interval;

/// Predefined names of the request, and of all that run with it.
enum class Predefined : uint8_t {
#define PREDEFINED(Id, Name, Type, Values, Operation, Text) Id,
#include "megalith/Sema/Builtins.def"
};

/// What can be read of a pool.
enum class PoolName : uint8_t {
#define POOL_NAME(Id, Name, Type, Of, Operation, Text) Id,
#include "megalith/Sema/Builtins.def"
};

enum class Function : uint8_t {
#define FUNCTION(Id, Name, Where, Operation, Params, Result, Text) Id,
#include "megalith/Sema/Builtins.def"
};

/// An operator.
using BinaryOp = ir::Op;

struct Expr;
using ExprRef = std::shared_ptr<const Expr>;

/// What a reducer is given, by the name that the IR has for it.
struct Operand {
  std::string name;
  ExprRef value;
  bool fromEnd = false; ///< of a bound of rows: it counts from the end of those that are served
};

/// One use of the logits of a call: what `reduce` in the IR is.
struct Reduction {
  std::string name; ///< of Reducers.def
  std::vector<Operand> with;
  int64_t n = 0;       ///< results of a row: a table; 0: a sequence
  std::string of;      ///< a named result of the model; empty: the logits
  std::string kept;    ///< reads the rows that this field keeps, not the call's
  std::string minus;   ///< of a draw: the field whose rows are taken away
  std::string keep;    ///< of argmax: the field that keeps the rows
  std::string part;    ///< of a reducer with two results
  bool edited = false; ///< it was given `sampling` as a whole
  Type type;
  SourceLoc loc;
};

/// The uses of a call's logits, in the order of the results.
struct Reductions {
  std::vector<Reduction> list;
  std::shared_ptr<const Expr> guard = nullptr; ///< of its block (Sema's Scope)
  size_t since = 0;                            ///< what had changed before the call (Sema's Locals::changes)
  size_t locals = 0;                           ///< those that were assigned before it
  size_t binders = 0;                          ///< around it
  unsigned depth = 0;                          ///< of blocks around it
};

//===--- what the kinds of an expression have of their own ------------------===//

struct Number {
  int64_t intValue = 0;  ///< of i32, bool and token
  double floatValue = 0; ///< of f32, already rounded
  bool literal = false;  ///< a written number: takes the other operand's type
  bool operator==(const Number &b) const { return intValue == b.intValue && floatValue == b.floatValue; }
};

struct Name {
  std::string name, member = {};
  bool operator==(const Name &) const = default;
};

/// Of what has a number in its stage or policy, and a name for messages.
struct Place {
  int index = 0;
  std::string name;
  bool operator==(const Place &) const = default;
};

struct PoolRead {
  std::string pool;
  PoolName what;
  bool operator==(const PoolRead &) const = default;
};

/// Of an index or a slice: which bounds count from the end.
struct Bounds {
  bool loFromEnd = false, hiFromEnd = false;
  std::string result = {}; ///< of rows of a call: that of the model; empty: the logits
  bool operator==(const Bounds &) const = default;
};

struct Lookup {
  int64_t ngram = 3;   ///< at most
  int64_t matches = 0; ///< rows of a table; 0: a sequence
  bool operator==(const Lookup &) const = default;
};

struct Through {
  Function function;
  Place binder;       ///< its number is the nesting depth
  int64_t rounds = 0; ///< of the range, at most
  bool operator==(const Through &b) const { return function == b.function && binder == b.binder; }
};

struct Call {
  std::string model;
  bool draft = false;    ///< kv=draft
  bool keepNone = false; ///< keep=none
  int64_t chunk = 0;     ///< 0 = indivisible
  int64_t most = 0;      ///< tokens that it is fed; 0: as many as there can be
  std::string rows = {}; ///< `parents` or `visible`, which is args[1]; empty: a plain call
  std::shared_ptr<Reductions> reductions = std::make_shared<Reductions>();
  bool operator==(const Call &) const = default; // each call has reductions of its own
};
/// Whether what is made of its logits reads its last row alone, `rows[-1:]`.
bool readsLastRow(const Call &call);

/// One result of a call.
struct Result {
  int index = 0; ///< of its reductions
  bool operator==(const Result &) const = default;
};

/// What top_k gives: two parts, which are reductions of the call where they are read.
using Parts = std::shared_ptr<const Reduction>;

struct Expr {
  enum Kind : uint8_t {
    Const,        ///< Number
    FieldRead,    ///< Name
    InputRead,    ///< Name
    LocalRead,    ///< Place: the assignment's number. Perhaps args[0]: the constant that it is
    BinderRead,   ///< Place: nesting depth of the binder
    ObserveArg,   ///< Place, in a policy's observe
    PolicyState,  ///< Name: policy and state
    PolicyOutput, ///< Name: policy and output
    Request,      ///< Predefined
    Pool,         ///< PoolRead
    Neg,          ///< args[0]
    Not,          ///< args[0]
    Binary,       ///< BinaryOp; args[0], args[1]
    Select,       ///< args = {condition, then, otherwise}
    Math,         ///< Function, one with an operation of its own: Min, Max, Exp, Ratio, ...; args
    Cast,         ///< args[0], to the type
    Tiers,        ///< args = {x, t0, v0, t1, v1, ...}
    SeqLen,       ///< args[0]
    SeqAt,        ///< Bounds; args = {base, index}
    SeqSlice,     ///< Bounds; args = {base, lo, hi}, null = whole side
    SeqConcat,    ///< args[0], args[1]
    SeqMake,      ///< args = elements, or the rows of a table
    SeqConst,     ///< Name of a param; args = constants
    NgramLookup,  ///< Lookup; args = {sequence, width, from or null, ngram or null}
    Forced,       ///< args[0] = width
    Over,         ///< Through; args = {low, high, body...}, of Top then k
    TreeRows,     ///< args = {last, table}
    TreeParents,  ///< the same, directly after the rows
    Append,       ///< args[0] = a sequence; args[1] = where it stops, or absent
    ModelCall,    ///< Call; args[0] = the fed tokens, args[1] = where its rows stand
    LogitRows,    ///< Bounds; args = {call, first, last}, null = whole side
    Reduced,      ///< Result; args[0] = call
    TopParts,     ///< Parts; args[0] = call
    Sampling,     ///< Name of the setting
    DimRead,      ///< Name
    BufferAt      ///< Name; args = an index for each dimension
  } kind = Const;
  using Data = std::variant<std::monostate, Number, Name, Place, Predefined, PoolRead, BinaryOp, Function, Bounds,
                            Lookup, Through, Call, Result, Parts>;
  Type type;
  Range range;    ///< of an i32 value; of a sequence or table of i32, that of its elements
  int pieces = 1; ///< of a sequence: fields, views and lists that it is put together of
  SourceLoc loc;
  std::vector<ExprRef> args;
  Data data;

  template <class T> const T &as() const { return std::get<T>(data); }
  template <class T> bool is(const T &value) const { return std::holds_alternative<T>(data) && as<T>() == value; }
  const std::string &name() const { return as<Name>().name; }
};

/// Whether evaluating it may end the request: it has an index, or makes a sequence for a range. What calls are fed
/// stands elsewhere.
bool mayFault(const Expr &e);

struct Stmt {
  enum Kind : uint8_t {
    SetField,       ///< name; values[0]
    SetLocal,       ///< index, name; values[0]
    SetPolicyState, ///< name = state; values[0]
    Keep,           ///< name = pool; values[0], perhaps the path
    Observe,        ///< name = policy; values
    Effect,         ///< values[0]: Append or ModelCall
    Count,          ///< name = metric; values[0]
    Trace,          ///< name = gauge; values[0]
    If,             ///< values[0]; body; otherwise
    For,            ///< name, values = {low, high}; body; index = depth of the binder
    While           ///< values[0]; bound; body
  } kind = Effect;
  std::string name = {};
  int index = 0;
  int64_t bound = 0;
  std::vector<ExprRef> values = {};
  std::vector<Stmt> body = {}, otherwise = {};
  SourceLoc loc = {};
};

} // namespace megalith::sema
#endif
