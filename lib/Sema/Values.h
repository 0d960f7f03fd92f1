//===- Values.h - typed expressions: how they are made and compared -------===//
#ifndef MEGALITH_LIB_SEMA_VALUES_H
#define MEGALITH_LIB_SEMA_VALUES_H

#include "megalith/Sema/Pipeline.h"
#include "llvm/ADT/StringRef.h"

namespace megalith::sema {

/// A step of a constant whose result its type does not hold.
struct Overflow {
  SourceLoc loc;
  Elem elem = Elem::I32;
  std::string value;
};

std::shared_ptr<Expr> make(Expr::Kind kind, Type type, SourceLoc loc, std::vector<ExprRef> args = {},
                           Expr::Data data = {}, Range range = {});
/// Whether two checked expressions are written alike.
bool sameExpr(const Expr &a, const Expr &b);
ExprRef intConst(int64_t v, SourceLoc loc, bool literal = false);
/// Whether it is a written number.
bool isLiteral(const Expr &e);
/// `map(i in a..b, ...)`.
bool isMap(const Expr &e);
/// Whether it is told of the request's own KV, so only of one that holds a slot.
bool ofSlot(PoolName what);
/// Of a request, in a slot or not: what is no policy's.
bool ofRequest(PoolName what);
/// The call that `e` is, or that it is some rows of.
const Call &callOf(const Expr &e);
const ExprRef &callIn(const ExprRef &e);
ExprRef fromConstant(const Constant &c, SourceLoc loc, bool literal);
/// `e`, where its type has no elements yet, as one of that shape.
ExprRef adopt(const ExprRef &e, const Type &like);
/// The same with such elements, where it can have them: a written integer takes the other side's type, and a constant
/// is a token where one is needed.
ExprRef convert(ExprRef e, Elem elem);
/// Gives both one type, if they can have one.
bool unify(ExprRef &a, ExprRef &b);
/// `a` with room for what `b` has room for, too.
Type wider(Type a, const Type &b);
/// Elements of a table.
inline constexpr int64_t mostCells = limits::cells;
/// The capacity of a sequence of at most `most` tokens; `Unbounded` where no field could hold them.
int64_t asLength(int64_t most);
/// How many are from `low` to `high`, at most.
int64_t mostBetween(const Expr &low, const Expr &high);
/// How many elements `a + b` has at most.
int64_t mostTogether(const ExprRef &a, const ExprRef &b);
/// The i32 `e`, negated.
ExprRef negated(const ExprRef &e);
/// `v`, where the guard of its block holds or there is none; else 0 or nothing.
ExprRef guarded(const ExprRef &guard, const ExprRef &v);
/// What `e` is at compile time; nullopt when it is not known, or when a step overflows, which `overflow` receives.
std::optional<Constant> evaluate(const Expr &e, Overflow *overflow = nullptr);
/// "1 argument", "2 arguments".
std::string plural(size_t n, const char *noun);
std::string elemName(Elem e);
/// `i32`, `f32`, `bool` or `token`.
std::optional<Elem> elemNamed(llvm::StringRef name);
/// Of a line of Builtins.def: `i32`, `token[]`.
Type typeNamed(llvm::StringRef text);

} // namespace megalith::sema
#endif
