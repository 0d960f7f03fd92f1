//===- ConfigFile.h - config.json of a checkpoint ---------------*- C++ -*-===//
#ifndef MEGALITH_CHECKPOINT_CONFIGFILE_H
#define MEGALITH_CHECKPOINT_CONFIGFILE_H

#include "megalith/Checkpoint/Result.h"
#include "megalith/Checkpoint/RopeTable.h"
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// config.json and, when there is one, generation_config.json of a Hugging Face
/// checkpoint directory.
///
/// The rotary embedding has two spellings: `rope_theta` with `rope_scaling`,
/// and the newer `rope_parameters` that holds both. After loading, every one of
/// these keys can be looked up whichever spelling the file used:
/// `rope_theta`, `rope_scaling` (null when the type is `default`),
/// `rope_scaling.rope_type`, `rope_parameters.rope_theta`,
/// `rope_parameters.rope_type` and the members that the type needs.
class ConfigFile {
public:
  /// Reads `dir`/config.json, or `dir` itself when it is a file. Errors: `config-missing`, `config-syntax` (line
  /// and column set), `config-key` (a key of a wrong type).
  static Result<ConfigFile> load(const std::string &dir);

  /// The same from texts; `file` is named in errors. An empty
  /// `generationText` means that there is no generation_config.json.
  static Result<ConfigFile> parse(std::string_view configText,
                                  std::string_view generationText = {},
                                  const std::string &file = "config.json");

  /// The value at a dotted path (`rope_scaling.factor`). Missing when a
  /// component is absent; a JSON null is a value.
  std::optional<nlohmann::json> find(std::string_view dottedPath) const;

  /// The tokens that end a sequence: `eos_token_id` of generation_config.json,
  /// else of config.json, a number or a list. Empty when neither names one.
  const std::vector<int32_t> &eosTokens() const { return Eos; }

  /// True when config.json says `"byte_vocabulary": true`: token i < 256 is the
  /// byte i, so text needs no tokenizer.
  bool byteVocabulary() const;

  /// The rotary embedding for heads of `headDim` values. Error: `rope-config`
  /// (theta or a member missing, a type that is not known, an odd `headDim`).
  Result<RopeParams> rope(int headDim) const;

  /// The path of config.json, for messages.
  const std::string &path() const { return Path; }

  /// Every top-level key, sorted; for suggestions.
  std::vector<std::string> keys() const;

private:
  CheckpointError readEos(const nlohmann::json &object,
                          const std::string &file);
  void normaliseRope();

  nlohmann::json Config;
  std::vector<int32_t> Eos;
  std::string Path;
};

} // namespace megalith

#endif
