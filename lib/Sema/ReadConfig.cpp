#include "ModelConfig.h"
#include "llvm/ADT/STLExtras.h"
#include <cfloat>
#include <cmath>
#include <fmt/format.h>

namespace megalith {

//===--- what names are used for --------------------------------------------===//

namespace {

class UseFinder {
public:
  explicit UseFinder(const ast::ModelFile &file) : file(file) {}

  ConfigUses run() {
    for (const ast::WeightDecl &weight : file.weights) {
      for (const auto *sizes : {&weight.shape, &weight.stored})
        for (const ast::ExprPtr &dim : *sizes)
          inShape(*dim);
      if (weight.alias && weight.alias->kind == ast::Expr::Conditional)
        inCondition(*weight.alias->args[1]);
      if (weight.condition)
        inCondition(*weight.condition);
    }
    for (const ast::Stmt &stmt : file.graph)
      inStatement(stmt);
    // A default is made of names before it, and is used as what it stands for.
    for (const ast::ConfigEntry &entry : llvm::reverse(file.config)) {
      for (const ast::ConfigEntry &part : entry.parts)
        if (auto found = uses.find(entry.name.text + "." + part.name.text); part.fallback && found != uses.end())
          inDefault(*part.fallback, ConfigUse(found->second));
      auto found = uses.find(entry.name.text);
      if (found == uses.end())
        continue;
      // What a layer's value must be is said where the graph uses it.
      const ConfigUse use = entry.perLayer ? ConfigUse() : found->second;
      for (const ast::Expr *instead : {entry.fallback.get(), entry.ifNull.get()})
        if (instead)
          inDefault(*instead, use);
      for (const auto &[literal, value] : entry.values)
        inDefault(*value, use);
      if (entry.perLayer)
        uses["layers"].size = true;
    }
    return std::move(uses);
  }

private:
  template <typename F> static void forNames(const ast::Expr &e, const F &f) {
    if (e.kind == ast::Expr::Path)
      f(e.text);
    for (const ast::ExprPtr &arg : e.args)
      if (arg)
        forNames(*arg, f);
    for (const auto &[name, value] : e.named)
      forNames(*value, f);
  }

  /// Whether it stays in the integers, so that each name of it must be one.
  static bool isWhole(const ast::Expr &e) {
    const bool simple = e.kind == ast::Expr::IntLiteral || e.kind == ast::Expr::Path || e.kind == ast::Expr::Binary ||
                        (e.kind == ast::Expr::Call && (e.text == "min" || e.text == "max"));
    return simple && llvm::all_of(e.args, [](const ast::ExprPtr &arg) { return arg && isWhole(*arg); });
  }

  void inShape(const ast::Expr &e) {
    const bool whole = isWhole(e);
    forNames(e, [&](const std::string &name) { uses[name].size |= whole; });
  }

  void inCondition(const ast::Expr &e) {
    const bool logic = (e.kind == ast::Expr::Binary && (e.text == "and" || e.text == "or")) ||
                       (e.kind == ast::Expr::Unary && e.text == "not");
    if (e.kind == ast::Expr::Path)
      uses[e.text].flag = true;
    else if (logic)
      for (const ast::ExprPtr &arg : e.args)
        inCondition(*arg);
    else
      forNames(e, [&](const std::string &name) { uses[name]; });
  }

  void inDefault(const ast::Expr &e, const ConfigUse &use) {
    if (use.size)
      inShape(e);
    else if (use.flag)
      inCondition(e);
    else
      forNames(e, [&](const std::string &name) { uses[name]; });
  }

  void inStatement(const ast::Stmt &stmt) {
    if (stmt.kind == ast::Stmt::Repeat)
      uses["layers"].size = true;
    for (const ast::ExprPtr &value : stmt.values)
      if (value)
        inGraph(*value);
    for (const ast::Stmt &inner : stmt.body)
      inStatement(inner);
  }

  void inGraph(const ast::Expr &e) {
    if (e.kind == ast::Expr::Path)
      uses[e.text].number = true;
    if (e.kind == ast::Expr::Call && (e.text == "attention" || e.text == "rope"))
      uses["head_dim"].size = true;
    if (e.kind == ast::Expr::Call && e.text == "rope")
      uses["rope.theta"].number = uses[ropeOriginal].size = true;
    const bool positive =
        e.kind == ast::Expr::Call && (e.text == "rms_norm" || e.text == "layer_norm" || e.text == "softcap");
    if (positive && !e.args.empty() && e.args.back()->kind == ast::Expr::Path)
      uses[e.args.back()->text].positive = true;
    const bool subscript = e.kind == ast::Expr::Index || e.kind == ast::Expr::Slice;
    for (size_t i = 0; i < e.args.size(); ++i)
      if (e.args[i] && subscript && i > 0) // parts of a weight: whole numbers, perhaps 0
        forNames(*e.args[i], [&](const std::string &name) { uses[name]; });
      else if (e.args[i])
        inGraph(*e.args[i]);
    for (const auto &[name, value] : e.named)
      if (name.text == "window")
        inShape(*value);
      else if (name.text == "once" || name.text == "where" || name.text == "interleaved")
        inCondition(*value);
      else
        inGraph(*value);
  }

