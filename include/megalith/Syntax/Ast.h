//===- Ast.h - what a pipeline or model file says -------------------------===//
//
// Plain data, one struct per construct of the language, every node with its
// source range. No names are resolved and no types are known here.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_SYNTAX_AST_H
#define MEGALITH_SYNTAX_AST_H

#include "megalith/Support/SourceLoc.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace megalith::ast {

/// A word with its place.
struct Name {
  std::string text;
  SourceLoc loc;
};

/// An expression. `loc` is the place of the operator, name or literal in the
/// YAML file (line and column of that character inside the scalar).
struct Expr {
  enum Kind {
    IntLiteral,    ///< intValue
    FloatLiteral,  ///< floatValue
    BoolLiteral,   ///< intValue 0/1
    StringLiteral, ///< text
    Path,          ///< text = "kv.target.len": a dotted name
    Unary,         ///< text = "-" or "not"; args[0]
    Binary,        ///< text = "+ - * / % == != < <= > >= and or in"; args[0], args[1]
    Conditional,   ///< args = {then, condition, otherwise}: `a if c else b`
    Index,         ///< args = {base, index...}; an index may be Bounds where there are several
    Slice,         ///< args[0] = base; args[1], args[2] = bounds, null when absent
    Bounds,        ///< `a:b` of one dimension among several: args[0], args[1], null when absent
    List,          ///< `[a, b]`
    Call,          ///< text = callee path; args positional; named
    Range          ///< `0..n`: args[0], args[1]
  } kind = IntLiteral;
  std::string text;
  int64_t intValue = 0;
  double floatValue = 0;
  std::vector<std::unique_ptr<Expr>> args;
  /// Named arguments of a call: `chunk=64`.
  std::vector<std::pair<Name, std::unique_ptr<Expr>>> named;
  /// `i in 0..n` as the first argument of prefix_while, map, count: the binder's
  /// name; args[0] is then the Range and args[1] the body.
  std::optional<Name> binder;
  SourceLoc loc;
};
using ExprPtr = std::unique_ptr<Expr>;

/// One entry of a `do:` list.
struct Stmt {
  enum Kind {
    Assign, ///< `target: value` -- field, local, or a command such as `kv.target.keep`
    Effect, ///< a bare expression: `target(tokens, keep=none)`
    Count,  ///< `count: metric += value`; target = metric
    Trace,  ///< `trace: value`
    If,     ///< `if: cond`, `do: [...]`, optional `else: [...]`
    For,    ///< `for: i in a..b`, `do: [...]`; target = i, values = {the range}
    While,  ///< `while: cond`, `bound: n`, `do: [...]`; values = {cond, n}
    Repeat  ///< model files: `repeat: layer`, `do: [...]`; target = collection
  } kind = Effect;
  Name target;
  ExprPtr place; ///< of Assign to a part of a buffer, `name[i]` or `name[a:b]`: an Index or a Slice; else null
  std::vector<ExprPtr> values; ///< several for `observe: a, b`
  /// Of a command, after the values: `path=p` of `kv.M.keep: n, path=p`.
  std::vector<std::pair<Name, ExprPtr>> named;
  std::vector<Stmt> body, otherwise;
  SourceLoc loc;
};

struct Param {
  Name name;
  ExprPtr value;
};

/// `draft: token[max_block]`, `accepted: i32 = 0`, `tree: token[4, 3]`, `tenant: i32 in 0..16 = input(0)`.
struct FieldDecl {
  Name name;
  Name type;
  std::vector<ExprPtr> dims;
  ExprPtr range;             ///< of `in`: a Range; null when absent
  std::optional<Name> input; ///< the word `input`: the request brings the value
  ExprPtr init;              ///< null when absent; of an input what it is where the request has none
};

struct StateDecl {
  Name name;
  bool initial = false, terminal = false, parked = false, slot = false, preemptible = false;
  std::vector<Name> next;
};

struct PoolDecl {
  Name name; ///< the model's name
  ExprPtr pages, pageTokens, watermark;
  Name onFull;     ///< empty when absent
  ExprPtr reserve; ///< null when absent
  ExprPtr index;   ///< null when absent
  Name dtype;      ///< empty when absent
  Name windows;    ///< the same of layers with a window; empty when absent
};

struct PolicyOutput {
  Name name;
  ExprPtr value;
};

struct PolicyDecl {
  Name name;
  Name per; ///< empty when absent (request)
  std::vector<FieldDecl> state;
  std::vector<Name> observeArgs;
  std::vector<Stmt> observe;
  std::vector<PolicyOutput> outputs;
};

/// `b: 0..65536`: a size that a call brings with its buffers.
struct DimDecl {
  Name name;
  ExprPtr range; ///< a Range
};

/// `draft: {shape: '[b, g]', dtype: i64}`: what a call brings.
struct BufferDecl {
  Name name;
  std::vector<ExprPtr> shape;
  SourceLoc shapeLoc;
  Name dtype;
};

