#include "megalith/IR/Attributes.h"
#include "llvm/ADT/STLExtras.h"
#include <array>
#include <cassert>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace megalith::ir {

namespace {

// The words of Attributes.def.
struct Presence {
  bool isRequired = false;
  std::optional<Attr> value;
};
const Presence required = {true, std::nullopt}, optional = {};
Presence otherwise(int value) { return {false, int64_t(value)}; }
Presence otherwise(const char *value) { return {false, std::string(value)}; }

const AttrValues any, positive = {0, INT32_MAX, true, {}};
AttrValues range(int64_t least, int64_t most) { return {least, most, false, {}}; }
template <typename... Words> AttrValues words(Words... list) { return {0, INT32_MAX, false, {list...}}; }

std::vector<AttrInfo> readList() {
  std::vector<AttrInfo> list;
  const auto add = [&](Op op, const char *name, AttrKind kind, const Presence &presence, const AttrValues &values) {
    list.push_back({op, name, kind, presence.isRequired, presence.value, values});
  };
#define ATTR(Operation, Name, Kind, Presence, Values) add(Op::Operation, #Name, AttrKind::Kind, Presence, Values);
#include "megalith/IR/Attributes.def"
  return list;
}

} // namespace

Number::Number(const Attr &attr) : value(int64_t(0)) {
  if (const bool *v = std::get_if<bool>(&attr))
    value = *v;
  else if (const int64_t *v = std::get_if<int64_t>(&attr))
    value = *v;
  else if (const double *v = std::get_if<double>(&attr))
    value = *v;
}

int64_t Number::whole() const {
  if (const bool *v = std::get_if<bool>(&value))
    return *v;
  const int64_t *v = std::get_if<int64_t>(&value);
  return v ? *v : 0;
}

double Number::real() const {
  const double *v = std::get_if<double>(&value);
  return v ? *v : static_cast<double>(whole());
}

Attr Number::attr() const {
  return std::visit([](auto v) { return Attr(v); }, value);
}

namespace detail {

template <typename T> static const T &valueOr(const Attr *attr, const T &nothing) {
  const T *v = attr ? std::get_if<T>(attr) : nullptr;
  return v ? *v : nothing;
}
template <> bool read<AttrKind::Flag>(const Attr *attr) { return valueOr(attr, false); }
template <> int64_t read<AttrKind::Int>(const Attr *attr) { return valueOr(attr, int64_t(0)); }
template <> Number read<AttrKind::Number>(const Attr *attr) { return attr ? Number(*attr) : Number(int64_t(0)); }
template <> double read<AttrKind::Float>(const Attr *attr) { return read<AttrKind::Number>(attr).real(); }
template <> const std::string &read<AttrKind::String>(const Attr *attr) {
  static const std::string nothing;
  return valueOr(attr, nothing);
}
template <> const std::vector<int64_t> &read<AttrKind::Ints>(const Attr *attr) {
  static const std::vector<int64_t> nothing;
  return valueOr(attr, nothing);
}
template <> const std::vector<double> &read<AttrKind::Floats>(const Attr *attr) {
  static const std::vector<double> nothing;
  return valueOr(attr, nothing);
}
template <> const std::vector<std::string> &read<AttrKind::Strings>(const Attr *attr) {
  static const std::vector<std::string> nothing;
  return valueOr(attr, nothing);
}

} // namespace detail

llvm::StringRef kindText(AttrKind kind) {
  switch (kind) {
  case AttrKind::Flag:
    return "a flag";
  case AttrKind::Int:
    return "a whole number";
  case AttrKind::Float:
  case AttrKind::Number:
    return "a number";
  case AttrKind::String:
    return "a string";
  case AttrKind::Ints:
    return "a list of numbers";
  case AttrKind::Floats:
    return "a list of numbers with points";
  case AttrKind::Strings:
    return "a list of strings";
  }
  llvm_unreachable("unknown kind of attribute");
}

std::string AttrInfo::whyNot(const Attr &attr) const {
  const int64_t *whole = std::get_if<int64_t>(&attr);
  const double *real = std::get_if<double>(&attr);
  const auto *string = std::get_if<std::string>(&attr);
  const auto *strings = std::get_if<std::vector<std::string>>(&attr);
  const bool flag = std::holds_alternative<bool>(attr);
  // An empty list has no type of its own.
  const bool fits =
      kind == AttrKind::Flag     ? flag
      : kind == AttrKind::Int    ? whole && *whole >= values.least && *whole <= values.most
      : kind == AttrKind::Float  ? whole || real
      : kind == AttrKind::Number ? whole || real || flag
      : kind == AttrKind::String ? string != nullptr
      : kind == AttrKind::Ints   ? std::holds_alternative<std::vector<int64_t>>(attr) || (strings && strings->empty())
      : kind == AttrKind::Floats ? std::holds_alternative<std::vector<double>>(attr) || (strings && strings->empty())
                                 : strings != nullptr;
  if (!fits)
    return fmt::format("must be {}{}", kindText(kind).str(),
                       kind == AttrKind::Int ? fmt::format(" from {} to {}", values.least, values.most) : "");
  const double number = whole ? static_cast<double>(*whole) : real ? *real : 1;
  if (values.positive && !(number > 0 && std::isfinite(number)))
    return "must be above 0";
  const auto known = [&](const std::string &word) {
    return values.words.empty() || llvm::is_contained(values.words, word);
  };
  if ((string && !known(*string)) || (strings && !llvm::all_of(*strings, known)))
    return fmt::format("must be one of {}", fmt::join(values.words, ", "));
  return "";
}

llvm::ArrayRef<AttrInfo> attributes() {
  static const std::vector<AttrInfo> list = readList();
  return list;
}

llvm::ArrayRef<AttrInfo> attributes(Op op) {
  static const std::array<llvm::ArrayRef<AttrInfo>, numOps> byOp = [] {
    std::array<llvm::ArrayRef<AttrInfo>, numOps> result;
    const llvm::ArrayRef<AttrInfo> all = attributes();
    for (size_t begin = 0, end; begin < all.size(); begin = end) {
      for (end = begin; end < all.size() && all[end].op == all[begin].op; ++end)
        ;
      llvm::ArrayRef<AttrInfo> &own = result[static_cast<size_t>(all[begin].op)];
      assert(own.empty() && "the attributes of an operation stand together");
      own = all.slice(begin, end - begin);
    }
    return result;
  }();
  return byOp[static_cast<size_t>(op)];
}

const AttrInfo *attribute(Op op, std::string_view name) {
  for (const AttrInfo &info : attributes(op))
    if (info.name == name)
      return &info;
  return nullptr;
}

const Attr *Attributes::find(std::string_view name) const {
  const auto it = map.find(name);
  return it == map.end() ? nullptr : &it->second;
}

const Attr *Attributes::valueOf(Op op, std::string_view name) const {
  if (const Attr *value = find(name))
    return value;
  const AttrInfo *info = attribute(op, name);
  assert(info && "the operation has no such attribute");
  assert((info->otherwise || info->kind == AttrKind::Flag || info->kind == AttrKind::Strings ||
          info->kind == AttrKind::Ints || info->kind == AttrKind::Floats) &&
         "an attribute without a default is read where it stands");
  return info && info->otherwise ? &*info->otherwise : nullptr;
}

} // namespace megalith::ir
