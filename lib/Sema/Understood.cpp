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

bool Acceptance::has(const std::string &name) const {
  return llvm::any_of(names, [&](const std::string &given) { return given == name || matchesPattern(given, name); });
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

class KeyChecker {
public:
  KeyChecker(const ast::ModelFile &file, const ConfigFile &config, const ConfigUses &uses, ConfigPlaces &places,
             const std::vector<Quantisation::Problem> &problems, CheckedModel &model, Acceptance &acceptance,
             Diagnostics &diags, ModelReport *report)
      : file(file), config(config), uses(uses), places(places), problems(problems), model(model),
        acceptance(acceptance), diags(diags), report(report) {}

  void run() {
    for (const auto *section : {&file.audience, &file.requirements})
      for (const ast::Requirement &requirement : *section)
        check(requirement);
    collect();
    walk(config.raw(), "");
    // In the order of the file.
    const auto place = [&](const std::string &path) {
      const SourceLoc loc = places.of(config.source(), path);
      return std::pair(loc.line, loc.column);
    };
    llvm::stable_sort(unknown, [&](const auto &a, const auto &b) { return place(a) < place(b); });
    llvm::erase_if(unknown, [&](const std::string &path) {
      if (!ConfigFile::isQuantisation(path))
        return false;
      if (lookUp(config.raw(), path)->is_null()) {
        verdicts[path] = {KeyUse::Read, path, "", ""};
      } else {
        reportQuantised(path);
        verdicts[path] = quantisedUse(path);
      }
      return true;
    });
    for (const std::string &path : unknown)
      tell(path);
    if (!unknown.empty())
      diags.note(file.configLoc, std::string("this is what the graph reads; ") + wayOut + "KEY`");
    if (!report)
      return;
    llvm::stable_sort(walked, [&](const auto &a, const auto &b) { return place(a) < place(b); });
    for (const std::string &path : walked)
      if (llvm::none_of(report->keys, [&](const KeyUse &use) { return use.key == path; })) // of a wrong value
        report->keys.push_back(verdicts[path]);
  }

private:
  static constexpr const char *wayOut =
      "put a key that cannot change logits into `harmless:`, one for some of whose values the graph is right into "
      "`requires:`, or take it on your word with `--accept ";

  void check(const ast::Requirement &r) {
    const Judgement judgement = judge(r, config);
    if (judgement.right)
      return;
    if (acceptance.takes(r.key.text, model)) {
      verdicts[r.key.text] = {KeyUse::Accepted, r.key.text, "", ""};
      return;
    }
    if (judgement.given && !judgement.isNull && ConfigFile::isQuantisation(r.key.text)) {
      reportQuantised(r.key.text);
      verdicts[r.key.text] = quantisedUse(r.key.text);
      return;
    }
    const SourceLoc loc = judgement.given ? places.of(config.source(), r.key.text) : SourceLoc();
    const char *const how = judgement.isNull || !judgement.given ? "is not given and stands for" : "is";
    const std::string wanted = wantedBy(r);
    diags.report(Diag::ConfigRequires, loc, loc ? "" : config.path() + ": ", r.key.text, how, judgement.found,
                 file.name.text, wanted);
    const std::string advice = "take a model file whose graph does what the checkpoint wants, or give `--accept " +
                               r.key.text + "` if you know that it changes nothing";
    diags.note(r.key.loc, "required here; " + advice);
    KeyUse &verdict = verdicts[r.key.text];
    verdict = {KeyUse::Refused, r.key.text,
               fmt::format("{} `{}`, but the graph of `{}` is right for {} only", how, judgement.found, file.name.text,
                           wanted),
               advice};
    if (!judgement.given && report)
      report->keys.push_back(verdict);
  }

  /// All that the model file names.
  void collect() {
    auto read = [&](const ast::ConfigEntry &entry, const std::string &name) {
      if (entry.key.text.empty()) // it is computed
        return;
      if (!lookUp(config.raw(), entry.key.text))
        absent.push_back(entry.key.text);
      if (uses.count(name))
        understood.emplace(entry.key.text, KeyUse::Read);
      else
        unused.emplace(entry.key.text, &entry);
    };
    for (const std::string &key : ConfigFile::ownKeys())
      understood.emplace(key, KeyUse::Read);
    if (model.quantisation)
      for (const std::string &key : model.quantisation->keys())
        understood.emplace(key, KeyUse::Read);
    for (const ast::ConfigEntry &entry : file.config) {
      if (entry.parts.empty())
        read(entry, entry.name.text);
      for (const ast::ConfigEntry &part : entry.parts) {
        if (entry.name.text == "rope" && part.name.text == "original")
          read(part, ropeOriginal);
        if (entry.name.text != "rope" || part.name.text != "theta")
          continue;
        read(part, "rope.theta");
        if (!uses.count("rope.theta"))
          continue;
        for (const std::string &key : config.ropeKeys())
          understood.emplace(key, KeyUse::Read);
        if (part.key.text == "rope_theta")
          for (const char *spelling : {"rope_parameters.rope_theta", "rope_scaling.rope_theta"})
            understood.emplace(spelling, KeyUse::Read);
      }
    }
    for (const auto *section : {&file.audience, &file.requirements})
      for (const ast::Requirement &r : *section)
        understood.emplace(r.key.text, KeyUse::Required);
    for (const ast::Name &key : file.harmless.keys)
      understood.emplace(key.text, KeyUse::Harmless);
  }

  /// Whether members of the object at this path are understood one by one.
  bool hasMembers(const std::string &path) const {
    auto next = understood.lower_bound(path + ".");
    return next != understood.end() && llvm::StringRef(next->first).starts_with(path + ".");
  }

  void walk(const json &object, const std::string &prefix) {
    for (const auto &[key, value] : object.items()) {
      const std::string path = prefix + key;
      if (auto found = understood.find(path); found != understood.end()) {
        verdicts.try_emplace(path, KeyUse{found->second, path, "", ""});
        walked.push_back(path);
        continue;
      }
      const bool inside = hasMembers(path);
      if (inside && value.is_object()) {
        walk(value, path + ".");
        continue;
      }
      KeyUse::Kind kind = KeyUse::Read; // null: none of its members is given
      if (!(inside && value.is_null())) {
        kind = acceptance.takes(path, model) ? KeyUse::Accepted : KeyUse::Refused;
        if (kind == KeyUse::Refused)
          unknown.push_back(path);
      }
      verdicts.try_emplace(path, KeyUse{kind, path, "", ""});
      walked.push_back(path);
    }
  }

  void reportQuantised(const std::string &path) {
    std::vector<Quantisation::Problem> told;
    for (const Quantisation::Problem &problem : problems)
      if (llvm::StringRef(problem.key).starts_with(path))
        told.push_back(problem);
    if (told.empty()) // a key of another name, or a model file that takes no codes
      told.push_back({path, path == "quantization_config"
                                ? "the graph of `" + file.name.text + "` is right for no codes"
                                : "this key is not supported"});
    for (const Quantisation::Problem &problem : told) {
      const SourceLoc loc = places.of(config.source(), problem.key);
      diags.report(Diag::QuantisedCheckpoint, loc, loc ? "" : config.path() + ": ", path,
                   (problem.key == path ? "" : "`" + problem.key.substr(path.size() + 1) + "`: ") + problem.text);
    }
    diags.note("if the tensors are not quantised any more, give `--accept " + path + "`");
  }

  static KeyUse quantisedUse(const std::string &path) {
    return {KeyUse::Refused, path, "says that the weights are quantised, in a way that is not supported",
            "take another checkpoint of this model"};
  }

  void tell(const std::string &path) {
    const SourceLoc loc = places.of(config.source(), path);
    diags.report(Diag::ConfigUnknown, loc, loc ? "" : config.path() + ": ", diags.sources().name(file.file).str(),
                 path);
    verdicts[path].reason = "nothing in `" + diags.sources().name(file.file).str() + "` understands it";
    verdicts[path].advice = wayOut + path + "`";
    if (auto found = unused.find(path); found != unused.end())
      diags.note(found->second->key.loc, "it is named here, but nothing uses `" + found->second->name.text + "`");
    else
      diags.suggest(path, absent);
  }

  const ast::ModelFile &file;
  const ConfigFile &config;
  const ConfigUses &uses;
  ConfigPlaces &places;
  const std::vector<Quantisation::Problem> &problems; ///< of `quantization_config`
  CheckedModel &model;
  Acceptance &acceptance;
  Diagnostics &diags;
  ModelReport *report;
  std::map<std::string, KeyUse::Kind> understood; ///< by dotted path
  std::map<std::string, KeyUse> verdicts;
  std::vector<std::string> walked; ///< dotted paths of what the file has
  std::vector<std::string> absent; ///< that `config:` reads
  std::map<std::string, const ast::ConfigEntry *> unused;
  std::vector<std::string> unknown; ///< dotted paths
};

} // namespace

