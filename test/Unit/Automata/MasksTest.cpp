#include "Vocabulary.h"
#include "megalith/Automata/LikelyTokens.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>

using namespace megalith::automata;

/// Each token walked from each state; masks are distinct, and numbered by their first state.
static void checkMasks(const Automaton &automaton, const std::vector<std::string> &tokens, const std::string &what) {
  const Masks masks = masksOf(automaton, TokenTree(tokens));
  ASSERT_EQ(masks.vocabulary, tokens.size());
  ASSERT_EQ(masks.words, (tokens.size() + 31) / 32);
  ASSERT_EQ(masks.maskOf.size(), automaton.states());
  std::set<std::vector<uint32_t>> distinct;
  uint32_t seen = 0;
  for (uint32_t state = 0; state < automaton.states(); ++state) {
    ASSERT_LE(masks.maskOf[state], seen) << what;
    seen += masks.maskOf[state] == seen;
    for (uint32_t token = 0; token < tokens.size(); ++token)
      ASSERT_EQ(masks.allows(state, token),
                !tokens[token].empty() && automaton.walk(state, tokens[token]) != Automaton::Dead)
          << what << ", state " << state << ", token " << token;
    const auto mask = masks.mask(masks.maskOf[state]);
    distinct.emplace(mask.begin(), mask.end());
    for (size_t token = tokens.size(); token < masks.words * size_t{32}; ++token)
      ASSERT_EQ(mask[token / 32] >> token % 32 & 1, 0u);
  }
  EXPECT_EQ(seen, masks.count()) << what;
  EXPECT_EQ(distinct.size(), masks.words ? masks.count() : 1u) << what;
}

TEST(Masks, AreThoseOfWalkingEachToken) {
  std::mt19937 random(3);
  const auto below = [&](size_t end) { return random() % end; };
  const std::string letters = "aab\"{}: ,1\xc3\xa9";
  for (const char *pattern : {"", "a*", "(a|b)*a(a|b){4}", R"(\{"a": ?(?:"[^"]{0,40}"|1+), ?"b": ?[ab]{3,9}\})",
                              "(?:é|a{30}|b){0,20}", "[ab]{0,60}1", "(.|a)*b(.|c){3}", R"((?:ab|ba){5}[\s\S]*)"}) {
    const Automaton automaton = compile(pattern);
    for (int round = 0; round < 12; ++round) {
      std::vector<std::string> tokens(below(90));
      for (std::string &token : tokens)
        for (size_t size = below(6) == 0 ? below(50) : below(5), few = below(2); size-- > 0;)
          token += letters[below(few ? 3 : letters.size())];
      checkMasks(automaton, tokens, fmt::format("{} round {}", pattern, round));
    }
  }
}

TEST(Masks, OfALargeVocabulary) {
  const std::vector<std::string> tokens = likeARealVocabulary(4000);
  for (const char *pattern :
       {R"(\{"name": "(?:[^"\\\x00-\x1f]|\\["\\nt]){0,20}", "age": (?:0|[1-9]\d*)\})", ".*", R"([\w ]{0,300})"})
    checkMasks(compile(pattern), tokens, pattern);
}

TEST(LikelyTokens, FollowWhatIsForced) {
  const auto likely = [](const char *pattern, const std::vector<std::string> &tokens) {
    const Automaton automaton = compile(pattern);
    const std::vector<int32_t> of = likelyTokens(automaton, TokenTree(tokens));
    std::string text;
    uint16_t state = automaton.start;
    for (int most = 40; of[state] >= 0 && most-- > 0; state = automaton.walk(state, tokens[of[state]]))
      text += (text.empty() ? "" : "|") + tokens[of[state]];
    return text;
  };
  std::vector<std::string> bytes(256);
  for (int byte = 0; byte < 256; ++byte)
    bytes[byte] = std::string(1, static_cast<char>(byte));
  std::vector<std::string> tokens = bytes;
  for (const char *more : {"na", "name", "names", "{\"", "\":", "\": \"", " \"", "\": ", "e"})
    tokens.push_back(more);
  // The longest token of what is forced, never beyond it; of equal ones the last. A blank that may stand there does.
  EXPECT_EQ(likely(R"(\{"name": ?"[a-z]+"\})", tokens), R"({"|name|": ")");
  EXPECT_EQ(likely(R"(\{"name": ?"[a-z]+"\})", bytes), R"({|"|n|a|m|e|"|:| |")");
  EXPECT_EQ(likely(R"(name: ?\d)", tokens), "name|:| ");
  EXPECT_EQ(likely("e1", tokens), "e|1");
  EXPECT_EQ(likelyTokens(compile("e1"), TokenTree(tokens))[0], 264);
  // A choice, an end, and a blank that changes what comes.
  EXPECT_EQ(likely("[ab]c", tokens), "");
  EXPECT_EQ(likely("na(me)?", tokens), "na");
  EXPECT_EQ(likely("name( a|b)", tokens), "name");
  EXPECT_EQ(likely("na *b", tokens), "na");
  EXPECT_EQ(likely("é", tokens), "\xc3|\xa9");
  // Nothing spells it.
  EXPECT_EQ(likely("ab", {"", "b"}), "");
  EXPECT_EQ(likely("ab", {"abc", "a", "ba"}), "a");
}

