// Views of weights: parts of a tensor that the graph takes for a matrix or a vector of its own.
#include "GraphChecker.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace megalith {

using namespace graph;

namespace {
/// One dimension of what is left of a weight.
struct Dimension {
  int64_t size, stride;
};
} // namespace

/// How far the elements of each dimension stand apart in the tensor.
static std::vector<int64_t> stridesOf(const CheckedWeight &weight) {
  const size_t rank = weight.shape.size();
  std::vector<int64_t> strides(rank);
  int64_t stride = 1;
  for (size_t i = weight.transposed ? rank - 1 : rank; i-- > 0; stride *= weight.shape[i])
    strides[i] = stride;
  if (weight.transposed) // the inputs come first
    strides[rank - 1] = stride;
  return strides;
}

/// Dimensions of one element go, and those that lie like one become one.
static std::vector<Dimension> merged(llvm::ArrayRef<Dimension> dims) {
  std::vector<Dimension> out;
  for (const Dimension &d : dims)
    if (d.size > 1 && !out.empty() && out.back().stride == d.size * d.stride)
      out.back() = {out.back().size * d.size, d.stride};
    else if (d.size > 1)
      out.push_back(d);
  return out;
}

static int64_t sizeOf(llvm::ArrayRef<Dimension> dims) {
  int64_t size = 1;
  for (const Dimension &d : dims)
    size *= d.size;
  return size;
}

/// As a graph spells it, with numbers. Trailing dimensions that are whole are left out.
static std::string spelled(const CheckedWeight &weight, llvm::ArrayRef<std::pair<int64_t, int64_t>> ranges,
                           llvm::ArrayRef<bool> kept) {
  std::vector<std::string> parts;
  size_t last = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto [begin, end] = ranges[i];
    const bool whole = kept[i] && begin == 0 && end == weight.shape[i];
    parts.push_back(whole ? ":" : kept[i] ? fmt::format("{}:{}", begin, end) : std::to_string(begin));
    if (!whole)
      last = i;
  }
  parts.resize(last + 1);
  return fmt::format("{}[{}]", weight.name, fmt::join(parts, ", "));
}

const ast::Expr *GraphChecker::viewedName(const ast::Expr &e) const {
  const bool subscript = e.kind == ast::Expr::Index || e.kind == ast::Expr::Slice;
  if (!subscript || e.args[0]->kind != ast::Expr::Path || environment.count(e.args[0]->text))
    return nullptr;
  if (e.kind == ast::Expr::Index && e.args.size() == 2 && e.args[1]->kind == ast::Expr::Path &&
      (e.args[1]->text == "tokens" || e.args[1]->text == "position"))
    return nullptr;
  return e.args[0].get();
}

std::optional<WeightId> GraphChecker::viewedWeight(const ast::Expr &e) const {
  const ast::Expr *name = viewedName(e);
  return name ? findWeight(name->text) : std::nullopt;
}

std::optional<int64_t> GraphChecker::evalIndex(const ast::Expr &e, const std::string &what) {
  const unsigned before = diags.errors();
  std::optional<ConfigValue> value = evaluateConstant(e, model.config, diags);
  if (!value && diags.errors() > before && e.kind == ast::Expr::Path)
    diags.suggest(e.text, {"tokens", "position"});
  if (!value)
    return std::nullopt;
  if (const auto *number = std::get_if<int64_t>(&*value))
    return *number;
  diags.report(Diag::ConstantType, e.loc, what, "an integer", describe(*value));
  return std::nullopt;
}

bool GraphChecker::evalSubscript(const ast::Expr &e, WeightId of, Ranges &ranges, std::vector<bool> &kept) {
  const CheckedWeight &weight = model.weights[of];
  for (int64_t size : weight.shape)
    ranges.push_back({0, size});
  kept.assign(ranges.size(), true);
  const std::string what = "a part of weight `" + weight.name + "`";
  const auto check = [&](size_t dim, SourceLoc loc) {
    const auto [begin, end] = ranges[dim];
    if (begin >= 0 && begin < end && end <= weight.shape[dim])
      return true;
    diags.report(Diag::ViewRange, loc, ast::written(e),
                 kept[dim] ? fmt::format("{} to {}", begin, end) : std::to_string(begin), dim, weight.name,
                 weight.shape[dim]);
    diags.note(weight.loc, fmt::format("the weight is declared here, as {}", weight.shape));
    return false;
  };
  const auto bounds = [&](size_t dim, const ast::Expr &bounded, size_t first) {
    for (int64_t *side : {&ranges[dim].first, &ranges[dim].second}) {
      if (const ast::ExprPtr &bound = bounded.args[first++]) {
        const std::optional<int64_t> value = evalIndex(*bound, what);
        if (!value)
          return false;
        *side = *value;
      }
    }
    return check(dim, bounded.loc);
  };
  if (e.kind == ast::Expr::Path) // all of it
    return true;
  if (e.kind == ast::Expr::Slice)
    return bounds(0, e, 1);
  if (e.args.size() - 1 > ranges.size()) {
    diags.report(Diag::ViewIndices, e.loc, ast::written(e), e.args.size() - 1, weight.name,
                 fmt::format("{}", weight.shape));
    diags.note(weight.loc, "the weight is declared here");
    return false;
  }
  for (size_t dim = 0; dim + 1 < e.args.size(); ++dim) {
    const ast::Expr &index = *e.args[dim + 1];
    if (index.kind == ast::Expr::Bounds) {
      if (!bounds(dim, index, 0))
        return false;
      continue;
    }
    const std::optional<int64_t> value = evalIndex(index, what);
    if (!value)
      return false;
    kept[dim] = false;
    ranges[dim] = {*value, *value == INT64_MAX ? *value : *value + 1};
    if (!check(dim, index.loc))
      return false;
  }
  return true;
}

