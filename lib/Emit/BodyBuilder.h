//===- BodyBuilder.h - operations to statements, as they are written -------===//
//
// BodyBuilder has what knows no request: values and arithmetic (Expressions.cpp), functions over ranges
// (Binders.cpp), conditions and loops (Statements.cpp). PartBuilder adds those on a request (ControlExpressions.cpp,
// ControlBody.cpp), CallBody those on buffers (Calls.cpp).
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_EMIT_BODYBUILDER_H
#define MEGALITH_LIB_EMIT_BODYBUILDER_H

#include "ControlLayout.h"
#include "Names.h"
#include "Numbers.h"
#include <map>

namespace megalith::emit {

using namespace ir;

/// A value that has no statement of its own yet, or the variable it has.
struct Pending {
  Code expression;
  bool free = false; ///< as short as a variable: written out at every use
  unsigned uses = 0; ///< not yet emitted
  bool variable = false;
  std::string name; ///< hint for the variable
  Type type;
  SourceLoc loc;
};

/// Longer expressions get a variable where one has a name.
constexpr size_t longExpression = 70;

/// Writes the statements of a region. A value becomes an expression where it is used once, else a variable.
class BodyBuilder {
public:
  BodyBuilder(const Module &module, const Region &part, Locals locals)
      : module(module), part(part), uses(countUses(module, part)), intervals(module, part), locals(std::move(locals)) {}
  virtual ~BodyBuilder() = default;
  int64_t scratchWords = 0;
  std::vector<Statement> run();

protected:
  // --- values
  void define(const Operation &op, Code e, bool free = false);

  /// The expression of an operand, for an operation that is about to be emitted.
  Code use(Value v);
  void makeVariable(uint32_t id);
  static void setVariable(Pending &p, llvm::StringRef name, Resources reads);

  /// Gives variables to what would not survive `writes`; with `faults`, also to
  /// what may fault, which must happen before any effect or branch.
  void settle(const Resources &writes);

  static const char *fallbackName(Op op);
  static std::string typeText(const Type &type);

  // --- expressions
  bool isF32(Value v) const { return module.type(v).is(Scalar::F32); }

  /// An operand that C++ would evaluate only sometimes.
  Code useGuarded(Value v);
  Code call(llvm::StringRef function, llvm::ArrayRef<Value> operands);

  /// A function that takes the line of its caller: it may raise a fault.
  Code callWithLine(llvm::StringRef function, const Operation &op);
  Code infix(const Operation &op, const char *symbol, Precedence precedence, bool guarded = false);
  Code arithmetic(const Operation &op, const char *rounded, const char *symbol, const char *wrapping,
                  Precedence precedence);

  Code unary(const Operation &op, const char *symbol) { return Code(symbol, Unary).add(use(op.operands[0]), Primary); }

  void constant(const Operation &op);
  Code division(const Operation &op, const char *symbol, const char *function);
  Code select(const Operation &op);
  void cast(const Operation &op);

  /// So many words of this warp's scratch, of their own: `t.scratch(8)`.
  std::string scratch(int64_t words);
  static int64_t wordsOf(const Type &type);

  /// The C++ type of elements, where it must be said: "" of i32 and tokens.
  static const char *elementType(const Type &type);
  Code elementAt(const Operation &op);

  /// A list of elements; of rows, a table in scratch.
  Code make(const Operation &op);
  Code fixed(const Operation &op);
  Code comparison(const Operation &op, const char *symbol, Precedence precedence);

  /// Whether what a region does takes the whole warp.
  static bool takesWarp(const Region &region);
  bool takesWarpFor(const Region &region) const;

  /// What a region uses from outside gets variables, so that it is computed once, before it.
  void hoist(const Operation &op, bool all);

  /// The number that a region is evaluated for.
  std::string indexOf(const Region &region, SourceLoc loc);

  /// The body of a lambda: `return value;`, after the statements that it takes. `which` of the yielded values.
  struct Body {
    std::vector<Statement> statements;
    std::vector<Code> yields;
  };
  Body bodyOf(const Region &region);
  static Code lambda(const std::string &parameter, const Body &body, const Code &value);

  /// `t.prefixWhile(n, [&](int i) { return ...; })`
  Code loop(const Operation &op, const char *name);

  /// `t.sum(low, high, [&](int i) { return ...; })`, and others whose result may stand in scratch.
  Code over(const Operation &op);

  /// One side alone is evaluated: `a ? b : c`, or a function for each side where that takes more.
  Code choose(const Operation &op);

  /// In front of a function of `t` that is given template arguments.
  virtual const char *templated() const { return "t."; }
  /// Operands that may fault get variables, in their order, but for the last one: C++ may begin with any.
  void settleFaults(llvm::ArrayRef<Value> operands);
  /// Whether it matters which one that is.
  virtual bool ordersFaults() const { return false; }
  virtual void emitValue(const Operation &op);
  virtual Code expression(const Operation &op);

  // --- statements
  void add(Code code, SourceLoc loc) { statements->push_back({std::move(code), loc, false, {}, {}}); }

  void effect(const Operation &op, Code code);

  /// `function(operand)`
  void effect(const Operation &op, const std::string &function);

  /// `function(what, operand)`
  void effect(const Operation &op, llvm::StringRef function, const Code &what);
  virtual void emit(const Operation &op);
  void branch(const Operation &op);

  /// `for (int i = 0; i < n && !t.fault; ++i)`
  void repeat(const Operation &op);

  const Module &module;
  const Region &part;
  std::vector<unsigned> uses;
  const Intervals intervals;
  std::map<uint32_t, int64_t> constants; ///< of i32
  std::map<uint32_t, Pending> values;
  Locals locals;
  std::vector<Statement> *statements = nullptr;
};

/// Writes the statements of a part, which knows a request.
class PartBuilder : public BodyBuilder {
public:
  PartBuilder(const Module &module, const ControlLayout &layout, const Region &part)
      : BodyBuilder(module, part, Locals::ofStage()), layout(layout) {}
  /// The keys of its `order`.
  std::vector<Statement> order();

private:
  /// Whether a sequence read from a field is still looked at after the field changes.
  bool outlivesField(const Operation &get) const;
  std::string ofPool(const Operation &op) const { return layout.poolArgument(op.name); }
  Code lookup(const Operation &op);
  Code follow(const Operation &op);
  /// Two values, members of one variable.
  void tree(const Operation &op);
  Code results(const Operation &op);
  void emitValue(const Operation &op) override;
  Code expression(const Operation &op) override;

  /// Lists of at most so many elements are copied into registers, longer ones by way of scratch.
  static constexpr int64_t mostHeld = 64, mostMoved = 256;

  void emit(const Operation &op) override;
  void append(const Operation &op);
  /// `t.issue<calls::Next>(feed, LogitsQuery<calls::Next::Sample0>{...})`
  void issue(const Operation &op);
  /// Whether a reducer's settings are those of the request.
  bool ofRequest(const Operation &reduce);
  Code logitsQuery(const CallQuery &query, const std::string &type);
  void go(const Operation &op);

  const ControlLayout &layout;
  mutable const Operation *around = nullptr; ///< of outlivesField
  std::map<uint32_t, Operand> settingOf;     ///< the request's settings: which one
};

} // namespace megalith::emit
#endif
