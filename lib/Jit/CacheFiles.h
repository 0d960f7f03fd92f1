//===- CacheFiles.h - reading files of a kernel cache ---------------------===//
#ifndef MEGALITH_LIB_JIT_CACHEFILES_H
#define MEGALITH_LIB_JIT_CACHEFILES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include <cstdint>
#include <optional>
#include <string>

namespace megalith::jit {

constexpr const char *secretName = "secret";

/// A file of the folder that only we can have written; nothing if it is anything else.
std::optional<std::string> readOurs(int folder, const std::string &name, uint64_t most);

/// KEY.json as it stands there, its seal not looked at; nothing if it is not this key's.
std::optional<llvm::json::Object> readInfo(int folder, llvm::StringRef key);

} // namespace megalith::jit
#endif
