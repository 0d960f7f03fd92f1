#include "Reader.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Path.h"
#include <functional>
#include <set>

namespace megalith::ast {

namespace {
class ModelReader : Reader {
public:
  ModelReader(Diagnostics &diags, uint32_t fileIndex) : Reader(diags) { file.file = fileIndex; }

  ModelFile read(const YamlNode &root) {
    const std::string what = "the model file";
    std::vector<KeyValue> sections = entries(root, what);
    if (root.kind != YamlNode::Map)
      return std::move(file);
    checkKeys(sections, what,
              {"model", "numerics", "config", "weights", "graph", "results", "for", "requires", "harmless"});
    const YamlNode *models = find(sections, "models");
    if (find(sections, "stages") || (models && models->kind == YamlNode::Map))
      diags.note(
          "`models` and `stages` are sections of a pipeline; a model file has `model`, `config`, `weights`, `graph`");
    requireKeys(sections, what, root.loc, {"model", "config", "weights", "graph"});
    if (const YamlNode *model = find(sections, "model"))
      file.name = readName(*model, "`model`", "a name of letters, digits and `_`");
    if (const YamlNode *numerics = find(sections, "numerics"))
      file.numerics = readName(*numerics, "`numerics`", "`transformers` or `fused`");
    if (const YamlNode *config = find(sections, "config"))
      readConfigs(*config);
    for (const KeyValue &section : sections)
      if (section.key.text == "config")
        file.configLoc = section.key.loc;
      else if (section.key.text == "weights")
        file.weightsLoc = section.key.loc;
    readAudience(sections);
    if (const YamlNode *required = find(sections, "requires"))
      for (const KeyValue &entry : entries(*required, "`requires`"))
        file.requirements.push_back(readRequirement(entry, "`requires`"));
    if (const YamlNode *harmless = find(sections, "harmless"))
      readHarmless(*harmless, "`harmless`", /*mayShare=*/true);
    if (const YamlNode *weights = find(sections, "weights"))
      readWeights(*weights);
    if (const YamlNode *graph = find(sections, "graph"))
      file.graph = readBody(*graph, "`graph`", /*inGraph=*/true);
    if (const YamlNode *results = find(sections, "results"))
      for (const KeyValue &entry : entries(*results, "`results`")) {
        checkName(entry.key, "a result");
        file.results.emplace_back(
            entry.key, readWord(*entry.value, ticks(entry.key.text) + " of `results`", "a name of the graph"));
      }
    checkHarmless();
    return std::move(file);
  }

  /// The name and `for:` alone.
  ModelFile readHead(const YamlNode &root) {
    std::vector<KeyValue> sections = entries(root, "the model file");
    if (const YamlNode *model = find(sections, "model"))
      file.name = readName(*model, "`model`", "a name of letters, digits and `_`");
    readAudience(sections);
    return std::move(file);
  }

private:
  ModelFile file;

  void readAudience(llvm::ArrayRef<KeyValue> sections) {
    for (const KeyValue &section : sections) {
      if (section.key.text != "for")
        continue;
      const unsigned errorsBefore = diags.errors();
      for (const KeyValue &entry : entries(*section.value, "`for`"))
        file.audience.push_back(readRequirement(entry, "`for`"));
      if (diags.errors() != errorsBefore || llvm::any_of(file.audience, namesFamily))
        return;
      diags.report(Diag::MissingKey, section.key.loc, "`for`", familyKeys[0]);
      diags.note(fmt::format("or `{}`: checkpoints are told apart by these", familyKeys[1]));
    }
  }

  void readConfigs(const YamlNode &node) {
    for (const KeyValue &entry : entries(node, "`config`")) {
      if (entry.key.text != "layer") {
        file.config.push_back(readConfig(entry));
        continue;
      }
      for (const KeyValue &inner : entries(*entry.value, "`layer` of `config`"))
        file.config.push_back(readLayerConfig(inner));
    }
  }

  /// A word, or `{key, values, default}`. Without `key`, `default` is the value.
  ConfigEntry readLayerConfig(const KeyValue &entry) {
    const std::string what = "config entry " + ticks(entry.key.text);
    checkName(entry.key, "a config entry");
    ConfigEntry config;
    config.name = entry.key;
    config.perLayer = true;
    if (entry.value->kind != YamlNode::Map) {
      config.key = readWord(*entry.value, what, "a key of config.json or a mapping");
      return config;
    }
    std::vector<KeyValue> keys = entries(*entry.value, what);
    const YamlNode *key = find(keys, "key"), *fallback = find(keys, "default"), *values = find(keys, "values");
    checkKeys(keys, what, {"key", "values", "default"});
    if (!fallback || values)
      requireKeys(keys, what, entry.key.loc, {"key"});
    if (key)
      config.key = readWord(*key, "`key` of " + what, "a key of config.json");
    if (fallback)
      config.fallback = readExpr(*fallback, "`default` of " + what, "it is one constant");
    if (!values)
      return config;
    const std::string whose = "`values` of " + what;
    if (values->kind == YamlNode::Map && values->entries.empty())
      diags.report(Diag::WrongNodeKind, values->loc, whose, "a mapping from entries of the list to constants",
                   "an empty one");
    for (const KeyValue &value : entries(*values, whose)) {
      std::optional<Literal> literal = readLiteral(*value.keyNode, "a key of " + whose);
      ExprPtr expr = readExpr(*value.value, ticks(value.key.text) + " of " + whose, "it is one constant");
      if (literal && expr)
        config.values.emplace_back(std::move(*literal), std::move(expr));
    }
    return config;
  }

