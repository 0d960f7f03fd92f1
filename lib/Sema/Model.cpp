#include "megalith/Sema/Model.h"
#include "ModelConfig.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/ArrayRef.h"
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <set>

namespace megalith {

namespace graph {
std::string Shape::str() const {
  switch (kind) {
  case Number:
    return "a number";
  case Vector:
    return fmt::format("[{}]", columns);
  case Rows:
    return fmt::format("[R, {}]", columns);
  }
  return "";
}
} // namespace graph

std::string CheckedWeight::tensorName(int64_t layer) const { return layerTensor(from, layer); }

std::optional<double> CheckedModel::positions() const {
  std::optional<double> most = file.positions();
  if (const auto ofRope = rope ? rope->mostPositions() : std::nullopt)
    most = std::min(most.value_or(*ofRope), static_cast<double>(*ofRope));
  if (positionTable) {
    const auto rows = static_cast<double>(weights[*positionTable].shape[0]);
    most = std::min(most.value_or(rows), rows);
  }
  return most;
}

bool CheckedModel::positionsOfTable() const {
  return positionTable && positions() == static_cast<double>(weights[*positionTable].shape[0]) &&
         positions() != file.positions();
}

std::string CheckedModel::positionsKey() const {
  if (positionsOfTable())
    return fmt::format("weight `{}`", weights[*positionTable].name);
  const bool ofRope = positions() != file.positions();
  return ofRope ? fmt::format("`original_max_position_embeddings`: type `{}` has other angles for more", rope->type)
                : "`max_position_embeddings`";
}

std::optional<double> CheckedModel::configNumber(const std::string &dottedPath) const {
  std::optional<nlohmann::json> value = file.find(dottedPath);
  if (!value || !value->is_number() || !std::isfinite(value->get<double>()))
    return std::nullopt;
  return value->get<double>();
}

namespace {

class WeightChecker {
public:
  WeightChecker(CheckedModel &model, Diagnostics &diags) : model(model), diags(diags) {}

  void check(const ast::WeightDecl &decl) {
    CheckedWeight weight;
    weight.name = decl.name.text;
    for (const ast::Name &from : decl.from)
      weight.spellings.push_back(from.text);
    weight.from = weight.spellings.front();
    weight.transposed = decl.transposed && decl.transposed->text == "true";
    weight.perLayer = decl.perLayer;
    weight.loc = decl.name.loc;
    if (model.config.count(weight.name))
      diags.report(Diag::NameTaken, weight.loc, weight.name, "a config name");
    for (const auto *list : {&model.weights, &model.absent})
      for (const CheckedWeight &other : *list)
        if (other.name == weight.name) {
          diags.report(Diag::NameTaken, weight.loc, weight.name, "a weight");
          diags.note(other.loc, "the other `" + weight.name + "`");
        }
    if (!readShape(decl, weight)) {
      bad.insert(weight.name);
      return;
    }
    for (const ast::Name &from : decl.from) {
      const bool pattern = from.text.find("{i}") != std::string::npos;
      if (pattern != weight.perLayer)
        diags.report(Diag::LayerPattern, from.loc, weight.name,
                     pattern ? "has `{i}` in `from`, but does not stand below `layer`"
                             : "stands below `layer`, so its `from` needs `{i}` for the layer");
    }
    if (decl.alias)
      readAlias(*decl.alias, weight);
    std::optional<bool> isThere = true;
    if (decl.condition) {
      weight.condition = ast::written(*decl.condition);
      isThere = readCondition(*decl.condition, "`if`");
    }
    if (isThere && *isThere)
      checkTensor(weight);
    if (isThere)
      (*isThere ? model.weights : model.absent).push_back(std::move(weight));
    else
      bad.insert(weight.name);
  }

private:
  /// One tensor has one shape.
  void checkTensor(const CheckedWeight &weight) {
    for (const CheckedWeight &other : model.weights)
      if (weight.alias.empty() && other.alias.empty() && other.stored != weight.stored &&
          llvm::any_of(weight.spellings,
                       [&](const std::string &from) { return llvm::is_contained(other.spellings, from); })) {
        diags.report(Diag::TensorTwice, weight.loc, other.name, weight.name, weight.from,
                     fmt::format("{}", other.stored), fmt::format("{}", weight.stored));
        diags.note(other.loc, "the other `from`");
        break;
      }
  }

