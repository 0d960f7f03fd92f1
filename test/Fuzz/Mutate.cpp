//===- Mutate.cpp - changes that keep the form of a text ------------------===//
//
// libFuzzer changes bytes. Most of what it makes of a YAML file or of IR text ends in the
// reader. Half of the changes here are of lines, words and numbers, so that the stages
// after the reader see new texts as well.
//===----------------------------------------------------------------------===//
#include "Fuzz.h"
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t mostBytes);

namespace megalith::fuzz {

namespace {

/// What the language, the IR and the files know by name.
constexpr const char *words[] = {
#define PREDEFINED(Id, Name, Type, Values, Operation, Text) Name,
#define POOL_NAME(Id, Name, Type, Of, Operation, Text) "kv.target." Name,
#define FUNCTION(Id, Name, Where, Operation, Params, Result, Text) Name,
#define RESERVED_PARAM(Id, Name, Default, Least, Most, Text) Name,
#define WORD(Word) Word,
#include "megalith/Sema/Builtins.def"
#define ELEMENTWISE1(Id, function, Name) Name,
#define ELEMENTWISE2(Id, function, Name) Name,
#define ROUNDING(Id, function, Name)
#include "megalith/IR/Elementwise.def"
#define GRAPH_FUNCTION(Id, Name, Min, Max, Arguments) Name,
#include "megalith/Sema/ModelFunctions.def"
#define OP(Enum, Mnemonic, ...) Mnemonic,
#include "megalith/IR/Ops.def"
#define PASS(Function, Name, Text) Name,
#include "megalith/Transforms/Passes.def"
#define FAULT(Enum, Code, Name, Text, Numbers) Name,
#include "megalith/Contract/Faults.def"
    "i32",
    "f32",
    "bool",
    "token",
    "token[4]",
    "token<8>",
    "bf16",
    "kv",
    "true",
    "false",
    "null",
    "none",
    "{i}",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    "'",
    "\"",
    "- ",
    "+",
    "..",
    "%",
    "@",
    "^",
    "//",
    "#",
    "\\",
    "\\n",
    "\r",
    "\t",
    "do:",
    "goto:",
    "if:",
    "else:",
    "count:",
    "trace:",
    "repeat: layer",
    "on_full: wait",
    "progress:",
    "slot: true",
    "terminal: true"};

constexpr const char *numbers[] = {"0",
                                   "-1",
                                   "1",
                                   "2",
                                   "3",
                                   "16",
                                   "17",
                                   "128",
                                   "129",
                                   "1024",
                                   "1025",
                                   "65536",
                                   "2147483647",
                                   "2147483648",
                                   "-2147483648",
                                   "4294967295",
                                   "4294967296",
                                   "1000000007",
                                   "9223372036854775807",
                                   "9223372036854775808",
                                   "-9223372036854775808",
                                   "18446744073709551616",
                                   "0.0",
                                   "-0.0",
                                   "0.5",
                                   "1.0",
                                   "1e39",
                                   "1e-45",
                                   "1e309",
                                   "1e-400",
                                   "3.4028235e38",
                                   "nan",
                                   "inf",
                                   "Infinity",
                                   "-inf",
                                   "NaN"};

using Random = std::minstd_rand;
size_t below(Random &random, size_t n) { return n ? random() % n : 0; }

/// Begin and end.
using Span = std::pair<size_t, size_t>;

bool isWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_.%@-", c); }

std::vector<Span> wordsOf(const std::string &text) {
  std::vector<Span> spans;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && text[end] && isWord(text[end]))
      ++end;
    if (end > i)
      spans.emplace_back(i, end);
    i = end + 1;
  }
  return spans;
}

std::vector<Span> linesOf(const std::string &text) {
  std::vector<Span> spans;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find('\n', i), text.size() - 1) + 1;
    spans.emplace_back(i, end);
    i = end;
  }
  return spans;
}

std::string cut(const std::string &text, Span span) { return text.substr(span.first, span.second - span.first); }

