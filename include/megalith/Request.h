//===- Request.h - one request, and how it is named -------------*- C++ -*-===//
//
// Plain data: host programs, files of requests, the reference executor and the
// runtime use the same structs.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_REQUEST_H
#define MEGALITH_REQUEST_H

#include "megalith/Export.h"
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace megalith {

/// The `id` of a request: a string or an integer of JSON, and outputs give back which. Two
/// requests of one run have different texts: `1` and `"1"` would be the same one.
struct MEGALITH_API RequestId {
  std::string text; ///< of an integer its decimal digits
  bool isInteger = false;

  RequestId() = default;
  RequestId(std::string text) : text(std::move(text)) {}
  RequestId(const char *text) : text(text) {}
  static RequestId ofInteger(std::string digits);

  /// As JSON has it, with quotes if it is a string.
  std::string json() const;
  bool operator==(const RequestId &) const = default;
};

namespace automata {
struct TokenFormat;
}

/// How tokens of a request are drawn. A temperature of 0 draws none: the best token has all the probability.
struct Sampling {
  float temperature = 0; ///< 0, or above
  int32_t topK = 0;      ///< tokens with the k greatest logits; 0: all
  float topP = 1;        ///< above 0, at most 1
  float minP = 0;        ///< from 0 to 1, of the greatest probability
  /// With the run's seed it keys all random numbers of the request; without it a hash of the id does.
  std::optional<uint32_t> seed = {};
  // Settings that follow a row's own text: what stands before the token that is drawn. In this order: bias, repetition,
  // frequency times its number, presence; each step rounds to f32. Then tokens that may not come are left out.
  float repetitionPenalty = 1; ///< 0.001 to 1000; logits of tokens in the text: above 0 divided, else multiplied by it
  float presencePenalty = 0;   ///< -10000 to 10000; taken from logits of tokens in the answer
  float frequencyPenalty = 0;  ///< the same, as often as they are there
  int32_t minNewTokens = 0;    ///< before so many nothing ends the answer but its budget
  std::map<int32_t, float> bias = {};               ///< by token, -10000 to 10000; at most limits::edits
  std::vector<int32_t> banned = {};                 ///< are never drawn; at most limits::edits
  std::optional<std::vector<int32_t>> allowed = {}; ///< no others are drawn; at least one, at most limits::edits
  /// What the answer has to be, JSON text with one member: `{"regex": "[a-z]+"}`, `{"choice": ["yes", "no"]}`,
  /// `{"json_schema": {...}, "depth": 3}`, `{"json": 3}`. Empty: anything. docs/language.md, "Formats".
  std::string format = {};
  /// The first of these that it has, as files of requests call it; null: it has none.
  const char *firstEdit() const {
    return repetitionPenalty != 1  ? "repetition_penalty"
           : presencePenalty != 0  ? "presence_penalty"
           : frequencyPenalty != 0 ? "frequency_penalty"
           : minNewTokens != 0     ? "min_new_tokens"
           : !bias.empty()         ? "bias"
           : !banned.empty()       ? "banned"
           : allowed               ? "allowed"
           : !format.empty()       ? "format"
                                   : nullptr;
  }
  bool edits() const { return firstEdit() != nullptr; }
  bool operator==(const Sampling &) const = default;
};

/// A request's format as an executor walks it. The library puts it there. It is made of the format's text, so it is
/// nothing to compare.
struct FormatOfRequest {
  std::shared_ptr<const automata::TokenFormat> tokens;
  bool operator==(const FormatOfRequest &) const { return true; }
};

/// The value of an input: an integer (of an i32, a token, an f32), a number with a point, a bool, a sequence of
/// integers (tokens) or of numbers, a table with rows of these.
using InputValue = std::variant<int64_t, double, bool, std::vector<int32_t>, std::vector<float>,
                                std::vector<std::vector<int32_t>>, std::vector<std::vector<float>>>;

/// An input that a pipeline declares below `request:`.
struct Input {
  std::string name;
  std::string type;                ///< "i32", "f32", "bool" or "token"
  std::optional<int64_t> capacity; ///< of a sequence of these, or of a row of a table: how long it may be
  std::optional<int64_t> rows;     ///< of a table: how many it may have
  int64_t least = INT32_MIN;       ///< of an i32: what it may be
  int64_t most = INT32_MAX;
  /// What it is in a request that does not bring it; nullopt: every request must.
  std::optional<InputValue> otherwise;

  /// As the language spells its type: `i32 in 0..16`, `token[64]`, `token[4, 64]`.
  MEGALITH_API std::string spelling() const;
};

/// When the host's side of a run does something: in the first tick that is not before `tick`, and of which the clock is
/// not before `ms`. The clock counts milliseconds from the beginning of the run: on a GPU they pass, elsewhere a tick
/// is one. One of the two is 0.
struct When {
  int64_t tick = 0, ms = 0;
  auto operator<=>(const When &) const = default;
};

/// One request. All executors take it as it is.
struct Request {
  RequestId id;
  std::vector<int32_t> tokens = {}; ///< the prompt; not empty, every token below the vocabulary
  int64_t maxNewTokens = 0;         ///< the budget
  /// Tokens that end the request, in place of the checkpoint's; may be empty. The library puts the checkpoint's there
  /// when it is not set; an executor takes nullopt for none.
  std::optional<std::vector<int32_t>> eos = {};
  int32_t priority = 0;
  /// In a pool with an index it finds pages of requests with the same number only. Not negative; 0: the common one.
  int64_t cache = 0;
  Sampling sampling = {};
  FormatOfRequest format = {}; ///< of `sampling.format`
  /// What the pipeline's inputs are, by name. One that has a default may be left out.
  std::map<std::string, InputValue> inputs = {};
  /// The kernel knows nothing of it before. Requests arrive in their order.
  When arrives = {};
  std::optional<When> cancelled = {}; ///< the host takes it back then; not before it arrives
  int32_t deadlineMs = 0;             ///< so long after its arrival it ends, however far it is; 0: never
  /// Sequences of tokens that end it, beside `eos`: an append stops after the first token with which the generated
  /// tokens end in one of them. None may be empty.
  std::vector<std::vector<int32_t>> stop = {};
  /// Where it stands in a file of requests, for messages: the number that Program::readRequests
  /// gave the file, and the line from 1. 0: in no file.
  uint32_t file = 0, line = 0;
  bool operator==(const Request &) const = default;

  /// By what its random numbers are keyed, beside the run's seed: its seed, else the FNV-1a of its id.
  uint32_t seed() const {
    if (sampling.seed)
      return *sampling.seed;
    uint32_t hash = 2166136261u;
    for (unsigned char byte : id.text)
      hash = (hash ^ byte) * 16777619u;
    return hash;
  }

  /// Tokens that end it at once: of `eos`, and stop sequences of one token.
  std::vector<int32_t> endTokens() const {
    std::vector<int32_t> ends = eos.value_or(std::vector<int32_t>());
    for (const std::vector<int32_t> &sequence : stop)
      if (sequence.size() == 1)
        ends.push_back(sequence[0]);
    return ends;
  }
  /// Whether the request ends with the last of these tokens, which are its prompt and some generated ones. A stop
  /// sequence stands in generated ones alone.
  bool endsIn(const std::vector<int32_t> &all) const {
    if (eos && std::find(eos->begin(), eos->end(), all.back()) != eos->end())
      return true;
    const size_t generated = all.size() - tokens.size();
    const bool early = static_cast<int64_t>(generated) < sampling.minNewTokens;
    return std::any_of(stop.begin(), stop.end(), [&](const std::vector<int32_t> &end) {
      return end.size() <= generated && !(early && end.size() > 1) &&
             std::equal(end.rbegin(), end.rend(), all.rbegin());
    });
  }
};

/// Test hook: before tick `tick`, sets `field` of request number `request`. A scalar field
/// gets the value, a sequence field the length, `state` the state's number.
struct Corruption {
  int64_t tick = 0;
  int32_t request = 0;
  std::string field;
  int64_t value = 0;
  bool operator==(const Corruption &) const = default;
};

} // namespace megalith
#endif
