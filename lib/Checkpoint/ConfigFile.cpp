#include "megalith/Checkpoint/ConfigFile.h"
#include "CheckpointFolder.h"
#include "megalith/Json/JsonText.h"
#include "megalith/Os/ReadFile.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <sys/stat.h>

using namespace megalith;
using nlohmann::json;

static std::optional<FileError> parseObject(std::string_view text, JsonSource &source, json &out) {
  if (isLfsPointer(text))
    return FileError{"config-syntax", lfsAdvice, source.path};
  std::map<std::string, JsonPlace> places;
  if (auto problem = parseJson(text, out, {.nonFinite = true, .places = &places}))
    return FileError{"config-syntax", fmt::format("not valid JSON at byte {}: {}", problem->byte, problem->message),
                     source.path, problem->line, problem->column};
  if (!out.is_object())
    return FileError{"config-syntax", fmt::format("expected a JSON object, found {}", out.type_name()), source.path, 1,
                     1};
  for (const auto &[path, place] : places)
    source.places[path] = {place.line, place.column};
  source.text = std::make_shared<const std::string>(text);
  return std::nullopt;
}

/// `owner/name`, and neither is here: how to get what a hub has by this name. Else empty.
static std::string hubAdvice(const std::string &dir) {
  const size_t slash = dir.find('/');
  struct stat status;
  if (slash == std::string::npos || slash == 0 || slash + 1 == dir.size() || dir[0] == '.' || dir[0] == '~' ||
      dir.find('/', slash + 1) != std::string::npos ||
      dir.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") !=
          std::string::npos ||
      dir.ends_with(".json") || stat(dir.substr(0, slash).c_str(), &status) == 0)
    return "";
  const std::string name = dir.substr(slash + 1);
  return fmt::format(
      "there is no such folder. If it is a name of a hub, download it first, `hf download {} --local-dir "
      "{}`, and give the folder `{}`",
      dir, name, name);
}

bool ConfigFile::isQuantisation(std::string_view dottedPath) {
  return dottedPath == "quantization_config" || dottedPath == "quantization" || dottedPath == "compression_config";
}

/// Files in which tools say that they quantised the weights: AutoGPTQ, AutoAWQ, ModelOpt. Others look at them where
/// config.json does not say it. An error with an empty kind: there is none.
static FileError quantisedBeside(const std::string &dir) {
  for (const char *name :
       {"quantize_config.json", "quant_config.json", "hf_quant_config.json", "quantization_config.json"}) {
    JsonSource source;
    source.path = dir + "/" + name;
    struct stat status;
    if (stat(source.path.c_str(), &status))
      continue;
    FileError error{"quantised-beside", "this file", source.path};
    std::string reason;
    json said;
    if (auto text = os::readRegularFile(source.path, os::jsonBytes, reason); text && !parseObject(*text, source, said))
      for (const char *key : {"quant_method", "quant_algo", "quantization.quant_algo", "w_bit", "bits"})
        if (auto place = source.places.find(key); place != source.places.end() && !error.line) {
          const char *inner = std::strrchr(key, '.');
          error.message =
              fmt::format("`{}`: `{}`", key, jsonShort(inner ? said["quantization"][inner + 1] : said[key]));
          error.line = place->second.line;
          error.column = place->second.column;
          error.text = source.text;
        }
    error.message +=
        " says that the weights are quantised, and config.json does not: put what this file says into it as "
        "`quantization_config`, with the `quant_method`. If the tensors are not quantised, move this file "
        "elsewhere";
    return error;
  }
  return {};
}

