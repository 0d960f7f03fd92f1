#include "megalith/Text/Text.h"
#include <algorithm>
#include <fmt/format.h>

namespace megalith::text {

size_t characterBytes(std::string_view text) {
  auto at = [&](size_t i) -> unsigned { return static_cast<unsigned char>(text[i]); };
  if (text.empty())
    return 0;
  const unsigned first = at(0);
  if (first < 0x80)
    return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size)
    return 0;
  for (size_t i = 1; i < size; ++i)
    if ((at(i) & 0xc0) != 0x80)
      return 0;
  const unsigned second = at(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool beyond = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return overlong || beyond ? 0 : size;
}

bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = characterBytes(text);
    if (size == 0)
      return false;
    text.remove_prefix(size);
  }
  return true;
}

/// Characters that do something instead of being seen: C0 and C1 controls, separators
/// of lines, those that turn the direction of text (Unicode TR36, "Bidirectional text
/// spoofing"), and the two that are none.
static bool isActive(std::string_view character) {
  const auto byte = [&](size_t i) -> unsigned { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1)
    return byte(0) < 0x20 || byte(0) == 0x7f;
  if (character.size() == 2) // U+0080..U+009F, U+061C
    return (byte(0) == 0xc2 && byte(1) < 0xa0) || (byte(0) == 0xd8 && byte(1) == 0x9c);
  if (character == "\xef\xbf\xbe" || character == "\xef\xbf\xbf") // U+FFFE, U+FFFF
    return true;
  if (character.size() != 3 || byte(0) != 0xe2)
    return false;
  if (byte(1) == 0x80) // U+200E, U+200F, U+2028..U+202E
    return byte(2) == 0x8e || byte(2) == 0x8f || (byte(2) >= 0xa8 && byte(2) <= 0xae);
  return byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9; // U+2066..U+2069
}

/// Of an active character, which has three bytes at most.
static unsigned codePoint(std::string_view character) {
  static constexpr unsigned firstBits[] = {0, 0x7f, 0x1f, 0x0f};
  unsigned out = static_cast<unsigned char>(character[0]) & firstBits[character.size()];
  for (const char c : character.substr(1))
    out = out << 6 | (static_cast<unsigned char>(c) & 0x3f);
  return out;
}

static std::string escapes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes)
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

/// The next character of `text` as it may be seen, taken off its front.
static std::string takeVisible(std::string_view &text) {
  const size_t size = characterBytes(text);
  const std::string_view character = text.substr(0, size ? size : 1);
  text.remove_prefix(character.size());
  return size == 0 || isActive(character) ? escapes(character) : std::string(character);
}

std::string printable(std::string_view text, size_t most) {
  std::string out;
  while (!text.empty()) {
    const std::string next = takeVisible(text);
    if (out.size() + next.size() > most)
      return out + "...";
    out += next;
  }
  return out;
}

std::string printableLines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text.front() == '\n' || text.front() == '\t') {
      out += text.front();
      text.remove_prefix(1);
    } else {
      out += takeVisible(text);
    }
  }
  return out;
}

std::string comment(std::string_view text, size_t most) {
  std::string out = printable(text, most);
  // A compiler joins a line that ends in `\`, even with blanks after it, to the next; one that has trigraphs knows it
  // as `?` `?` `/`, too.
  const size_t last = out.find_last_not_of(' ');
  if (last != std::string::npos && out[last] == '\\')
    out.replace(last, std::string::npos, "\\x5c");
  else if (last != std::string::npos && std::string_view(out).substr(0, last + 1).ends_with("\?\?/"))
    out.replace(last, std::string::npos, "\\x2f");
  return out;
}

std::string literal(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t size = characterBytes(text);
    const std::string_view character = text.substr(0, size ? size : 1);
    text.remove_prefix(character.size());
    if (character == "\"" || character == "\\")
      out += '\\', out += character;
    else if (size == 0 || isActive(character))
      for (const char c : character) // three octal digits end by themselves, `\x` does not
        out += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    else if (character == "?") // no trigraph
      out += "\\?";
    else
      out += character;
  }
  return out + '"';
}

std::string json(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t size = characterBytes(text);
    const std::string_view character = text.substr(0, size ? size : 1);
    text.remove_prefix(character.size());
    if (size == 0)
      out += '\\' + escapes(character);
    else if (character == "\"" || character == "\\")
      out += '\\', out += character;
    else if (isActive(character))
      out += fmt::format("\\u{:04x}", codePoint(character));
    else
      out += character;
  }
  return out + '"';
}

std::string jsonShown(std::string text) {
  const auto plain = [](char c) { return static_cast<unsigned char>(c) < 0x7f; };
  if (std::all_of(text.begin(), text.end(), plain))
    return text;
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view character = rest.substr(0, std::max<size_t>(1, characterBytes(rest)));
    rest.remove_prefix(character.size());
    // What stands between the strings is ASCII, and newlines are part of it.
    if (!plain(character[0]) && isActive(character))
      out += fmt::format("\\u{:04x}", codePoint(character));
    else
      out += character;
  }
  return out;
}

std::string utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t size = characterBytes(text);
    const std::string_view character = text.substr(0, size ? size : 1);
    text.remove_prefix(character.size());
    out += size == 0 ? escapes(character) : std::string(character);
  }
  return out;
}

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : printable(text))
    switch (c) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&quot;";
      break;
    default:
      out += c;
    }
  return out;
}

} // namespace megalith::text