  /// A word, `{key, default}`, or parts of their own, which have none again.
  ConfigEntry readConfig(const KeyValue &entry, bool isPart = false) {
    const std::string what = "config entry " + ticks(entry.key.text);
    checkName(entry.key, "a config entry");
    ConfigEntry config;
    config.name = entry.key;
    if (entry.value->kind != YamlNode::Map) {
      config.key = readWord(*entry.value, what, "a key of config.json or a mapping");
      return config;
    }
    if (entry.value->entries.empty()) {
      diags.report(Diag::WrongNodeKind, entry.value->loc, what, "a key of config.json or a mapping with `key`",
                   "an empty one");
      return config;
    }
    std::vector<KeyValue> keys = entries(*entry.value, what);
    const YamlNode *key = find(keys, "key"), *fallback = find(keys, "default");
    if (!key && !fallback && !isPart) {
      for (const KeyValue &part : keys)
        config.parts.push_back(readConfig(part, true));
      return config;
    }
    checkKeys(keys, what, {"key", "default", "if_null"});
    requireKeys(keys, what, entry.key.loc, {"key"});
    if (!key && fallback)
      diags.note(fmt::format("a constant of your own has a key that no config.json has: `{}: {{key: my_{}, default: "
                             "...}}`",
                             entry.key.text, entry.key.text));
    if (const YamlNode *ifNull = find(keys, "if_null"))
      config.ifNull = readExpr(*ifNull, "`if_null` of " + what, "it is one constant");
    if (key)
      config.key = readWord(*key, "`key` of " + what, "a key of config.json");
    if (fallback)
      config.fallback = readExpr(*fallback, "`default` of " + what, "it is one constant");
    return config;
  }

  std::optional<Literal> readLiteral(const YamlNode &node, const std::string &what) {
    Literal literal;
    literal.loc = node.loc;
    literal.text = node.text;
    if (node.kind == YamlNode::Null) {
      literal.text = "null";
      return literal;
    }
    if (node.kind == YamlNode::Map && node.entries.empty()) {
      literal.kind = Literal::Empty;
      literal.text = "{}";
      return literal;
    }
    if (node.kind != YamlNode::Scalar) {
      diags.report(Diag::WrongNodeKind, node.loc, what, "a value: a word, a number, `true`, `false`, `null` or `{}`",
                   describe(node));
      return std::nullopt;
    }
    literal.kind = Literal::String;
    if (node.quoted)
      return literal;
    if (node.text == "true" || node.text == "false") {
      literal.kind = Literal::Bool;
      literal.flag = node.text == "true";
    } else if (!llvm::StringRef(node.text).getAsDouble(literal.number)) {
      literal.kind = Literal::Number;
    }
    return literal;
  }

  /// One value, or a list of them.
  std::vector<Literal> readLiterals(const YamlNode &node, const std::string &what) {
    std::vector<Literal> result;
    auto one = [&](const YamlNode &item) {
      if (std::optional<Literal> literal = readLiteral(item, what))
        result.push_back(std::move(*literal));
    };
    if (node.kind != YamlNode::Sequence)
      one(node);
    else if (node.items.empty())
      diags.report(Diag::WrongNodeKind, node.loc, what, "a value or several", "an empty list");
    for (const auto &item : node.items)
      one(*item);
    return result;
  }

  Requirement readRequirement(const KeyValue &entry, const std::string &section) {
    const std::string what = ticks(entry.key.text) + " of " + section;
    Requirement result;
    result.key = entry.key;
    const YamlNode &value = *entry.value;
    if (value.kind != YamlNode::Map || value.entries.empty()) {
      // config.json has a list there. In `for:` a family is named in short.
      result.each = section == "`for`" && entry.key.text == familyKeys[1];
      result.values = readLiterals(value, what);
      return result;
    }
    std::vector<KeyValue> keys = entries(value, what);
    if (const YamlNode *same = find(keys, "same")) {
      checkKeys(keys, what, {"same"});
      for (const Literal &key : readLiterals(*same, what))
        result.same.push_back({key.text, key.loc});
      return result;
    }
    checkKeys(keys, what, {"is", "each", "same", "default"});
    const YamlNode *is = find(keys, "is"), *each = find(keys, "each");
    if (!is && !each)
      requireKeys(keys, what, entry.key.loc, {"is"});
    if (is && each)
      diags.report(Diag::UnknownKey, each->loc, "each", what + " with `is`");
    result.each = each && !is;
    if (is || each)
      result.values = readLiterals(is ? *is : *each, what);
    if (const YamlNode *fallback = find(keys, "default"))
      result.fallback = readLiteral(*fallback, "`default` of " + what);
    return result;
  }

