#include "megalith/Automata/TokenFormat.h"
#include <algorithm>

using namespace megalith;
using namespace megalith::automata;

size_t TokenFormat::bytes() const {
  const Automaton &a = format.automaton;
  return a.next.size() * sizeof(a.next[0]) + a.states() * 2 + masks.maskOf.size() * sizeof(masks.maskOf[0]) +
         masks.bits.size() * sizeof(masks.bits[0]) + likely.size() * sizeof(likely[0]);
}

std::shared_ptr<const TokenFormat> Formats::find(const std::string &text) {
  const auto known = [&]() -> std::shared_ptr<const TokenFormat> {
    const auto at = std::find_if(entries.begin(), entries.end(), [&](const Entry &e) { return e.text == text; });
    if (at == entries.end())
      return nullptr;
    entries.splice(entries.begin(), entries, at);
    return at->format;
  };
  {
    const std::lock_guard lock(mutex);
    if (auto format = known())
      return format;
  }
  // Others are found, and made, meanwhile.
  auto made = std::make_shared<TokenFormat>(TokenFormat{readFormat(text), {}, {}, tokens});
  made->masks = masksOf(made->format.automaton, tokens->tree);
  made->likely = likelyTokens(made->format.automaton, tokens->tree);
  const std::lock_guard lock(mutex);
  if (auto format = known())
    return format;
  entries.push_front({text, made});
  held += made->bytes() + text.size();
  while (held > mostBytes && entries.size() > 1) {
    held -= entries.back().format->bytes() + entries.back().text.size();
    entries.pop_back();
  }
  return made;
}