TEST(Masks, EmptyTokensAreNeverAllowed) {
  const std::vector<std::string> tokens = {"", "a", "", "a", "b", "aa", ""};
  const Masks masks = masksOf(compile("a*"), TokenTree(tokens));
  ASSERT_EQ(masks.count(), 1u);
  EXPECT_EQ(masks.bits, std::vector<uint32_t>{0b101010});
  EXPECT_EQ(masksOf(compile("a*"), TokenTree(std::vector<std::string>(40))).bits, (std::vector<uint32_t>{0, 0}));
  EXPECT_EQ(masksOf(compile("a*"), TokenTree(std::span<const std::string>())).bits, std::vector<uint32_t>());
}

TEST(Masks, BytesWithOffsetsAreTheSame) {
  const std::vector<std::string> tokens = {"b", "", "ab", "a", "abc"};
  const std::vector<uint64_t> offsets = {0, 1, 1, 3, 4, 7};
  const TokenTree same(tokens);
  EXPECT_EQ(TokenTree(offsets, "babaabc").byte, same.byte);
  EXPECT_EQ(TokenTree(offsets, "babaabc").order, same.order);
  EXPECT_EQ(same.order, (std::vector<uint32_t>{3, 2, 4, 0}));
  EXPECT_EQ(same.end, (std::vector<uint32_t>{5, 4, 4, 4, 5}));
  EXPECT_EQ(same.height, (std::vector<uint32_t>{3, 2, 1, 0, 0}));
  EXPECT_EQ(same.firstRank, (std::vector<uint32_t>{0, 0, 1, 2, 3, 4}));
  EXPECT_THROW(TokenTree(offsets, "bab"), Refused);
  EXPECT_THROW(TokenTree(std::vector<uint64_t>{2, 1}, "bab"), Refused);
}

TEST(Masks, TokensMayBeLong) {
  std::vector<std::string> tokens = {std::string(200'000, 'a'), "a", std::string(70, 'a') + "b"};
  const Masks masks = masksOf(compile("a{0,100}b?"), TokenTree(tokens));
  EXPECT_TRUE(masks.allows(0, 2));
  EXPECT_FALSE(masks.allows(0, 0));
  EXPECT_TRUE(masksOf(compile("a*"), TokenTree(tokens)).allows(0, 0));
}

TEST(Masks, BoundsAreTold) {
  const TokenTree tree(likeARealVocabulary(3000));
  const Automaton automaton = compile(R"("(?:[^"\\\x00-\x1f]|\\["\\nt]){0,200}")");
  const auto refusal = [&](const Limits &limits) {
    try {
      masksOf(automaton, tree, limits);
    } catch (const Refused &refused) {
      return refused.message.substr(0, refused.message.find(';'));
    }
    return std::string("none");
  };
  EXPECT_EQ(refusal({.maskSteps = 100}), "the masks of tokens take steps: more than 100 (limit `maskSteps`)");
  EXPECT_EQ(refusal({.maskSteps = 20'000}), "the masks of tokens take steps: more than 20000 (limit `maskSteps`)");
  EXPECT_EQ(refusal({.maskParts = 100}), "the masks of tokens have parts: more than 100 (limit `maskParts`)");
  EXPECT_EQ(refusal({.maskBytes = 1000}),
            "the distinct masks of tokens have bytes: more than 1000 (limit `maskBytes`)");
  EXPECT_EQ(refusal({}), "none");
}

/// AutomataTests --gtest_also_run_disabled_tests --gtest_filter=Masks.DISABLED_Measured
TEST(Masks, DISABLED_Measured) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  };
  const std::vector<std::string> tokens = likeARealVocabulary(128'256);
  Clock::time_point begin = Clock::now();
  const TokenTree tree(tokens);
  fmt::print("{} tokens: {} nodes, {:.0f} ms\n", tokens.size(), tree.nodes(), since(begin));
  const std::string text = R"("(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*")", number = R"(-?(?:0|[1-9]\d*)(?:\.\d+)?)";
  for (const int properties : {2, 20, 100}) {
    std::string pattern = R"(\{)";
    for (int i = 0; i < properties; ++i)
      pattern += fmt::format(R"({}"property_{}": ?{})", i ? ", ?" : "", i * 7919 % 1000,
                             i % 3 == 0   ? text
                             : i % 3 == 1 ? number
                                          : R"((?:"red"|"green"|"blue"))");
    begin = Clock::now();
    const Automaton automaton = compile(pattern + R"(\})");
    const double compiled = since(begin);
    begin = Clock::now();
    const Masks masks = masksOf(automaton, tree);
    fmt::print("{} properties: {} states, {} classes, {:.1f} ms; {} masks, {:.1f} ms\n", properties, automaton.states(),
               automaton.classes, compiled, masks.count(), since(begin));
  }
}