struct StageDecl {
  Name name;
  std::vector<Name> on;
  std::vector<ExprPtr> order; ///< `order: [key, ...]` of those that wait for a slot; empty when absent
  SourceLoc orderLoc;
  ExprPtr limit; ///< how many of these it looks at in a tick; null when absent
  std::vector<Stmt> body;
  ExprPtr go;                   ///< `goto:`; state names are Paths
  std::optional<Name> progress; ///< `progress: field`: a declared measure of progress
  std::optional<Name> over;     ///< `over: i in a..b`, of buffers: the name of an item's number
  ExprPtr items;                ///< the Range of that
  std::optional<Name> mapping;  ///< who takes the items
};

struct ModelRef {
  Name name;
  Name graph; ///< path of the model file, relative to the pipeline file; without a place: the checkpoint decides
};

struct PipelineFile {
  uint32_t file = 0;
  Name name;
  std::vector<ModelRef> models;
  std::vector<Param> params;
  std::vector<FieldDecl> fields;
  std::optional<Name> fault;            ///< `fault: FAILED` below `states:`
  std::optional<Name> cancel, deadline; ///< the same, of requests that the host takes back, and whose time is over
  std::vector<StateDecl> states;
  std::vector<PoolDecl> pools;
  std::vector<PolicyDecl> policies;
  std::vector<StageDecl> stages;
  SourceLoc statesLoc;
  bool ofBuffers = false; ///< it has `buffers` or `dims`: no model, request or state
  std::vector<DimDecl> dims;
  std::vector<BufferDecl> buffers;
};

/// A value that config.json may have.
struct Literal {
  enum Kind { Null, Bool, Number, String, Empty } kind = Null; ///< Empty: `{}`, no member or entry
  bool flag = false;
  double number = 0;
  std::string text; ///< as the file has it
  SourceLoc loc;
};

/// `hidden: hidden_size`; `head_dim: {key: head_dim, default: hidden / heads}`;
/// `rope: {theta: rope_theta, scaling: rope_scaling}` has parts. Below `layer:` an entry has one value for each layer:
/// `window: {key: layer_types, values: {sliding_attention: sliding, full_attention: none}}`.
struct ConfigEntry {
  Name name;
  Name key;                                        ///< empty for a nested entry, and for one that is computed
  ExprPtr fallback;                                ///< `default:`
  ExprPtr ifNull;                                  ///< `if_null:`, what null stands for; empty: "not given"
  bool perLayer = false;                           ///< the key has a list
  std::vector<std::pair<Literal, ExprPtr>> values; ///< what the entries of the list stand for; empty: themselves
  std::vector<ConfigEntry> parts;
};

struct WeightDecl {
  Name name;
  std::vector<ExprPtr> shape;
  std::vector<ExprPtr> stored;    ///< the tensor's own shape; empty: it follows from `shape`
  std::optional<Name> transposed; ///< `true` or `false`
  std::vector<Name> from;         ///< spellings of the tensor's name
  ExprPtr alias;                  ///< `or: embed if tied`: Conditional without else is {then, cond, null}
  ExprPtr condition;              ///< `if: attention_bias`
  bool perLayer = false;
};

/// One entry of `for:` or `requires:`, `hidden_act: silu`, `sliding_window: {is: null, default: 4096}`,
/// `layer_types: {each: full_attention}`: the values of a key for which the graph is right.
struct Requirement {
  Name key;
  std::vector<Literal> values;     ///< any of them
  bool each = false;               ///< of a list, whose entries must all be so
  std::optional<Literal> fallback; ///< what an absent key stands for; none: one of `values`
  std::vector<Name> same;          ///< in place of `values`: keys that say the same, of which one at least is there
};

/// The keys by which config.json names a checkpoint's family: a word, and a list of classes. `for:` has one of them.
inline constexpr const char *familyKeys[] = {"model_type", "architectures"};
inline bool namesFamily(const Requirement &requirement) {
  return requirement.key.text == familyKeys[0] || requirement.key.text == familyKeys[1];
}

/// `harmless:`: what a checkpoint may have though the graph does not read it.
struct Harmless {
  std::vector<Name> keys;    ///< of config.json
  std::vector<Name> tensors; ///< names, with `{i}` for any number
};

struct ModelFile {
  uint32_t file = 0;
  Name name;
  Name numerics; ///< empty when absent
  std::vector<ConfigEntry> config;
  std::vector<WeightDecl> weights;
  std::vector<Stmt> graph;
  /// `results:`, what pipelines may read: its name, and the graph's name for it. Empty: `logits` alone.
  std::vector<std::pair<Name, Name>> results;
  std::vector<Requirement> audience; ///< `for:`, the checkpoints that the file is for
  std::vector<Requirement> requirements;
  Harmless harmless;               ///< with those of the file that `shared:` names
  SourceLoc configLoc, weightsLoc; ///< of the keys `config:` and `weights:`
};

} // namespace megalith::ast
#endif
