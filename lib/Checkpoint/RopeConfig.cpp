// The rotary embedding that a config.json describes.
#include "megalith/Checkpoint/ConfigFile.h"
#include "megalith/Text/Text.h"
#include <cmath>
#include <fmt/format.h>

using namespace megalith;
using nlohmann::json;

namespace {
/// What a type of rotary embedding has beside theta.
struct Members {
  std::vector<std::string> needed, optional;
};
} // namespace

static const Members *ropeMembers(const json &type) {
  static const std::map<std::string, Members> members = {
      {"default", {}},
      {"linear", {{"factor"}, {}}},
      {"llama3", {{"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}, {}}},
      {"yarn",
       {{"factor", "original_max_position_embeddings"},
        {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}}},
      {"longrope",
       {{"short_factor", "long_factor", "original_max_position_embeddings"}, {"factor", "attention_factor"}}}};
  auto found = type.is_string() ? members.find(type.get<std::string>()) : members.end();
  return found == members.end() ? nullptr : &found->second;
}

std::vector<std::string> ConfigFile::ropeKeys() const {
  std::vector<std::string> result = {"partial_rotary_factor"};
  // Of a type that is not known, rope() says that, and its members are another matter.
  const json type = find("rope_parameters.rope_type").value_or("default");
  const auto *members = ropeMembers(type);
  // Some write this one beside the others.
  if (members && members->needed.size() > 1)
    result.push_back("original_max_position_embeddings");
  const std::string ofFullLayers = std::string("rope_parameters.") + FullLayers;
  result.push_back(ofFullLayers + ".rope_theta");
  for (const std::string &spelling : {std::string("rope_scaling"), std::string("rope_parameters"), ofFullLayers}) {
    if (!members)
      result.push_back(spelling);
    for (const char *member : {".rope_type", ".type", ".partial_rotary_factor"})
      result.push_back(spelling + member);
    if (members)
      for (const auto *list : {&members->needed, &members->optional})
        for (const std::string &member : *list)
          result.push_back(spelling + "." + member);
  }
  return result;
}

/// Reads the members of a type. The first thing that is wrong is kept.
class ConfigFile::RopeReader {
public:
  RopeReader(const ConfigFile &file, RopeParams &out, std::optional<double> original)
      : file(file), out(out), ofModelFile(original) {}

  std::string wrong;

  void read(std::optional<double> theta) {
    if (theta)
      out.theta = *theta;
    else
      number("rope_theta", out.theta);
    if (out.type == "linear" || out.type == "llama3" || out.type == "yarn")
      number("factor", out.factor);
    if (out.type == "llama3")
      readLlama3();
    else if (out.type == "yarn")
      readYarn();
    else if (out.type == "longrope")
      readLongRope();
  }

private:
  static std::string path(const char *key) { return std::string("rope_parameters.") + key; }

  void fail(std::string text) {
    if (wrong.empty())
      wrong = std::move(text);
  }
  bool given(const char *key) const { return file.find(path(key)).has_value(); }

  bool number(const char *key, double &to) { return number(key, file.find(path(key)), to); }
  bool number(const char *key, const std::optional<json> &value, double &to) {
    std::optional<double> found = value ? jsonNumber(*value) : std::nullopt;
    if (found && *found > 0) {
      to = *found;
      return true;
    }
    fail(value
             ? fmt::format("`{}` of the rotary embedding must be a positive number, found `{}`", key, jsonShort(*value))
             : fmt::format("`{}` of the rotary embedding is missing", key));
    return false;
  }
  void numberIfGiven(const char *key, double &to) {
    if (given(key))
      number(key, to);
  }

  /// Where it stands beside the others, too, that one counts.
  void original() {
    const char *const key = "original_max_position_embeddings";
    if (ofModelFile) {
      out.originalMaxPositions = static_cast<int64_t>(*ofModelFile);
      return;
    }
    std::optional<json> value = file.find(key);
    if (!value || value->is_null())
      value = file.find(path(key));
    double positions = 0;
    if (!number(key, value, positions))
      return;
    if (positions > 1e15)
      fail("`original_max_position_embeddings` of the rotary embedding is too large");
    else
      out.originalMaxPositions = static_cast<int64_t>(positions);
  }

  void readLlama3() {
    number("low_freq_factor", out.lowFreqFactor);
    number("high_freq_factor", out.highFreqFactor);
    original();
    if (wrong.empty() && out.highFreqFactor <= out.lowFreqFactor)
      fail(fmt::format("`high_freq_factor` {} of the rotary embedding must be larger than `low_freq_factor` {}",
                       out.highFreqFactor, out.lowFreqFactor));
  }

  void readYarn() {
    original();
    numberIfGiven("beta_fast", out.betaFast);
    numberIfGiven("beta_slow", out.betaSlow);
    if (const std::optional<json> truncate = file.find(path("truncate"))) {
      if (truncate->is_boolean())
        out.truncate = truncate->get<bool>();
      else
        fail(fmt::format("`truncate` of the rotary embedding must be true or false, found `{}`", jsonShort(*truncate)));
    }
    const auto scaleOf = [&](double scale) { return out.factor <= 1 ? 1.0 : 0.1 * scale * std::log(out.factor) + 1.0; };
    double scale = 1, all = 1;
    numberIfGiven("mscale", scale);
    numberIfGiven("mscale_all_dim", all);
    out.attention = given("mscale") && given("mscale_all_dim") ? scaleOf(scale) / scaleOf(all) : scaleOf(1);
    numberIfGiven("attention_factor", out.attention);
    if (wrong.empty() && out.theta == 1)
      fail("theta of the rotary embedding must not be 1 with type `yarn`");
  }

  void readLongRope() {
    original();
    readFactors("short_factor", &out.shortFactors);
    readFactors("long_factor", nullptr);
    double factor = 0;
    if (given("factor"))
      number("factor", factor);
    else if (!file.positions())
      fail("`factor` of the rotary embedding is missing, and so is `max_position_embeddings`");
    else if (out.originalMaxPositions > 0)
      factor = *file.positions() / static_cast<double>(out.originalMaxPositions);
    if (factor > 1 && out.originalMaxPositions > 1)
      out.attention = std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(out.originalMaxPositions)));
    numberIfGiven("attention_factor", out.attention);
  }

  void readFactors(const char *key, std::vector<double> *to) {
    const std::optional<json> value = file.find(path(key));
    const size_t count = out.headDim / 2;
    bool right = value && value->is_array() && value->size() == count;
    for (size_t i = 0; right && i < count; ++i) {
      const std::optional<double> factor = jsonNumber((*value)[i]);
      right = factor && *factor > 0;
      if (right && to)
        to->push_back(*factor);
    }
    if (!right)
      fail(value ? fmt::format("`{}` of the rotary embedding must be a list of {} positive numbers, found `{}`", key,
                               count, jsonShort(*value))
                 : fmt::format("`{}` of the rotary embedding is missing", key));
  }

  const ConfigFile &file;
  RopeParams &out;
  const std::optional<double> ofModelFile;
};

Result<RopeParams> ConfigFile::rope(int headDim, std::optional<double> theta, std::optional<int> turned,
                                    std::optional<double> original) const {
  auto fail = [&](std::string message) { return FileError{"rope-config", std::move(message), path()}; };
  if (!RopeProblem.empty())
    return fail(RopeProblem);
  RopeParams result;
  result.headDim = turned.value_or(headDim);
  if (result.headDim <= 0 || result.headDim % 2 != 0)
    return fail(fmt::format("rotary embedding needs an even head size, found {}", result.headDim));
  const json type = find("rope_parameters.rope_type").value_or("default");
  if (!type.is_string())
    return fail(fmt::format("`rope_type` must be a string, found `{}`", jsonShort(type)));
  result.type = type.get<std::string>();
  if (!ropeMembers(type))
    return fail(
        fmt::format("rotary embedding of type `{}` is not supported, only `default`, `linear`, `llama3`, `yarn` "
                    "and `longrope` are",
                    text::printable(result.type, 120)));
  const std::optional<json> partial = find("partial_rotary_factor");
  if (partial && !partial->is_null()) {
    const std::optional<double> share = jsonNumber(*partial);
    if (!turned && share != 1.0)
      return fail(fmt::format("`partial_rotary_factor` is {}, but the model file rotates whole heads; give `rope` the "
                              "argument `dims`",
                              jsonShort(*partial)));
    if (!share || static_cast<int64_t>(headDim * *share) != result.headDim)
      return fail(fmt::format("`partial_rotary_factor` is {}, but the model file rotates {} of the {} values of a head",
                              jsonShort(*partial), result.headDim, headDim));
  }
  RopeReader reader(*this, result, original);
  reader.read(theta);
  if (!reader.wrong.empty())
    return fail(reader.wrong);
  return result;
}
