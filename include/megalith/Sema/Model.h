//===- Model.h - checking a model file against a checkpoint ---------------===//
#ifndef MEGALITH_SEMA_MODEL_H
#define MEGALITH_SEMA_MODEL_H

#include "megalith/Checkpoint/ConfigFile.h"
#include "megalith/Checkpoint/Quantisation.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include "megalith/Sema/ModelGraph.h"
#include "megalith/Support/Diagnostics.h"
#include "megalith/Support/WeightView.h"
#include "megalith/Syntax/Ast.h"
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace megalith {

/// The literal `none`: a constant that says that there is nothing, as a null of config.json may.
struct NoValue {
  bool operator==(const NoValue &) const = default;
};
/// In place of the value of a name of `config: layer:`, which has one for each layer.
struct DiffersByLayer {
  bool operator==(const DiffersByLayer &) const = default;
};
/// A value of config.json, or of an expression over them.
using ConfigValue = std::variant<bool, int64_t, double, std::string, NoValue, DiffersByLayer>;

/// A weight that the file declares, or after all of those a view of one: a matrix or a vector that the graph reads.
struct CheckedWeight {
  std::string name;                   ///< of a view as the graph has it: `wqkv[:, 0]`
  std::vector<int64_t> shape;         ///< one to four dimensions, all positive; of a view one or two
  std::vector<int64_t> stored;        ///< shape of the tensor
  bool transposed = false;            ///< the tensor has the inputs as rows
  std::string from;                   ///< tensor name; `{i}` stands for the layer
  std::vector<std::string> spellings; ///< what checkpoints call it; `from` is the one that this checkpoint has
  bool perLayer = false;
  std::string alias;      ///< the weight whose storage this one uses; empty: its own
  std::string condition;  ///< `if:` as it is written; empty: it is there in any case
  bool used = false;      ///< by the graph, perhaps under another's name
  bool usedWhole = false; ///< as it is declared
  bool isLinear = false;  ///< products alone read it, from a tensor of one row for each output
  WeightScheme scheme;    ///< of a linear one: how the checkpoint codes it
  SourceLoc loc;

  /// Of a view: the weight, and where its elements stand in the tensor.
  struct Part {
    graph::WeightId of;
    WeightView place;
    std::vector<std::pair<int64_t, int64_t>> ranges; ///< in the dimensions of the weight: [begin, end)
  };
  std::optional<Part> part;

  /// The tensor of layer `layer`.
  std::string tensorName(int64_t layer) const;
  /// The module that has it: the tensor's name without `.weight`.
  std::string moduleName(int64_t layer) const;
};

/// A model file with the numbers of one checkpoint filled in.
struct CheckedModel {
  std::string graphName;                     ///< `model:` of the file
  std::string numerics;                      ///< "transformers" or "fused"
  std::map<std::string, ConfigValue> config; ///< by the file's own names
  /// Of those that differ by layer, one for each.
  std::map<std::string, std::vector<ConfigValue>> layerConfig;
  std::vector<CheckedWeight> weights; ///< declared ones, then views
  std::vector<CheckedWeight> absent;  ///< those whose condition does not hold: the checkpoint has none
  graph::Graph graph;
  int64_t vocab = 0;      ///< columns of the logits = lines of the embedding
  int64_t hidden = 0;     ///< columns of the embedding
  int64_t layers = 0;     ///< iterations of the repeat; 0 without one
  int64_t kvLayers = 0;   ///< how many times a row's K and V are appended; 0 without attention
  int64_t kvWindow = 0;   ///< positions that a row sees in a layer, at most; 0: all, in some layer at least
  bool hasWindow = false; ///< of attention, in some layer
  int64_t heads = 0, kvHeads = 0, headDim = 0;
  std::optional<RopeParams> rope; ///< present when the graph uses `rope`
  bool adjacentRope = false;      ///< it turns neighbours against each other, not halves
  /// Further tables of angles, see ropeTables(), and which one the layers have: one number, or one for each layer.
  /// Empty: `rope` in all.
  std::vector<double> ropeBases;
  std::vector<int64_t> ropeTables;
  std::optional<graph::WeightId> positionTable; ///< of which rows are read by position; the shortest
  std::vector<int32_t> eos;
  bool byteVocabulary = false;
  ConfigFile file;                                  ///< the checkpoint's config.json
  std::shared_ptr<const Quantisation> quantisation; ///< null: no weight is coded
  bool hasScalesOfKv = false;                       ///< tensors of such, see Quantisation
  std::vector<std::string> harmlessTensors;         ///< patterns
  SourceLoc weightsLoc;                             ///< of `weights:`
  /// Keys and tensors that may change the logits, and were taken on the user's word.
  std::vector<std::string> accepted;

  /// How many tokens a request may have, new ones included; nullopt: the checkpoint does not say.
  std::optional<double> positions() const;
  /// Where that is said, for messages.
  std::string positionsKey() const;
  /// Whether the table of positions is what ends them.
  bool positionsOfTable() const;
  /// A number of config.json by dotted path; nullopt when absent or no number.
  std::optional<double> configNumber(const std::string &dottedPath) const;
};

/// "FP8 in blocks of 128 x 128"
std::string describe(const WeightScheme &scheme);

/// What a model file makes of a key of config.json.
struct KeyUse {
  enum Kind { Read, Required, Harmless, Accepted, Refused } kind = Read;
  std::string key;    ///< dotted path
  std::string reason; ///< when it is refused
  std::string advice; ///< the way out
};
/// What a check of a model file has found, as far as it came.
struct ModelReport {
  std::vector<KeyUse> keys;          ///< in the order of config.json; before them what it should have and lacks
  std::optional<CheckedModel> model; ///< once the graph was found right in itself, keys may be refused all the same
  std::map<std::string, uint64_t> tensorTypes; ///< number of the checkpoint's tensors, by type
  uint64_t readTensors = 0, harmlessTensors = 0, acceptedTensors = 0;
  uint64_t refusedTensors = 0; ///< nothing reads them, or the first one of a weight that is not as it needs it
  uint64_t missingWeights = 0; ///< weights without one of their tensors
};

/// What the user takes on his own word (`--accept`): keys of config.json, and tensors, with
/// `{i}` for any number. One for all models of a pipeline.
class Acceptance {
public:
  explicit Acceptance(std::vector<std::string> names = {}) : names(std::move(names)), needed(this->names.size()) {}

  /// Whether this key or tensor is taken; notes it in `model`.
  bool takes(const std::string &name, CheckedModel &model);
  /// Whether it would be, without noting anything.
  bool has(const std::string &name) const;
  /// Names that nothing needed.
  std::vector<std::string> unneeded() const;

private:
  std::vector<std::string> names;
  std::vector<bool> needed;
};

/// Why a model file is not for a checkpoint.
struct Misfit {
  SourceLoc loc; ///< the entry of `for:`, or the file's name without one
  std::string text;
};
/// The first entry of `for:` that the config does not meet and `acceptance` does not name; nullopt: the file is for it.
/// One of the keys by which families are told apart must be there and right.
std::optional<Misfit> misfitOf(const ast::ModelFile &model, const ConfigFile &config, const Acceptance &acceptance);

/// Resolves the names of `model`, evaluates shapes with the numbers of `config`
/// and checks the graph. Every key of config.json must be understood: read, required, harmless
/// or accepted. Reports everything it finds; nullopt on an error.
/// `report`: null, or filled as far as the check comes.
std::optional<CheckedModel> checkModel(const ast::ModelFile &model, const ConfigFile &config, Acceptance &acceptance,
                                       Diagnostics &diags, ModelReport *report = nullptr);

/// Checks that every weight is in the checkpoint, in its shape and in bf16, and that every
/// tensor is read by a weight of the graph, harmless or accepted. Reports the first wrong
/// tensor of each weight, and the first of each pattern that is not read; false on an error.
bool checkWeights(CheckedModel &model, const SafetensorsFile &file, Acceptance &acceptance, Diagnostics &diags,
                  ModelReport *report = nullptr);

} // namespace megalith
#endif
