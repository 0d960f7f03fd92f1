//===- Attributes.h - typed attributes, by Attributes.def -----------------===//
//
// Each name of the list is a type in `attr`: `op.get<attr::pages>()` is a whole number
// and `op.get<attr::on_full>()` a string. A name that is not in the list does not
// compile. A name that the operation does not have is an assertion.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_IR_ATTRIBUTES_H
#define MEGALITH_IR_ATTRIBUTES_H

#include "megalith/IR/Ops.h"
#include "megalith/Limits.h"
#include "llvm/ADT/ArrayRef.h"
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace megalith::ir {

/// The value of an attribute. In text a bool is `key` (true only) and a double always has a point or an exponent.
using Attr = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                          std::vector<std::string>>;

enum class AttrKind : uint8_t { Flag, Int, Float, Number, String, Ints, Floats, Strings };

/// The value of a constant, a param or a field: a flag, a whole number, or one with a point.
class Number {
public:
  Number(bool v) : value(v) {}
  Number(int64_t v) : value(v) {}
  Number(double v) : value(v) {}
  explicit Number(const Attr &attr);
  bool isFlag() const { return std::holds_alternative<bool>(value); }
  bool isReal() const { return std::holds_alternative<double>(value); }
  /// The whole number, and 0 or 1 of a flag; of one with a point, 0.
  int64_t whole() const;
  double real() const;
  bool truth() const { return whole() != 0; }
  Attr attr() const;

private:
  std::variant<bool, int64_t, double> value;
};

/// What an attribute's text is at compile time.
template <size_t N> struct AttrText {
  char text[N] = {};
  consteval AttrText(const char (&s)[N]) { std::copy(s, s + N, text); }
};

/// A name of the list with its kind. One name has one kind: another one would be another type of that name.
template <AttrText Text, AttrKind Kind> struct AttrName {
  static constexpr std::string_view text = {Text.text, sizeof(Text.text) - 1};
  static constexpr AttrKind kind = Kind;
};

namespace attr {
#define ATTR(Operation, Name, Kind, Presence, Values) using Name = AttrName<#Name, AttrKind::Kind>;
#include "megalith/IR/Attributes.def"
} // namespace attr

namespace detail {
template <AttrKind Kind> struct AttrTypes;
template <> struct AttrTypes<AttrKind::Flag> {
  using Value = bool;
  using Read = bool;
};
template <> struct AttrTypes<AttrKind::Int> {
  using Value = int64_t;
  using Read = int64_t;
};
template <> struct AttrTypes<AttrKind::Float> {
  using Value = double;
  using Read = double;
};
template <> struct AttrTypes<AttrKind::Number> {
  using Value = Number;
  using Read = Number;
};
template <> struct AttrTypes<AttrKind::String> {
  using Value = std::string;
  using Read = const std::string &;
};
template <> struct AttrTypes<AttrKind::Ints> {
  using Value = std::vector<int64_t>;
  using Read = const std::vector<int64_t> &;
};
template <> struct AttrTypes<AttrKind::Floats> {
  using Value = std::vector<double>;
  using Read = const std::vector<double> &;
};
template <> struct AttrTypes<AttrKind::Strings> {
  using Value = std::vector<std::string>;
  using Read = const std::vector<std::string> &;
};
/// `attr` as such a value; of another kind, or when null, nothing (0, "", []).
template <AttrKind Kind> typename AttrTypes<Kind>::Read read(const Attr *attr);
} // namespace detail

template <typename Name> using AttrValue = typename detail::AttrTypes<Name::kind>::Value;
template <typename Name> using AttrRead = typename detail::AttrTypes<Name::kind>::Read;

/// What values an attribute may have, beside its kind.
struct AttrValues {
  int64_t least = 0, most = INT32_MAX; ///< of an Int
  bool positive = false;               ///< of a Float: above 0 and finite
  std::vector<std::string> words;      ///< of a String or of each of Strings; none: any
};

/// One line of Attributes.def.
struct AttrInfo {
  Op op;
  std::string name;
  AttrKind kind;
  bool required;
  std::optional<Attr> otherwise;
  AttrValues values;

  /// Why `attr` is no value of it: "must be ..."; empty when it is one.
  std::string whyNot(const Attr &attr) const;
};

/// The whole list, and what it says of one operation.
llvm::ArrayRef<AttrInfo> attributes();
llvm::ArrayRef<AttrInfo> attributes(Op op);
const AttrInfo *attribute(Op op, std::string_view name);
/// "a whole number" and so on.
llvm::StringRef kindText(AttrKind kind);

/// The attributes that stand at an operation, in the order of their names.
class Attributes {
public:
  using Map = std::map<std::string, Attr, std::less<>>;
  template <typename Name> AttrRead<Name> get(Op op) const { return detail::read<Name::kind>(valueOf(op, Name::text)); }
  template <typename Name> void set(AttrValue<Name> value) {
    if constexpr (Name::kind == AttrKind::Number)
      map.insert_or_assign(std::string(Name::text), value.attr());
    else
      map.insert_or_assign(std::string(Name::text), Attr(std::move(value)));
  }
  template <typename Name> void erase() {
    if (auto it = map.find(Name::text); it != map.end())
      map.erase(it);
  }
  /// What IR text says, right or wrong: for the parser, which leaves the list to the verifier. False when it is there.
  bool addUnchecked(std::string name, Attr value) { return map.emplace(std::move(name), std::move(value)).second; }
  /// The value that stands here; null when there is none.
  const Attr *find(std::string_view name) const;
  Map::const_iterator begin() const { return map.begin(); }
  Map::const_iterator end() const { return map.end(); }
  void clear() { map.clear(); }
  bool operator==(const Attributes &) const = default;

private:
  /// That value, or the list's for `op`.
  const Attr *valueOf(Op op, std::string_view name) const;
  Map map;
};

} // namespace megalith::ir
#endif
