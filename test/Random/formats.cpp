//===- formats.cpp - megalith-formats -------------------------------------===//
//
// What a format takes, for tests that know by other means what it should take. Reads lines of JSON,
//
//   {"format": {...}, "texts": ["...", ...], "draws": 5, "seed": 1}
//
// and prints for each {"accepts": [true, ...], "drawn": ["...", ...], "states": n, "notes": [...], "ms": 1.5}, or
// {"refused": "..."}. Texts that are drawn are random walks through the automaton, which lean to its ends.
//===----------------------------------------------------------------------===//
#include "megalith/Automata/Format.h"
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

using namespace megalith::automata;
using Json = nlohmann::ordered_json;

namespace {

/// How many bytes are at least left from each state.
std::vector<uint32_t> distances(const Automaton &automaton) {
  std::vector<uint32_t> left(automaton.states(), UINT32_MAX);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t s = automaton.states(); s-- > 0;) {
      uint32_t least = automaton.accepting[s] ? 0 : left[s];
      for (uint32_t c = 0; c < automaton.classes; ++c)
        if (const uint16_t to = automaton.next[size_t{s} * automaton.classes + c];
            to != Automaton::Dead && left[to] != UINT32_MAX)
          least = std::min(least, left[to] + 1);
      changed |= least != left[s];
      left[s] = least;
    }
  }
  return left;
}

std::string draw(const Automaton &automaton, const std::vector<uint32_t> &left, std::mt19937 &random) {
  std::string text;
  uint16_t state = automaton.start;
  constexpr size_t patience = 300; // then the shortest way out
  while (!automaton.final[state] && !(automaton.accepting[state] && (text.size() > patience || random() % 4 == 0))) {
    std::vector<uint8_t> some;
    for (int byte = 0; byte < 256; ++byte) {
      const uint16_t to = automaton.step(state, static_cast<uint8_t>(byte));
      if (to != Automaton::Dead && (text.size() <= patience || automaton.accepting[state] || left[to] < left[state]))
        some.push_back(static_cast<uint8_t>(byte));
    }
    const uint8_t byte = some[random() % some.size()];
    text += static_cast<char>(byte);
    state = automaton.step(state, byte);
  }
  return text;
}

} // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Json given = Json::parse(line);
    Json out;
    const auto begin = std::chrono::steady_clock::now();
    try {
      const Format format = readFormat(given.at("format").dump());
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      const std::vector<uint32_t> left = distances(format.automaton);
      std::mt19937 random(given.value("seed", 1u));
      out = {{"accepts", Json::array()}, {"drawn", Json::array()}};
      for (const Json &text : given.value("texts", Json::array()))
        out["accepts"].push_back(format.automaton.accepts(text.get<std::string>()));
      for (int i = given.value("draws", 0); i > 0; --i)
        out["drawn"].push_back(draw(format.automaton, left, random));
      out["states"] = format.automaton.states();
      out["notes"] = format.notes;
      out["ms"] = took.count();
    } catch (const Refused &refused) {
      out = {{"refused", refused.message}};
    }
    std::cout << out.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
}