  const ast::ModelFile &file;
  ConfigUses uses;
};

} // namespace

ConfigUses usesOfConfig(const ast::ModelFile &file) { return UseFinder(file).run(); }

//===--- places -------------------------------------------------------------===//

SourceLoc ConfigPlaces::of(const JsonSource &source, const std::string &path) {
  std::string key = path;
  auto place = source.places.find(key);
  while (place == source.places.end() && key.find('.') != key.npos) {
    key.resize(key.rfind('.'));
    place = source.places.find(key);
  }
  if (place == source.places.end() || !source.text)
    return {};
  auto [file, isNew] = files.try_emplace(source.path, 0);
  if (isNew)
    file->second = diags.sources().add(source.path, *source.text);
  const size_t name = key.size() - (key.rfind('.') == key.npos ? 0 : key.rfind('.') + 1);
  return {file->second, place->second.line, place->second.column, static_cast<uint32_t>(name + 2)};
}

SourceLoc ConfigPlaces::ofKey(const ConfigFile &file, const std::string &key) {
  const JsonSource &source = file.source();
  const std::string member = key.substr(key.rfind('.') == key.npos ? 0 : key.rfind('.') + 1);
  for (const std::string &path : {key, "rope_parameters." + member, "rope_scaling." + member})
    if (source.places.count(path))
      return of(source, path);
  return of(source, key);
}

//===--- values -------------------------------------------------------------===//

namespace {

class ConfigReader {
public:
  ConfigReader(const ConfigFile &file, const ConfigUses &uses, ConfigPlaces &places, Diagnostics &diags,
               ConfigNames &names, LayerNames &layerNames, ModelReport *report)
      : file(file), uses(uses), places(places), diags(diags), names(names), layerNames(layerNames), report(report),
        errorsBefore(diags.errors()) {}

  void run(const std::vector<ast::ConfigEntry> &entries) {
    for (const ast::ConfigEntry &entry : entries) {
      if (entry.name.text == noneWord)
        diags.report(Diag::NameTaken, entry.name.loc, noneWord, "a word of the language");
      else if (names.count(entry.name.text))
        diags.report(Diag::NameTaken, entry.name.loc, entry.name.text, "a config name");
      else if (entry.perLayer)
        readLayers(entry);
      else if (entry.parts.empty())
        read(entry, entry.name.text);
      for (const ast::ConfigEntry &part : entry.parts)
        readPart(entry, part);
    }
  }

private:
  /// The rotary embedding is read by ConfigFile::rope, whichever spelling the
  /// checkpoint uses; here only theta is, and positions that a class has in place of its own.
  void readPart(const ast::ConfigEntry &entry, const ast::ConfigEntry &part) {
    const bool rope = entry.name.text == "rope";
    if (rope && part.name.text == "theta")
      return read(part, "rope.theta");
    if (rope && part.name.text == "original")
      return read(part, ropeOriginal);
    if (rope && part.name.text == "scaling")
      return;
    diags.report(Diag::UnknownKey, part.name.loc, part.name.text, "`config." + entry.name.text + "`");
    if (rope)
      diags.suggest(part.name.text, {"theta", "scaling", "original"});
  }

  void read(const ast::ConfigEntry &entry, const std::string &name) {
    std::optional<nlohmann::json> value = file.find(entry.key.text);
    const bool isNull = value && value->is_null();
    // Checkpoints write null for "use the default".
    const bool absent = !value || (isNull && (entry.fallback || name == "rope.theta"));
    const ast::Expr *instead = isNull && entry.ifNull ? entry.ifNull.get() : absent ? entry.fallback.get() : nullptr;
    if (instead) {
      // It may use a name whose key is missing; that was said already.
      if (diags.errors() == errorsBefore)
        if (auto v = evaluateConstant(*instead, names, diags))
          names[name] = *v;
    } else if (absent) {
      reportMissing(entry, name);
    } else if (auto v = valueOf(entry, name, *value)) {
      names[name] = *v;
    }
  }

  //===--- one value for each layer ---------------------------------------===//

  void readLayers(const ast::ConfigEntry &entry) {
    const bool good = diags.errors() == errorsBefore;
    auto found = names.find("layers");
    auto *layers = found == names.end() ? nullptr : std::get_if<int64_t>(&found->second);
    if (good && (!layers || *layers > mostLayers))
      diags.report(Diag::LayersMissing, entry.name.loc, "`" + entry.name.text + "`, which differs by layer,");
    if (!layers || *layers > mostLayers) // of a wrong number that was said already
      return;
    const std::optional<nlohmann::json> value =
        entry.key.text.empty() ? std::optional<nlohmann::json>() : file.find(entry.key.text);
    const bool absent = !value || (value->is_null() && entry.fallback);
    std::vector<ConfigValue> values;
    if (absent && !entry.fallback)
      return reportMissing(entry, entry.name.text);
    if (!absent && (!value->is_array() || value->size() != static_cast<size_t>(*layers))) {
      wrong(entry, *value, fmt::format("a list with one entry for each of the {} layers", *layers));
      return;
    }
    for (int64_t layer = 0; layer < *layers; ++layer) {
      auto one = absent ? inLayer(*entry.fallback, layer) : entryOf(entry, (*value)[layer], layer);
      if (!one)
        return;
      values.push_back(std::move(*one));
    }
    names[entry.name.text] = DiffersByLayer();
    layerNames[entry.name.text] = std::move(values);
  }

