// What of a checkpoint a model file understands: keys of config.json and tensors.
#include "ModelConfig.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace megalith {

bool Acceptance::takes(const std::string &name, CheckedModel &model) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name || matchesPattern(names[i], name)) {
      needed[i] = true;
      if (llvm::is_contained(model.accepted, names[i]))
        return true;
      model.accepted.push_back(names[i]);
      llvm::sort(model.accepted, [&](const std::string &a, const std::string &b) { // as the user gave them
        return llvm::find(names, a) < llvm::find(names, b);
      });
      return true;
    }
  return false;
}

std::vector<std::string> Acceptance::unneeded() const {
  std::vector<std::string> result;
  for (size_t i = 0; i < names.size(); ++i)
    if (!needed[i])
      result.push_back(names[i]);
  return result;
}

//===--- keys of config.json ------------------------------------------------===//

namespace {

using nlohmann::json;

bool equals(const ast::Literal &literal, const json &value) {
  switch (literal.kind) {
  case ast::Literal::Null:
    return value.is_null();
  case ast::Literal::Bool:
    return value.is_boolean() && value.get<bool>() == literal.flag;
  case ast::Literal::Number:
    return value.is_number() && value.get<double>() == literal.number;
  case ast::Literal::String:
    return value.is_string() && value.get_ref<const std::string &>() == literal.text;
  case ast::Literal::Empty:
    return value.is_structured() && value.empty();
  }
  return false;
}

bool isOneOf(const std::vector<ast::Literal> &values, const json &value) {
  return llvm::any_of(values, [&](const ast::Literal &literal) { return equals(literal, value); });
}

bool isOneOf(const std::vector<ast::Literal> &values, const ast::Literal &fallback) {
  return llvm::any_of(values, [&](const ast::Literal &literal) {
    return literal.kind == fallback.kind && literal.flag == fallback.flag && literal.number == fallback.number &&
           (literal.kind != ast::Literal::String || literal.text == fallback.text);
  });
}

/// The value at a dotted path of the file as it is; the names of keys may have dots.
const json *lookUp(const json &object, const std::string &path) {
  if (!object.is_object())
    return nullptr;
  if (auto found = object.find(path); found != object.end())
    return &*found;
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1))
    if (auto found = object.find(path.substr(0, dot)); found != object.end())
      if (const json *inner = lookUp(*found, path.substr(dot + 1)))
        return inner;
  return nullptr;
}

class KeyChecker {
public:
  KeyChecker(const ast::ModelFile &file, const ConfigFile &config, const ConfigUses &uses, ConfigPlaces &places,
             CheckedModel &model, Acceptance &acceptance, Diagnostics &diags)
      : file(file), config(config), uses(uses), places(places), model(model), acceptance(acceptance), diags(diags) {}

  void run() {
    for (const ast::Requirement &requirement : file.requirements)
      check(requirement);
    collect();
    walk(config.raw(), "");
    // In the order of the file.
    const auto place = [&](const std::string &path) {
      const SourceLoc loc = places.of(config.source(), path);
      return std::pair(loc.line, loc.column);
    };
    llvm::stable_sort(unknown, [&](const auto &a, const auto &b) { return place(a) < place(b); });
    for (const std::string &path : unknown)
      report(path);
    if (!unknown.empty())
      diags.note(file.configLoc,
                 "this is what the graph reads; put a key that cannot change logits into `harmless:`, one "
                 "for some of whose values the graph is right into `requires:`, or take it on your word "
                 "with `--accept KEY`");
  }

private:
  static std::string list(const std::vector<ast::Literal> &values) {
    std::string text;
    for (const ast::Literal &value : values)
      text += (text.empty() ? "`" : " or `") + value.text + "`";
    return text;
  }