void changeLines(std::string &text, Random &random) {
  const std::vector<Span> lines = linesOf(text);
  const size_t at = below(random, lines.size());
  const Span a = lines[at], b = lines[below(random, lines.size())];
  const std::string one = cut(text, a), other = cut(text, b);
  switch (below(random, 4)) {
  case 0: // leave out up to four
    text.erase(a.first, lines[std::min(lines.size() - 1, at + below(random, 4))].second - a.first);
    break;
  case 1: // once more
    text.insert(b.first, one);
    break;
  case 2: // the one for the other
    text.replace(a.first, one.size(), other);
    break;
  default: // swapped
    if (a.first < b.first) {
      text.replace(b.first, other.size(), one);
      text.replace(a.first, one.size(), other);
    }
  }
}

void changeWords(std::string &text, Random &random) {
  std::vector<Span> spans = wordsOf(text);
  if (spans.empty())
    return;
  Span span = spans[below(random, spans.size())];
  switch (below(random, 6)) {
  case 0: { // a number, if there is one near
    const auto isNumber = [&](Span s) { return std::isdigit(static_cast<unsigned char>(text[s.second - 1])); };
    const size_t from = below(random, spans.size());
    for (size_t i = 0; i < spans.size(); ++i)
      if (Span s = spans[(from + i) % spans.size()]; isNumber(s)) {
        span = s;
        break;
      }
    [[fallthrough]];
  }
  case 1:
    text.replace(span.first, span.second - span.first, numbers[below(random, std::size(numbers))]);
    break;
  case 2:
    text.replace(span.first, span.second - span.first, words[below(random, std::size(words))]);
    break;
  case 3: // another word of the text
    text.replace(span.first, span.second - span.first, cut(text, spans[below(random, spans.size())]));
    break;
  case 4:
    text.insert(span.first, words[below(random, std::size(words))]);
    break;
  default:
    text.erase(span.first, span.second - span.first);
  }
}

/// What stands between brackets: nested once more, doubled or left out.
void changeBrackets(std::string &text, Random &random) {
  const size_t begin = text.find_first_of("([{", below(random, text.size()));
  if (begin == text.npos)
    return;
  size_t depth = 0, end = begin;
  for (; end < text.size(); ++end) {
    depth += std::strchr("([{", text[end]) && text[end];
    depth -= std::strchr(")]}", text[end]) && text[end] && depth;
    if (!depth)
      break;
  }
  if (end == text.size())
    return;
  const std::string inside = text.substr(begin, end + 1 - begin);
  switch (below(random, 3)) {
  case 0:
    text.insert(begin + 1, inside);
    break;
  case 1:
    text.insert(end + 1, ", " + inside);
    break;
  default:
    text.erase(begin + 1, inside.size() - 2);
  }
}

/// The part of a safetensors file that is text: after the eight bytes of its length.
Span headerOf(const std::string &text) {
  uint64_t bytes = 0;
  if (text.size() < 9 || text[8] != '{')
    return {0, text.size()};
  std::memcpy(&bytes, text.data(), 8);
  return bytes <= text.size() - 8 ? Span{8, 8 + bytes} : Span{0, text.size()};
}

std::string mutated(const std::string &input, Random &random) {
  const Span span = headerOf(input);
  std::string text = cut(input, span);
  for (size_t n = 1 + below(random, 3); n && !text.empty(); --n)
    switch (below(random, 4)) {
    case 0:
      changeLines(text, random);
      break;
    case 1:
      changeBrackets(text, random);
      break;
    default:
      changeWords(text, random);
    }
  if (span.first == 0)
    return text;
  uint64_t bytes = text.size();
  std::string head(8, '\0');
  std::memcpy(head.data(), &bytes, 8);
  return head + text + input.substr(span.second);
}

} // namespace
} // namespace megalith::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t mostBytes, unsigned seed) {
  megalith::fuzz::Random random(seed);
  random(); // the first one hardly differs between seeds
  if (size == 0 || megalith::fuzz::below(random, 2))
    return LLVMFuzzerMutate(data, size, mostBytes);
  const std::string text = megalith::fuzz::mutated(std::string(reinterpret_cast<char *>(data), size), random);
  if (text.empty() || text.size() > mostBytes)
    return LLVMFuzzerMutate(data, size, mostBytes);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
