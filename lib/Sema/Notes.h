//===- Notes.h - what to write instead ------------------------------------===//
#ifndef MEGALITH_LIB_SEMA_NOTES_H
#define MEGALITH_LIB_SEMA_NOTES_H

#include "Context.h"

namespace megalith::sema {

enum class Guess { Function, Name, Statement, Graph };
/// Says what to write for what is nothing here, but known from elsewhere as one of these. False if it is not.
bool noteGuess(Diagnostics &diags, llvm::StringRef name, Guess of);
/// Where `found` should have been a `wanted`, or several: what makes one of it. `e` is what was written.
void noteCast(Diagnostics &diags, const Type &found, Elem wanted, const ast::Expr &e);
/// The two sides of an operator differ in type: which one to change.
void noteCasts(Diagnostics &diags, const ExprRef &a, const ExprRef &b, const ast::Expr &e);
/// Of a function that goes through a range, or reads logits: how it goes through the sequence `e`.
void noteRange(Diagnostics &diags, const std::string &function, const ast::Expr &e);
/// Where `e` should have been tokens, and is the i32 of a local: how to write that.
void noteNoTokens(Diagnostics &diags, const Expr &e, Elem wanted);
/// Of a length or number that has no bound, or one that is too great: the name that it comes from, and why.
void noteBound(Context &ctx, const Expr &e);
/// Of a call that cannot stand somewhere: how to make it there.
void noteNoCall(Diagnostics &diags, const std::string &model, const char *where);

} // namespace megalith::sema
#endif