  void check(const ast::Requirement &r) {
    const json *value = lookUp(config.raw(), r.key.text);
    bool right;
    std::string found;
    if (value && r.each && !value->is_null()) {
      right = value->is_array() && llvm::all_of(*value, [&](const json &item) { return isOneOf(r.values, item); });
      found = jsonShort(*value);
    } else if (value && (!value->is_null() || isOneOf(r.values, *value))) {
      right = isOneOf(r.values, *value);
      found = jsonShort(*value);
    } else { // null is "not given"
      right = !r.fallback || isOneOf(r.values, *r.fallback);
      found = r.fallback ? r.fallback->text : "";
    }
    if (right || acceptance.takes(r.key.text, model))
      return;
    const SourceLoc loc = value ? places.of(config.source(), r.key.text) : SourceLoc();
    diags.report(Diag::ConfigRequires, loc, loc ? "" : config.path() + ": ", r.key.text,
                 value && !value->is_null() ? "is" : "is not given and stands for", found, file.name.text,
                 (r.each ? "lists of " : "") + list(r.values));
    diags.note(r.key.loc, "required here; take a model file whose graph does what the checkpoint wants, or give "
                          "`--accept " +
                              r.key.text + "` if you know that it changes nothing");
  }

  /// All that the model file names.
  void collect() {
    auto read = [&](const ast::ConfigEntry &entry, const std::string &name) {
      if (!lookUp(config.raw(), entry.key.text))
        absent.push_back(entry.key.text);
      if (uses.count(name))
        understood.insert(entry.key.text);
      else
        unused.emplace(entry.key.text, &entry);
    };
    for (const std::string &key : ConfigFile::ownKeys())
      understood.insert(key);
    for (const ast::ConfigEntry &entry : file.config) {
      if (entry.parts.empty())
        read(entry, entry.name.text);
      for (const ast::ConfigEntry &part : entry.parts) {
        if (entry.name.text != "rope" || part.name.text != "theta")
          continue;
        read(part, "rope.theta");
        if (!uses.count("rope.theta"))
          continue;
        for (const std::string &key : config.ropeKeys())
          understood.insert(key);
        if (part.key.text == "rope_theta")
          for (const char *spelling : {"rope_parameters.rope_theta", "rope_scaling.rope_theta"})
            understood.insert(spelling);
      }
    }
    for (const ast::Requirement &r : file.requirements)
      understood.insert(r.key.text);
    for (const ast::Name &key : file.harmless.keys)
      understood.insert(key.text);
  }

  /// Whether members of the object at this path are understood one by one.
  bool hasMembers(const std::string &path) const {
    auto next = understood.lower_bound(path + ".");
    return next != understood.end() && llvm::StringRef(*next).starts_with(path + ".");
  }

  void walk(const json &object, const std::string &prefix) {
    for (const auto &[key, value] : object.items()) {
      const std::string path = prefix + key;
      if (understood.count(path))
        continue;
      const bool inside = hasMembers(path);
      if (inside && value.is_object())
        walk(value, path + ".");
      else if (!(inside && value.is_null()) && !acceptance.takes(path, model))
        unknown.push_back(path);
    }
  }

  void report(const std::string &path) {
    const SourceLoc loc = places.of(config.source(), path);
    diags.report(Diag::ConfigUnknown, loc, loc ? "" : config.path() + ": ", diags.sources().name(file.file).str(),
                 path);
    if (auto found = unused.find(path); found != unused.end())
      diags.note(found->second->key.loc, "it is named here, but nothing uses `" + found->second->name.text + "`");
    else
      diags.suggest(path, absent);
  }

  const ast::ModelFile &file;
  const ConfigFile &config;
  const ConfigUses &uses;
  ConfigPlaces &places;
  CheckedModel &model;
  Acceptance &acceptance;
  Diagnostics &diags;
  std::set<std::string> understood; ///< dotted paths
  std::vector<std::string> absent;  ///< that `config:` reads
  std::map<std::string, const ast::ConfigEntry *> unused;
  std::vector<std::string> unknown; ///< dotted paths
};

} // namespace

void checkUnderstood(const ast::ModelFile &file, const ConfigFile &config, const ConfigUses &uses, ConfigPlaces &places,
                     CheckedModel &model, Acceptance &acceptance, Diagnostics &diags) {
  KeyChecker(file, config, uses, places, model, acceptance, diags).run();
}

//===--- tensors ------------------------------------------------------------===//

namespace {

bool sameTensor(const TensorView &a, const TensorView &b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.size == b.size && std::memcmp(a.data, b.data, a.size) == 0;
}

class TensorChecker {
public:
  TensorChecker(CheckedModel &model, const SafetensorsFile &file, Acceptance &acceptance, Diagnostics &diags)
      : model(model), file(file), acceptance(acceptance), diags(diags) {
    for (const auto &[name, tensor] : file.tensors())
      names.push_back(name);
  }

