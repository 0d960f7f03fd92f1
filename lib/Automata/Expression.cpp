#include "megalith/Automata/Expression.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <fmt/format.h>
#include <utility>

using namespace megalith;
using namespace megalith::automata;

using Id = Expression::Id;

// --- sets of code points

constexpr uint32_t FirstSurrogate = 0xd800, LastSurrogate = 0xdfff;

static bool isSurrogate(uint32_t code) { return code >= FirstSurrogate && code <= LastSurrogate; }

std::vector<CodeRange> automata::normalised(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<CodeRange> joined;
  for (const CodeRange &range : ranges)
    if (!joined.empty() && range.first <= joined.back().last + 1)
      joined.back().last = std::max(joined.back().last, range.last);
    else
      joined.push_back(range);
  return intersection(joined, {{0, FirstSurrogate - 1}, {LastSurrogate + 1, LastCodePoint}});
}

std::vector<CodeRange> automata::complement(const std::vector<CodeRange> &ranges) {
  std::vector<CodeRange> out;
  uint32_t next = 0;
  for (const CodeRange &range : ranges) {
    if (range.first > next)
      out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= LastCodePoint)
    out.push_back({next, LastCodePoint});
  return normalised(std::move(out));
}

std::vector<CodeRange> automata::intersection(const std::vector<CodeRange> &a, const std::vector<CodeRange> &b) {
  std::vector<CodeRange> out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const CodeRange both{std::max(a[i].first, b[j].first), std::min(a[i].last, b[j].last)};
    if (both.first <= both.last)
      out.push_back(both);
    a[i].last < b[j].last ? ++i : ++j;
  }
  return out;
}

// --- parts

Id Expression::add(Node node) {
  all.push_back(node);
  return static_cast<Id>(all.size() - 1);
}

Id Expression::empty() { return add({Kind::Empty}); }

Id Expression::set(std::vector<CodeRange> ranges) {
  ranges = normalised(std::move(ranges));
  auto [found, isNew] = setIds.try_emplace(std::move(ranges), 0);
  if (isNew) {
    found->second = add({Kind::Set, static_cast<uint32_t>(sets.size())});
    sets.push_back(&found->first);
    rangeCount += found->first.size();
  }
  return found->second;
}

Id Expression::sequence(std::span<const Id> parts) {
  if (parts.size() == 1)
    return parts[0];
  if (parts.empty())
    return empty();
  const uint32_t first = static_cast<uint32_t>(children.size());
  children.insert(children.end(), parts.begin(), parts.end());
  return add({Kind::Sequence, first, static_cast<uint32_t>(parts.size())});
}

Id Expression::choice(std::span<const Id> parts) {
  if (parts.size() == 1)
    return parts[0];
  if (parts.empty())
    return set({});
  const uint32_t first = static_cast<uint32_t>(children.size());
  children.insert(children.end(), parts.begin(), parts.end());
  return add({Kind::Choice, first, static_cast<uint32_t>(parts.size())});
}

Id Expression::repeat(Id part, uint32_t least, uint32_t most) { return add({Kind::Repeat, part, 1, least, most}); }

Id Expression::list(Id part, Id separator) {
  const uint32_t first = static_cast<uint32_t>(children.size());
  children.insert(children.end(), {part, separator});
  return add({Kind::List, first, 2});
}

/// The code point at the front of `text`, which is taken off; nullopt: no UTF-8.
static std::optional<uint32_t> takeCode(std::string_view &text) {
  const size_t size = text::characterBytes(text);
  if (size == 0)
    return std::nullopt;
  static constexpr uint32_t firstBits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t code = static_cast<unsigned char>(text[0]) & firstBits[size];
  for (size_t i = 1; i < size; ++i)
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
  text.remove_prefix(size);
  return code;
}

Id Expression::text(std::string_view utf8) {
  std::vector<Id> parts;
  while (!utf8.empty()) {
    const std::optional<uint32_t> code = takeCode(utf8);
    if (!code)
      throw Refused{"a text that is no UTF-8", {}};
    parts.push_back(set({{*code, *code}}));
  }
  return sequence(parts);
}

// --- patterns

