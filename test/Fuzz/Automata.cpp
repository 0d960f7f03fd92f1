//===- Automata.cpp - targets that make automata of a user's text ---------===//
#include "Fuzz.h"
#include "megalith/Automata/Masks.h"
#include "megalith/Automata/Schema.h"
#include "megalith/Text/Text.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

namespace megalith::fuzz {

using namespace automata;

/// Small, so that what meets them is found as often as what does not.
static const Limits Small = {.nodes = 3000,
                             .nfaStates = 6000,
                             .steps = 100'000,
                             .wideStates = 3000,
                             .wideEdges = 30'000,
                             .states = 2000,
                             .maskSteps = 100'000,
                             .maskParts = 3000,
                             .maskBytes = 10'000};

static void checkRefused(const Refused &refused, std::string_view text) {
  if (refused.message.empty() || text::printable(refused.message) != refused.message)
    finding("a message that is empty or not printable: " + text::printable(refused.message));
  if (refused.byte && *refused.byte > text.size())
    finding(fmt::format("byte {} of {}: {}", *refused.byte, text.size(), refused.message));
}

static std::optional<Automaton> automatonOf(std::string_view pattern) {
  try {
    return compile(pattern, Small);
  } catch (const Refused &refused) {
    checkRefused(refused, pattern);
  }
  return std::nullopt;
}

static void checkAutomaton(const Automaton &automaton) {
  if (automaton.states() == 0 || automaton.next.size() != automaton.states() * size_t{automaton.classes})
    finding(
        fmt::format("{} states, {} classes, {} edges", automaton.states(), automaton.classes, automaton.next.size()));
  for (uint32_t state = 0; state < automaton.states(); ++state) {
    const uint16_t behind = automaton.walk(state, automaton.forcedText(state, 20));
    if (behind == Automaton::Dead)
      finding(fmt::format("forced bytes of state {} lead nowhere", state));
    bool leads = false;
    for (uint32_t c = 0; c < automaton.classes; ++c) {
      const uint16_t next = automaton.next[state * size_t{automaton.classes} + c];
      if (next != Automaton::Dead && next >= automaton.states())
        finding(fmt::format("an edge from state {} to {}", state, next));
      leads |= next != Automaton::Dead;
    }
    if ((automaton.accepting[state] && !leads) != (automaton.final[state] != 0) ||
        (!leads && !automaton.accepting[state]))
      finding(fmt::format("state {} has no way to an end, or `final` is wrong", state));
  }
}

static void checkMasks(const Automaton &automaton, const std::vector<std::string> &tokens, std::string_view input) {
  try {
    const Masks masks = masksOf(automaton, TokenTree(tokens), Small);
    for (uint32_t state = 0; state < automaton.states(); ++state)
      for (uint32_t token = 0; token < tokens.size(); ++token)
        if (masks.allows(state, token) !=
            (!tokens[token].empty() && automaton.walk(state, tokens[token]) != Automaton::Dead))
          finding(fmt::format("state {}, token {}: the mask says {}", state, token, masks.allows(state, token)));
  } catch (const Refused &refused) {
    checkRefused(refused, input);
  }
}

/// A line of an expression, one of another, and a token a line.
void fuzzAutomaton(std::string_view input) {
  std::vector<std::string> lines;
  for (std::string_view rest = input; lines.size() < 40;) {
    const size_t end = rest.find('\n');
    lines.emplace_back(rest.substr(0, end));
    if (end == rest.npos)
      break;
    rest.remove_prefix(end + 1);
  }
  const std::optional<Automaton> first = automatonOf(lines[0]);
  if (!first)
    return;
  checkAutomaton(*first);
  if (automatonOf(lines[0]) != first)
    finding("an expression that becomes two automata");
  if (first->classes * first->states() < 20'000 && intersect(*first, *first) != *first)
    finding("an automaton that is not its product with itself");
  checkMasks(*first, lines, input);
  if (lines.size() < 2)
    return;
  try {
    const Automaton literal = compile(escaped(lines[1]), Small);
    if (!literal.accepts(lines[1]) || literal.states() != lines[1].size() + 1)
      finding("an escaped text that does not match itself, or not only itself");
  } catch (const Refused &refused) {
    checkRefused(refused, lines[1]);
  }
  if (const std::optional<Automaton> second = automatonOf(lines[1]))
    try {
      const Automaton both = intersect(*first, *second, Small);
      checkAutomaton(both);
      for (const std::string &line : lines)
        if (both.accepts(line) != (first->accepts(line) && second->accepts(line)))
          finding("a text in two automata, and not in their product, or the other way round");
    } catch (const Refused &refused) {
      checkRefused(refused, input);
    }
}

/// Edges to an accepting state from each one.
static std::vector<uint32_t> waysToTheEnd(const Automaton &automaton) {
  std::vector<std::vector<uint32_t>> from(automaton.states());
  std::vector<uint32_t> ways(automaton.states(), UINT32_MAX), order;
  for (uint32_t state = 0; state < automaton.states(); ++state) {
    for (uint32_t c = 0; c < automaton.classes; ++c)
      if (const uint16_t next = automaton.next[state * size_t{automaton.classes} + c]; next != Automaton::Dead)
        from[next].push_back(state);
    if (automaton.accepting[state]) {
      ways[state] = 0;
      order.push_back(state);
    }
  }
  for (size_t i = 0; i < order.size(); ++i)
    for (const uint32_t state : from[order[i]])
      if (ways[state] == UINT32_MAX) {
        ways[state] = ways[order[i]] + 1;
        order.push_back(state);
      }
  return ways;
}

/// JSON that it accepts: some steps at random, then the shortest way.
static void checkIsJson(const Automaton &automaton, uint32_t seed) {
  const std::vector<uint32_t> ways = waysToTheEnd(automaton);
  std::string text;
  uint16_t state = automaton.start;
  while (!automaton.accepting[state] || (text.size() < 60 && !automaton.final[state])) {
    std::optional<int> chosen;
    for (int i = 0; i < 256 && !chosen; ++i) {
      const int byte = (i + (seed >> 16)) & 255;
      const uint16_t next = automaton.step(state, static_cast<uint8_t>(byte));
      if (next != Automaton::Dead && (text.size() < 60 || ways[next] < ways[state]))
        chosen = byte;
    }
    if (!chosen)
      finding("a state without a way to an end behind " + text::printable(text));
    text += static_cast<char>(*chosen);
    state = automaton.step(state, static_cast<uint8_t>(*chosen));
    seed = seed * 1664525 + 1013904223;
  }
  try {
    if (nlohmann::json::parse(text).is_discarded())
      finding("no JSON: " + text::printable(text));
  } catch (const nlohmann::json::out_of_range &) { // a number beyond f64 is JSON
  } catch (const nlohmann::json::exception &error) {
    finding(fmt::format("no JSON: {}: {}", text::printable(text), error.what()));
  }
}

/// A schema; a digit in front of it is a depth.
void fuzzSchema(std::string_view input) {
  SchemaOptions options;
  options.limits = Small;
  options.limits.nodes = 20'000;
  if (!input.empty() && input[0] >= '0' && input[0] <= '9') {
    options.depth = input[0] - '0';
    input.remove_prefix(1);
  }
  try {
    const SchemaExpression schema = readSchema(input, options);
    for (const std::string &note : schema.notes)
      if (note.empty() || text::printable(note) != note)
        finding("a note that is empty or not printable: " + text::printable(note));
    const Automaton automaton = compile(schema.expression, options.limits);
    checkAutomaton(automaton);
    for (uint32_t i = 0; i < 4; ++i)
      checkIsJson(automaton, static_cast<uint32_t>(input.size()) + i * 0x9e3779b9u);
  } catch (const Refused &refused) {
    checkRefused(refused, input);
  }
}

} // namespace megalith::fuzz
