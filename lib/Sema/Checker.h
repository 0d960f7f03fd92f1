//===- Checker.h - the state of one pipeline check ------------------------===//
//
// One class, its members spread over the files of this folder by subject:
// Params, Decls (fields, pools, policies), States, Stages, Expr, Calls.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_SEMA_CHECKER_H
#define MEGALITH_LIB_SEMA_CHECKER_H

#include "megalith/Sema/Pipeline.h"
#include <map>
#include <memory>
#include <set>

namespace megalith::sema {

/// Every assignment to a local of one stage or policy, numbered in order.
struct Locals {
  struct Entry {
    ast::Name name;
    bool wrong;   ///< its value had an error: no more is said of it
    bool appends; ///< its value is that of an `append`
    bool used = false;
    ExprRef value = nullptr; ///< what was assigned
  };
  std::vector<Entry> all;
  int64_t rounds = 0; ///< of all ranges and loops so far; negative: too many
  /// What stages change, in order: a field by its name behind a dot, `tokens`, `kv M`, `policy P`.
  std::vector<std::string> changes;
};

/// What a local stands for: nothing, for its value had an error and its uses stay silent,
struct Broken {};
/// a value of its own,
struct Value {
  Type type;
  Range range;
  int pieces = 1;
  ExprRef constant = {}; ///< an i32 that is one: may be a token, too
};
/// what is read as if it stood there: rows of a call, what top_k gives, a list of constants (which may be tokens, too),
struct Alias {
  ExprRef of;
};
/// a field, which keeps it for a block further inside that changes it,
struct InField {
  std::string field;
};
/// or a tree, whose parts are two locals.
struct Tree {
  ExprRef rows, parents;
};
using Binding = std::variant<Broken, Value, Alias, InField, Tree>;

/// What the body of a stage, a policy or a param may see and do.
struct Scope {
  struct Local {
    int index = 0;
    unsigned depth = 0; ///< nesting of blocks where it was assigned
    Binding binding = {};
    const ExprRef *alias() const {
      const auto *of = std::get_if<Alias>(&binding);
      return of ? &of->of : nullptr;
    }
  };
  /// What is known of a field, or of a local that changes in a block, at this place.
  struct Flow {
    Type type;
    Range range;
  };
  enum Kind { Params, Policy, Stage } kind = Params;
  const CheckedPolicy *policy = nullptr; ///< of Kind Policy; outputs so far
  bool observing = false;                ///< in `observe`: its arguments are visible
  const CheckedStage *stage = nullptr;
  std::map<std::string, Local> locals;
  std::map<std::string, Flow> flows;
  /// Where a loop is looked at: what a round assigns to each name.
  std::map<std::string, std::vector<Flow>> *assigned = nullptr;
  Locals *locally = nullptr;
  std::vector<std::pair<std::string, Range>> binders;
  int64_t rounds = 1; ///< of the binders and loops around, all together, at most
  unsigned depth = 0, loops = 0;
  /// Where model calls and appends are forbidden: "an `if`"; null = allowed.
  const char *noCalls = nullptr;
  const char *noEffects = nullptr;
  ExprRef call; ///< the last one of this block or of one around it
};

/// A step of a constant whose result its type does not hold.
struct Overflow {
  SourceLoc loc;
  Elem elem = Elem::I32;
  std::string value;
};

/// A name that is assigned in one stage and read in another.
struct Inferred {
  bool typed = false;
  std::vector<const ast::StageDecl *> setBy;
};

struct Builtin;
struct Parameter;
struct Arguments;

class Checker {
public:
  Checker(const ast::PipelineFile &in, const std::vector<ModelFacts> &facts,
          const std::vector<std::pair<std::string, std::string>> &sets, Diagnostics &diags)
      : in(in), facts(facts), sets(sets), diags(diags) {}

  std::optional<CheckedPipeline> run();
  std::optional<StateGraph> stateGraph();

private:
  /// The same, to look ahead: what it finds goes to `diags`.
  Checker(const Checker &other, Diagnostics &diags)
      : in(other.in), facts(other.facts), sets(other.sets), diags(diags), out(other.out), bad(other.bad),
        unknown(other.unknown), unknownStates(other.unknownStates), slotless(other.slotless), looksAhead(true),
        declared(other.declared), inferred(other.inferred), uses(other.uses), variables(other.variables),
        changing(other.changing), stageOn(other.stageOn), roundsAhead(other.roundsAhead) {}