  /// The functions that a graph calls, and `repeat`.
  static void collectUses(const std::vector<Stmt> &body, std::set<std::string> &uses) {
    const std::function<void(const Expr &)> visit = [&](const Expr &e) {
      if (e.kind == Expr::Call)
        uses.insert(e.text);
      for (const ExprPtr &arg : e.args)
        if (arg)
          visit(*arg);
      for (const auto &[name, value] : e.named)
        visit(*value);
    };
    for (const Stmt &stmt : body) {
      if (stmt.kind == Stmt::Repeat)
        uses.insert("repeat");
      for (const ExprPtr &value : stmt.values)
        if (value)
          visit(*value);
      collectUses(stmt.body, uses);
    }
  }

  static bool reads(const std::vector<ConfigEntry> &entries, const std::string &key) {
    return llvm::any_of(entries,
                        [&](const ConfigEntry &entry) { return entry.key.text == key || reads(entry.parts, key); });
  }

  /// By these keys config.json says what parts of the graph compute. Whoever calls one harmless runs another model
  /// without a word.
  void checkHarmless() {
    static const std::pair<const char *, std::vector<llvm::StringRef>> keysOf[] = {
        {"", {"quantization", "quantization_config", "compression_config"}},
        {"repeat", {"num_hidden_layers", "n_layer", "num_layers"}},
        {"attention", {"head_dim", "sliding_window", "layer_types"}},
        {"rope",
         {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "rotary_emb_base", "rotary_pct"}},
        {"rms_norm", {"rms_norm_eps"}},
        {"layer_norm", {"layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"}},
        {"silu", {"hidden_act", "hidden_activation", "activation_function"}},
        {"gelu", {"hidden_act", "hidden_activation", "activation_function"}},
        {"gelu_tanh", {"hidden_act", "hidden_activation", "activation_function"}}};
    std::set<std::string> uses = {""};
    collectUses(file.graph, uses);
    for (const Name &key : file.harmless.keys) {
      if (reads(file.config, key.text)) // as well: then it counts
        continue;
      for (const auto &[use, keys] : keysOf)
        if (uses.count(use) && llvm::is_contained(keys, llvm::StringRef(key.text).split('.').first)) {
          diags.report(Diag::HarmlessKey, key.loc, key.text);
          diags.note("read it in `config:`, or name in `requires:` the values for which the graph is right");
          break;
        }
    }
  }

  void readHarmless(const YamlNode &node, const std::string &what, bool mayShare) {
    std::vector<KeyValue> lists = entries(node, what);
    if (mayShare)
      checkKeys(lists, what, {"shared", "keys", "tensors"});
    else
      checkKeys(lists, what, {"keys", "tensors"});
    auto words = [&](const char *key, const char *expected, std::vector<Name> &out) {
      const YamlNode *list = find(lists, key);
      const std::string which = ticks(key) + " of " + what;
      if (list && expectKind(*list, YamlNode::Sequence, which, "a list"))
        for (const auto &item : list->items)
          out.push_back(readWord(*item, "an entry of " + which, expected));
    };
    words("keys", "a key of config.json", file.harmless.keys);
    words("tensors", "the name of a tensor", file.harmless.tensors);
    if (const YamlNode *shared = mayShare ? find(lists, "shared") : nullptr)
      readShared(readWord(*shared, "`shared` of " + what, "the path of a file"));
  }

  /// The lists of another file, whose path is relative to the model file.
  void readShared(const Name &name) {
    if (!name.loc)
      return;
    llvm::SmallString<256> path;
    if (!llvm::sys::path::is_absolute(name.text))
      path = llvm::sys::path::parent_path(diags.sources().name(file.file));
    llvm::sys::path::append(path, name.text);
    std::string reason;
    auto opened = diags.sources().open(std::string(path), reason);
    if (!opened) {
      diags.report(Diag::CannotReadFile, name.loc, std::string(path), reason);
      return;
    }
    if (auto root = readYaml(diags, *opened, "a list of what is harmless"))
      readHarmless(*root, "the file", /*mayShare=*/false);
  }