namespace {

const std::vector<CodeRange> Digits = {{'0', '9'}};
const std::vector<CodeRange> WordCharacters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const std::vector<CodeRange> Blanks = {{'\t', '\r'}, {' ', ' '}};
/// What is `\s` in ECMAScript.
const std::vector<CodeRange> WideBlanks = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                                           {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                           {0x3000, 0x3000}, {0xfeff, 0xfeff}};
const std::vector<CodeRange> LineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string hex(uint32_t code) { return fmt::format("U+{:04X}", code); }

class Reader {
public:
  Reader(Expression &into, std::string_view pattern, const Limits &limits, Dialect dialect)
      : out(into), pattern(pattern), limits(limits), isSchema(dialect == Dialect::Schema) {}

  Id read();

private:
  /// Of what is open: the alternatives before the last `|`, and the parts since then.
  struct Group {
    size_t byte;
    std::vector<Id> alternatives, parts;
    bool atBegin = false;          ///< `^` stands at the front
    bool afterRepeat = false;      ///< the last part is a repeat
    bool canRepeat = false;        ///< there is a last part
    size_t endAnchor = NoAnchor;   ///< where `$` stands, behind which nothing may
    std::string_view anchorText{}; ///< of it
  };
  static constexpr size_t NoAnchor = SIZE_MAX;

  [[noreturn]] void refuse(size_t byte, const std::string &message) const {
    throw Refused{fmt::format("column {} of the expression: {}", byte + 1, message), byte};
  }
  bool atEnd() const { return at == pattern.size(); }
  char peek(size_t ahead = 0) const { return at + ahead < pattern.size() ? pattern[at + ahead] : '\0'; }
  bool looksAt(std::string_view text) const { return pattern.substr(at).starts_with(text); }
  bool take(std::string_view text) {
    if (!looksAt(text))
      return false;
    at += text.size();
    return true;
  }
  std::string quoted(size_t from) const { return "`" + text::printable(pattern.substr(from, at - from), 40) + "`"; }

  uint32_t character();
  void endAlternative(Group &group);
  void put(Id part);
  void openGroup();
  void refuseFlags(size_t begin) const;
  void closeGroup();
  void anchor(size_t begin, std::string_view text, bool isEnd);
  void repeat(size_t begin, uint32_t least, uint32_t most);
  bool takeCounts(uint32_t &least, uint32_t &most);
  uint32_t number(std::string_view digits, size_t byte) const;
  uint32_t codeEscape(size_t begin);
  uint32_t hexDigits(size_t begin, size_t least, size_t most);
  std::optional<std::vector<CodeRange>> shorthand(bool negated);
  void refuseInSchema(size_t begin, std::string_view advice) const;
  uint32_t escapedCharacter(size_t begin);
  void escape();
  void characterClass();
  void bound();

