//===- Vocabulary.h - a vocabulary as large as a real one -------*- C++ -*-===//
#ifndef MEGALITH_TEST_UNIT_AUTOMATA_VOCABULARY_H
#define MEGALITH_TEST_UNIT_AUTOMATA_VOCABULARY_H

#include <random>
#include <set>
#include <string>
#include <vector>

namespace megalith::automata {

/// Bytes, numbers of up to three digits, runs of blanks and punctuation, what JSON has side by side, words with and
/// without a blank before them, characters of several bytes and pieces of such; empty at the end for special tokens.
inline std::vector<std::string> likeARealVocabulary(size_t tokens) {
  std::mt19937 random(1);
  const auto below = [&](size_t end) { return random() % end; };
  std::set<std::string> known;
  std::vector<std::string> out;
  const auto add = [&](const std::string &token) {
    if (out.size() + 256 < tokens && known.insert(token).second)
      out.push_back(token);
  };
  for (int byte = 0; byte < 256; ++byte)
    add(std::string(1, static_cast<char>(byte)));
  for (int number = 0; number < 1000; ++number)
    for (const char *form : {"%d", "%02d", "%03d"}) {
      char text[8];
      snprintf(text, sizeof text, form, number);
      add(text);
    }
  for (size_t run = 2; run <= 128; ++run)
    for (const char *c : {" ", "\n", "\t", "-", "=", "*"})
      if (run <= 16 || run % 8 == 0 || *c == ' ') {
        std::string text;
        while (text.size() < run)
          text += c;
        add(text);
      }
  const std::string marks = "\"{}[]:,\n \\/-_.()=<>;'";
  while (out.size() < tokens / 20) {
    std::string text;
    for (size_t i = 2 + below(3); i-- > 0;)
      text += marks[below(marks.size())];
    add(text);
  }
  const std::vector<std::string> syllables = {
      "th", "er", "on", "an", "re", "he", "in", "ed", "nd", "ha", "at", "en", "es", "of",  "or",  "nt",  "ea",
      "ti", "to", "it", "st", "io", "le", "is", "ou", "ar", "as", "de", "rt", "ve", "con", "pro", "ing", "ment",
      "a",  "e",  "i",  "o",  "s",  "t",  "x",  "y",  "qu", "b",  "c",  "m",  "p",  "w",   "k",   "z"};
  while (out.size() < tokens * 17 / 20) {
    std::string word;
    for (size_t i = 1 + below(4); i-- > 0;)
      word += syllables[below(syllables.size())];
    if (below(4) == 0)
      word[0] = static_cast<char>(word[0] - 'a' + 'A');
    if (below(12) == 0)
      word = "_" + word;
    if (below(20) == 0)
      word = "\"" + word;
    add(below(2) == 0 ? " " + word : word);
  }
  const auto character = [&] {
    const uint32_t code = below(3) == 0 ? 0x400 + below(0x60) : 0x4e00 + below(0x5000);
    if (code < 0x800)
      return std::string{static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    return std::string{static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
                       static_cast<char>(0x80 | (code & 63))};
  };
  while (out.size() + 256 < tokens) {
    std::string text;
    for (size_t i = 1 + below(4); i-- > 0;)
      text += character();
    if (below(4) == 0)
      text.pop_back();
    add(below(4) == 0 ? " " + text : text);
  }
  out.resize(tokens);
  return out;
}

} // namespace megalith::automata

#endif
