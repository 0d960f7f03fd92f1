//===- Typed.h - expressions and statements after checking ----------------===//
//
// The same shape as the AST, with names resolved, types known and literals
// converted. Every node keeps its source range. Integer values carry an interval
// and sequences a capacity: the upper bounds that capacity analysis needs.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_SEMA_TYPED_H
#define MEGALITH_SEMA_TYPED_H

#include "megalith/IR/Scalar.h"
#include "megalith/Support/SourceLoc.h"
#include <cstdint>
#include <memory>
#include <string>
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
inline constexpr int64_t mostCapacity = 1024;
/// Of an input, which is a view, too: no more than a request may have positions with any pool (mostPositions).
inline constexpr int64_t mostInputCapacity = 65536;

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
#define PREDEFINED(Id, Name, Type, Text) Id,
#include "megalith/Sema/Builtins.def"
};

/// What can be read of a pool.
enum class PoolName : uint8_t {
#define POOL_NAME(Id, Name, Type, Text) Id,
#include "megalith/Sema/Builtins.def"
};

enum class Function : uint8_t {
#define FUNCTION(Id, Name, Params, Result, Text) Id,
#include "megalith/Sema/Builtins.def"
};

/// An operator.
using BinaryOp = ir::Op;

struct Expr;
using ExprRef = std::shared_ptr<const Expr>;

/// One use of the logits of a call: what `reduce` in the IR is.
struct Reduction {
  std::string name;                                  ///< of Reducers.def
  std::vector<std::pair<std::string, ExprRef>> with; ///< what it is given, by the names of the IR
  int64_t n = 0;                                     ///< results of a row: a table; 0: a sequence
  std::string of;                                    ///< a named result of the model; empty: the logits
  std::string kept;                                  ///< reads the rows that this field keeps, not the call's
  std::string minus;                                 ///< of a draw: the field whose rows are taken away
  std::string keep;                                  ///< of argmax: the field that keeps the rows
  std::string part;                                  ///< of a reducer with two results
  Type type;
  SourceLoc loc;
};

/// The uses of a call's logits, in the order of the results.
struct Reductions {
  std::vector<Reduction> list;
  size_t since = 0;   ///< what had changed before the call (Sema's Locals::changes)
  size_t locals = 0;  ///< those that were assigned before it
  size_t binders = 0; ///< around it
  unsigned depth = 0; ///< of blocks around it
};

struct Expr {
  enum Kind : uint8_t {
    Const,        ///< intValue (i32, bool, token) or floatValue (f32, already rounded)
    FieldRead,    ///< name
    InputRead,    ///< name
    LocalRead,    ///< index: the assignment's number in its stage or policy
    BinderRead,   ///< index: nesting depth of the binder
    ObserveArg,   ///< index, in a policy's observe
    PolicyState,  ///< name = policy, member = state
    PolicyOutput, ///< name = policy, member = output
    Request,      ///< predefined
    Pool,         ///< name = pool, poolName
    Neg,          ///< args[0]
    Not,          ///< args[0]
    Binary,       ///< binary; args[0], args[1]
    Select,       ///< args = {condition, then, otherwise}
    MinMax,       ///< function = Min or Max; args
    Math,         ///< function = Exp, Log, Pow, Sqrt or Abs; args
    Cast,         ///< args[0], to the type
    Ratio,        ///< args[0], args[1]
    Tiers,        ///< args = {x, t0, v0, t1, v1, ...}
    SeqLen,       ///< args[0]
    SeqAt,        ///< args = {base, index}; loFromEnd: index counts from the end
    SeqSlice,     ///< args = {base, lo, hi}, null = whole side; loFromEnd, hiFromEnd
    SeqConcat,    ///< args[0], args[1]
    SeqMake,      ///< args = elements, or the rows of a table
    SeqConst,     ///< args = constants: a param
    NgramLookup,  ///< args = {sequence, width, from or null, ngram or null}; ngram, matches
    Over,         ///< function = a binder; args = {low, high, body...}, of Top then k; index = depth of the binder
    Follow,       ///< args = {rows, parents, best, root}
    TreePart,     ///< args = {last, table}; index = 0: rows, 1: parents
    Append,       ///< args[0] = a sequence; args[1] = where it stops, or absent
    ModelCall,    ///< name = model; args[0] = the fed tokens, args[1] = what `member` is: parents or visible; call
                  ///< attributes below
    LogitRows,    ///< args = {call, first, last}, null = whole side; loFromEnd, hiFromEnd; member = a result
    Reduced,      ///< args[0] = call; index = of its reductions
    Sampling,     ///< member = the setting
    Uniform       ///< args = {position, lane, noise}
  } kind = Const;
  Type type;
  Range range;    ///< of an i32 value; of a sequence or table of i32, that of its elements
  int pieces = 1; ///< of a sequence: fields, views and lists that it is put together of
  SourceLoc loc;
  std::vector<ExprRef> args;
  std::string name, member;
  int64_t intValue = 0;
  double floatValue = 0;
  int index = 0;
  int64_t ngram = 0;   ///< at most
  int64_t rounds = 0;  ///< of a binder's range, at most
  int64_t matches = 0; ///< rows of a table; 0: a sequence
  int64_t chunk = 0;   ///< of a call; 0 = indivisible
  int64_t most = 0;    ///< of a call: tokens that it is fed; 0: as many as there can be
  BinaryOp binary = BinaryOp::Add;
  Predefined predefined = Predefined::Tokens;
  PoolName poolName = PoolName::Len;
  Function function = Function::Min;
  std::shared_ptr<Reductions> reductions; ///< of a call
  std::shared_ptr<const Reduction> parts; ///< of top_k: two parts, which are reductions of args[0] where they are read
  bool literal = false;                   ///< a written number: takes the other operand's type
  bool loFromEnd = false, hiFromEnd = false; ///< a negative literal: `len(base) + literal`
  bool draft = false;                        ///< of a call: kv=draft
  bool keepNone = false;                     ///< of a call: keep=none
};

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
  std::string name;
  int index = 0;
  int64_t bound = 0;
  std::vector<ExprRef> values;
  std::vector<Stmt> body, otherwise;
  SourceLoc loc;
};

} // namespace megalith::sema
#endif