std::optional<WeightId> GraphChecker::useView(const ast::Expr &e, WeightId of, size_t rank) {
  CheckedWeight &weight = model.weights[of];
  weight.used = true;
  if (!weight.condition.empty() && !addends.count(&e)) {
    reportConditional(e, weight);
    return std::nullopt;
  }
  if (weight.perLayer && !inRepeat) {
    diags.report(Diag::LayerWeightOutside, e.loc, weight.name);
    return std::nullopt;
  }
  Ranges ranges;
  std::vector<bool> kept;
  return evalSubscript(e, of, ranges, kept) ? view(e, of, ranges, kept, rank) : std::nullopt;
}

std::optional<WeightId> GraphChecker::view(const ast::Expr &e, WeightId of, const Ranges &ranges,
                                           const std::vector<bool> &kept, size_t rank) {
  const CheckedWeight &weight = model.weights[of];
  const std::vector<int64_t> strides = stridesOf(weight);
  CheckedWeight made;
  made.part = CheckedWeight::Part{of, {}, ranges};
  WeightView &place = made.part->place;
  std::vector<Dimension> rows;
  for (size_t i = 0; i < ranges.size(); ++i) {
    place.offset += ranges[i].first * strides[i];
    if (kept[i])
      rows.push_back({ranges[i].second - ranges[i].first, strides[i]});
  }
  const auto keptFlags = llvm::to_vector_of<bool>(kept);
  made.name = spelled(weight, ranges, keptFlags);
  if (rows.size() < rank) {
    std::vector<int64_t> left;
    for (const Dimension &d : rows)
      left.push_back(d.size);
    diags.report(Diag::WeightUse, e.loc, made.name, left.empty() ? "one number" : fmt::format("{}", left),
                 rank == 1 ? "a vector" : "a matrix");
    diags.note(weight.loc, "the weight is declared here");
    return std::nullopt;
  }
  Dimension columns{1, 1};
  if (rank == 2) {
    columns = rows.back();
    rows.pop_back();
  }
  rows = merged(rows);
  const int64_t count = sizeOf(rows);
  if (rows.size() > 2) {
    diags.report(Diag::ViewRows, e.loc, made.name, weight.name);
    return std::nullopt;
  }
  if (count >= INT64_C(1) << 31) {
    diags.report(Diag::WeightSize, e.loc, made.name, std::to_string(count));
    return std::nullopt;
  }
  made.shape = {count};
  if (rank == 2)
    made.shape.push_back(columns.size);
  place.block = rows.empty() ? 1 : rows.back().size;
  place.rowStride = rows.empty() ? 0 : rows.back().stride;
  place.blockStride = rows.size() == 2 ? rows.front().stride : 0;
  place.columnStride = columns.stride;
  for (size_t i = 0; i < model.weights.size(); ++i)
    if (const CheckedWeight &other = model.weights[i]; other.part && other.part->of == of) {
      if (other.shape == made.shape && other.part->place == place)
        return i;
      if (other.name == made.name) // a matrix, and the same numbers as a vector
        made.name += fmt::format(" as {}", made.shape);
    }
  made.perLayer = weight.perLayer;
  made.used = true;
  made.loc = weight.loc;
  model.weights.push_back(std::move(made));
  return model.weights.size() - 1;
}

//===--- parts that are left out -------------------------------------------===//

using Box = std::vector<std::pair<int64_t, int64_t>>;

/// What of `boxes` lies outside `hole`.
static std::vector<Box> without(const std::vector<Box> &boxes, const Box &hole) {
  std::vector<Box> out;
  for (Box box : boxes) {
    bool apart = false;
    for (size_t i = 0; i < box.size(); ++i)
      apart |= hole[i].second <= box[i].first || box[i].second <= hole[i].first;
    for (size_t i = 0; !apart && i < box.size(); ++i) {
      Box before = box, after = box;
      before[i].second = hole[i].first;
      after[i].first = hole[i].second;
      for (const Box &piece : {before, after})
        if (piece[i].first < piece[i].second)
          out.push_back(piece);
      box[i] = {std::max(box[i].first, hole[i].first), std::min(box[i].second, hole[i].second)};
    }
    if (apart)
      out.push_back(std::move(box));
  }
  return out;
}

/// A third of a tensor that nobody reads means another graph than the checkpoint's.
void GraphChecker::checkParts() {
  for (size_t of = 0; of < model.weights.size(); ++of) {
    const CheckedWeight &weight = model.weights[of];
    if (weight.part || !weight.used || weight.usedWhole)
      continue;
    Box all;
    for (int64_t size : weight.shape)
      all.push_back({0, size});
    std::vector<Box> left = {all};
    bool viewed = false;
    for (const CheckedWeight &other : model.weights)
      if (other.part && other.part->of == of) {
        viewed = true;
        left = without(left, other.part->ranges);
      }
    if (!viewed || left.empty())
      continue;
    llvm::SmallVector<bool> kept;
    for (const auto &[begin, end] : left.front())
      kept.push_back(end - begin > 1);
    diags.report(Diag::UnreadPart, weight.loc, spelled(weight, left.front(), kept));
  }
}

} // namespace megalith