  Expression &out;
  std::string_view pattern;
  const Limits &limits;
  const bool isSchema;
  size_t at = 0;
  std::vector<Group> groups;
};

Id Reader::read() {
  if (pattern.size() > limits.nodes)
    throw Refused{fmt::format("the expression has {} bytes, {} are allowed (limit `nodes`); write a shorter one",
                              pattern.size(), limits.nodes),
                  limits.nodes};
  groups.push_back({0, {}, {}});
  while (!atEnd()) {
    bound();
    const size_t begin = at;
    switch (peek()) {
    case '(':
      openGroup();
      continue;
    case ')':
      closeGroup();
      continue;
    case '|': {
      ++at;
      endAlternative(groups.back());
      continue;
    }
    case '[':
      characterClass();
      continue;
    case '\\':
      escape();
      continue;
    case '.':
      ++at;
      put(out.set(complement(isSchema ? LineEnds : std::vector<CodeRange>{{'\n', '\n'}})));
      continue;
    case '^':
      ++at;
      anchor(begin, "^", false);
      continue;
    case '$':
      ++at;
      anchor(begin, "$", true);
      continue;
    case '*':
      ++at;
      repeat(begin, 0, Expression::NoEnd);
      continue;
    case '+':
      ++at;
      repeat(begin, 1, Expression::NoEnd);
      continue;
    case '?':
      ++at;
      repeat(begin, 0, 1);
      continue;
    case '{': {
      uint32_t least = 0, most = 0;
      if (takeCounts(least, most)) {
        repeat(begin, least, most);
        continue;
      }
      break;
    }
    default:
      break;
    }
    const uint32_t code = character();
    put(out.set({{code, code}}));
  }
  if (groups.size() > 1)
    refuse(groups.back().byte, "the group that opens here is not closed; add `)`, or write `\\(` for the character");
  endAlternative(groups.back());
  const Id made = out.choice(groups.back().alternatives);
  bound();
  return made;
}

void Reader::endAlternative(Group &group) {
  std::vector<Id> parts = std::move(group.parts);
  if (isSchema && groups.size() == 1) {
    const Id anything = out.repeat(out.set({{0, LastCodePoint}}), 0, Expression::NoEnd);
    if (!group.atBegin)
      parts.insert(parts.begin(), anything);
    if (group.endAnchor == NoAnchor)
      parts.push_back(anything);
  }
  group.alternatives.push_back(out.sequence(parts));
  group.parts.clear();
  group.atBegin = group.afterRepeat = group.canRepeat = false;
  group.endAnchor = NoAnchor;
}

void Reader::bound() {
  if (out.size() > limits.nodes)
    refuse(at, fmt::format("the expression has more than {} parts (limit `nodes`) here; write a shorter one",
                           limits.nodes));
}

uint32_t Reader::character() {
  std::string_view rest = pattern.substr(at);
  const std::optional<uint32_t> code = takeCode(rest);
  if (!code)
    refuse(at, fmt::format("the byte {:#04x} is no UTF-8 here (RFC 3629: no surrogates, nothing beyond U+10FFFF); "
                           "write the pattern in UTF-8, or a character as `\\u{{...}}`",
                           static_cast<unsigned char>(pattern[at])));
  at = pattern.size() - rest.size();
  return *code;
}

void Reader::put(Id part) {
  Group &group = groups.back();
  if (group.endAnchor != NoAnchor)
    refuse(group.endAnchor, fmt::format("`{}` with something behind it, which never matches; an anchor may stand at "
                                        "the beginning or the end of an alternative outside of groups, where the whole "
                                        "text is meant anyway; leave it out, or write `\\$` for the character",
                                        group.anchorText));
  group.parts.push_back(part);
  group.canRepeat = true;
  group.afterRepeat = false;
}

void Reader::anchor(size_t begin, std::string_view text, bool isEnd) {
  Group &group = groups.back();
  const char *advice = "the whole text is meant anyway: leave it out, or put a backslash before `^` or `$` for the "
                       "character";
  if (groups.size() > 1)
    refuse(begin, fmt::format("the anchor `{}` inside of a group; {}", text, advice));
  if (!isEnd && (!group.parts.empty() || group.endAnchor != NoAnchor))
    refuse(begin, fmt::format("the anchor `{}` with something before it; {}", text, advice));
  if (isEnd && group.endAnchor == NoAnchor) {
    group.endAnchor = begin;
    group.anchorText = text;
  }
  group.atBegin |= !isEnd;
  group.canRepeat = group.afterRepeat = false;
}

void Reader::openGroup() {
  const size_t begin = at++;
  const auto refused = [&](std::string_view text, std::string_view name) {
    at = begin + text.size();
    refuse(begin, fmt::format("{} `{}` is not supported, an automaton has no such thing; write what is meant as "
                              "classes, alternatives and repeats",
                              name, text));
  };
  if (take("?")) {
    if (looksAt("="))
      refused("(?=", "look-ahead");
    if (looksAt("!"))
      refused("(?!", "negative look-ahead");
    if (looksAt("<="))
      refused("(?<=", "look-behind");
    if (looksAt("<!"))
      refused("(?<!", "negative look-behind");
    if (looksAt(">"))
      refuse(begin, "the atomic group `(?>` is not supported, it matches less than it says; write `(?:`");
    if (looksAt("("))
      refused("(?(", "the conditional");
    if (looksAt("#"))
      refuse(begin, "the comment `(?#` is not supported; leave it out");
    if (looksAt("P="))
      refused("(?P=", "the backreference");
    if (looksAt("P>") || looksAt("R") || looksAt("&") || isDigit(peek()))
      refuse(begin, "recursion is not supported, an automaton has no stack; write the expression out to the depth "
                    "that is needed");
    if (!take(":")) {
      if (!take("P<") && !take("<"))
        refuseFlags(begin);
      const size_t name = at;
      while (!atEnd() && peek() != '>') {
        if (!isLetter(peek()) && !isDigit(peek()) && peek() != '_')
          refuse(at, "a group's name has letters, digits and `_` only");
        ++at;
      }
      if (atEnd())
        refuse(begin, "the name of the group that opens here has no end; add `>`");
      if (name == at || isDigit(pattern[name]))
        refuse(name, "a group's name begins with a letter or `_`; name it, or write `(?:`");
      ++at;
    }
  }
  if (groups.back().endAnchor != NoAnchor)
    put(0); // refuses
  groups.push_back({begin, {}, {}});
}

void Reader::refuseFlags(size_t begin) const {
  size_t end = at;
  while (end < pattern.size() && (isLetter(pattern[end]) || pattern[end] == '-' || pattern[end] == '^'))
    ++end;
  if (end == at || end == pattern.size() || (pattern[end] != ')' && pattern[end] != ':'))
    refuse(begin, "an unknown group `(?`; there are `(...)`, `(?:...)`, `(?P<name>...)` and `(?<name>...)`; write "
                  "`\\(` for the character");
  std::string advice;
  for (const char flag : pattern.substr(at, end - at))
    switch (flag) {
    case 'i':
      advice += "; for `i` write both cases, as in `[aA]`";
      break;
    case 's':
      advice += "; for `s` write `[\\s\\S]` in place of `.`";
      break;
    case 'm':
      advice += "; `m` means nothing, since `^` and `$` are the ends of the whole text";
      break;
    case 'x':
      advice += "; for `x` leave blanks and comments out";
      break;
    case 'a':
      advice += "; `a` is the meaning of `\\d`, `\\w` and `\\s` anyway: leave it out";
      break;
    case 'u':
      advice += "; for `u` name the characters in a class";
      break;
    default:
      break;
    }
  if (advice.empty())
    advice = "; leave them out";
  refuse(begin, fmt::format("inline flags `{}` are not supported{}",
                            text::printable(pattern.substr(begin, end + 1 - begin), 40), advice));
}

void Reader::closeGroup() {
  if (groups.size() == 1)
    refuse(at, "a `)` that closes no group; add `(`, or write `\\)` for the character");
  ++at;
  endAlternative(groups.back());
  const Group group = std::move(groups.back());
  groups.pop_back();
  put(out.choice(group.alternatives));
}

uint32_t Reader::number(std::string_view digits, size_t byte) const {
  uint64_t value = 0;
  for (const char c : digits)
    value = std::min<uint64_t>(value * 10 + (c - '0'), UINT32_MAX);
  if (value > limits.nodes || value >= Expression::NoEnd)
    refuse(byte,
           fmt::format("a repeat of {} times; {} parts are allowed (limit `nodes`); repeat less often, or without "
                       "an end",
                       text::printable(digits, 40), limits.nodes));
  return static_cast<uint32_t>(value);
}

/// Takes `{m}`, `{m,}`, `{m,n}`, `{,n}` or `{,}`. As in Python anything else is a character `{`.
bool Reader::takeCounts(uint32_t &least, uint32_t &most) {
  size_t end = at + 1;
  const auto digits = [&] {
    const size_t from = end;
    while (end < pattern.size() && isDigit(pattern[end]))
      ++end;
    return pattern.substr(from, end - from);
  };
  const std::string_view first = digits();
  const bool comma = end < pattern.size() && pattern[end] == ',';
  if (comma)
    ++end;
  const size_t secondByte = end;
  const std::string_view second = comma ? digits() : first;
  if (end >= pattern.size() || pattern[end] != '}' || (!comma && first.empty()))
    return false;
  if (first.empty()) {
    const size_t begin = std::exchange(at, end + 1);
    refuseInSchema(begin, "write `{0,n}`");
    at = begin;
  }
  least = first.empty() ? 0 : number(first, at + 1);
  most = second.empty() ? Expression::NoEnd : number(second, comma ? secondByte : at + 1);
  if (least > most)
    refuse(at, fmt::format("the repeat `{{{},{}}}` has more at least than at most; exchange them", least, most));
  at = end + 1;
  return true;
}

void Reader::repeat(size_t begin, uint32_t least, uint32_t most) {
  Group &group = groups.back();
  const std::string what = quoted(begin);
  if (group.afterRepeat)
    refuse(begin, what + " repeats a repeat; put the first one into a group `(?:...)`");
  if (!group.canRepeat)
    refuse(begin, "nothing to repeat before " + what + "; write a backslash before it for the character");
  if (peek() == '+')
    refuse(begin, fmt::format("the possessive repeat {}`+` is not supported, it matches less than it says; leave the "
                              "`+` out",
                              what));
  take("?"); // lazy: the same language
  const Id part = group.parts.back();
  group.parts.back() = out.repeat(part, least, most);
  group.afterRepeat = true;
}

uint32_t Reader::hexDigits(size_t begin, size_t least, size_t most) {
  uint64_t value = 0;
  size_t count = 0;
  for (; count < most; ++count, ++at) {
    const char c = peek();
    const int digit = isDigit(c)             ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0)
      break;
    value = value << 4 | digit;
  }
  if (count < least)
    refuse(begin, fmt::format("the escape {} has {} hexadecimal digits where {} are needed; write `\\xHH`, `\\uHHHH`, "
                              "`\\u{{H...}}` or `\\UHHHHHHHH`",
                              quoted(begin), count, least));
  return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
}