  bool readShape(const ast::WeightDecl &decl, CheckedWeight &weight) {
    if (!readSizes(decl.shape, weight.name, weight.shape) || !readSizes(decl.stored, weight.name, weight.stored))
      return false;
    if (weight.shape.empty() || weight.shape.size() > 4) {
      diags.report(Diag::WeightRank, weight.loc, weight.name, weight.shape.size());
      return false;
    }
    if (weight.transposed && weight.shape.size() == 1) {
      diags.report(Diag::TransposedVector, decl.transposed->loc, weight.name);
      return false;
    }
    const auto elements = [](const std::vector<int64_t> &shape) {
      return std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
    };
    if (weight.shape.size() > 2 &&
        elements(weight.shape) > limits::weightBytes) { // of two sizes any product fits into 64 bits
      diags.report(Diag::WeightBytes, weight.loc, weight.name);
      return false;
    }
    if (!weight.stored.empty() && elements(weight.stored) != elements(weight.shape)) {
      diags.report(Diag::StoredShape, decl.stored.front()->loc, weight.name, fmt::format("{}", weight.stored),
                   fmt::format("{}", weight.shape));
      return false;
    }
    if (!weight.stored.empty())
      return true;
    weight.stored = weight.shape;
    if (weight.transposed) {
      const auto outputs = llvm::ArrayRef(weight.shape).drop_back();
      weight.stored = {weight.shape.back(),
                       std::accumulate(outputs.begin(), outputs.end(), int64_t(1), std::multiplies<>())};
    }
    return true;
  }

  bool readSizes(const std::vector<ast::ExprPtr> &dims, const std::string &name, std::vector<int64_t> &out) {
    for (const ast::ExprPtr &dim : dims) {
      auto value = evaluateConstant(*dim, model.config, diags);
      if (!value)
        return false;
      auto *size = std::get_if<int64_t>(&*value);
      // 2^31: columns and lines are 32-bit in a kernel.
      if (!size || *size <= 0 || *size >= INT64_C(1) << 31) {
        diags.report(Diag::WeightSize, dim->loc, name, size ? std::to_string(*size) : "no integer");
        return false;
      }
      out.push_back(*size);
    }
    return true;
  }

  std::optional<bool> readCondition(const ast::Expr &e, const char *what) {
    auto condition = evaluateConstant(e, model.config, diags);
    if (!condition)
      return std::nullopt;
    if (auto *holds = std::get_if<bool>(&*condition))
      return *holds;
    diags.report(Diag::ConstantType, e.loc, what, "a bool", describe(*condition));
    return std::nullopt;
  }

  void readAlias(const ast::Expr &alias, CheckedWeight &weight) {
    const ast::Expr *target = &alias;
    if (alias.kind == ast::Expr::Conditional) {
      const std::optional<bool> holds = readCondition(*alias.args[1], "the condition of `or`");
      if (!holds)
        return;
      target = *holds ? alias.args[0].get() : alias.args[2].get();
      if (!target)
        return;
    }
    std::vector<std::string> names;
    for (const CheckedWeight &other : model.weights) {
      names.push_back(other.name);
      if (target->kind != ast::Expr::Path || other.name != target->text)
        continue;
      if (other.shape != weight.shape || other.stored != weight.stored || other.transposed != weight.transposed ||
          other.perLayer != weight.perLayer) {
        diags.report(Diag::AliasShape, target->loc, weight.name, fmt::format("{}", weight.shape), other.name,
                     fmt::format("{}", other.shape));
        return;
      }
      weight.alias = other.alias.empty() ? other.name : other.alias;
      return;
    }
    if (bad.count(target->text)) // what is wrong with it was said
      return;
    diags.report(Diag::UnknownAlias, target->loc, target->text, weight.name);
    diags.suggest(target->text, names);
  }