void checkUnderstood(const ast::ModelFile &file, const ConfigFile &config, const ConfigUses &uses, ConfigPlaces &places,
                     const std::vector<Quantisation::Problem> &problems, CheckedModel &model, Acceptance &acceptance,
                     Diagnostics &diags, ModelReport *report) {
  KeyChecker(file, config, uses, places, problems, model, acceptance, diags, report).run();
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
      ++found.tensorTypes[std::string(dtypeName(tensor.dtype))];
    for (const auto &[name, tensor] : file.tensors())
      names.push_back(name);
  }

  void run() {
    for (CheckedWeight &weight : model.weights) {
      if (weight.part) // its weight has the tensor
        continue;
      const auto spelling = llvm::find_if(weight.spellings, [&](const std::string &from) { return isThere(from); });
      if (spelling != weight.spellings.end())
        weight.from = *spelling;
      if (weight.alias.empty())
        checkWeight(weight);
      else
        checkAlias(weight);
    }
    for (CheckedWeight &weight : model.weights)
      if (weight.part)
        weight.scheme = model.weights[weight.part->of].scheme;
    checkRest();
    if (reported)
      diags.note(model.weightsLoc,
                 "this is what the graph reads; put a tensor that cannot change logits into `tensors:` of "
                 "`harmless:`, with `{i}` for numbers, or take it on your word with `--accept NAME`");
  }

  ModelReport found; ///< the numbers of tensors

