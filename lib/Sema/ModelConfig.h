//===- ModelConfig.h - constants of a model file --------------------------===//
//
// The `config:` section and expressions over its names: weight shapes, eps,
// scales. Integers stay integers, and a division must come out even.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_SEMA_MODELCONFIG_H
#define MEGALITH_LIB_SEMA_MODELCONFIG_H

#include "megalith/Contract/Limits.h"
#include "megalith/Sema/Model.h"

namespace megalith {

/// The literal of a NoValue.
inline constexpr const char *noneWord = "none";
/// The number of the layer, from 0, in the expressions of `config: layer:`.
inline constexpr const char *layerWord = "layer";

/// The name of `config: rope: original:`.
inline constexpr const char *ropeOriginal = "rope.original";

inline constexpr int64_t mostLayers = limits::layers;

/// Names that constants may use; nested entries are dotted.
using ConfigNames = std::map<std::string, ConfigValue>;
/// Values of names that differ by layer.
using LayerNames = std::map<std::string, std::vector<ConfigValue>>;

/// What a model file does with a name of `config:`, and so what its value must be.
struct ConfigUse {
  bool size = false;     ///< a dimension, a number of layers
  bool flag = false;     ///< a condition
  bool number = false;   ///< in the graph
  bool positive = false; ///< as the eps of a norm or the cap of `softcap`
};
/// By name, dotted for nested entries. A name that is missing here is used nowhere:
/// its key is not understood.
using ConfigUses = std::map<std::string, ConfigUse>;
ConfigUses usesOfConfig(const ast::ModelFile &file);

/// Places in config.json and generation_config.json, which become sources when the
/// first is asked for.
class ConfigPlaces {
public:
  explicit ConfigPlaces(Diagnostics &diags) : diags(diags) {}
  /// The key at this dotted path, or the object around it.
  SourceLoc of(const JsonSource &source, const std::string &path);
  /// The same of a key as a model file names it: each member of the rotary embedding
  /// has two paths.
  SourceLoc ofKey(const ConfigFile &file, const std::string &key);

private:
  Diagnostics &diags;
  std::map<std::string, uint32_t> files;
};

/// Reads `config:` from config.json into `config` and `layerConfig` of `model`. Reports missing keys and wrong values.
void readConfig(const std::vector<ast::ConfigEntry> &entries, const ConfigFile &file, const ConfigUses &uses,
                ConfigPlaces &places, CheckedModel &model, Diagnostics &diags, ModelReport *report);

/// What config.json has for an entry of `for:` or `requires:`.
struct Judgement {
  bool right = false;
  bool given = false, isNull = false; ///< the file has the key; it says null, which is "not given"
  std::string found;                  ///< as the file has it, or what the absent key stands for
};
/// The value at a dotted path of a config.json as it is; the names of keys may have dots. Null: there is none.
const nlohmann::json *lookUp(const nlohmann::json &object, const std::string &path);
/// Whether `literal` stands for `value`.
bool equals(const ast::Literal &literal, const nlohmann::json &value);
Judgement judge(const ast::Requirement &requirement, const ConfigFile &config);
/// The values that an entry is content with: "`a` or `b`", "lists of `a`".
std::string wantedBy(const ast::Requirement &requirement);

/// Which weights are linear, and the scheme of each as config.json has it. Reports what differs by layer; false on an
/// error.
bool readSchemes(CheckedModel &model, Diagnostics &diags);

/// Reports what of config.json is not what `for:` and `requires:` say, and each key that nothing
/// of the model file understands, unless the user accepts it.
/// `problems`: of `quantization_config`.
void checkUnderstood(const ast::ModelFile &file, const ConfigFile &config, const ConfigUses &uses, ConfigPlaces &places,
                     const std::vector<Quantisation::Problem> &problems, CheckedModel &model, Acceptance &acceptance,
                     Diagnostics &diags, ModelReport *report);

/// Evaluates a constant expression; reports and returns nullopt on an error.
std::optional<ConfigValue> evaluateConstant(const ast::Expr &expr, const ConfigNames &names, Diagnostics &diags);

/// The value of a constant expression in a layer.
std::optional<ConfigValue> evaluateInLayer(const ast::Expr &expr, ConfigNames names, const LayerNames &layerNames,
                                           int64_t layer, Diagnostics &diags);

/// True when `expr` uses nothing but literals and `names`, so that it can be
/// evaluated without an unknown name.
bool isConstant(const ast::Expr &expr, const ConfigNames &names);

/// The value as a number; nullopt for a string or a bool.
std::optional<double> asNumber(const ConfigValue &value);

/// For messages: `a bool (true)`.
std::string describe(const ConfigValue &value);

/// Checks `graph:`; fills graph, layers, heads, vocab and what depends on them.
/// Returns false after an error.
bool checkGraph(const ast::ModelFile &file, CheckedModel &model, Diagnostics &diags);

} // namespace megalith
#endif
