#include "runtime/Manifest.h"
#include "device/Abi.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include "megalith/Json/JsonView.h"
#include <algorithm>

namespace megalith::runtime {

/// Counts, sizes and places in memory: none is negative.
static int64_t count(const JsonView &of, const char *key) { return of.at(key).integer(0); }

static Manifest::Model readModel(const JsonView &j) {
  Manifest::Model m;
  m.name = j.at("name").string();
  m.vocab = count(j, "vocab");
  m.streamBytes = count(j, "stream_bytes");
  m.workspaceBytes = count(j, "workspace_bytes");
  m.extraRows = count(j, "extra_rows");
  const JsonView pool = j.at("pool");
  m.pool.pages = count(pool, "pages");
  m.pool.pageTokens = pool.at("page_tokens").integer(1);
  m.pool.layers = count(pool, "layers");
  m.pool.kvHeads = count(pool, "kv_heads");
  m.pool.headDim = pool.at("head_dim").integer32(0);
  m.pool.rowsBeyond = count(pool, "rows_beyond");
  m.pool.place = pool.at("place").string();
  if (const auto index = pool.find("index"))
    m.pool.index = index->boolean();
  if (const auto format = pool.find("format")) {
    m.pool.e4m3 = format->string() == "e4m3";
    if (!m.pool.e4m3)
      format->wrong("must be e4m3");
    if (const auto layers = pool.find("bf16_layers"))
      m.pool.bf16Layers = layers->integer(0, m.pool.layers);
  }
  if (pool.find("spare_pages"))
    m.pool.sparePages = count(pool, "spare_pages");
  const JsonView rope = j.at("rope");
  m.rope.theta = rope.at("theta").number();
  m.rope.type = rope.at("type").string();
  m.rope.factor = rope.at("factor").number();
  m.rope.lowFreqFactor = rope.at("low").number();
  m.rope.highFreqFactor = rope.at("high").number();
  m.rope.originalMaxPositions = count(rope, "original");
  m.rope.headDim = m.rope.theta > 0 ? static_cast<int>(m.pool.headDim) : 0;
  if (const auto turned = rope.find("turned"))
    m.rope.headDim = turned->integer32(2, static_cast<int32_t>(std::max<int64_t>(2, m.pool.headDim)));
  if (const auto frequencies = rope.find("frequencies")) {
    frequencies->list([&](const JsonView &f) { m.rope.frequencies.push_back(static_cast<float>(f.number())); });
    if (m.rope.frequencies.size() != static_cast<size_t>(m.rope.headDim / 2))
      frequencies->wrong("must be one for each pair of values");
    m.rope.attention = rope.at("attention").number();
  }
  if (const auto bases = rope.find("bases"))
    bases->list([&](const JsonView &base) { m.ropeBases.push_back(base.number()); });
  j.at("weights").list([&](const JsonView &w) {
    std::vector<int64_t> shape;
    w.at("shape").list([&](const JsonView &size) { shape.push_back(size.integer(0)); });
    m.weights.push_back({w.at("name").string(),
                         w.at("from").string(),
                         count(w, "layers"),
                         count(w, "index"),
                         std::move(shape),
                         w.find("by_row") && w.at("by_row").boolean(),
                         {}});
    if (const auto codes = w.find("codes")) {
      const std::string format = codes->at("format").string();
      WeightScheme &scheme = m.weights.back().scheme;
      scheme = {WeightFormat::E4m3, count(*codes, "scale_rows"), count(*codes, "scale_columns"),
                codes->at("zeros").boolean(), codes->find("ordered") && codes->at("ordered").boolean()};
      if (format == "u4" || format == "u8")
        scheme.format = format == "u4" ? WeightFormat::U4 : WeightFormat::U8;
      else if (format != "e4m3")
        codes->at("format").wrong("must be e4m3, u4 or u8");
      if (m.weights.back().shape.size() != 2)
        w.at("shape").wrong("must be two sizes, of codes");
    }
  });
  if (const auto orders = j.find("orders"))
    orders->list([&](const JsonView &order) {
      std::vector<int64_t> weights;
      order.at("weights").list([&](const JsonView &weight) { weights.push_back(weight.integer(0)); });
      m.orders.push_back({count(order, "offset"), count(order, "layer_bytes"), count(order, "layers"),
                          order.at("columns").integer(1, 65536), std::move(weights)});
    });
  return m;
}

static std::vector<Manifest::Model> readModels(const JsonView &j) {
  std::vector<Manifest::Model> models;
  if (!j.json().is_array() || j.json().empty() || j.json().size() > limits::models)
    j.wrong("must be a list of 1 to " + std::to_string(limits::models) + " models");
  j.list([&](const JsonView &model) { models.push_back(readModel(model)); });
  return models;
}

static Manifest::InputField readInput(const JsonView &j) {
  Manifest::InputField input;
  input.name = j.at("name").string();
  input.type = j.at("type").string();
  input.offset = count(j, "offset");
  if (const auto capacity = j.find("capacity"))
    input.capacity = capacity->integer(1);
  if (const auto rows = j.find("rows"))
    input.rows = rows->integer(1);
  if (const auto otherwise = j.find("otherwise"); otherwise && input.rows) {
    input.otherwise = std::vector<std::vector<int32_t>>(); // it has no rows
  } else if (otherwise && input.capacity && input.type == "f32") {
    std::vector<float> numbers;
    otherwise->list([&](const JsonView &number) { numbers.push_back(static_cast<float>(number.number())); });
    input.otherwise = std::move(numbers);
  } else if (otherwise && input.capacity)
    input.otherwise = otherwise->integers32();
  else if (otherwise)
    input.otherwise = otherwise->number();
  return input;
}

static Manifest read(const JsonView &j) {
  Manifest m;
  m.pipeline = j.at("pipeline").string();
  const JsonView launch = j.at("launch");
  m.ctas = count(launch, "ctas");
  m.threads = count(launch, "threads");
  m.sharedBytes = count(launch, "shared_bytes");
  m.controlBytes = count(launch, "control_bytes");
  m.profile = launch.at("profile").string();
  m.smCount = count(launch, "sm_count");
  m.slots = count(j, "slots");
  m.rowsPerPass = count(j, "rows_per_pass");
  m.callTokens = count(j, "call_tokens");
  if (const auto host = j.find("host"))
    m.host = host->boolean();
  if (j.find("draft_lines"))
    m.draftLines = count(j, "draft_lines");
  if (j.find("tick_passes"))
    m.tickPasses = count(j, "tick_passes");
  if (const auto reducing = j.find("reducing"))
    m.reducing = {true,
                  count(*reducing, "query_bytes"),
                  count(*reducing, "words"),
                  count(*reducing, "selection_bytes"),
                  count(*reducing, "kept_bytes"),
                  reducing->find("text_bytes") ? count(*reducing, "text_bytes") : 0};
  m.scratchBytes = count(j, "scratch_bytes");
  m.workspaceOnes = j.at("workspace_ones").boolean();
  m.flaggedBytes = count(j, "flagged_bytes");
  m.models = readModels(j.at("models"));
  j.at("edges").list([&](const JsonView &e) { m.edges.push_back({e.at("name").string(), e.at("place").string()}); });
  const JsonView control = j.at("control");
  m.requestBytes = count(control, "request_bytes");
  if (control.find("index_begin"))
    m.indexBegin = count(control, "index_begin");
  m.initialState = count(control, "initial_state");
  m.pipelineFile = control.at("file").string();
  control.at("calls").list([&](const JsonView &place) { m.callPlaces.push_back(place.string()); });
  control.at("states").list([&](const JsonView &s) { // flags stand there when they are true
    const auto flag = [&](const char *name) { return s.find(name) && s.at(name).boolean(); };
    m.states.push_back({s.at("name").string(), flag("terminal"), flag("slot"), s.at("place").string()});
  });
  control.at("fields").list([&](const JsonView &f) {
    const auto init = f.find("init");
    m.fields.push_back({f.at("name").string(), f.at("type").string(), count(f, "offset"),
                        f.find("capacity") ? count(f, "capacity") : 0,
                        !init                       ? 0.0
                        : init->json().is_boolean() ? double(init->boolean())
                                                    : init->number()});
  });
  if (const auto inputs = control.find("inputs"))
    inputs->list([&](const JsonView &input) { m.inputs.push_back(readInput(input)); });
  control.at("metrics").list([&](const JsonView &name) { m.metrics.push_back(name.string()); });
  control.at("gauges").list(
      [&](const JsonView &g) { m.gauges.push_back({g.at("name").string(), g.at("type").string()}); });
  if (auto stamps = j.find("stamps"))
    stamps->list([&](const JsonView &s) { m.stamps.push_back({s.at("name").string(), s.at("layer").integer(-1)}); });
  return m;
}

Outcome<Manifest> Manifest::parse(const std::string &text) {
  try {
    nlohmann::json value;
    parseJsonText(text, value);
    const JsonView manifest(value, "the manifest");
    const int64_t version = manifest.at("abi").integer();
    if (version != abi::kAbiVersion)
      return RuntimeError{"manifest", "the manifest has ABI version " + std::to_string(version) +
                                          ", this runtime has " + std::to_string(abi::kAbiVersion) +
                                          "; compile the pipeline again"};
    return read(manifest);
  } catch (const JsonWrong &problem) {
    return RuntimeError{"manifest", "the manifest cannot be read: " + problem.message};
  }
}

const Manifest::Model &Manifest::model(const std::string &name) const {
  const auto found = std::find_if(models.begin(), models.end(), [&](const Model &m) { return m.name == name; });
  return found == models.end() ? models.front() : *found;
}

int64_t Manifest::mostVocab() const {
  int64_t most = 0;
  for (const Model &model : models)
    most = std::max(most, model.vocab);
  return most;
}

std::string Manifest::stateName(unsigned state) const {
  if (state < states.size())
    return states[state].name;
  std::string name = "#";
  name += std::to_string(state);
  return name;
}

std::string Manifest::tensorName(const Weight &weight, int64_t layer) { return layerTensor(weight.from, layer); }

} // namespace megalith::runtime