  CheckedModel &model;
  Diagnostics &diags;
  std::set<std::string> bad; ///< weights whose shape is not known
};

} // namespace

/// The end tokens that the model can draw. transformers writes its class's default into the files of a model with a
/// smaller vocabulary.
static void readEos(const ConfigFile &config, CheckedModel &model, ConfigPlaces &places, Diagnostics &diags) {
  std::string outside;
  for (int64_t id : config.eosTokens())
    if (id >= 0 && id < model.vocab)
      model.eos.push_back(static_cast<int32_t>(id));
    else
      outside += fmt::format("{}{}", outside.empty() ? "" : ", ", id);
  if (outside.empty())
    return;
  const JsonSource &source = config.eosSource();
  const SourceLoc loc = places.of(source, "eos_token_id");
  diags.report(Diag::EndOutside, loc, loc ? "" : source.path + ": ", outside, model.vocab,
               model.eos.empty() ? ", and no other one ends a text" : "");
}

/// With this much, every size that is computed of it fits into 64 bits.
static bool checkBytes(const CheckedModel &model, Diagnostics &diags) {
  double bytes = 0;
  for (const CheckedWeight &weight : model.weights) {
    if (!weight.alias.empty() || weight.part)
      continue;
    double own = weight.perLayer ? 2.0 * model.layers : 2.0;
    for (int64_t size : weight.shape)
      own *= size;
    bytes += own;
    if (bytes > limits::weightBytes) {
      diags.report(Diag::WeightBytes, weight.loc, weight.name);
      return false;
    }
  }
  return true;
}

std::optional<CheckedModel> checkModel(const ast::ModelFile &file, const ConfigFile &config, Acceptance &acceptance,
                                       Diagnostics &diags, ModelReport *report) {
  unsigned errorsBefore = diags.errors();
  CheckedModel model;
  model.file = config;
  model.graphName = file.name.text;
  model.numerics = file.numerics.text.empty() ? "transformers" : file.numerics.text;
  if (model.numerics != "transformers" && model.numerics != "fused") {
    diags.report(Diag::UnknownNumerics, file.numerics.loc, model.numerics);
    diags.suggest(model.numerics, {"transformers", "fused"});
  }
  model.byteVocabulary = config.byteVocabulary();
  model.weightsLoc = file.weightsLoc;
  for (const ast::Name &tensor : file.harmless.tensors)
    model.harmlessTensors.push_back(tensor.text);
  const ConfigUses uses = usesOfConfig(file);
  ConfigPlaces places(diags);
  readConfig(file.config, config, uses, places, model, diags, report);
  std::vector<Quantisation::Problem> problems;
  if (!acceptance.has("quantization_config")) // else the tensors are what they are called
    if (auto quantisation = Quantisation::read(config, problems))
      model.quantisation = std::make_shared<const Quantisation>(std::move(*quantisation));
  const auto understood = [&] {
    checkUnderstood(file, config, uses, places, problems, model, acceptance, diags, report);
  };
  if (diags.errors() != errorsBefore) {
    // Every later message would follow from a missing number.
    understood();
    return std::nullopt;
  }
  WeightChecker weights(model, diags);
  for (const ast::WeightDecl &decl : file.weights)
    weights.check(decl);
  const bool right = diags.errors() == errorsBefore && checkGraph(file, model, diags);
  // A graph with mistakes of its own may use less than it will.
  if (right || !config.rope(/*headDim=*/2, /*theta=*/1))
    understood();
  if (right) {
    readEos(config, model, places, diags);
    readSchemes(model, diags);
  }
  if (report && right)
    report->model = model;
  if (!right || !checkBytes(model, diags) || diags.errors() != errorsBefore)
    return std::nullopt;
  return model;
}

} // namespace megalith