  void run() {
    for (const CheckedWeight &weight : model.weights)
      if (weight.alias.empty())
        checkWeight(weight);
      else
        checkAlias(weight);
    checkRest();
    if (reported)
      diags.note(model.weightsLoc,
                 "this is what the graph reads; put a tensor that cannot change logits into `tensors:` of "
                 "`harmless:`, with `{i}` for numbers, or take it on your word with `--accept NAME`");
  }

private:
  static int64_t copies(const CheckedModel &model, const CheckedWeight &weight) {
    return weight.perLayer ? model.layers : 1;
  }

  void checkWeight(const CheckedWeight &weight) {
    if (weight.used) // by the graph; else its tensors are read by nobody
      for (int64_t layer = 0; layer < copies(model, weight); ++layer)
        read.insert(weight.tensorName(layer));
    for (int64_t layer = 0; layer < copies(model, weight); ++layer) {
      const std::string name = weight.tensorName(layer);
      const TensorView *tensor = file.find(name);
      if (!tensor) {
        diags.report(Diag::MissingTensor, weight.loc, file.path(), name, weight.name);
        if (const std::string *shard = file.listedIn(name))
          diags.note("the index puts it into `" + *shard + "`, which does not hold it");
        else if (const std::string near = nearestName(name, names); !near.empty()) {
          diags.note("did you mean `" + near + "`?");
          meant.insert(patternOf(near));
        }
        return;
      }
      if (tensor->shape != weight.shape) {
        diags.report(Diag::TensorShape, weight.loc, name, file.path(), tensor->shapeText(), weight.name,
                     fmt::format("{}", weight.shape));
        return;
      }
      if (tensor->dtype != DType::BF16) {
        diags.report(Diag::TensorType, weight.loc, name, file.path(), std::string(dtypeName(tensor->dtype)));
        return;
      }
    }
  }

  /// A weight that takes another's storage may have a tensor of its own, which then must be
  /// the same: readers differ in which of the two they take.
  void checkAlias(const CheckedWeight &weight) {
    const CheckedWeight &storage =
        *llvm::find_if(model.weights, [&](const CheckedWeight &other) { return other.name == weight.alias; });
    for (int64_t layer = 0; layer < copies(model, weight); ++layer) {
      const std::string name = weight.tensorName(layer), other = storage.tensorName(layer);
      const TensorView *own = file.find(name), *shared = file.find(other);
      if (!own || !read.insert(name).second || (shared && sameTensor(*own, *shared)) || acceptance.takes(name, model))
        continue;
      diags.report(Diag::TiedTensor, weight.loc, name, file.path(), other, weight.name, weight.alias);
      reported = true;
      return;
    }
  }

  /// Tensors that no weight reads, those of one pattern in one message.
  void checkRest() {
    std::map<std::string, std::vector<std::string>> patterns;
    for (const std::string &name : names)
      if (!read.count(name) &&
          llvm::none_of(model.harmlessTensors,
                        [&](const std::string &pattern) { return matchesPattern(pattern, name); }) &&
          !acceptance.takes(name, model))
        patterns[patternOf(name)].push_back(name);
    for (const auto &[pattern, list] : patterns) {
      if (meant.count(pattern))
        continue;
      const std::string more = list.size() == 1 ? "" : fmt::format(" and {} more like `{}`", list.size() - 1, pattern);
      const auto unused = llvm::find_if(
          model.weights, [&](const CheckedWeight &w) { return !w.used && matchesPattern(w.from, list.front()); });
      const bool declared = unused != model.weights.end();
      diags.report(Diag::UnreadTensor, declared ? unused->loc : model.weightsLoc, list.front(), file.path(), more);
      if (declared)
        diags.note("nothing in the graph uses weight `" + unused->name + "`");
      reported = true;
    }
  }

  CheckedModel &model;
  const SafetensorsFile &file;
  Acceptance &acceptance;
  Diagnostics &diags;
  std::vector<std::string> names;
  std::set<std::string> read;
  std::set<std::string> meant; ///< patterns that were suggested for missing tensors: that is one mistake
  bool reported = false;
};

} // namespace

bool checkWeights(CheckedModel &model, const SafetensorsFile &file, Acceptance &acceptance, Diagnostics &diags) {
  const unsigned errorsBefore = diags.errors();
  TensorChecker(model, file, acceptance, diags).run();
  return diags.errors() == errorsBefore;
}

} // namespace megalith
