#include "megalith/Text/Text.h"
#include "megalith/Text/Json.h"
#include <gtest/gtest.h>

using namespace megalith;

namespace {

std::string byteAt(int value) { return std::string(1, static_cast<char>(value)); }

/// What C++ makes of the literal, by the rules that text::literal may use.
std::string readLiteral(std::string_view literal) {
  EXPECT_GE(literal.size(), 2u);
  EXPECT_EQ(literal.front(), '"');
  EXPECT_EQ(literal.back(), '"');
  std::string out;
  for (size_t i = 1; i + 1 < literal.size(); ++i) {
    EXPECT_NE(literal[i], '"');
    if (literal[i] != '\\') {
      out += literal[i];
      continue;
    }
    ++i;
    if (literal[i] >= '0' && literal[i] <= '7') {
      out += static_cast<char>((literal[i] - '0') * 64 + (literal[i + 1] - '0') * 8 + literal[i + 2] - '0');
      i += 2;
    } else {
      out += literal[i];
    }
  }
  return out;
}

bool hasControl(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return true;
  return false;
}

} // namespace

TEST(Text, everyByteInAComment) {
  for (int b = 0; b < 256; ++b)
    for (const std::string &text : {byteAt(b), "x" + byteAt(b), byteAt(b) + "x", "a\\" + byteAt(b)}) {
      const std::string out = text::comment(text);
      EXPECT_FALSE(hasControl(out)) << b;
      EXPECT_TRUE(text::isUtf8(out)) << b;
      const size_t last = out.find_last_not_of(' ');
      EXPECT_TRUE(last == std::string::npos || out[last] != '\\') << b;
    }
  EXPECT_EQ(text::comment("# x\r#error y"), "# x\\x0d#error y");
  EXPECT_EQ(text::comment("to be continued \\  "), "to be continued \\x5c");
  EXPECT_EQ(text::comment("what??/  "), "what??\\x2f");
  EXPECT_EQ(text::comment("caf\xc3\xa9"), "caf\xc3\xa9");
}

TEST(Text, everyByteInALiteral) {
  std::string all;
  for (int b = 0; b < 256; ++b) {
    all += byteAt(b);
    EXPECT_EQ(readLiteral(text::literal(byteAt(b) + "1")), byteAt(b) + "1");
  }
  EXPECT_EQ(readLiteral(text::literal(all)), all);
  EXPECT_FALSE(hasControl(text::literal(all)));
  EXPECT_TRUE(text::isUtf8(text::literal(all)));
  EXPECT_EQ(text::literal("a\"b\\c\n7?"
                          "?/"),
            "\"a\\\"b\\\\c\\0127\\?\\?/\"");
}

TEST(Text, everyByteOnATerminal) {
  for (int b = 0; b < 256; ++b) {
    const std::string out = text::printable(byteAt(b));
    EXPECT_EQ(out, b >= 0x20 && b < 0x7f
                       ? byteAt(b)
                       : "\\x" + std::string(1, "0123456789abcdef"[b / 16]) + "0123456789abcdef"[b % 16]);
    EXPECT_EQ(text::printableLines(byteAt(b)), b == '\n' || b == '\t' ? byteAt(b) : out);
  }
  // C1 controls begin escape sequences as well; directions turn what is read.
  EXPECT_EQ(text::printable("\xc2\x9b"
                            "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(text::printable("a\xe2\x80\xae"
                            "b\xe2\x81\xa6"),
            "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6");
  EXPECT_EQ(text::printable("\xe2\x96\x88\xf0\x9f\x98\x80"), "\xe2\x96\x88\xf0\x9f\x98\x80");
}

TEST(Text, everyByteInJson) {
  for (int b = 0; b < 256; ++b) {
    const std::string out = text::json(byteAt(b));
    EXPECT_FALSE(hasControl(out.substr(1, out.size() - 2))) << b;
    EXPECT_TRUE(text::isUtf8(out)) << b;
  }
  EXPECT_EQ(text::json("a\"\\\n\x1b\xe9"), "\"a\\\"\\\\\\u000a\\u001b\\\\xe9\"");
  EXPECT_EQ(text::json("\x7f\xc2\x9b\xe2\x80\xae\xef\xbf\xbf\xc3\xa9"), "\"\\u007f\\u009b\\u202e\\uffff\xc3\xa9\"");
}

TEST(Text, everyByteInXml) {
  for (int b = 0; b < 256; ++b) {
    const std::string out = text::xml(byteAt(b));
    EXPECT_FALSE(hasControl(out)) << b;
    EXPECT_TRUE(text::isUtf8(out)) << b;
    EXPECT_EQ(out.find_first_of("<>\""), out.npos) << b;
  }
  EXPECT_EQ(text::xml("a<b>&\"c\x1b\xe9"), "a&lt;b&gt;&amp;&quot;c\\x1b\\xe9");
  // The two characters of three bytes that XML cannot hold.
  EXPECT_EQ(text::xml("\xef\xbf\xbe\xef\xbf\xbf\xef\xbf\xbd"), "\\xef\\xbf\\xbe\\xef\\xbf\\xbf\xef\xbf\xbd");
}

TEST(Text, everyByteAsUtf8) {
  for (int b = 0; b < 256; ++b)
    EXPECT_EQ(text::utf8("x" + byteAt(b)), b < 0x80 ? "x" + byteAt(b) : "x" + text::printable(byteAt(b)));
  EXPECT_EQ(text::utf8("caf\xc3\xa9/caf\xe9\n"), "caf\xc3\xa9/caf\\xe9\n");
}

TEST(Text, everyByteInAJsonValue) {
  for (int b = 0; b < 256; ++b) {
    const std::string out = text::dump(nlohmann::ordered_json{{"a" + byteAt(b), {byteAt(b) + "b"}}});
    EXPECT_TRUE(text::isUtf8(out)) << b;
    EXPECT_FALSE(hasControl(out)) << b;
    EXPECT_TRUE(nlohmann::json::accept(out)) << b;
  }
  const std::string active = "\x7f\xc2\x9b\xe2\x80\xae\xef\xbf\xbf\xc3\xa9\n";
  EXPECT_EQ(text::dump(nlohmann::json(active)), "\"\\u007f\\u009b\\u202e\\uffff\xc3\xa9\\n\"");
  EXPECT_EQ(nlohmann::json::parse(text::dump(nlohmann::json(active))), active);
  EXPECT_EQ(text::dump(nlohmann::json{{"a", 1}}, 2), "{\n  \"a\": 1\n}");
}

TEST(Text, longOnesAreCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 100000; ++i)
    text += "\xc3\xa9\x1b";
  for (size_t most : {0, 1, 2, 5, 6, 7, 400}) {
    const std::string out = text::printable(text, most);
    EXPECT_LE(out.size(), most + 3);
    EXPECT_TRUE(text::isUtf8(out));
    EXPECT_TRUE(out.ends_with("..."));
    EXPECT_EQ(text::comment(text, most), out);
  }
  EXPECT_EQ(text::printable("abc", 3), "abc");
  EXPECT_EQ(readLiteral(text::literal(text)), text);
}

TEST(Text, Utf8AsOfRfc3629) {
  for (const char *good : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(text::isUtf8(good)) << good;
  for (const char *bad : {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf5\x80\x80\x80", "\xc2", "\xe1\x80", "\xff",
                          "\xc2"
                          "a"})
    EXPECT_FALSE(text::isUtf8(bad)) << bad;
}
