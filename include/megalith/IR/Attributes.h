//===- Attributes.h - typed attributes, by Attributes.def -----------------===//
//
// Each name of the list is a type in `attr`: `op.get<attr::pages>()` is a whole number
// and `op.get<attr::on_full>()` an OnFull. A name that is not in the list does not
// compile. A name that the operation does not have is an assertion.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_IR_ATTRIBUTES_H
#define MEGALITH_IR_ATTRIBUTES_H

#include "megalith/Contract/Limits.h"
#include "megalith/IR/Ops.h"
#include "megalith/IR/Words.h"
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

/// What code reads and writes of each kind. An attribute of another kind, or none, is read as nothing: 0, "", [], or
/// the first word.
namespace kinds {
template <AttrKind Kind, typename T, typename R> struct Plain {
  static constexpr AttrKind kind = Kind;
  using Value = T;
  using Read = R;
  static Read read(const Attr *attr);
  static Attr write(Value value) { return Attr(std::move(value)); }
  static std::vector<std::string> words() { return {}; }
};
using Flag = Plain<AttrKind::Flag, bool, bool>;
using Int = Plain<AttrKind::Int, int64_t, int64_t>;
using Float = Plain<AttrKind::Float, double, double>;
using String = Plain<AttrKind::String, std::string, const std::string &>;
using Ints = Plain<AttrKind::Ints, std::vector<int64_t>, const std::vector<int64_t> &>;
using Floats = Plain<AttrKind::Floats, std::vector<double>, const std::vector<double> &>;
using Strings = Plain<AttrKind::Strings, std::vector<std::string>, const std::vector<std::string> &>;
struct Number : Plain<AttrKind::Number, ir::Number, ir::Number> {
  static Attr write(ir::Number value) { return value.attr(); }
};

template <typename Enum> struct Word : Plain<AttrKind::String, Enum, Enum> {
  static Enum read(const Attr *attr) { return wordNamed<Enum>(String::read(attr)).value_or(Enum()); }
  static Attr write(Enum value) { return word(value); }
  static std::vector<std::string> words() { return wordsOf<Enum>(); }
};
template <typename Enum> struct WordList : Plain<AttrKind::Strings, std::vector<Enum>, std::vector<Enum>> {
  static std::vector<Enum> read(const Attr *attr) {
    std::vector<Enum> list;
    for (const std::string &text : Strings::read(attr))
      list.push_back(wordNamed<Enum>(text).value_or(Enum()));
    return list;
  }
  static Attr write(const std::vector<Enum> &value) {
    std::vector<std::string> list;
    for (Enum e : value)
      list.push_back(word(e));
    return list;
  }
  static std::vector<std::string> words() { return wordsOf<Enum>(); }
};
} // namespace kinds

/// A name of the list with its kind. One name has one kind: another one would be another type of that name.
template <AttrText Text, typename OfKind> struct AttrName {
  static constexpr std::string_view text = {Text.text, sizeof(Text.text) - 1};
  using Kind = OfKind;
};

namespace attr {
#define ATTR(Operation, Name, Kind, Presence, Values) using Name = AttrName<#Name, kinds::Kind>;
#include "megalith/IR/Attributes.def"
} // namespace attr

template <typename Name> using AttrValue = typename Name::Kind::Value;
template <typename Name> using AttrRead = typename Name::Kind::Read;

/// What values an attribute may have, beside its kind.
struct AttrValues {
  int64_t least = 0, most = INT32_MAX; ///< of an Int
  bool positive = false;               ///< of a Float: above 0 and finite
  std::vector<std::string> words = {}; ///< of a String or of each of Strings; none: any
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
  template <typename Name> AttrRead<Name> get(Op op) const { return Name::Kind::read(valueOf(op, Name::text)); }
  template <typename Name> void set(AttrValue<Name> value) {
    map.insert_or_assign(std::string(Name::text), Name::Kind::write(std::move(value)));
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