/// The code point of `\x`, `\u` or `\U`, which has been read.
uint32_t Reader::codeEscape(size_t begin) {
  const char kind = pattern[at - 1];
  uint32_t code = 0;
  if (kind == 'x') {
    code = hexDigits(begin, 2, 2);
  } else if (kind == 'U') {
    code = hexDigits(begin, 8, 8);
  } else if (take("{")) {
    code = hexDigits(begin, 1, 8);
    if (!take("}"))
      refuse(begin,
             fmt::format("the escape {} does not end with `}}` after one to eight hexadecimal digits", quoted(begin)));
  } else {
    code = hexDigits(begin, 4, 4);
  }
  if (code > LastCodePoint)
    refuse(begin, fmt::format("{} is beyond U+10FFFF, the last code point", quoted(begin)));
  if (isSurrogate(code))
    refuse(begin, fmt::format("{} is a surrogate, which no UTF-8 text has; write the whole character, as in "
                              "`\\u{{1F600}}`",
                              quoted(begin)));
  return code;
}

/// ECMAScript reads it in another way.
void Reader::refuseInSchema(size_t begin, std::string_view advice) const {
  if (isSchema)
    refuse(begin, fmt::format("{} means something else in ECMAScript, whose patterns schemas have; {}", quoted(begin),
                              advice));
}