  // Params.cpp
  void checkParams();
  void applySet(const ast::Param &param, Constant &value, const std::string &text);
  void checkReserved();
  std::optional<Constant> constant(const ast::Expr &e);
  std::optional<Constant> constantList(const ast::Expr &e);
  std::optional<Constant> constant(const Expr &e, const std::string &what);
  void report(const Overflow &overflow);
  std::optional<int64_t> constantInt(const ast::Expr &e, const std::string &what);

  // Decls.cpp
  void checkNames();
  bool declare(const ast::Name &name, const std::string &what);
  std::optional<CheckedField> checkField(const ast::FieldDecl &decl, bool isInput = false);
  std::optional<CheckedInput> checkInput(const ast::FieldDecl &decl);
  bool checkDefault(const ast::Expr &e, CheckedInput &input);
  void checkFields();
  void checkPools();
  void checkPolicies();
  void checkPolicy(const ast::PolicyDecl &decl);

  // States.cpp
  void checkStates();
  void checkStageStates();
  void checkTransitions();
  void warnOfUnusedTransitions();
  std::set<std::string> reachableFrom(const std::string &start) const;
  void checkReachable();
  void checkProgress();
  void checkReadsAreSet();
  void warnOfUnused();
  void warnOfLostDrafts();
  std::vector<ast::Name> targets(const ast::StageDecl &stage) const;
  const CheckedState *state(const std::string &name) const;

