#include "NumberRanges.h"
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

using namespace megalith::automata;

using Spellings = std::vector<std::string>;

static std::string digits(size_t count) {
  return count == 0 ? "" : count == 1 ? "[0-9]" : fmt::format("[0-9]{{{}}}", count);
}

static std::string oneOf(char low, char high) {
  return low == high ? std::string(1, low) : fmt::format("[{}-{}]", low, high);
}

/// Numbers of as many digits as `low` and `high` have, between them.
static void between(const std::string &prefix, const std::string &low, const std::string &high, Spellings &parts) {
  const auto all = [](const std::string &text, char digit) { return text.find_first_not_of(digit) == text.npos; };
  if (all(low, '0') && all(high, '9')) {
    parts.push_back(prefix + digits(low.size()));
    return;
  }
  if (low[0] == high[0]) {
    between(prefix + low[0], low.substr(1), high.substr(1), parts);
    return;
  }
  const std::string lowRest = low.substr(1), highRest = high.substr(1);
  const bool wholeLow = all(lowRest, '0'), wholeHigh = all(highRest, '9');
  if (!wholeLow)
    between(prefix + low[0], lowRest, std::string(lowRest.size(), '9'), parts);
  const char first = static_cast<char>(low[0] + !wholeLow), last = static_cast<char>(high[0] - !wholeHigh);
  if (first <= last)
    parts.push_back(prefix + oneOf(first, last) + digits(lowRest.size()));
  if (!wholeHigh)
    between(prefix + high[0], std::string(highRest.size(), '0'), highRest, parts);
}

/// Integers from `least` on, which is not below 0, to `most`; none: without an end.
static void wholeParts(int64_t least, std::optional<int64_t> most, Spellings &parts) {
  const std::string low = std::to_string(least);
  if (most && *most < least)
    return;
  const std::string high = most ? std::to_string(*most) : std::string(low.size(), '9');
  for (size_t size = low.size(); size <= high.size(); ++size)
    between("", size == low.size() ? low : "1" + std::string(size - 1, '0'),
            size == high.size() ? high : std::string(size, '9'), parts);
  if (!most)
    parts.push_back(fmt::format("[1-9][0-9]{{{},}}", low.size()));
}

static std::string choice(const Spellings &parts) {
  return parts.empty() ? "" : fmt::format("(?:{})", fmt::join(parts, "|"));
}

std::string megalith::automata::integersBetween(const IntegerBounds &bounds) {
  Spellings parts, below;
  if (!bounds.most || *bounds.most >= 0)
    wholeParts(std::max<int64_t>(0, bounds.least.value_or(0)), bounds.most, parts);
  if (!bounds.least || *bounds.least < 0)
    wholeParts(bounds.most && *bounds.most < 0 ? -*bounds.most : 1,
               bounds.least ? std::optional(-*bounds.least) : std::nullopt, below);
  if (!below.empty())
    parts.push_back("-" + choice(below));
  return choice(parts);
}

int megalith::automata::digitsAfterPoint(const NumberBounds &bounds) {
  size_t most = 1;
  for (const std::optional<int64_t> &bound : {bounds.bounds.least, bounds.bounds.most})
    if (bound)
      most = std::max(most, std::to_string(std::abs(*bound)).size());
  return std::clamp(15 - static_cast<int>(most), 1, 9);
}

/// Numbers from `least` on, which is not below 0, to `most`.
static void numberParts(int64_t least, bool aboveLeast, std::optional<int64_t> most, bool belowMost, int places,
                        Spellings &parts) {
  const std::string some = fmt::format("(?:\\.[0-9]{{1,{}}})?", places),
                    zeros = fmt::format("(?:\\.0{{1,{}}})?", places);
  if (most && (*most < least || (*most == least && (aboveLeast || belowMost))))
    return;
  Spellings whole; // with anything behind the point
  wholeParts(least + aboveLeast, most ? std::optional(*most - 1) : std::nullopt, whole);
  if (!whole.empty())
    parts.push_back(choice(whole) + some);
  for (int zero = 0; aboveLeast && zero < places; ++zero) // what is not 0 behind the point
    parts.push_back(fmt::format("{}\\.{}[1-9][0-9]{{0,{}}}", least, std::string(zero, '0'), places - 1 - zero));
  if (most && !belowMost)
    parts.push_back(std::to_string(*most) + zeros);
}

std::string megalith::automata::numbersBetween(const NumberBounds &all) {
  const auto &[least, most] = all.bounds;
  const int places = digitsAfterPoint(all);
  Spellings parts, below;
  if (!most || *most >= 0) {
    const bool fromZero = !least || *least < 0;
    numberParts(fromZero ? 0 : *least, !fromZero && all.aboveLeast, most, all.belowMost, places, parts);
  }
  if (!least || *least < 0) { // what is below 0, turned around
    const bool toZero = !most || *most >= 0;
    numberParts(toZero ? 0 : -*most, toZero || all.belowMost, least ? std::optional(-*least) : std::nullopt,
                all.aboveLeast, places, below);
  }
  if (!below.empty())
    parts.push_back("-" + choice(below));
  return choice(parts);
}
