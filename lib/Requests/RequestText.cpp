#include "RequestText.h"
#include "megalith/Requests/Requests.h"
#include "megalith/Text/Json.h"
#include <cstdlib>
#include <fmt/format.h>
#include <type_traits>

using namespace megalith;
using nlohmann::ordered_json;

ordered_json megalith::samplingJson(const Sampling &s) {
  const auto number = [](float v) { return ordered_json(std::strtod(fmt::format("{}", v).c_str(), nullptr)); };
  ordered_json out = {
      {"temperature", number(s.temperature)}, {"top_k", s.topK}, {"top_p", number(s.topP)}, {"min_p", number(s.minP)}};
  if (s.seed)
    out["seed"] = *s.seed;
  // Others only where they are said: most requests have none.
  for (const auto &[name, value, usual] : {std::tuple("repetition_penalty", s.repetitionPenalty, 1.0f),
                                           std::tuple("presence_penalty", s.presencePenalty, 0.0f),
                                           std::tuple("frequency_penalty", s.frequencyPenalty, 0.0f)})
    if (value != usual)
      out[name] = number(value);
  if (s.minNewTokens)
    out["min_new_tokens"] = s.minNewTokens;
  for (const auto &[token, value] : s.bias)
    out["bias"].push_back(ordered_json::array({token, number(value)}));
  if (!s.banned.empty())
    out["banned"] = s.banned;
  if (s.allowed)
    out["allowed"] = *s.allowed;
  if (!s.format.empty())
    out["format"] = s.format;
  return out;
}

ordered_json megalith::inputJson(const InputValue &value) {
  return std::visit(
      [](const auto &held) -> ordered_json {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::vector<float>>) {
          return std::vector<double>(held.begin(), held.end());
        } else if constexpr (std::is_same_v<Held, std::vector<std::vector<float>>>) {
          ordered_json rows = ordered_json::array();
          for (const std::vector<float> &row : held)
            rows.push_back(inputJson(row));
          return rows;
        } else
          return held;
      },
      value);
}

std::string megalith::formatRequests(const std::vector<Request> &requests) {
  const auto time = [](const When &when) -> ordered_json {
    return when.ms ? ordered_json{{"ms", when.ms}} : ordered_json{{"tick", when.tick}};
  };
  std::string out;
  for (const Request &r : requests) {
    ordered_json line = {
        {"id", ordered_json::parse(r.id.json())}, {"tokens", r.tokens}, {"max_new_tokens", r.maxNewTokens}};
    if (r.eos)
      line["eos"] = *r.eos;
    if (!r.stop.empty())
      line["stop"] = r.stop;
    if (r.priority != 0)
      line["priority"] = r.priority;
    if (r.cache != 0)
      line["cache"] = r.cache;
    if (r.sampling != Sampling())
      line["sampling"] = samplingJson(r.sampling);
    for (const auto &[name, value] : r.inputs)
      line["inputs"][name] = inputJson(value);
    if (r.arrives != When())
      line["arrives"] = time(r.arrives);
    if (r.cancelled)
      line["cancelled"] = time(*r.cancelled);
    if (r.deadlineMs > 0)
      line["deadline_ms"] = r.deadlineMs;
    out += text::dump(line);
    out += '\n';
  }
  return out;
}
