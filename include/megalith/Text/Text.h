//===- Text.h - text of users, where it could do harm -----------*- C++ -*-===//
//
// Names, paths, comments and values come from files that anybody may have written.
// Whoever prints one into generated code, onto a terminal or into JSON calls the
// function for that place, and no other:
//
//   into `// ...` of generated code    text::comment
//   into a string of generated code    text::literal
//   onto a terminal                    text::printable
//   into JSON                          text::json, or text::dump (Json.h) of a whole value
//   into XML (a plot)                  text::xml
//
// What is unsafe there becomes a visible escape, `\x0d`: never dropped, never raw.
// No LLVM: the runtime uses this as well.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TEXT_TEXT_H
#define MEGALITH_TEXT_TEXT_H

#include <cstddef>
#include <string>
#include <string_view>

namespace megalith::text {

/// One line to print after `// `: no byte of it can end the comment, join the next
/// line to it (a final `\`, or its trigraph) or change the direction of what is shown. Longer ones than
/// `most` bytes are cut, which `...` says.
std::string comment(std::string_view text, size_t most = 400);

/// A string literal of C++ with its quotes, of any bytes. `#line` takes the same ones.
std::string literal(std::string_view text);

/// One line for a terminal: control characters, bytes that are no UTF-8 and characters
/// that change the direction of text are escapes. Longer ones than `most` bytes are cut
/// between two characters, which `...` says.
std::string printable(std::string_view text, size_t most = std::string_view::npos);

/// The same of a text of several lines: newlines and tabs stay.
std::string printableLines(std::string_view text);

/// A string of JSON with its quotes. Characters that a terminal would obey are `\u....`.
/// Bytes that are no UTF-8 become `\x..` as text, since JSON cannot hold them.
std::string json(std::string_view text);

/// A whole text of JSON, with these characters as `\u....` in its strings.
std::string jsonShown(std::string text);

/// UTF-8 of any bytes: those that are none become `\x..` as text.
std::string utf8(std::string_view text);

/// One line of text between two tags of XML or in an attribute with double quotes. As on a
/// terminal, since XML has no way to write most control characters.
std::string xml(std::string_view text);

/// Bytes of the UTF-8 character at the front of `text`; 0 when none stands there (RFC 3629:
/// no overlong forms, no surrogates, nothing beyond U+10FFFF) or `text` is empty.
size_t characterBytes(std::string_view text);

/// Whether all of it is UTF-8.
bool isUtf8(std::string_view text);

} // namespace megalith::text
#endif