  void readWeights(const YamlNode &node) {
    for (const KeyValue &entry : entries(node, "`weights`")) {
      if (entry.key.text != "layer" && !holdsWeights(*entry.value)) {
        readWeight(entry, /*perLayer=*/false);
        continue;
      }
      checkKeys({entry}, "`weights`", {"layer"});
      for (const KeyValue &inner : entries(*entry.value, "`layer` of `weights`"))
        readWeight(inner, /*perLayer=*/true);
    }
  }

  /// As `layer` does: a weight itself has no mappings.
  static bool holdsWeights(const YamlNode &node) {
    return node.kind == YamlNode::Map && !node.entries.empty() &&
           llvm::all_of(node.entries, [](const YamlNode::Entry &entry) { return entry.value->kind == YamlNode::Map; });
  }

  void readWeight(const KeyValue &entry, bool perLayer) {
    const std::string what = "weight " + ticks(entry.key.text);
    checkName(entry.key, "a weight");
    WeightDecl weight;
    weight.name = entry.key;
    weight.perLayer = perLayer;
    std::vector<KeyValue> keys = entries(*entry.value, what);
    checkKeys(keys, what, {"shape", "stored", "transposed", "from", "or", "if"});
    if (entry.value->kind == YamlNode::Map)
      requireKeys(keys, what, entry.key.loc, {"shape", "from"});
    if (const YamlNode *shape = find(keys, "shape"))
      weight.shape = readShape(*shape, "`shape` of " + what);
    if (const YamlNode *stored = find(keys, "stored"))
      weight.stored = readShape(*stored, "`stored` of " + what);
    if (const YamlNode *transposed = find(keys, "transposed"))
      weight.transposed = readFlag(*transposed, "`transposed` of " + what);
    if (const YamlNode *from = find(keys, "from"))
      readSpellings(*from, "`from` of " + what, weight.from);
    if (const YamlNode *alias = find(keys, "or"))
      weight.alias = readExpr(*alias, "`or` of " + what, "it is a weight or `WEIGHT if condition`",
                              /*elseOptional=*/true);
    if (const YamlNode *condition = find(keys, "if"))
      weight.condition = readExpr(*condition, "`if` of " + what, "it is one condition");
    file.weights.push_back(std::move(weight));
  }

  std::optional<Name> readFlag(const YamlNode &node, const std::string &what) {
    Name word = readWord(node, what, "`true` or `false`");
    if (word.loc && word.text != "true" && word.text != "false")
      diags.report(Diag::WrongNodeKind, word.loc, what, "`true` or `false`", ticks(word.text));
    return word;
  }

  /// The name of a tensor, or a list of names that checkpoints give to it.
  void readSpellings(const YamlNode &node, const std::string &what, std::vector<Name> &out) {
    const char *expected = "the name of a tensor or a list of spellings";
    if (node.kind != YamlNode::Sequence)
      out.push_back(readWord(node, what, expected));
    else if (node.items.empty())
      diags.report(Diag::WrongNodeKind, node.loc, what, expected, "an empty list");
    for (const auto &item : node.items)
      out.push_back(readWord(*item, "an entry of " + what, "the name of a tensor"));
  }

  std::vector<ExprPtr> readShape(const YamlNode &node, const std::string &what) {
    const char *expected = "a list of sizes in single quotes such as `'[vocab, hidden]'`";
    if (node.kind != YamlNode::Scalar) {
      expectKind(node, YamlNode::Scalar, what, expected);
      return {};
    }
    ExprPtr expr = readExpr(node, what);
    if (!expr)
      return {};
    if (expr->kind == Expr::List && !expr->args.empty())
      return std::move(expr->args);
    diags.report(Diag::WrongNodeKind, node.loc, what, expected, describe(node));
    return {};
  }
};
} // namespace

std::optional<ModelFile> parseModel(Diagnostics &diags, uint32_t file) {
  unsigned errorsBefore = diags.errors();
  std::unique_ptr<YamlNode> root = readYaml(diags, file, "a model file");
  if (!root)
    return std::nullopt;
  ModelFile model = ModelReader(diags, file).read(*root);
  if (diags.errors() != errorsBefore)
    return std::nullopt;
  return model;
}

std::optional<ModelFile> parseAudience(Diagnostics &diags, uint32_t file) {
  const unsigned errorsBefore = diags.errors();
  std::unique_ptr<YamlNode> root = readYaml(diags, file, "a model file");
  if (!root)
    return std::nullopt;
  if (root->kind != YamlNode::Map ||
      llvm::none_of(root->entries, [](const YamlNode::Entry &entry) { return entry.key->text == "model"; }))
    return ModelFile();
  ModelFile head = ModelReader(diags, file).readHead(*root);
  if (diags.errors() != errorsBefore)
    return std::nullopt;
  return head;
}

} // namespace megalith::ast
