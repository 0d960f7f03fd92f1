#include "megalith/IR/Attributes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
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
template <typename Enum> Presence otherwise(Enum value) { return {false, word(value)}; }

const AttrValues any, positive = {0, INT32_MAX, true, {}};
AttrValues range(int64_t least, int64_t most) { return {least, most, false, {}}; }
template <typename... Enums> AttrValues only(Enums... list) { return {0, INT32_MAX, false, {word(list)...}}; }

std::vector<AttrInfo> readList() {
  std::vector<AttrInfo> list;
  const AttrValues ofControl = only(Scalar::I32, Scalar::F32, Scalar::Bool, Scalar::Token);
  const AttrValues ofReducers = {0, INT32_MAX, false,
                                 splitNames(""
#define OPERAND(Id, Type, Taken) #Id ", "
#include "megalith/Contract/Reducers.def"
                                            )};
  const auto add = [&](Op op, const char *name, auto kind, const Presence &presence, AttrValues values) {
    if (values.words.empty())
      values.words = kind.words();
    list.push_back({op, name, kind.kind, presence.isRequired, presence.value, std::move(values)});
  };
#define ATTR(Operation, Name, Kind, Presence, Values) add(Op::Operation, #Name, kinds::Kind(), Presence, Values);
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

std::vector<std::string> splitNames(llvm::StringRef names) {
  std::vector<std::string> words;
  llvm::SmallVector<llvm::StringRef> list;
  names.split(list, ", ", /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (llvm::StringRef name : list) {
    std::string &word = words.emplace_back();
    for (const char &c : name) {
      if (llvm::isUpper(c) && !word.empty() && llvm::isLower(name[&c - name.data() - 1]))
        word += '_';
      word += llvm::toLower(c);
    }
  }
  return words;
}

namespace kinds {

template <typename T> static const T &valueOr(const Attr *attr, const T &nothing) {
  const T *v = attr ? std::get_if<T>(attr) : nullptr;
  return v ? *v : nothing;
}
template <> bool Flag::read(const Attr *attr) { return valueOr(attr, false); }
template <> int64_t Int::read(const Attr *attr) { return valueOr(attr, int64_t(0)); }
template <> ir::Number Plain<AttrKind::Number, ir::Number, ir::Number>::read(const Attr *attr) {
  return attr ? ir::Number(*attr) : ir::Number(int64_t(0));
}
template <> double Float::read(const Attr *attr) { return Number::read(attr).real(); }
template <> const std::string &String::read(const Attr *attr) {
  static const std::string nothing;
  return valueOr(attr, nothing);
}
template <> const std::vector<int64_t> &Ints::read(const Attr *attr) {
  static const std::vector<int64_t> nothing;
  return valueOr(attr, nothing);
}
template <> const std::vector<double> &Floats::read(const Attr *attr) {
  static const std::vector<double> nothing;
  return valueOr(attr, nothing);
}
template <> const std::vector<std::string> &Strings::read(const Attr *attr) {
  static const std::vector<std::string> nothing;
  return valueOr(attr, nothing);
}

} // namespace kinds

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
