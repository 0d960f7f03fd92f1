//===- ConfigFile.h - config.json of a checkpoint ---------------*- C++ -*-===//
#ifndef MEGALITH_CHECKPOINT_CONFIGFILE_H
#define MEGALITH_CHECKPOINT_CONFIGFILE_H

#include "megalith/Checkpoint/RopeTable.h"
#include "megalith/Json/JsonValue.h"
#include "megalith/Os/Result.h"
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// A JSON file as it was read, for messages that point into it.
struct JsonSource {
  struct Place {
    unsigned line = 0, column = 0; ///< from 1; 0 when the file has no such key
  };
  std::string path;
  std::shared_ptr<const std::string> text;
  std::map<std::string, Place> places; ///< of keys, by dotted path
};

/// config.json and, when there is one, generation_config.json of a Hugging Face
/// checkpoint directory.
///
/// The rotary embedding has two spellings: `rope_theta` with `rope_scaling`,
/// and the newer `rope_parameters` that holds both. After loading, every one of
/// these keys can be looked up whichever spelling the file used:
/// `rope_theta`, `rope_scaling` (null when the type is `default`),
/// `rope_scaling.rope_type`, `rope_parameters.rope_theta`,
/// `rope_parameters.rope_type` and the members that the type needs. A member that
/// is null is absent.
class ConfigFile {
public:
  /// Reads `dir`/config.json, or `dir` itself when it is a file. Errors: `config-missing`, `config-syntax` (line
  /// and column set), `config-key` (a wrong value of a key that is read here), `adapter-beside` and `quantised-beside`
  /// (a file beside it says that its weights alone are not the model).
  static Result<ConfigFile> load(const std::string &dir);

  /// The same from texts; `file` is named in errors. An empty
  /// `generationText` means that there is no generation_config.json.
  static Result<ConfigFile> parse(std::string_view configText, std::string_view generationText = {},
                                  const std::string &file = "config.json");

  /// The value at a dotted path (`rope_scaling.factor`). Missing when a
  /// component is absent; a JSON null is a value.
  std::optional<nlohmann::json> find(std::string_view dottedPath) const;

  /// The keys that are read here, whatever a model file says: `eos_token_id`,
  /// `byte_vocabulary`, `max_position_embeddings`.
  static const std::vector<std::string> &ownKeys();

  /// Whether tools say by a key of this dotted path that they quantised the weights.
  static bool isQuantisation(std::string_view dottedPath);

  /// The tokens that end a sequence: `eos_token_id` of generation_config.json,
  /// else of config.json, a number or a list. Empty when neither names one. They may be in no vocabulary.
  const std::vector<int64_t> &eosTokens() const { return Eos; }
  /// The file that names them.
  const JsonSource &eosSource() const { return EosInGeneration ? Generation : Source; }

  /// True when config.json says `"byte_vocabulary": true`: token i < 256 is the
  /// byte i, so text needs no tokenizer.
  bool byteVocabulary() const { return Bytes; }

  /// `max_position_embeddings`. nullopt: the file does not say.
  std::optional<double> positions() const { return Positions; }

  /// The rotary embedding for heads of `headDim` values, of which the first `turned` are rotated (all, if that is not
  /// given). `theta` is in place of the file's, `original` of its `original_max_position_embeddings`. Error:
  /// `rope-config` (theta or a member missing, two spellings that contradict each other, a type that is not known, an
  /// odd number of values, a `partial_rotary_factor` that means another number of them).
  Result<RopeParams> rope(int headDim, std::optional<double> theta = {}, std::optional<int> turned = {},
                          std::optional<double> original = {}) const;
  /// Dotted paths of the keys, theta's aside, that rope() understands, in both
  /// spellings. Which members belong to it depends on the type.
  std::vector<std::string> ropeKeys() const;

  /// The path of config.json, for messages.
  const std::string &path() const { return Source.path; }
  const JsonSource &source() const { return Source; }
  /// config.json as the file has it.
  const nlohmann::json &raw() const { return Raw; }

  /// Every top-level key, sorted; for suggestions.
  std::vector<std::string> keys() const;

private:
  FileError readEos(const nlohmann::json &object, const JsonSource &source);
  FileError readOwnKeys();
  /// The member of `rope_parameters` for layers without a window, where types of layers have embeddings of their own.
  static constexpr const char *FullLayers = "full_attention";
  void normaliseRope();
  class RopeReader;

  nlohmann::json Raw, Config;
  JsonSource Source, Generation;
  std::vector<int64_t> Eos;
  bool EosInGeneration = false, Bytes = false;
  std::optional<double> Positions;
  std::string RopeProblem; ///< why there is no rotary embedding to speak of
};

} // namespace megalith

#endif
