//===- BufferStages.h - what buffers and their stages share ---------------===//
#ifndef MEGALITH_LIB_SEMA_BUFFERSTAGES_H
#define MEGALITH_LIB_SEMA_BUFFERSTAGES_H

#include "Context.h"

namespace megalith::sema {

/// What control computes with where a buffer has such elements; nullopt: they are only copied.
std::optional<Elem> elemOf(llvm::StringRef dtype);
/// "2 dimensions".
std::string dimensions(size_t n);
/// Whether it is made of dims and numbers by `+`, `-` and `*`; and whether two such are the same for all dims.
bool isSize(const Expr &e);
bool sameSize(const Expr &a, const Expr &b);

/// Checks the stages of a pipeline of buffers, when its buffers are known.
void checkBufferStages(Context &ctx);

} // namespace megalith::sema
#endif
