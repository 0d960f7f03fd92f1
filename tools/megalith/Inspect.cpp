//===- Inspect.cpp - megalith inspect -------------------------------------===//
#include "ProgramCommand.h"
#include "Report.h"
#include "megalith/Text/Json.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <fmt/ranges.h>
#include <set>

namespace megalith::tool {

using Json = nlohmann::ordered_json;

namespace {

/// What reading the weights takes on a device.
struct Floor {
  std::string device; ///< "" of `--bandwidth`
  double bandwidth;   ///< GB/s
  double ms(const Inspection::Shape &shape) const { return double(shape.streamedBytes) / (bandwidth * 1e6); }
};

/// "1.24 GB": bandwidths are in powers of ten, too.
std::string sizeText(int64_t bytes) {
  const char *const units[] = {"kB", "MB", "GB", "TB"};
  if (bytes < 1000)
    return counted(uint64_t(bytes), "byte", "bytes");
  double number = double(bytes) / 1000;
  size_t unit = 0;
  for (; number >= 999.995 && unit + 1 < std::size(units); ++unit)
    number /= 1000;
  return fmt::format("{:.2f} {}", number, units[unit]);
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

class TextPrinter {
public:
  explicit TextPrinter(const std::vector<Floor> &floors) : floors(floors) {}
  std::string out;

  void print(const Inspection::Model &model) {
    if (!model.name.empty())
      line("model", "`" + model.name + "` of the pipeline");
    if (!model.config.empty())
      line("checkpoint", model.config + familyText(model));
    if (!model.file.empty())
      line("model file", model.file + (model.graph.empty() ? "" : ", `" + model.graph + "`") + ": " + whyText(model));
    if (model.shape)
      print(*model.shape, model);
    for (const char *use : {"read", "required", "harmless", "accepted"})
      printKeys(model, use);
    for (const Inspection::Key &key : model.keys)
      if (key.use == "refused") {
        line("refused", fmt::format("`{}`: {}", key.key, key.reason));
        line("", key.advice);
      }
    if (model.tensors)
      print(*model.tensors);
    if (model.shape)
      print(*model.shape);
  }

  void line(const char *what, const std::string &text) {
    out += fmt::format("{:<11} {}\n", what, text::printable(text));
  }

private:
  const std::vector<Floor> &floors;

  static std::string familyText(const Inspection::Model &model) {
    std::vector<std::string> parts;
    if (!model.modelType.empty())
      parts.push_back("`" + model.modelType + "`");
    for (const std::string &name : model.architectures)
      parts.push_back(name);
    return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", "));
  }

  static std::string whyText(const Inspection::Model &model) {
    if (model.where == "graph")
      return "the pipeline names it";
    return fmt::format("its `for:` has the checkpoint; found {}, {} looked at",
                       model.where == "pipeline" ? "beside the pipeline"
                       : model.where == "share"  ? "in the installed share"
                                                 : "by $MEGALITH_MODELS",
                       counted(model.candidates, "model file", "model files"));
  }

  void print(const Inspection::Shape &shape, const Inspection::Model &model) {
    std::vector<std::string> parts;
    const auto add = [&](const std::string &name, int64_t number) {
      if (number)
        parts.push_back(fmt::format("{} {}", name, number));
    };
    add("layers", shape.layers);
    add("heads", shape.heads);
    add("kv heads", shape.kvHeads);
    add("head_dim", shape.headDim);
    add("hidden", shape.hidden);
    for (const auto &[name, number] : shape.others)
      add(name, number);
    add("vocabulary", shape.vocabulary);
    if (model.positions)
      add("positions", int64_t(*model.positions));
    line("shape", fmt::format("{}", fmt::join(parts, ", ")));
    line("numerics", fmt::format("`{}`, in bf16", model.numerics));
    line("parameters", fmt::format("{}", shape.parameters));
    std::map<std::string, std::string> codes; // weights, by format
    for (const auto &[weight, format] : shape.formats)
      codes[format] += (codes[format].empty() ? "" : ", ") + weight;
    for (const auto &[format, weights] : codes)
      line("codes", fmt::format("{}: {}", format, weights));
    line("bytes",
         fmt::format("weights {}, K and V {} a token", sizeText(shape.weightBytes), sizeText(shape.kvBytesPerToken)));
  }

  void printKeys(const Inspection::Model &model, const std::string &use) {
    std::vector<std::string> keys;
    for (const Inspection::Key &key : model.keys)
      if (key.use == use)
        keys.push_back(key.key);
    if (!keys.empty())
      wrap(use.c_str(), keys);
  }

  /// Words with commas, in lines that a terminal holds.
  void wrap(const char *what, const std::vector<std::string> &words) {
    std::string text;
    for (const std::string &word : words) {
      if (!text.empty() && text.size() + word.size() > 100) {
        line(what, text + ",");
        what = "";
        text.clear();
      }
      text += (text.empty() ? "" : ", ") + word;
    }
    line(what, text);
  }

