#include "megalith/Checkpoint/ConfigFile.h"
#include "JsonText.h"
#include "megalith/Os/ReadFile.h"
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <sys/stat.h>

using namespace megalith;
using nlohmann::json;

static std::optional<CheckpointError>
parseObject(std::string_view text, const std::string &file, json &out) {
  if (auto problem = parseJson(text, out))
    return CheckpointError{"config-syntax",
                           fmt::format("not valid JSON at byte {}: {}",
                                       problem->byte, problem->message),
                           file, problem->line, problem->column};
  if (!out.is_object())
    return CheckpointError{
        "config-syntax",
        fmt::format("expected a JSON object, found {}", out.type_name()), file,
        1, 1};
  return std::nullopt;
}

Result<ConfigFile> ConfigFile::load(const std::string &dir) {
  struct stat given;
  const bool isFile = stat(dir.c_str(), &given) == 0 && S_ISREG(given.st_mode);
  std::string path = isFile ? dir : dir + "/config.json";
  std::string reason;
  std::optional<std::string> config = os::readRegularFile(path, os::jsonBytes, reason);
  if (!config)
    return CheckpointError{
        "config-missing",
        fmt::format("cannot read config.json of the checkpoint: {}", reason),
        path};
  size_t slash = path.rfind('/');
  std::string generationPath =
      (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + "generation_config.json";
  std::string generation;
  struct stat status;
  if (stat(generationPath.c_str(), &status) == 0) {
    std::optional<std::string> text = os::readRegularFile(generationPath, os::jsonBytes, reason);
    if (!text)
      return CheckpointError{
          "config-missing",
          fmt::format("cannot read generation_config.json: {}", reason),
          generationPath};
    // An empty file is malformed, which an absent one is not.
    generation = text->empty() ? " " : std::move(*text);
  }
  auto result = parse(*config, generation, path);
  if (!result && result.error.line)
    result.error.text = std::make_shared<const std::string>(
        result.error.file == path ? std::move(*config) : std::move(generation));
  return result;
}

Result<ConfigFile> ConfigFile::parse(std::string_view configText,
                                     std::string_view generationText,
                                     const std::string &file) {
  ConfigFile result;
  result.Path = file;
  if (auto error = parseObject(configText, file, result.Config))
    return *error;
  CheckpointError error;
  if (!generationText.empty()) {
    size_t slash = file.rfind('/');
    std::string generationFile =
        (slash == std::string::npos ? "" : file.substr(0, slash + 1)) +
        "generation_config.json";
    json generation;
    if (auto problem = parseObject(generationText, generationFile, generation))
      return *problem;
    error = result.readEos(generation, generationFile);
  }
  if (error.kind.empty() && result.Eos.empty())
    error = result.readEos(result.Config, file);
  if (!error.kind.empty())
    return error;
  result.normaliseRope();
  return result;
}

/// An error with an empty kind means success.
CheckpointError ConfigFile::readEos(const json &object,
                                    const std::string &file) {
  auto found = object.find("eos_token_id");
  if (found == object.end() || found->is_null())
    return {};
  json list = found->is_array() ? *found : json::array({*found});
  for (const json &item : list) {
    if (!item.is_number_integer() || item < 0 ||
        item > std::numeric_limits<int32_t>::max())
      return {"config-key",
              fmt::format("`eos_token_id` must be a token id or a list of "
                          "token ids, found `{}`",
                          found->dump()),
              file};
    Eos.push_back(item.get<int32_t>());
  }
  return {};
}

/// Makes both spellings answer. Where a file has both, `rope_parameters` wins:
/// a tool that writes it keeps the old keys for old readers only.
void ConfigFile::normaliseRope() {
  json parameters = json::object();
  auto take = [&](const char *key) {
    auto found = Config.find(key);
    if (found != Config.end() && found->is_object())
      parameters.update(*found);
  };
  if (auto theta = Config.find("rope_theta"); theta != Config.end())
    parameters["rope_theta"] = *theta;
  take("rope_scaling");
  take("rope_parameters");
  if (parameters.empty())
    return;
  // `type` is the oldest spelling of `rope_type`.
  if (!parameters.contains("rope_type"))
    parameters["rope_type"] =
        parameters.contains("type") ? parameters["type"] : json("default");
  parameters.erase("type");
  Config["rope_parameters"] = parameters;
  if (parameters.contains("rope_theta"))
    Config["rope_theta"] = parameters["rope_theta"];
  bool isDefault = parameters["rope_type"] == "default";
  parameters.erase("rope_theta");
  Config["rope_scaling"] = isDefault ? json() : parameters;
}

std::optional<json> ConfigFile::find(std::string_view dottedPath) const {
  const json *node = &Config;
  while (true) {
    size_t dot = dottedPath.find('.');
    std::string key(dottedPath.substr(0, dot));
    if (!node->is_object())
      return std::nullopt;
    auto found = node->find(key);
    if (found == node->end())
      return std::nullopt;
    node = &*found;
    if (dot == std::string_view::npos)
      return *node;
    dottedPath.remove_prefix(dot + 1);
  }
}

bool ConfigFile::byteVocabulary() const {
  auto found = Config.find("byte_vocabulary");
  return found != Config.end() && found->is_boolean() && found->get<bool>();
}

std::vector<std::string> ConfigFile::keys() const {
  std::vector<std::string> result;
  for (const auto &[key, value] : Config.items())
    result.push_back(key);
  return result;
}

Result<RopeParams> ConfigFile::rope(int headDim) const {
  auto fail = [&](std::string message) {
    return CheckpointError{"rope-config", std::move(message), Path};
  };
  if (headDim <= 0 || headDim % 2 != 0)
    return fail(fmt::format("rotary embedding needs an even head size, found "
                            "{}",
                            headDim));
  RopeParams result;
  result.headDim = headDim;
  std::string missing;
  auto number = [&](const char *key, double &out) {
    std::optional<json> value = find(std::string("rope_parameters.") + key);
    if (value && value->is_number() && std::isfinite(value->get<double>()) &&
        value->get<double>() > 0)
      out = value->get<double>();
    else if (missing.empty())
      missing =
          value ? fmt::format("`{}` of the rotary embedding must be a "
                              "positive number, found `{}`",
                              key, value->dump())
                : fmt::format("`{}` of the rotary embedding is missing", key);
  };
  std::optional<json> type = find("rope_parameters.rope_type");
  if (type && !type->is_string())
    return fail(
        fmt::format("`rope_type` must be a string, found `{}`", type->dump()));
  if (type)
    result.type = type->get<std::string>();
  if (result.type != "default" && result.type != "linear" &&
      result.type != "llama3")
    return fail(fmt::format("rotary embedding of type `{}` is not supported, "
                            "only `default`, `linear` and `llama3` are",
                            result.type));
  // The newer spelling keeps the share of rotated values inside.
  for (const char *key :
       {"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}) {
    std::optional<json> partial = find(key);
    if (partial && !partial->is_null() && *partial != 1.0)
      return fail(fmt::format("`partial_rotary_factor` {} is not supported, "
                              "only whole heads are rotated",
                              partial->dump()));
  }
  number("rope_theta", result.theta);
  if (result.type != "default")
    number("factor", result.factor);
  if (result.type == "llama3") {
    double positions = 0;
    number("low_freq_factor", result.lowFreqFactor);
    number("high_freq_factor", result.highFreqFactor);
    number("original_max_position_embeddings", positions);
    if (missing.empty() && positions > 1e15)
      missing = "`original_max_position_embeddings` of the rotary embedding is "
                "too large";
    else
      result.originalMaxPositions = static_cast<int64_t>(positions);
    if (missing.empty() && result.highFreqFactor <= result.lowFreqFactor)
      missing = fmt::format("`high_freq_factor` {} of the rotary embedding "
                            "must be larger than `low_freq_factor` {}",
                            result.highFreqFactor, result.lowFreqFactor);
  }
  if (!missing.empty())
    return fail(missing);
  return result;
}
