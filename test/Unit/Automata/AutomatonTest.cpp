#include "megalith/Automata/Automaton.h"
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <random>

using namespace megalith::automata;

// --- against a matcher that tries everything

namespace {

/// A pattern and what it means, made side by side. It knows nothing of bytes or automata.
struct Piece {
  enum class Kind { Set, Sequence, Choice, Repeat } kind;
  std::u32string members; ///< of the alphabet
  std::vector<std::shared_ptr<Piece>> parts;
  size_t least = 0, most = 0;
};

using Continue = std::function<bool(size_t)>;

bool matchPiece(const Piece &piece, std::u32string_view text, size_t at, const Continue &then);

bool matchFrom(const Piece &piece, size_t index, std::u32string_view text, size_t at, const Continue &then) {
  if (index == piece.parts.size())
    return then(at);
  return matchPiece(*piece.parts[index], text, at,
                    [&](size_t next) { return matchFrom(piece, index + 1, text, next, then); });
}

bool matchRepeat(const Piece &piece, size_t done, std::u32string_view text, size_t at, const Continue &then) {
  if (done >= piece.least && then(at))
    return true;
  if (done >= piece.most)
    return false;
  return matchPiece(*piece.parts[0], text, at, [&](size_t next) {
    // Once more of nothing leads nowhere new, but where some are still owed.
    return (next != at || done < piece.least) && matchRepeat(piece, done + 1, text, next, then);
  });
}

bool matchPiece(const Piece &piece, std::u32string_view text, size_t at, const Continue &then) {
  switch (piece.kind) {
  case Piece::Kind::Set:
    return at < text.size() && piece.members.find(text[at]) != std::u32string::npos && then(at + 1);
  case Piece::Kind::Sequence:
    return matchFrom(piece, 0, text, at, then);
  case Piece::Kind::Choice:
    for (const auto &part : piece.parts)
      if (matchPiece(*part, text, at, then))
        return true;
    return false;
  case Piece::Kind::Repeat:
    return matchRepeat(piece, 0, text, at, then);
  }
  return false;
}

const std::u32string Alphabet = U"abé☃😀\n1 ";

std::string utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text)
    if (c < 0x80)
      out += static_cast<char>(c);
    else if (c < 0x800)
      out += {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    else if (c < 0x10000)
      out += {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    else
      out += {static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
  return out;
}

class Maker {
public:
  explicit Maker(unsigned seed) : random(seed) {}
  size_t below(size_t end) { return random() % end; }

  std::string set(std::u32string &members) {
    static const std::pair<const char *, const char32_t *> known[] = {{".", U"abé☃😀1 "},
                                                                      {R"(\d)", U"1"},
                                                                      {R"(\w)", U"ab1"},
                                                                      {R"(\s)", U"\n "},
                                                                      {R"(\D)", U"abé☃😀\n "},
                                                                      {R"(\W)", U"é☃😀\n "},
                                                                      {R"(\S)", U"abé☃😀1"},
                                                                      {"[a-é]", U"abé"},
                                                                      {"[b-☃]", U"bé☃"},
                                                                      {"[^a-☃]", U"😀\n1 "},
                                                                      {R"([☃-\U0001F600])", U"☃😀"},
                                                                      {R"([\d\n])", U"1\n"},
                                                                      {R"([^\s1])", U"abé☃😀"},
                                                                      {R"([^\W])", U"ab1"},
                                                                      {R"([\x00-1])", U"\n1 "},
                                                                      {"[ab]", U"ab"}};
    if (below(2) == 0) {
      const auto &[pattern, of] = known[below(std::size(known))];
      members = of;
      return pattern;
    }
    members = Alphabet[below(Alphabet.size())];
    return members == U"\n" ? "\\n" : utf8(members);
  }
  /// The pattern of `piece`, as one that may stand anywhere.
  std::string make(Piece &piece, int depth) {
    const size_t kind = depth == 0 ? 0 : below(4);
    if (kind == 0) {
      piece.kind = Piece::Kind::Set;
      return set(piece.members);
    }
    if (kind == 3) {
      static const std::tuple<const char *, size_t, size_t> forms[] = {
          {"*", 0, SIZE_MAX}, {"+", 1, SIZE_MAX}, {"?", 0, 1},           {"{2}", 2, 2},       {"{0}", 0, 0},
          {"{1,3}", 1, 3},    {"{,2}", 0, 2},     {"{2,}", 2, SIZE_MAX}, {"*?", 0, SIZE_MAX}, {"{1,2}?", 1, 2}};
      const auto &[form, least, most] = forms[below(std::size(forms))];
      piece.kind = Piece::Kind::Repeat;
      piece.least = least, piece.most = most;
      piece.parts.push_back(std::make_shared<Piece>());
      return "(?:" + make(*piece.parts[0], depth - 1) + ")" + form;
    }
    piece.kind = kind == 1 ? Piece::Kind::Sequence : Piece::Kind::Choice;
    std::string out;
    for (size_t i = below(4); i-- > 0;) {
      piece.parts.push_back(std::make_shared<Piece>());
      if (kind == 2 && piece.parts.size() > 1)
        out += "|";
      out += make(*piece.parts.back(), depth - 1);
    }
    if (piece.parts.empty()) // a choice of none is the empty text in a pattern
      piece.kind = Piece::Kind::Sequence;
    return "(" + out + ")";
  }
  std::u32string text() {
    std::u32string out;
    const size_t most = below(3) == 0 ? Alphabet.size() : 3;
    for (size_t i = below(7); i-- > 0;)
      out += Alphabet[below(most)];
    return out;
  }

private:
  std::mt19937 random;
};

} // namespace

TEST(Automaton, MatchesWhatTryingEverythingMatches) {
  Maker maker(7);
  size_t matched = 0, cases = 0;
  for (int i = 0; i < 3000; ++i) {
    Piece piece{};
    const std::string pattern = maker.make(piece, 4);
    const Automaton automaton = compile(pattern);
    for (int j = 0; j < 8; ++j, ++cases) {
      const std::u32string text = maker.text();
      const bool wanted = matchPiece(piece, text, 0, [&](size_t at) { return at == text.size(); });
      ASSERT_EQ(automaton.accepts(utf8(text)), wanted) << pattern << " on " << utf8(text);
      matched += wanted;
    }
  }
  EXPECT_GT(matched, cases / 20);
  EXPECT_LT(matched, cases / 2);
}

TEST(Automaton, IntersectionIsBoth) {
  Maker maker(11);
  size_t some = 0;
  for (int i = 0; i < 1000; ++i) {
    Piece left{}, right{};
    const Automaton a = compile(maker.make(left, 3)), b = compile(maker.make(right, 3));
    try {
      const Automaton both = intersect(a, b);
      for (int j = 0; j < 8; ++j) {
        const std::string text = utf8(maker.text());
        ASSERT_EQ(both.accepts(text), a.accepts(text) && b.accepts(text)) << text;
      }
      ASSERT_EQ(both, intersect(b, a));
      ++some;
    } catch (const Refused &refused) {
      for (int j = 0; j < 8; ++j) {
        const std::string text = utf8(maker.text());
        ASSERT_FALSE(a.accepts(text) && b.accepts(text)) << text;
      }
    }
    ASSERT_EQ(intersect(a, a), a);
  }
  EXPECT_GT(some, 300u);
  EXPECT_EQ(intersect(compile("[a-f]*"), compile("(?:..){0,2}")), compile("(?:[a-f]{2}){0,2}"));
}

// --- what an automaton is

TEST(Automaton, IsTheSmallest) {
  const std::pair<const char *, uint32_t> cases[] = {
      {"", 1},          {"a", 2},      {"a*", 1},      {"(a|b)*a(a|b){3}", 16}, {".", 9},     {"[\\s\\S]", 9},
      {"(aa|aaa)*", 3}, {"a{50}", 51}, {"abc|xbc", 4}, {"(ab|ac|ad)", 3},       {"[à-ÿ]", 3}, {"true|false", 8}};
  for (const auto &[pattern, states] : cases)
    EXPECT_EQ(compile(pattern).states(), states) << pattern;
}

/// From every state an accepting one is reached; the start is 0, and states come breadth first by ascending byte.
TEST(Automaton, IsInItsOrder) {
  for (const char *pattern : {R"(\{"a": (?:true|false|"[^"\\]*"), "b": -?\d+\})", "(.|a)*b(.|c){3}", "x[^\\s\\S]|b"}) {
    const Automaton automaton = compile(pattern);
    uint32_t seen = 1;
    for (uint32_t s = 0; s < automaton.states(); ++s) {
      bool leads = false;
      for (int byte = 0; byte < 256; ++byte)
        if (const uint16_t next = automaton.step(s, byte); next != Automaton::Dead) {
          ASSERT_LE(next, seen);
          seen += next == seen;
          leads = true;
        }
      EXPECT_EQ(automaton.final[s] != 0, automaton.accepting[s] && !leads);
      EXPECT_TRUE(leads || automaton.accepting[s]);
    }
    EXPECT_EQ(seen, automaton.states());
    std::vector<uint8_t> alive = automaton.accepting;
    for (uint32_t round = 0; round < automaton.states(); ++round)
      for (uint32_t s = 0; s < automaton.states(); ++s)
        for (int byte = 0; byte < 256; ++byte)
          if (const uint16_t next = automaton.step(s, byte); next != Automaton::Dead)
            alive[s] |= alive[next];
    EXPECT_EQ(std::count(alive.begin(), alive.end(), 1), automaton.states());
    uint32_t classes = 0;
    for (int byte = 0; byte < 256; ++byte) {
      ASSERT_LE(automaton.classOf[byte], classes);
      classes += automaton.classOf[byte] == classes;
    }
    EXPECT_EQ(classes, automaton.classes);
  }
}