  std::optional<ConfigValue> inLayer(const ast::Expr &expr, int64_t layer) {
    if (diags.errors() != errorsBefore) // a name may be missing; that was said already
      return std::nullopt;
    ConfigNames known = names;
    known[layerWord] = layer;
    return evaluateInLayer(expr, std::move(known), layerNames, layer, diags);
  }

  /// What the entry of the list stands for.
  std::optional<ConfigValue> entryOf(const ast::ConfigEntry &entry, const nlohmann::json &value, int64_t layer) {
    for (const auto &[literal, expr] : entry.values)
      if (equals(literal, value))
        return inLayer(*expr, layer);
    if (entry.values.empty() && value.is_boolean())
      return ConfigValue(value.get<bool>());
    if (entry.values.empty() && value.is_number()) {
      const std::optional<int64_t> integer = jsonInteger(value);
      return integer ? ConfigValue(*integer) : ConfigValue(value.get<double>());
    }
    std::string known;
    for (const auto &[literal, expr] : entry.values)
      known += (known.empty() ? "`" : " or `") + literal.text + "`";
    return wrong(entry, value, entry.values.empty() ? "a number, true or false" : known,
                 fmt::format("entry {} of `{}`", layer, entry.key.text));
  }

  void reportMissing(const ast::ConfigEntry &entry, const std::string &name) {
    diags.report(Diag::MissingConfigKey, entry.key.loc, file.path(), entry.key.text, name);
    diags.suggest(entry.key.text, file.keys());
  }

  /// Reports `config-key` at the key, and where it is read. `which`: of the value, when it is not the key's own.
  std::nullopt_t wrong(const ast::ConfigEntry &entry, const nlohmann::json &value, const std::string &expected,
                       std::string which = "") {
    const SourceLoc loc = places.ofKey(file, entry.key.text);
    const std::string must = fmt::format("must be {}, found `{}`", expected, jsonShort(value));
    if (which.empty())
      which = "`" + entry.key.text + "`";
    diags.report(Diag::ConfigKey, loc, fmt::format("{}{} {}", loc ? "" : file.path() + ": ", which, must));
    diags.note(entry.key.loc, "read here");
    if (report)
      report->keys.push_back({KeyUse::Refused, entry.key.text,
                              (which == "`" + entry.key.text + "`" ? "it " : which + " ") + must,
                              "correct it, or take another model file"});
    return std::nullopt;
  }

  std::optional<ConfigValue> valueOf(const ast::ConfigEntry &entry, const std::string &name,
                                     const nlohmann::json &value) {
    auto found = uses.find(name);
    const ConfigUse use = found == uses.end() ? ConfigUse() : found->second;
    const std::optional<int64_t> integer = jsonInteger(value);
    if (use.size) {
      // Columns and lines are 32-bit in a kernel.
      if (!integer || *integer < 1 || *integer > INT32_MAX)
        return wrong(entry, value, "an integer from 1 to 2147483647");
      return ConfigValue(*integer);
    }
    if (use.number) {
      const std::optional<double> number = jsonNumber(value);
      if (name == "rope.theta" && (!number || *number <= 0))
        return wrong(entry, value, "a positive number");
      // A graph computes in f32.
      if (!number || std::fabs(*number) > FLT_MAX)
        return wrong(entry, value, "a number that an f32 can hold");
      if (use.positive && static_cast<float>(*number) <= 0)
        return wrong(entry, value, "a number above 0 in f32");
      return integer ? ConfigValue(*integer) : ConfigValue(*number);
    }
    if (use.flag && !value.is_boolean())
      return wrong(entry, value, "true or false");
    if (value.is_boolean())
      return ConfigValue(value.get<bool>());
    if (integer)
      return ConfigValue(*integer);
    if (value.is_number())
      return ConfigValue(value.get<double>());
    if (value.is_string())
      return ConfigValue(value.get<std::string>());
    diags.report(Diag::ConfigValueKind, entry.key.loc, entry.key.text, file.path(),
                 value.is_null()    ? "null"
                 : value.is_array() ? "a list"
                                    : "an object");
    return std::nullopt;
  }

  const ConfigFile &file;
  const ConfigUses &uses;
  ConfigPlaces &places;
  Diagnostics &diags;
  ConfigNames &names;
  LayerNames &layerNames;
  ModelReport *report;
  const unsigned errorsBefore;
};

} // namespace

void readConfig(const std::vector<ast::ConfigEntry> &entries, const ConfigFile &file, const ConfigUses &uses,
                ConfigPlaces &places, CheckedModel &model, Diagnostics &diags, ModelReport *report) {
  ConfigReader(file, uses, places, diags, model.config, model.layerConfig, report).run(entries);
}

} // namespace megalith
