//===- Paths.h - which places a row sees ------------------------*- C++ -*-===//
#ifndef MEGALITH_LIB_REFERENCE_PATHS_H
#define MEGALITH_LIB_REFERENCE_PATHS_H

#include "megalith/Contract/Row.h"
#include <cstdint>
#include <vector>

namespace megalith::reference {

/// The places of the positions up to a row, on its own path.
struct RowPath {
  int64_t from = 0;            ///< each position below stands at the place of its number
  std::vector<int32_t> places; ///< of the positions from `from` on

  /// The position after the row's.
  int64_t end() const { return from + static_cast<int64_t>(places.size()); }
  /// The place of a position. Positions after the row are those of the rows after it.
  int64_t at(int64_t position) const {
    if (position < from || places.empty())
      return position;
    return position < end() ? places[position - from] : places.back() + (position - end() + 1);
  }
  /// The path of a row at `place` whose parent has this one.
  RowPath then(int32_t place) const;
};

/// What a pass has to know of a slot.
struct PageTable {
  int64_t first = 0;                           ///< pages in front that were given back
  const std::vector<int32_t> *pages = nullptr; ///< the others
  /// Rows of earlier calls of the same run: row i stands at place `base` + i, its parent at place parents[i]. What
  /// stands below `base` is a chain.
  int64_t base = 0;
  const std::vector<int32_t> *parents = nullptr;

  /// The page of that number. Throws NotExecutable where it was given back.
  int32_t at(int64_t number) const;
};

/// The paths of a pass's rows. Throws NotExecutable where a row's position is not its parent's plus 1.
std::vector<RowPath> pathsOf(const std::vector<Row> &rows, const std::vector<PageTable> &tables);

} // namespace megalith::reference
#endif