TEST(Automaton, EqualLanguagesHaveEqualContents) {
  const Automaton automaton = compile("(?:a|b)*abb");
  EXPECT_EQ(automaton, compile("[ab]*?a(bb)"));
  EXPECT_EQ(automaton.hash(), compile("[ab]*?a(bb)").hash());
  EXPECT_NE(automaton.hash(), compile("[ab]*ab").hash());
  EXPECT_NE(compile("a").hash(), compile("b").hash());
  EXPECT_EQ(compile("a").hash(), 4785220925532494825u); // the same on every machine
  EXPECT_EQ(compile("a{1,3}").classOf['a'], 1);
  EXPECT_EQ(compile("a{1,3}").classes, 2u);
}

TEST(Automaton, ForcedBytes) {
  const Automaton automaton = compile(R"re(\{"name": "[a-z]+", "type": "(?:cat|cow)"\}x?)re");
  EXPECT_EQ(automaton.forcedText(automaton.start, 100), R"({"name": ")");
  EXPECT_EQ(automaton.forcedText(automaton.start, 4), R"({"na)");
  const uint16_t quote = automaton.walk(automaton.start, R"({"name": "a")");
  EXPECT_EQ(automaton.forcedText(quote, 100), R"(, "type": "c)");
  EXPECT_EQ(automaton.forcedByte(quote), ',');
  EXPECT_EQ(automaton.forcedByte(automaton.walk(automaton.start, R"({"name": ")")), std::nullopt);
  const uint16_t end = automaton.walk(quote, R"(, "type": "cow"})");
  EXPECT_TRUE(automaton.accepting[end]);
  EXPECT_FALSE(automaton.final[end]);
  EXPECT_EQ(automaton.forcedByte(end), std::nullopt); // it may end as well
  EXPECT_TRUE(automaton.final[automaton.walk(end, "x")]);
  EXPECT_EQ(automaton.forcedByte(Automaton::Dead), std::nullopt);
  EXPECT_EQ(automaton.forcedText(Automaton::Dead, 10), "");
  EXPECT_EQ(compile("aé*").forcedText(0, 9), "a");
  EXPECT_EQ(compile("[à-ÿ]").forcedText(0, 9), "\xc3");
}

// --- bounds

static std::string refusal(std::string_view pattern, const Limits &limits = {}) {
  try {
    compile(pattern, limits);
  } catch (const Refused &refused) {
    return refused.message;
  }
  return "none";
}

TEST(Automaton, NothingMatchesIsAnError) {
  EXPECT_EQ(refusal(R"(a[^\s\S])").substr(0, 16), "no text matches;");
  EXPECT_EQ(refusal(R"(a|[^\s\S])"), "none");
  EXPECT_THROW(intersect(compile("a"), compile("b")), Refused);
}

TEST(Automaton, BoundsAreTold) {
  const std::string advice = "; write a simpler expression: fewer or shorter counted repeats, and alternatives that "
                             "differ early";
  EXPECT_EQ(refusal("((a{100}){100}){100}"),
            "with its repeats written out the expression has parts: more than 1000000 (limit `nodes`)" + advice);
  EXPECT_EQ(refusal("(a|b)*a(a|b){20}", {.wideStates = 20'000}),
            "the deterministic automaton has states: more than 20000 (limit `wideStates`)" + advice);
  EXPECT_EQ(refusal("(.{0,1000}){50}", {.steps = 1'000'000}),
            "making the automaton deterministic takes steps: more than 1000000 (limit `steps`)" + advice);
  EXPECT_EQ(refusal("a{20}", {.states = 20}), "the automaton has states: more than 20 (limit `states`)" + advice);
  EXPECT_EQ(refusal("a{20}", {.states = 21}), "none");
  EXPECT_EQ(refusal("a{65534}"), "none");
  EXPECT_NE(refusal("a{65535}"), "none"); // 0xffff is no state
  EXPECT_EQ(refusal("a{20}", {.nfaStates = 20}),
            "the automaton with choices needs states: more than 20 (limit `nfaStates`)" + advice);
  EXPECT_EQ(refusal("[ac]{20}", {.wideEdges = 19}),
            "the deterministic automaton has edges: more than 19 (limit `wideEdges`)" + advice);
  const Automaton a = compile("[ab]{0,300}");
  EXPECT_THROW(intersect(a, compile("(?:aa|b)*"), {.wideStates = 100}), Refused);
  EXPECT_THROW(intersect(a, a, {.steps = 100}), Refused);
  EXPECT_THROW(intersect(a, a, {.wideEdges = 100}), Refused);
}

/// Whatever comes, it ends; some of it as an error.
TEST(Automaton, NoPatternBlowsUp) {
  for (const char *pattern : {"(a{0,300}b?){0,300}", "(((a|b|c|d){0,50}e?){0,30}f?){0,20}", "(?:a?){300000}",
                              "(a?){1000}a{1000}", "(a{0,1000}){0,1000}", "(a|b)*a(a|b){20}", "(.{0,1000}){50}",
                              "(((a*)*)*)*b", "(.|a)*b(.|c){12}", ".*.*.*.*.*.*x.*.*.*y.*", "(){1000000}",
                              "((a{0}){1000}){1000}", "[^a]*a.{10}b.{3}", "(\\w+\\s?){40}", "(.+)+(.+)+(.+)+"})
    refusal(pattern, {.steps = 1'000'000});
  std::string odd = "[", choices;
  for (uint32_t code = 0x100; code < 0x8000; code += 2)
    if (code < 0xd800 || code > 0xdfff)
      odd += utf8(std::u32string(1, static_cast<char32_t>(code)));
  refusal(odd + "]{3}");
  for (int i = 0; i < 5000; ++i)
    choices += fmt::format("{}|", i * 7919);
  const Automaton many = compile(choices);
  EXPECT_TRUE(many.accepts("7919"));
  EXPECT_TRUE(many.accepts(fmt::format("{}", 4999 * 7919)));
  EXPECT_FALSE(many.accepts("7918"));
}
