//===- JsonView.h - members of JSON, read strictly --------------*- C++ -*-===//
//
// The library's own conversions cut `0.9` to 0 and 2^32 + 258 to 258, and throw
// exceptions whose text speaks of its types. These take integers in a range and
// nothing else in their place, and say which member is wrong and how.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_JSON_JSONVIEW_H
#define MEGALITH_JSON_JSONVIEW_H

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// What is wrong with a text. Thrown by JsonView, and caught where a whole text is read.
struct JsonWrong {
  std::string message;
  /// The member of the outermost object in which it lies; "" for none.
  std::string member;
  /// From 1; 0: not known.
  unsigned line = 0, column = 0;
};

/// The value of a JSON text that lives elsewhere, with its name for messages. Every function
/// throws JsonWrong when the value is not what it asks for.
class JsonView {
public:
  /// `what` says in messages what the whole text is: "a tick".
  JsonView(const nlohmann::json &value, std::string_view what) : value(&value), name(what) {}

  /// The member `key` of an object.
  JsonView at(std::string_view key) const;
  std::optional<JsonView> find(std::string_view key) const;
  /// Every other member is an error.
  void only(std::initializer_list<std::string_view> keys) const;

  int64_t integer(int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max()) const;
  int32_t integer32(int32_t least = std::numeric_limits<int32_t>::min(),
                    int32_t most = std::numeric_limits<int32_t>::max()) const {
    return static_cast<int32_t>(integer(least, most));
  }
  /// A number, or "NaN", "Infinity" or "-Infinity", for which JSON has no number.
  double number() const;
  bool boolean() const;
  const std::string &string() const;

  /// Calls `each(view)` for the entries of a list.
  template <class Each> void list(Each each) const {
    if (!value->is_array())
      wrong("must be a list");
    for (size_t i = 0; i < value->size(); ++i)
      each(entry(i));
  }
  /// Calls `each(key, view)` for the members of an object.
  template <class Each> void members(Each each) const {
    needObject();
    for (auto it = value->begin(); it != value->end(); ++it)
      each(it.key(), member(it.key(), *it));
  }
  std::vector<int32_t> integers32(int32_t least = std::numeric_limits<int32_t>::min(),
                                  int32_t most = std::numeric_limits<int32_t>::max()) const;

  const nlohmann::json &json() const { return *value; }
  /// Throws "NAME BUT, found `VALUE`".
  [[noreturn]] void wrong(const std::string &but) const;

private:
  JsonView member(std::string_view key, const nlohmann::json &of) const;
  JsonView entry(size_t index) const;
  void needObject() const;
  std::string nameText() const;

  const nlohmann::json *value;
  std::string_view name;          ///< of the text, or the last key
  std::string_view top;           ///< the first key
  int64_t outer = -1, inner = -1; ///< indices of lists after `name`
};

/// Parses `text` into `out`, as parseJson has it; throws JsonWrong.
void parseJsonText(std::string_view text, nlohmann::json &out);

/// The column, from 1, at which the member `key` of the object `text` begins; 1 when there is
/// none.
unsigned columnOfMember(std::string_view text, const std::string &key);

} // namespace megalith

#endif