/// `\d` and its like, behind the backslash. `negated`: in a class of what is not there.
std::optional<std::vector<CodeRange>> Reader::shorthand(bool negated) {
  std::optional<std::vector<CodeRange>> found;
  switch (peek()) {
  case 'd':
    found = Digits;
    break;
  case 'D':
    found = complement(Digits);
    break;
  case 'w':
    found = WordCharacters;
    break;
  case 'W':
    found = complement(WordCharacters);
    break;
  case 's':
    found = isSchema && negated ? WideBlanks : Blanks;
    break;
  case 'S':
    found = complement(isSchema && !negated ? WideBlanks : Blanks);
    break;
  default:
    return std::nullopt;
  }
  ++at;
  return found;
}

/// An escape that is one character, behind the backslash at `begin`.
uint32_t Reader::escapedCharacter(size_t begin) {
  if (atEnd())
    refuse(begin, "a backslash at the end; write `\\\\` for the character");
  const char c = peek();
  if (static_cast<unsigned char>(c) >= 0x80)
    refuse(begin, "a backslash before a character beyond ASCII; write the character alone");
  ++at;
  switch (c) {
  case 'n':
    return '\n';
  case 't':
    return '\t';
  case 'r':
    return '\r';
  case 'f':
    return '\f';
  case 'v':
    return '\v';
  case '0':
    if (isDigit(peek()))
      refuse(begin, "octal escapes are not supported; write `\\xHH`");
    return 0;
  case 'U':
    refuseInSchema(begin, "write `\\u{H...}`");
    return codeEscape(begin);
  case 'x':
  case 'u':
    return codeEscape(begin);
  case 'b':
  case 'B':
    refuse(begin, fmt::format("{} is not supported: a boundary of words looks at what stands around it, and in a class "
                              "it means a backspace; write the characters that may stand there, or `\\x08`",
                              quoted(begin)));
  case 'p':
  case 'P':
    refuse(begin, fmt::format("properties of Unicode, {}, are not supported; name the characters in a class, as in "
                              "`[a-z\\u00e0-\\u00ff]`",
                              quoted(begin)));
  case 'k':
  case 'g':
    refuse(begin, fmt::format("the backreference {} is not supported, an automaton has no such thing; write what is "
                              "meant as alternatives",
                              quoted(begin)));
  default:
    break;
  }
  if (isDigit(c))
    refuse(begin, fmt::format("the backreference {} is not supported, an automaton has no such thing; write what is "
                              "meant as alternatives, or `\\xHH` for a character",
                              quoted(begin)));
  if (isLetter(c))
    refuse(begin, fmt::format("an unknown escape {}; leave the backslash out, or write a character as `\\xHH`",
                              quoted(begin)));
  return static_cast<unsigned char>(c);
}