Result<ConfigFile> ConfigFile::load(const std::string &dir) {
  struct stat given;
  const bool isFile = stat(dir.c_str(), &given) == 0 && S_ISREG(given.st_mode);
  std::string path = isFile ? dir : dir + "/config.json";
  if (isFile)
    if (Mistaken mistaken = mistakenFile(path); !mistaken.advice.empty() && mistaken.advice != lfsAdvice)
      return FileError{"config-missing", mistaken.advice, path};
  std::string reason;
  std::optional<std::string> config = os::readRegularFile(path, os::jsonBytes, reason);
  if (!config) {
    if (Mistaken mistaken = mistakenFolder(dir); !isFile && !mistaken.advice.empty())
      return FileError{"config-missing", "there is no config.json, and " + mistaken.advice, mistaken.path};
    if (std::string advice = hubAdvice(dir); !advice.empty())
      return FileError{"config-missing", std::move(advice), dir};
    return FileError{"config-missing", fmt::format("cannot read config.json of the checkpoint: {}", reason), path};
  }
  if (Mistaken adapter = adapterBeside(dir); !isFile && !adapter.advice.empty())
    return FileError{"adapter-beside", adapter.advice, adapter.path};
  size_t slash = path.rfind('/');
  std::string generationPath = (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + "generation_config.json";
  std::string generation;
  struct stat status;
  if (stat(generationPath.c_str(), &status) == 0) {
    std::optional<std::string> text = os::readRegularFile(generationPath, os::jsonBytes, reason);
    if (!text)
      return FileError{"config-missing", fmt::format("cannot read generation_config.json: {}", reason), generationPath};
    // An empty file is malformed, which an absent one is not.
    generation = text->empty() ? " " : std::move(*text);
  }
  auto result = parse(*config, generation, path);
  const auto says = [&](const auto &item) { return isQuantisation(item.key()) && !item.value().is_null(); };
  if (result && !isFile && std::ranges::none_of(result->Raw.items(), says))
    if (FileError error = quantisedBeside(dir); !error.kind.empty())
      return error;
  if (!result && result.error.line)
    result.error.text =
        std::make_shared<const std::string>(result.error.file == path ? std::move(*config) : std::move(generation));
  return result;
}

Result<ConfigFile> ConfigFile::parse(std::string_view configText, std::string_view generationText,
                                     const std::string &file) {
  ConfigFile result;
  result.Source.path = file;
  if (auto error = parseObject(configText, result.Source, result.Raw))
    return *error;
  result.Config = result.Raw;
  FileError error;
  if (!generationText.empty()) {
    size_t slash = file.rfind('/');
    result.Generation.path = (slash == std::string::npos ? "" : file.substr(0, slash + 1)) + "generation_config.json";
    json generation;
    if (auto problem = parseObject(generationText, result.Generation, generation))
      return *problem;
    error = result.readEos(generation, result.Generation);
    result.EosInGeneration = !result.Eos.empty();
  }
  if (error.kind.empty() && result.Eos.empty())
    error = result.readEos(result.Raw, result.Source);
  if (error.kind.empty())
    error = result.readOwnKeys();
  if (!error.kind.empty())
    return error;
  result.normaliseRope();
  return result;
}

const std::vector<std::string> &ConfigFile::ownKeys() {
  static const std::vector<std::string> keys = {"byte_vocabulary", "eos_token_id", "max_position_embeddings"};
  return keys;
}

/// `config-key` at the place of `key`.
static FileError wrongValue(const JsonSource &source, const char *key, const char *expected, const json &found) {
  FileError error{"config-key", fmt::format("`{}` must be {}, found `{}`", key, expected, jsonShort(found)),
                  source.path};
  if (auto place = source.places.find(key); place != source.places.end()) {
    error.line = place->second.line;
    error.column = place->second.column;
  }
  return error;
}

/// An error with an empty kind means success.
FileError ConfigFile::readEos(const json &object, const JsonSource &source) {
  auto found = object.find("eos_token_id");
  if (found == object.end() || found->is_null())
    return {};
  json list = found->is_array() ? *found : json::array({*found});
  for (const json &item : list) {
    std::optional<int64_t> id = jsonInteger(item);
    if (!id)
      return wrongValue(source, "eos_token_id", "a token id or a list of token ids", *found);
    Eos.push_back(*id);
  }
  return {};
}

/// What the tools read themselves, whatever the model file. Null is "not given".
FileError ConfigFile::readOwnKeys() {
  if (auto found = Raw.find("byte_vocabulary"); found != Raw.end() && !found->is_null()) {
    if (!found->is_boolean())
      return wrongValue(Source, "byte_vocabulary", "true or false", *found);
    Bytes = found->get<bool>();
  }
  if (auto found = Raw.find("max_position_embeddings"); found != Raw.end() && !found->is_null()) {
    Positions = jsonNumber(*found);
    if (!Positions || *Positions < 1)
      return wrongValue(Source, "max_position_embeddings", "a number of positions, from 1", *found);
  }
  return {};
}

/// The type of rotary embedding that a spelling means. Phi-3's first files call `longrope` `su`, and some `yarn`, which
/// has no factors for each frequency.
static json ropeTypeOf(const json &type, const json &members) {
  const bool isOld = type == "su" || (type == "yarn" && members.contains("short_factor"));
  return isOld ? json("longrope") : type;
}

/// Makes both spellings answer. Where a file has both they must agree: readers
/// differ in which of them they take.
void ConfigFile::normaliseRope() {
  auto problem = [&](std::string text) {
    if (RopeProblem.empty())
      RopeProblem = std::move(text);
  };
  json merged = json::object();
  auto take = [&](const std::string &where, const std::string &key, const json &value) {
    if (value.is_null())
      return;
    auto [at, isNew] = merged.emplace(key, value);
    const auto before = jsonNumber(*at), now = jsonNumber(value);
    if (!isNew && *at != value && (!before || before != now))
      problem(fmt::format("`{}` is given twice, as `{}` and as `{}` in `{}`; leave one of them out", key,
                          jsonShort(*at), jsonShort(value), where));
  };
  for (const char *spelling : {"rope_parameters", "rope_scaling"}) {
    auto found = Raw.find(spelling);
    if (found == Raw.end() || found->is_null())
      continue;
    if (!found->is_object()) {
      problem(fmt::format("`{}` must be an object or null, found `{}`", spelling, jsonShort(*found)));
      continue;
    }
    if (found->empty())
      continue;
    const auto whole = found->find(FullLayers);
    const json &own = whole != found->end() && whole->is_object() ? *whole : *found;
    for (const auto &[key, value] : own.items()) // `type` is the oldest spelling of `rope_type`
      if (key == "type" || key == "rope_type")
        take(spelling, "rope_type", ropeTypeOf(value, own));
      else
        take(spelling, key, value);
    if (own.value("rope_type", json()).is_null() && own.value("type", json()).is_null())
      take(spelling, "rope_type", "default");
    for (const auto &[key, value] : found->items())
      if (&own != &*found && key != FullLayers)
        take(spelling, key, value);
  }
  take("config.json", "rope_theta", Raw.value("rope_theta", json()));
  // transformers 5.0 to 5.2 write 1.0, the default of their classes, beside whatever stands inside, which counts.
  const json share = Raw.value("partial_rotary_factor", json());
  if (share != 1.0 || !merged.contains("partial_rotary_factor"))
    take("config.json", "partial_rotary_factor", share);
  if (merged.contains("partial_rotary_factor"))
    Config["partial_rotary_factor"] = merged["partial_rotary_factor"];
  if (merged.empty())
    return;
  merged.emplace("rope_type", "default");
  Config["rope_parameters"] = merged;
  if (merged.contains("rope_theta"))
    Config["rope_theta"] = merged["rope_theta"];
  bool isDefault = merged["rope_type"] == "default";
  merged.erase("rope_theta");
  Config["rope_scaling"] = isDefault ? json() : merged;
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

std::vector<std::string> ConfigFile::keys() const {
  std::vector<std::string> result;
  for (const auto &[key, value] : Raw.items())
    result.push_back(key);
  return result;
}
