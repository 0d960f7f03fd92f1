//===- Symbols.h - code addresses to functions and lines ------------------===//
#ifndef MEGALITH_JIT_SYMBOLS_H
#define MEGALITH_JIT_SYMBOLS_H

#include "llvm/ADT/ArrayRef.h"
#include <cstdint>
#include <string>
#include <vector>

namespace megalith::jit {

struct Frame {
  std::string function; ///< demangled; "" where it is not known
  std::string file;     ///< as `#line` names it; "" where it is not known
  unsigned line = 0;
  bool operator==(const Frame &) const = default;
};

/// The functions that hold the calls before these return addresses, offsets from where
/// `sharedObject` was loaded: for each address what was inlined there, innermost first,
/// then the function itself. Empty for an address that lies in no function, and for all
/// where neither llvm-symbolizer nor addr2line is installed.
std::vector<std::vector<Frame>> symbolize(const std::string &sharedObject, llvm::ArrayRef<uint64_t> returnAddresses);

} // namespace megalith::jit
#endif
