#include "runtime/Edits.h"
#include <algorithm>
#include <cstring>

namespace megalith::runtime {

namespace {

/// An image: a struct, and what it names by bytes from its beginning.
template <class Head> class Image {
public:
  Image() : bytes(sizeof(Head)) {}
  /// Where the items begin.
  template <class T> int add(const std::vector<T> &items) {
    bytes.resize((bytes.size() + 15) / 16 * 16);
    const auto at = static_cast<int>(bytes.size());
    const auto *first = reinterpret_cast<const char *>(items.data());
    bytes.insert(bytes.end(), first, first + items.size() * sizeof(T));
    return at;
  }
  std::vector<char> with(const Head &head) {
    bytes.resize((bytes.size() + 15) / 16 * 16);
    std::memcpy(bytes.data(), &head, sizeof(head));
    return std::move(bytes);
  }

private:
  std::vector<char> bytes;
};

/// A set of tokens.
class TokenSet {
public:
  explicit TokenSet(int64_t vocabulary) : words((vocabulary + 31) / 32) {}
  void add(int32_t token) {
    if (token >= 0 && static_cast<size_t>(token) / 32 < words.size())
      words[token / 32] |= 1u << token % 32;
  }
  std::vector<uint32_t> words;
};

} // namespace

bool editsByText(const Sampling &s) {
  return s.repetitionPenalty != 1 || s.presencePenalty != 0 || s.frequencyPenalty != 0 || !s.format.empty();
}

uint16_t walkFormat(const Request &request, uint16_t state, const std::vector<int32_t> &tokens) {
  for (const int32_t token : tokens)
    if (!request.eos || std::find(request.eos->begin(), request.eos->end(), token) == request.eos->end())
      state = request.format.tokens->step(state, token);
  return state;
}

std::string formatOf(const Request &request, const std::vector<int32_t> &answer) {
  const auto &format = request.format.tokens;
  if (!format)
    return "";
  return format->endOf(walkFormat(request, format->format.automaton.start, answer));
}

std::vector<char> imageOf(const automata::TokenBytes &tokens) {
  Image<abi::TokenBytes> image;
  std::vector<abi::TokenSpelling> spellings;
  std::string longOnes;
  const size_t behind = sizeof(abi::TokenBytes) + tokens.tokens.size() * sizeof(abi::TokenSpelling);
  for (const std::string &token : tokens.tokens) {
    abi::TokenSpelling spelling = {static_cast<int>(token.size()), {}};
    if (token.size() <= sizeof(spelling.words)) {
      std::memcpy(spelling.words, token.data(), token.size());
    } else {
      spelling.words[0] = static_cast<unsigned>(behind + longOnes.size());
      longOnes += token;
      longOnes.resize((longOnes.size() + 3) / 4 * 4);
    }
    spellings.push_back(spelling);
  }
  image.add(spellings);
  image.add(std::vector<char>(longOnes.begin(), longOnes.end()));
  return image.with({static_cast<int>(tokens.tokens.size()), {}});
}

std::vector<char> imageOf(const automata::TokenFormat &format, int tokens) {
  const automata::Automaton &a = format.format.automaton;
  static_assert(automata::Automaton::Dead == abi::kDeadState);
  // States in their new order.
  std::vector<uint16_t> order;
  abi::Format head = {};
  for (const int kind : {0, 1, 2}) {
    (kind == 1 ? head.complete : kind == 2 ? head.final : head.start) = static_cast<int>(order.size());
    for (uint32_t state = 0; state < a.states(); ++state)
      if ((a.final[state] ? 2 : a.accepting[state] ? 1 : 0) == kind)
        order.push_back(static_cast<uint16_t>(state));
  }
  std::vector<uint16_t> number(a.states());
  for (size_t i = 0; i < order.size(); ++i)
    number[order[i]] = static_cast<uint16_t>(i);
  std::vector<uint16_t> next;
  std::vector<uint32_t> maskOf;
  std::vector<int32_t> likely;
  for (const uint16_t state : order) {
    for (int byte = 0; byte < 256; ++byte) {
      const uint16_t to = a.step(state, static_cast<uint8_t>(byte));
      next.push_back(to == automata::Automaton::Dead ? to : number[to]);
    }
    maskOf.push_back(format.masks.maskOf[state]);
    likely.push_back(format.likely[state]);
  }
  Image<abi::Format> image;
  head.start = number[a.start];
  head.bits = static_cast<int>(format.masks.words);
  head.next = image.add(next);
  head.maskOf = image.add(maskOf);
  head.masks = image.add(format.masks.bits);
  head.likely = image.add(likely);
  head.tokens = tokens;
  return image.with(head);
}

std::vector<char> editsOf(const Request &request, int format, int64_t vocabulary) {
  const Sampling &s = request.sampling;
  Image<abi::Edits> image;
  abi::Edits head = {};
  head.repetition = s.repetitionPenalty;
  head.presence = s.presencePenalty;
  head.frequency = s.frequencyPenalty;
  TokenSet allowed(vocabulary), banned(vocabulary), biased(vocabulary);
  head.bits = static_cast<int>(banned.words.size());
  head.allowed = head.banned = head.biased = abi::kNone;
  if (s.allowed) {
    for (const int32_t token : *s.allowed)
      allowed.add(token);
    head.allowed = image.add(allowed.words);
  }
  if (!s.banned.empty()) {
    for (const int32_t token : s.banned)
      banned.add(token);
    head.banned = image.add(banned.words);
  }
  if (!s.bias.empty()) {
    std::vector<uint32_t> biases;
    for (const auto &[token, number] : s.bias) {
      biased.add(token);
      biases.push_back(static_cast<uint32_t>(token));
    }
    for (const auto &[token, number] : s.bias) {
      uint32_t bits;
      std::memcpy(&bits, &number, sizeof(bits));
      biases.push_back(bits);
    }
    head.biased = image.add(biased.words);
    head.biases = image.add(biases);
    head.biasCount = static_cast<int>(s.bias.size());
  }
  std::vector<int32_t> ends = request.eos.value_or(std::vector<int32_t>());
  head.eosCount = static_cast<int>(ends.size());
  for (const std::vector<int32_t> &stop : request.stop)
    if (stop.size() == 1)
      ends.push_back(stop[0]);
  head.endCount = static_cast<int>(ends.size());
  head.ends = image.add(ends);
  head.format = format;
  return image.with(head);
}

EditPlaces::EditPlaces(size_t bytes) {
  if (const auto count = static_cast<int>(std::min<size_t>(bytes / 16, INT32_MAX)))
    free[0] = count;
}

std::optional<int> EditPlaces::take(size_t bytes) {
  const auto count = static_cast<int>((bytes + 15) / 16);
  for (auto it = free.begin(); it != free.end(); ++it)
    if (it->second >= count) {
      const auto [place, room] = *it;
      free.erase(it);
      if (room > count)
        free[place + count] = room - count;
      return place;
    }
  return std::nullopt;
}

void EditPlaces::give(int place, size_t bytes) {
  auto it = free.emplace(place, static_cast<int>((bytes + 15) / 16)).first;
  if (const auto next = std::next(it); next != free.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free.erase(next);
  }
  if (it != free.begin())
    if (const auto before = std::prev(it); before->first + before->second == it->first) {
      before->second += it->second;
      free.erase(it);
    }
}

static size_t upTo16(size_t bytes) { return (bytes + 15) / 16 * 16; }

size_t EditImages::bytesOf(const Request &request, int64_t vocabulary) {
  size_t bytes = editsOf(request, abi::kNone, vocabulary).size();
  const auto &format = request.format.tokens;
  if (!format)
    return bytes;
  const size_t states = format->format.automaton.states();
  bytes += sizeof(abi::Format) + states * 256 * sizeof(uint16_t) + 2 * upTo16(4 * states) +
           upTo16(4 * format->masks.bits.size());
  size_t longOnes = 0;
  for (const std::string &token : format->tokens->tokens)
    if (token.size() > sizeof(abi::TokenSpelling::words))
      longOnes += (token.size() + 3) / 4 * 4;
  return bytes + sizeof(abi::TokenBytes) + format->tokens->tokens.size() * sizeof(abi::TokenSpelling) +
         upTo16(longOnes);
}

std::optional<int> EditImages::put(const std::vector<char> &image, const Put &put) {
  std::optional<int> place = places.take(image.size());
  while (!place && !unheld.empty()) {
    const auto it = formats.find(unheld.front());
    places.give(it->second.place, it->second.bytes);
    formats.erase(it);
    unheld.pop_front();
    place = places.take(image.size());
  }
  if (place && !put(*place, image)) {
    places.give(*place, image.size());
    return std::nullopt;
  }
  return place;
}

void EditImages::release(const automata::TokenFormat *format) {
  const auto it = formats.find(format);
  if (it != formats.end() && --it->second.holders == 0)
    unheld.push_back(format);
}

/// The place of a format, which has a holder more then.
std::optional<int> EditImages::hold(const std::shared_ptr<const automata::TokenFormat> &format, const Put &how) {
  auto spelled = tokens.find(format->tokens);
  if (spelled == tokens.end()) {
    const std::optional<int> place = put(imageOf(*format->tokens), how);
    if (!place)
      return std::nullopt;
    spelled = tokens.emplace(format->tokens, *place).first;
  }
  auto it = formats.find(format.get());
  if (it == formats.end()) {
    const std::vector<char> image = imageOf(*format, spelled->second);
    const std::optional<int> place = put(image, how);
    if (!place)
      return std::nullopt;
    it = formats.emplace(format.get(), OfFormat{*place, image.size(), 0, format}).first;
  } else if (it->second.holders == 0) {
    unheld.remove(format.get());
  }
  ++it->second.holders;
  return it->second.place;
}

std::optional<int> EditImages::add(const Request &request, const Put &how) {
  const std::shared_ptr<const automata::TokenFormat> &format = request.format.tokens;
  int formatPlace = abi::kNone;
  if (format) {
    const std::optional<int> place = hold(format, how);
    if (!place)
      return std::nullopt;
    formatPlace = *place;
  }
  const std::vector<char> image = editsOf(request, formatPlace, vocabulary);
  const std::optional<int> place = put(image, how);
  if (place)
    held[*place] = {image.size(), format.get()};
  else if (format)
    release(format.get());
  return place;
}

void EditImages::drop(int place) {
  const auto it = held.find(place);
  if (it == held.end())
    return;
  places.give(place, it->second.bytes);
  if (it->second.format)
    release(it->second.format);
  held.erase(it);
}

} // namespace megalith::runtime