  // Stages.cpp
  void inferFields();
  void checkStages();
  void checkStage(const ast::StageDecl &decl, CheckedStage &stage);
  void checkBlock(const std::vector<ast::Stmt> &in, std::vector<Stmt> &out, Scope &scope);
  void checkStatement(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  bool mayAssign(const ast::Stmt &stmt, Scope &scope);
  Binding bind(const ast::Stmt &stmt, const ExprRef &value, int index, std::vector<Stmt> &out, Scope &scope);
  void checkAssign(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  void checkCommand(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  void assignField(CheckedField &field, const ast::Stmt &stmt, ExprRef value, std::vector<Stmt> &out, Scope &scope);
  void assignInferred(Inferred &inferred, const ast::Stmt &stmt, ExprRef value, std::vector<Stmt> &out, Scope &scope);
  void checkGoto(const ast::Expr &e, ExprRef guard, CheckedStage &stage, Scope &scope);
  void checkIf(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  void checkLoop(const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  void enterLoop(const ast::Stmt &stmt, int64_t rounds, Scope &scope, Scope &inner);
  std::map<std::string, Scope::Flow> flowsBehind(const ast::Stmt &stmt, Scope inner) const;
  void flowsTo(const std::string &name, const Expr &value, Scope &scope);
  void noteGrowth(const std::string &name, const Scope::Flow &first, const Scope::Flow &head, int64_t rounds,
                  const ast::Stmt &stmt);
  void findChanging(const std::vector<ast::Stmt> &body,
                    std::map<std::string, std::pair<const ast::Stmt *, unsigned>> seen, unsigned depth);
  void giveTypes(std::vector<Stmt> &body);
  void changeLocal(const std::string &variable, const ast::Stmt &stmt, ExprRef value, std::vector<Stmt> &out,
                   Scope &scope);
  std::string newVariable(const std::string &name, const Scope &scope);
  void declareVariables(CheckedStage &stage);
  void reportUnused(const Locals &locals, const CheckedPolicy *policy);
  bool oneValue(const ast::Stmt &stmt);

  // Admission.cpp
  void checkAdmission(const ast::StageDecl &decl, CheckedStage &stage, Scope &scope);
  bool checkOrderKey(const Expr &key, const ast::StageDecl &decl);

  // Expr.cpp
  ExprRef check(const ast::Expr &e, Scope &scope);
  /// As check, but logits are an error.
  ExprRef value(const ast::Expr &e, Scope &scope);
  /// The same of what `e` is checked as.
  ExprRef plain(const ExprRef &v, const ast::Expr &e);
  /// A value of scalar type `elem`; literals are converted.
  ExprRef expect(const ast::Expr &e, Elem elem, const std::string &what, Scope &scope);
  ExprRef convert(ExprRef e, Elem elem);
  ExprRef as(ExprRef e, const Type &type, const std::string &what, const std::string &wanted);
  bool unify(ExprRef &a, ExprRef &b);
  bool alike(std::vector<ExprRef> &items, const std::string &what);
  /// `of`: what gives it that length, for a note.
  bool hasRoom(const Type &type, const std::string &what, SourceLoc loc, const Expr *of = nullptr);
  ExprRef readField(const std::string &name, const Scope::Flow &flow, SourceLoc loc);
  ExprRef checkPath(const ast::Expr &e, Scope &scope);
  ExprRef checkDotted(const ast::Expr &e, Scope &scope);
  ExprRef readLocal(const Scope::Local &local, const ast::Expr &e, Scope &scope);
  ExprRef partOfLocal(const Scope::Local &local, const ast::Expr &e, Scope &scope);
  ExprRef partOfPolicy(const CheckedPolicy &policy, const ast::Expr &e, const std::string &part);
  ExprRef checkPoolName(const ast::Expr &e, Scope &scope);
  ExprRef checkPredefined(const ast::Expr &e);
  ExprRef checkSimpleName(const ast::Expr &e, Scope &scope);
  ExprRef checkUnary(const ast::Expr &e, Scope &scope);
  ExprRef checkBinary(const ast::Expr &e, Scope &scope);
  ExprRef checkConditional(const ast::Expr &e, Scope &scope);
  ExprRef checkIndex(const ast::Expr &e, Scope &scope);
  ExprRef checkSlice(const ast::Expr &e, Scope &scope);
  /// Whether a bound or an index counts from the end: a negative constant, or what is written with a minus in front.
  bool fromEnd(ExprRef &bound, const ast::Expr &e, bool isIndex = false);
  ExprRef checkList(const ast::Expr &e, Scope &scope);
  ExprRef written(const ExprRef &e);
  /// A sequence of all that its operands are put together of. Each is looked at at every element, so there is a limit.
  ExprRef together(std::shared_ptr<Expr> sequence, int pieces);
  ExprRef concat(ExprRef a, ExprRef b, SourceLoc loc);
  std::vector<std::string> visibleNames(const Scope &scope) const;
  bool needsSlot(const std::string &what, SourceLoc loc, const Scope &scope);
  ExprRef checkKnown(const ast::Expr &e, Scope &scope);

  // Calls.cpp
  ExprRef checkCall(const ast::Expr &e, Scope &scope);
  bool checkFreeRows(Call &call, const std::vector<const ast::Name *> &names, std::vector<ExprRef> &given);
  ExprRef checkModelCall(const ast::Expr &e, Scope &scope);
  bool mayCall(const Builtin &f, const ast::Expr &e, const Scope &scope);
  bool match(Arguments &args);
  bool take(Arguments &args, Scope &scope);
  ExprRef taken(const ast::Expr &e, const Parameter &p, Arguments &args, const std::string &what, Scope &scope);
  ExprRef checkFunction(const Builtin &f, const ast::Expr &e, Scope &scope);
  ExprRef checkLen(const Arguments &args, Scope &scope);
  ExprRef checkMinMax(const Arguments &args, Scope &scope);
  ExprRef checkClamp(const Arguments &args, Scope &scope);
  ExprRef checkCast(const Arguments &args, Scope &scope);
  ExprRef checkTiers(const Arguments &args, Scope &scope);
  ExprRef checkNgram(const Arguments &args, Scope &scope);
  ExprRef checkFollow(const Arguments &args, Scope &scope);
  ExprRef checkTree(const Arguments &args, Scope &scope);
  ExprRef checkBinder(const Builtin &f, const ast::Expr &e, Scope &scope);
  ExprRef checkOver(std::shared_ptr<Expr> v, const ast::Expr &e, Scope &scope, Scope &inner, int64_t most);
  /// The bounds of `a..b`, and how many numbers it has at most. False after a report.
  bool checkRange(const ast::Expr &range, const std::string &what, Scope &scope, Scope &inner, ExprRef &low,
                  ExprRef &high, int64_t &most);
  bool checkRounds(Scope &inner, int64_t most, const std::string &what, SourceLoc loc, const Expr *of = nullptr);
  ExprRef checkAppend(Arguments &args, Scope &scope);

  // Reducers.cpp
  /// A reducer that stands among its call's, once.
  ExprRef reducedBy(Reduction r, const ExprRef &call, SourceLoc loc);
  ExprRef namedResult(const ExprRef &rows, llvm::StringRef name, const ast::Expr &e);
  ExprRef partOfTop(const Expr &top, llvm::StringRef name, SourceLoc loc);
  ExprRef checkReducer(Arguments &args, Scope &scope);
  bool takeSettings(const Arguments &args, Reduction &into);
  bool checkSetting(const Expr &v, const std::string &name, const std::string &reducer);
  /// Whether it has the same value at the call, which stands before.
  bool knownAtCall(const Expr &e, const Reductions &call, const std::string &what, const std::string &function,
                   const Scope &scope);
  ExprRef checkLogitRows(const ExprRef &base, const ast::Expr &e, Scope &scope);

  // KeptRows.cpp
  void assignKept(CheckedField &field, const ast::Stmt &stmt, std::vector<Stmt> &out, Scope &scope);
  /// The call in whose pass a reducer reads kept rows.
  ExprRef passForKept(const std::string &reducer, SourceLoc loc, const Scope &scope);
  ExprRef checkKept(const ast::Expr &e, const std::string &what, Scope &scope);
  bool checkKeptVocab(const CheckedField &field, const Expr &call);

  // Errors.cpp: one mistake, one error
  /// Whether to report that nothing has this name: not when that was done, or when its declaration had an error.
  bool firstUse(const std::string &name) { return !bad.count(name) && unknown.insert(name).second; }
  void reportUnknown(Diag id, SourceLoc loc, const std::string &name, const std::vector<std::string> &candidates);
  void reportUnknownPool(SourceLoc path, const std::string &name);
  void reportUnknownName(const ast::Expr &e, Scope &scope);
  void reportUnknownState(const ast::Name &name, bool (*fits)(const CheckedState &));
  /// What `e` reads counts as read, though it was not checked.
  void markRead(const ast::Expr &e, Scope &scope);
  std::vector<std::string> functionNames(const Scope &scope) const;
  enum class Guess { Function, Name, Statement };
  /// Says what to write for what is nothing here, but known from elsewhere as one of these. False if it is not.
  bool noteGuess(llvm::StringRef name, Guess of);
  /// Where `found` should have been a `wanted`, or several: what makes one of it. `e` is what was written.
  void noteCast(const Type &found, Elem wanted, const ast::Expr &e);
  /// The two sides of an operator differ in type: which one to change.
  void noteCasts(const ExprRef &a, const ExprRef &b, const ast::Expr &e);
  /// Of a function that goes through a range, or reads logits: how it goes through the sequence `e`.
  void noteRange(const std::string &function, const ast::Expr &e);
  /// Where `e` should have been tokens, and is the i32 of a local: how to write that.
  void noteNoTokens(const Expr &e, Elem wanted);
  /// Of a length or number that has no bound, or one that is too great: the name that it comes from, and why.
  void noteBound(const Expr &e);
  bool noteBoundOf(const Expr &e, unsigned depth);
  /// Of a call that cannot stand somewhere: how to make it there.
  void noteNoCall(const std::string &model, const char *where);

  /// Whether it is a state's name, or chooses between such names.
  bool namesState(const ast::Expr &e) const;
  bool isModel(const std::string &name) const;
  bool isPool(const std::string &name) const;
  CheckedField *field(const std::string &name);
  const CheckedInput *input(const std::string &name) const;
  const CheckedParam *param(const std::string &name) const;
  const CheckedPolicy *policy(const std::string &name) const;
  int64_t slots() const;
  int64_t rowsPerPass() const;
  /// The positions of a request, at most: the smallest pool's, or 65,536 when that has fewer.
  int64_t mostPositions() const;

  const ast::PipelineFile &in;
  const std::vector<ModelFacts> &facts;
  const std::vector<std::pair<std::string, std::string>> &sets;
  Diagnostics &diags;
  CheckedPipeline out;

  /// Names whose declaration had an error: their uses stay silent.
  std::set<std::string> bad;
  /// Names and states that were reported as unknown, states without slot that were reported.
  std::set<std::string> unknown, unknownStates, slotless;
  bool looksAhead = false; ///< what is checked is checked again
  bool oddStages = false;  ///< a stage is on no state, or on one that has a stage: others may miss theirs
  std::map<std::string, std::string> declared; ///< name -> "a param", "a field", ...

  /// Fields that keep rows of logits: by name the model, and where that was first said.
  std::map<std::string, std::pair<std::string, SourceLoc>> keptOf;
  std::map<std::string, Inferred> inferred;
  struct Uses {
    std::map<std::string, SourceLoc> freeReads; ///< first read before any assignment
    std::set<std::string> assigned;
    bool appends = false, commits = false;
    std::map<std::string, SourceLoc> drafts; ///< models that are fed drafts behind their KV: the first such call
    std::set<std::string> keeps;             ///< models whose KV is kept, by a call or by `kv.M.keep`
  };
  std::map<const ast::StageDecl *, Uses> uses;
  /// Params, fields, inputs, policies with their parts, and models that something reads or calls.
  std::set<std::string> used;
  const Locals *here = nullptr; ///< of the stage or policy that is checked
  /// What makes a sequence longer in a loop, or moves a number: for notes.
  struct Growth {
    SourceLoc loc;
    std::string text;
  };
  std::map<std::string, Growth> growths;
  /// Locals that blocks change, by the name of the field that keeps each: all that it can be.
  struct Variable {
    Type type;
    SourceLoc loc;
    std::string name;
  };
  std::map<std::string, Variable> variables;
  std::set<const ast::Stmt *> changing; ///< assignments of a local that a block further inside changes
  /// State -> the stage on it.
  std::map<std::string, const ast::StageDecl *> stageOn;
  /// Rounds of loops that may still be looked at ahead.
  std::shared_ptr<int64_t> roundsAhead = std::make_shared<int64_t>(4000);
};

// Expr.cpp: helpers shared with Calls.cpp
std::shared_ptr<Expr> make(Expr::Kind kind, Type type, SourceLoc loc, std::vector<ExprRef> args = {},
                           Expr::Data data = {}, Range range = {});
/// The settings of `sampling`.
inline constexpr const char *settingNames[] = {"temperature", "top_k", "top_p", "min_p"};
/// Whether two checked expressions are written alike.
bool sameExpr(const Expr &a, const Expr &b);
ExprRef intConst(int64_t v, SourceLoc loc, bool literal = false);
/// Whether it is a written number.
bool isLiteral(const Expr &e);
/// `map(i in a..b, ...)`.
bool isMap(const Expr &e);
/// Whether it is told of the request's own KV, so only of one that holds a slot.
bool ofSlot(PoolName what);
/// The call that `e` is, or that it is some rows of.
const Call &callOf(const Expr &e);
ExprRef fromConstant(const Constant &c, SourceLoc loc, bool literal);
/// `e`, where its type has no elements yet, as one of that shape.
ExprRef adopt(const ExprRef &e, const Type &like);
/// `a` with room for what `b` has room for, too.
Type wider(Type a, const Type &b);
/// Interval arithmetic of i32, which wraps.
Range hull(Range a, Range b);
Range arithmetic(BinaryOp op, Range a, Range b);
/// Elements of a table.
inline constexpr int64_t mostCells = 4096;
/// The capacity of a sequence of at most `most` tokens; `Unbounded` where no field could hold them.
int64_t asLength(int64_t most);
/// How many are from `low` to `high`, at most.
int64_t mostBetween(const Expr &low, const Expr &high);
/// How many elements `a + b` has at most.
int64_t mostTogether(const ExprRef &a, const ExprRef &b);
/// What is known where the condition holds, or where it does not.
void refine(const Expr &condition, bool holds, Scope &scope);
/// The bounds of a slice of rows, for a reducer.
void takeRowBounds(const Expr &rows, Reduction &into);
/// The i32 `e`, negated.
ExprRef negated(const ExprRef &e);
/// What `e` is at compile time; nullopt when it is not known, or when a step overflows, which `overflow` receives.
std::optional<Constant> evaluate(const Expr &e, Overflow *overflow = nullptr);
/// "1 argument", "2 arguments".
std::string plural(size_t n, const char *noun);
std::string elemName(Elem e);
/// `i32`, `f32`, `bool` or `token`.
std::optional<Elem> elemNamed(llvm::StringRef name);
/// Of a line of Builtins.def: `i32`, `token[]`.
Type typeNamed(llvm::StringRef text);

/// Whether a name has a meaning in the language already (Decls.cpp).
bool reservedWord(llvm::StringRef name);
bool isPredefined(llvm::StringRef name);

} // namespace megalith::sema
#endif