void Reader::escape() {
  const size_t begin = at++;
  if (peek() == 'A') {
    ++at;
    refuseInSchema(begin, "write `^`");
    return anchor(begin, "\\A", false);
  }
  if (peek() == 'Z' || peek() == 'z') {
    ++at;
    refuseInSchema(begin, "write `$`");
    return anchor(begin, pattern.substr(begin, 2), true);
  }
  if (auto found = shorthand(false))
    return put(out.set(std::move(*found)));
  const uint32_t code = escapedCharacter(begin);
  put(out.set({{code, code}}));
}

void Reader::characterClass() {
  const size_t begin = at++;
  const bool negated = take("^");
  std::vector<CodeRange> ranges;
  /// A character; nullopt: it was a shorthand, which is in `ranges`.
  const auto entry = [&]() -> std::optional<uint32_t> {
    const size_t byte = at;
    if (peek() == '[' && (peek(1) == ':' || peek(1) == '.' || peek(1) == '='))
      refuse(byte, "POSIX classes as in `[[:alpha:]]` are not supported; write the characters, as in `[a-zA-Z]`, or "
                   "`\\[` for the bracket");
    if (!take("\\"))
      return character();
    if (auto found = shorthand(negated)) {
      ranges.insert(ranges.end(), found->begin(), found->end());
      return std::nullopt;
    }
    return escapedCharacter(byte);
  };
  if (take("]")) {
    refuseInSchema(begin, "write `\\]` for the bracket in a class");
    --at;
  }
  for (bool first = true; first || peek() != ']' || atEnd(); first = false) {
    if (atEnd())
      refuse(begin, "the class that opens here is not closed; add `]` (one right behind `[` or `[^` is a character), "
                    "or write `\\[` for the bracket");
    const size_t byte = at;
    const std::optional<uint32_t> low = entry();
    const bool isRange = peek() == '-' && at + 1 < pattern.size() && peek(1) != ']';
    if (!isRange) {
      if (low)
        ranges.push_back({*low, *low});
      continue;
    }
    ++at;
    const std::optional<uint32_t> high = entry();
    if (!low || !high)
      refuse(byte, fmt::format("the range {} ends in a class of characters; write `\\-` for the character, or put the "
                               "`-` at the end",
                               quoted(byte)));
    if (*low > *high)
      refuse(byte,
             fmt::format("the range {} goes from {} down to {}; exchange them", quoted(byte), hex(*low), hex(*high)));
    ranges.push_back({*low, *high});
  }
  ++at;
  ranges = normalised(std::move(ranges));
  put(out.set(negated ? complement(ranges) : std::move(ranges)));
}

} // namespace

Id automata::readPattern(Expression &into, std::string_view pattern, const Limits &limits, Dialect dialect) {
  return Reader(into, pattern, limits, dialect).read();
}

Expression automata::readExpression(std::string_view pattern, const Limits &limits) {
  Expression out;
  out.root = readPattern(out, pattern, limits);
  return out;
}

std::string automata::escaped(std::string_view text) {
  if (!text::isUtf8(text))
    throw Refused{"a choice `" + text::printable(text, 40) + "` that is no UTF-8; give it in UTF-8", {}};
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos)
      out += '\\';
    out += c;
  }
  return out;
}