  void print(const Inspection::Tensors &tensors) {
    std::vector<std::string> types, uses;
    for (const auto &[type, number] : tensors.types)
      types.push_back(fmt::format("{} {}", number, type));
    const std::pair<const char *, uint64_t> numbers[] = {{"read", tensors.read},
                                                         {"harmless", tensors.harmless},
                                                         {"accepted", tensors.accepted},
                                                         {"refused", tensors.refused}};
    for (const auto &[use, number] : numbers)
      if (number)
        uses.push_back(fmt::format("{} {}", number, use));
    if (tensors.missing)
      uses.push_back(counted(tensors.missing, "weight lacks its tensor", "weights lack a tensor"));
    line("tensors", fmt::format("{}: {}", fmt::join(types, ", "), fmt::join(uses, ", ")));
  }

  void print(const Inspection::Shape &shape) {
    const char *what = "floor";
    for (const Floor &floor : floors) {
      const double ms = floor.ms(shape);
      line(what,
           fmt::format("{} ms a token to read {} of matrices at {:.6g} GB/s{}",
                       ms < 0.1 ? fmt::format("{:.2g}", ms) : fmt::format("{:.3f}", ms), sizeText(shape.streamedBytes),
                       floor.bandwidth, floor.device.empty() ? "" : " (" + floor.device + ")"));
      what = "";
    }
  }
};

std::string textOf(const Inspection &inspection, const std::vector<Floor> &floors) {
  TextPrinter printer(floors);
  if (!inspection.pipeline.empty())
    printer.line("pipeline", inspection.pipeline);
  for (const Inspection::Model &model : inspection.models)
    printer.print(model);
  printer.line("runs", inspection.runs ? "yes" : "no");
  return printer.out;
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

Json orNull(const std::string &text) { return text.empty() ? Json() : Json(text); }

Json shapeJson(const Inspection::Shape &shape) {
  Json out{{"layers", shape.layers},    {"heads", shape.heads},   {"kv_heads", shape.kvHeads},
           {"head_dim", shape.headDim}, {"hidden", shape.hidden}, {"vocabulary", shape.vocabulary}};
  Json others = Json::object();
  for (const auto &[name, number] : shape.others)
    others[name] = number;
  out["others"] = others;
  return out;
}

Json keysJson(const std::vector<Inspection::Key> &keys) {
  Json out{{"read", Json::array()},
           {"required", Json::array()},
           {"harmless", Json::array()},
           {"accepted", Json::array()},
           {"refused", Json::array()}};
  for (const Inspection::Key &key : keys)
    if (key.use == "refused")
      out[key.use].push_back({{"key", key.key}, {"reason", key.reason}, {"advice", key.advice}});
    else
      out[key.use].push_back(key.key);
  return out;
}

Json modelJson(const Inspection::Model &model, const std::vector<Floor> &floors) {
  Json out{{"name", orNull(model.name)},
           {"config", orNull(model.config)},
           {"model_type", orNull(model.modelType)},
           {"architectures", model.architectures},
           {"model_file", orNull(model.file)},
           {"where", orNull(model.where)},
           {"candidates", model.candidates},
           {"graph", orNull(model.graph)},
           {"numerics", orNull(model.numerics)},
           {"positions", model.positions ? Json(int64_t(*model.positions)) : Json()},
           {"shape", Json()},
           {"parameters", Json()},
           {"weight_bytes", Json()},
           {"streamed_bytes", Json()},
           {"kv_bytes_per_token", Json()},
           {"keys", keysJson(model.keys)},
           {"tensors", Json()},
           {"floor", Json::array()}};
  if (model.shape) {
    out["shape"] = shapeJson(*model.shape);
    out["parameters"] = model.shape->parameters;
    out["weight_bytes"] = model.shape->weightBytes;
    out["streamed_bytes"] = model.shape->streamedBytes;
    for (const auto &[weight, format] : model.shape->formats)
      out["formats"][weight] = format;
    out["kv_bytes_per_token"] = model.shape->kvBytesPerToken;
    for (const Floor &floor : floors)
      out["floor"].push_back(
          {{"device", orNull(floor.device)}, {"gb_s", floor.bandwidth}, {"ms_per_token", floor.ms(*model.shape)}});
  }
  if (const auto &tensors = model.tensors)
    out["tensors"] = {{"types", tensors->types},       {"read", tensors->read},       {"harmless", tensors->harmless},
                      {"accepted", tensors->accepted}, {"refused", tensors->refused}, {"missing", tensors->missing}};
  return out;
}

std::string jsonOf(const Inspection &inspection, const std::vector<Floor> &floors) {
  Json models = Json::array(), messages = Json::array();
  for (const Inspection::Model &model : inspection.models)
    models.push_back(modelJson(model, floors));
  for (const Error &error : inspection.messages.list) {
    Json notes = Json::array();
    for (const Note &note : error.notes)
      notes.push_back(note.message);
    messages.push_back({{"kind", error.kind},
                        {"warning", error.warning},
                        {"message", error.message},
                        {"file", orNull(error.file)},
                        {"line", error.line},
                        {"column", error.column},
                        {"notes", notes}});
  }
  return text::dump(Json{{"runs", inspection.runs},
                         {"pipeline", orNull(inspection.pipeline)},
                         {"models", models},
                         {"messages", messages}},
                    2) +
         "\n";
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

class InspectCommand : public ProgramCommand {
public:
  InspectCommand();

private:
  std::string configFile;
  Format format = Format::Text;
  bool dot = false;
  std::optional<double> bandwidth;

  bool runProgram(Diagnostics &diags) override;
  bool checkOptions(Diagnostics &diags) const;
  std::optional<std::vector<Floor>> floors(Diagnostics &diags) const;
};

InspectCommand::InspectCommand()
    : ProgramCommand({.name = "inspect",
                      .description =
                          "Show what would run of a checkpoint: model file, shape, keys, and what reading the "
                          "weights takes",
                      .operand = "[FILE]",
                      .least = 0,
                      .examples = R"(megalith inspect --model models/demo
  shows what would run of a checkpoint, and why it would not)"}) {
  addModels();
  add("config", text(configFile, "path"),
      "Look at this config.json (or its directory) alone, in place of --model: no weights are needed");
  add("format", choice(format, {{Format::Text, "text", "for people"}, {Format::Json, "json", "one JSON object"}}),
      "How to print it (default: text)");
  add("dot", flag(dot), "Print the pipeline's states and the ways between them, for Graphviz; needs no checkpoint");
  add("bandwidth", number(bandwidth, "GB/s"),
      "Of the device's memory, for the time that reading the weights takes (default: of each known GPU, or that of "
      "--device-profile)");
}

/// The devices to say the floor of; nullopt after an error.
std::optional<std::vector<Floor>> InspectCommand::floors(Diagnostics &diags) const {
  if (bandwidth) {
    if (*bandwidth > 0 && compile.profile.empty())
      return {{{"", *bandwidth}}};
    badOption(diags, shown("bandwidth"),
              *bandwidth > 0 ? "`--device-profile` has a bandwidth, too; give one of the two" : "expected more than 0");
    return std::nullopt;
  }
  std::vector<Floor> floors;
  std::vector<std::string> names;
  for (const auto &[name, known] : memoryBandwidths()) {
    names.push_back(name);
    if (compile.profile.empty() || compile.profile == name)
      floors.push_back({name, known});
  }
  if (floors.empty()) {
    badOption(diags, shown("device-profile"),
              fmt::format("expected {}, whose bandwidth is known, or give `--bandwidth=GB/s`", fmt::join(names, ", ")));
    diags.suggest(compile.profile, names);
    return std::nullopt;
  }
  return floors;
}

bool InspectCommand::checkOptions(Diagnostics &diags) const {
  if (configFile.empty() == compile.models.empty())
    return badOption(diags, "inspect",
                     configFile.empty() ? "give a checkpoint, `--model DIR`, or `--config FILE`"
                                        : "`--config` stands in place of `--model`");
  if (!operands.empty())
    return true;
  // One checkpoint, and nothing of a pipeline.
  if (compile.models.size() > 1 || (compile.models.size() == 1 && !compile.models[0].first.empty()))
    return badOption(diags, "--model " + compile.models.back().first + "=" + compile.models.back().second,
                     "without a pipeline there are no names; give `--model DIR`");
  return compile.params.empty() ||
         badOption(diags, "--set " + compile.params[0].first, "params are a pipeline's; give its file");
}

bool InspectCommand::runProgram(Diagnostics &diags) {
  if (dot) {
    if (operands.empty())
      return badOption(diags, "--dot", "give the pipeline's file");
    const auto diagram = stateDiagram(compile);
    return got(diagram, diags) && writeOutput("-", *diagram, diags);
  }
  if (!checkOptions(diags))
    return false;
  if (!configFile.empty())
    compile.models = {{"", configFile}};
  compile.weights = configFile.empty();
  const auto known = floors(diags);
  if (!known)
    return false;
  auto inspection = inspect(compile);
  if (!got(inspection, diags) ||
      !writeOutput("-", format == Format::Json ? jsonOf(*inspection, *known) : textOf(*inspection, *known), diags))
    return false;
  diags.adopt(inspection->messages);
  std::set<std::string> accepted;
  for (const Inspection::Model &model : inspection->models)
    for (const std::string &name : model.accepted)
      if (accepted.insert(name).second)
        diags.report(Diag::AcceptedOnWord, {}, name);
  return inspection->runs;
}

} // namespace

Command &inspectCommand() {
  static InspectCommand command;
  return command;
}

} // namespace megalith::tool
