#include "Paths.h"
#include "Program.h"
#include <fmt/format.h>
#include <map>

using namespace megalith;
using namespace megalith::reference;

int32_t PageTable::at(int64_t number) const {
  if (number < first)
    throw NotExecutable(
        "a row sees keys of a page that was given back: `kv_window` is less than the window of a layer");
  return pages->at(number - first);
}

RowPath RowPath::then(int32_t place) const {
  if (places.empty() && place == from)
    return {from + 1, {}};
  RowPath path = *this;
  path.places.push_back(place);
  return path;
}

namespace {
/// The paths that are known of a slot, by the place of their last row.
class SlotPaths {
public:
  explicit SlotPaths(const PageTable &table) {
    if (table.parents)
      for (size_t i = 0; i < table.parents->size(); ++i)
        add(static_cast<int32_t>(table.base + i), (*table.parents)[i]);
  }
  const RowPath &add(int32_t place, int32_t parent) {
    auto known = byPlace.find(parent);
    return byPlace[place] = (known == byPlace.end() ? RowPath{parent + 1, {}} : known->second).then(place);
  }

private:
  std::map<int32_t, RowPath> byPlace;
};
} // namespace

std::vector<RowPath> reference::pathsOf(const std::vector<Row> &rows, const std::vector<PageTable> &tables) {
  std::map<int32_t, SlotPaths> slots;
  std::vector<RowPath> paths;
  for (const Row &row : rows) {
    auto [slot, fresh] =
        slots.try_emplace(row.slot, row.slot < int64_t(tables.size()) ? tables[row.slot] : PageTable());
    paths.push_back(slot->second.add(row.kvSlot, row.parent));
    if (paths.back().end() != row.position + 1)
      throw NotExecutable(
          fmt::format("a row at position {} hangs on one at position {}", row.position, paths.back().end() - 2));
  }
  return paths;
}
