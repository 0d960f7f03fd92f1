#include "Reader.h"
#include "megalith/Syntax/Parse.h"

namespace megalith::ast {

namespace {
class ModelReader : Reader {
public:
  ModelReader(Diagnostics &diags, uint32_t fileIndex) : Reader(diags) {
    file.file = fileIndex;
  }

  ModelFile read(const YamlNode &root) {
    const std::string what = "the model file";
    std::vector<KeyValue> sections = entries(root, what);
    if (root.kind != YamlNode::Map)
      return std::move(file);
    checkKeys(sections, what,
              {"model", "numerics", "config", "weights", "graph"});
    requireKeys(sections, what, root.loc,
                {"model", "config", "weights", "graph"});
    if (const YamlNode *model = find(sections, "model"))
      file.name =
          readName(*model, "`model`", "a name of letters, digits and `_`");
    if (const YamlNode *numerics = find(sections, "numerics"))
      file.numerics =
          readName(*numerics, "`numerics`", "`transformers` or `fused`");
    if (const YamlNode *config = find(sections, "config"))
      for (const KeyValue &entry : entries(*config, "`config`"))
        file.config.push_back(readConfig(entry));
    if (const YamlNode *weights = find(sections, "weights"))
      readWeights(*weights);
    if (const YamlNode *graph = find(sections, "graph"))
      file.graph = readBody(*graph, "`graph`", /*inGraph=*/true);
    return std::move(file);
  }

private:
  ModelFile file;

  /// A word, `{key, default}`, or parts of their own.
  ConfigEntry readConfig(const KeyValue &entry) {
    const std::string what = "config entry " + ticks(entry.key.text);
    checkName(entry.key, "a config entry");
    ConfigEntry config;
    config.name = entry.key;
    if (entry.value->kind != YamlNode::Map) {
      config.key =
          readWord(*entry.value, what, "a key of config.json or a mapping");
      return config;
    }
    std::vector<KeyValue> keys = entries(*entry.value, what);
    const YamlNode *key = find(keys, "key"), *fallback = find(keys, "default");
    if (!key && !fallback) {
      for (const KeyValue &part : keys)
        config.parts.push_back(readConfig(part));
      return config;
    }
    checkKeys(keys, what, {"key", "default"});
    requireKeys(keys, what, entry.key.loc, {"key"});
    if (key)
      config.key = readWord(*key, "`key` of " + what, "a key of config.json");
    if (fallback)
      config.fallback = readExpr(*fallback, "`default` of " + what, "it is one constant");
    return config;
  }

  void readWeights(const YamlNode &node) {
    for (const KeyValue &entry : entries(node, "`weights`")) {
      if (entry.key.text != "layer") {
        readWeight(entry, /*perLayer=*/false);
        continue;
      }
      for (const KeyValue &inner :
           entries(*entry.value, "`layer` of `weights`"))
        readWeight(inner, /*perLayer=*/true);
    }
  }

  void readWeight(const KeyValue &entry, bool perLayer) {
    const std::string what = "weight " + ticks(entry.key.text);
    checkName(entry.key, "a weight");
    WeightDecl weight;
    weight.name = entry.key;
    weight.perLayer = perLayer;
    std::vector<KeyValue> keys = entries(*entry.value, what);
    checkKeys(keys, what, {"shape", "from", "or"});
    if (entry.value->kind == YamlNode::Map)
      requireKeys(keys, what, entry.key.loc, {"shape", "from"});
    if (const YamlNode *shape = find(keys, "shape"))
      weight.shape = readShape(*shape, "`shape` of " + what);
    if (const YamlNode *from = find(keys, "from"))
      weight.from =
          readWord(*from, "`from` of " + what, "the name of a tensor");
    if (const YamlNode *alias = find(keys, "or"))
      weight.alias = readExpr(*alias, "`or` of " + what, "it is a weight or `WEIGHT if condition`",
                              /*elseOptional=*/true);
    file.weights.push_back(std::move(weight));
  }

  std::vector<ExprPtr> readShape(const YamlNode &node,
                                 const std::string &what) {
    const char *expected =
        "a list of sizes in single quotes such as `'[vocab, hidden]'`";
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

} // namespace megalith::ast
