#ifndef MEGALITH_SUPPORT_SOURCELOC_H
#define MEGALITH_SUPPORT_SOURCELOC_H

#include <cstdint>

namespace megalith {

/// A place in a source file: file index (see SourceFiles), 1-based line and
/// column, and the length in characters that a caret line underlines.
/// line == 0 means "no place".
struct SourceLoc {
  uint32_t file = 0, line = 0, column = 0, length = 1;
  explicit operator bool() const { return line != 0; }
  bool operator==(const SourceLoc &) const = default;
};

} // namespace megalith
#endif