private:
  static int64_t copies(const CheckedModel &model, const CheckedWeight &weight) {
    return weight.perLayer ? model.layers : 1;
  }
  /// Whether the checkpoint has the tensor of this name, or codes in its place.
  bool isThere(const std::string &from) const {
    const std::string name = layerTensor(from, 0);
    return file.find(name) || (model.quantisation && name.ends_with(".weight") &&
                               !Quantisation::codesBeside(file, name.substr(0, name.size() - 7)).empty());
  }

  void checkWeight(CheckedWeight &weight) {
    if (model.quantisation && weight.isLinear && weight.used && isCoded(weight)) {
      checkCodes(weight);
      return;
    }
    if (weight.used) // by the graph; else its tensors are read by nobody
      for (int64_t layer = 0; layer < copies(model, weight); ++layer)
        read.insert(weight.tensorName(layer));
    for (int64_t layer = 0; layer < copies(model, weight); ++layer) {
      const std::string name = weight.tensorName(layer);
      const TensorView *tensor = file.find(name);
      if (!tensor) {
        ++found.missingWeights;
        diags.report(Diag::MissingTensor, weight.loc, file.path(), name, weight.name);
        if (const std::string *shard = file.listedIn(name))
          diags.note("the index puts it into `" + *shard + "`, which does not hold it");
        else if (const std::string near = nearestName(name, names); !near.empty()) {
          diags.note("did you mean `" + near + "`?");
          meant.insert(patternOf(near));
        }
        return;
      }
      if (tensor->shape != weight.stored) {
        diags.report(Diag::TensorShape, weight.loc, name, file.path(), tensor->shapeText(), weight.name,
                     (weight.stored == weight.shape ? "" : "stored as ") + fmt::format("{}", weight.stored));
        wrong.insert(name);
        return;
      }
      if (!isWeightType(tensor->dtype)) {
        diags.report(Diag::TensorType, weight.loc, name, file.path(), std::string(dtypeName(tensor->dtype)),
                     tensor->dtype == DType::F64 ? "save it with `model.to(torch.bfloat16)` before"
                                                 : "take the checkpoint from before it was quantised");
        if (model.quantisation && weight.isLinear)
          diags.note("`quantization_config` says that `" + weight.moduleName(layer) + "` is not quantised");
        wrong.insert(name);
        return;
      }
    }
  }

  /// Whether a linear weight has codes: config.json says it of those in layers, the tensors say it of others.
  bool isCoded(const CheckedWeight &weight) const {
    if (weight.perLayer)
      return weight.scheme.quantised();
    const std::string module = weight.moduleName(0);
    const TensorView *tensor = file.find(weight.tensorName(0));
    return (!tensor && !Quantisation::codesBeside(file, module).empty()) || (tensor && tensor->dtype == DType::F8E4M3);
  }

  /// Its codes, scales and so on in all layers, which must be of one scheme.
  void checkCodes(CheckedWeight &weight) {
    for (int64_t layer = 0; layer < copies(model, weight); ++layer) {
      const std::string module = weight.moduleName(layer);
      std::string error;
      const auto coded = model.quantisation->find(file, module, weight.stored[0], weight.stored[1], error);
      if (!coded) {
        diags.report(Diag::QuantisedTensor, weight.loc, file.path(), error);
        diags.note(fmt::format("`{}` of weight `{}` is {}, as `quantization_config` says", module, weight.name,
                               describe(weight.scheme)));
        for (const std::string &name : names) // one mistake
          if (llvm::StringRef(name).starts_with(module + "."))
            wrong.insert(name);
        for (int64_t other = 0; other < copies(model, weight); ++other)
          meantModules.insert(weight.moduleName(other));
        return;
      }
      if (layer > 0 && coded->scheme != weight.scheme) {
        diags.report(Diag::QuantisedLayers, weight.loc, weight.name, weight.moduleName(0), describe(weight.scheme),
                     module, describe(coded->scheme));
        return;
      }
      weight.scheme = coded->scheme;
      for (const auto &[name, bytes] : coded->tensors)
        read.insert(name);
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
      if (!own || !read.insert(name).second || (shared && sameTensor(*own, *shared)))
        continue;
      if (acceptance.takes(name, model)) {
        accepted.insert(name);
        continue;
      }
      wrong.insert(name);
      diags.report(Diag::TiedTensor, weight.loc, name, file.path(), other, weight.name, weight.alias);
      reported = true;
      return;
    }
  }

  /// Tensors that no weight reads, those of one pattern in one message.
  void checkRest() {
    std::map<std::string, std::vector<std::string>> patterns;
    for (const std::string &name : names) {
      if (wrong.count(name) || meantModules.count(name.substr(0, std::min(name.size(), name.rfind('.')))))
        ++found.refusedTensors;
      else if (accepted.count(name))
        ++found.acceptedTensors;
      else if (read.count(name))
        ++found.readTensors;
      else if (llvm::any_of(model.harmlessTensors,
                            [&](const std::string &pattern) { return matchesPattern(pattern, name); }))
        ++found.harmlessTensors;
      else if (acceptance.takes(name, model))
        ++found.acceptedTensors;
      else if (model.quantisation && Quantisation::isScaleOfKv(name)) {
        ++found.harmlessTensors;
        model.hasScalesOfKv = true;
      } else {
        ++found.refusedTensors;
        patterns[patternOf(name)].push_back(name);
      }
    }
    for (const auto &[pattern, list] : patterns) {
      if (meant.count(pattern))
        continue;
      const std::string more = list.size() == 1 ? "" : fmt::format(" and {} more like `{}`", list.size() - 1, pattern);
      const CheckedWeight *declared = nullptr;
      for (const auto *weights : {&model.weights, &model.absent})
        for (const CheckedWeight &w : *weights)
          if ((!w.used || weights == &model.absent) &&
              llvm::any_of(w.spellings, [&](const std::string &from) { return matchesPattern(from, list.front()); }))
            declared = &w;
      diags.report(Diag::UnreadTensor, declared ? declared->loc : model.weightsLoc, list.front(), file.path(), more);
      if (declared && !declared->used)
        diags.note("nothing in the graph uses weight `" + declared->name + "`");
      else if (declared)
        diags.note(
            fmt::format("weight `{}` reads it `if {}`, which does not hold here", declared->name, declared->condition));
      reported = true;
    }
  }

  CheckedModel &model;
  const SafetensorsFile &file;
  Acceptance &acceptance;
  Diagnostics &diags;
  std::vector<std::string> names;
  std::set<std::string> read, accepted, wrong;
  std::set<std::string> meant;        ///< patterns that were suggested for missing tensors: that is one mistake
  std::set<std::string> meantModules; ///< whose codes are wrong
  bool reported = false;
};

} // namespace

bool checkWeights(CheckedModel &model, const SafetensorsFile &file, Acceptance &acceptance, Diagnostics &diags,
                  ModelReport *report) {
  const unsigned errorsBefore = diags.errors();
  TensorChecker checker(model, file, acceptance, diags);
  checker.run();
  if (report) {
    checker.found.keys = std::move(report->keys);
    checker.found.model = std::move(report->model);
    *report = std::move(checker.found);
  }
  return diags.errors() == errorsBefore;
}

} // namespace megalith
