#include "runtime/Manifest.h"
#include "device/Abi.h"
#include <nlohmann/json.hpp>

namespace megalith::runtime {

using nlohmann::json;

Outcome<Manifest> Manifest::parse(const std::string &text) {
  try {
    json j = json::parse(text);
    if (j.at("abi") != abi::kAbiVersion)
      return RuntimeError{"manifest", "the manifest has ABI version " + j.at("abi").dump() + ", this runtime has " +
                                          std::to_string(abi::kAbiVersion) + "; compile the pipeline again"};
    Manifest m;
    m.pipeline = j.at("pipeline");
    const json &launch = j.at("launch");
    m.ctas = launch.at("ctas");
    m.threads = launch.at("threads");
    m.sharedBytes = launch.at("shared_bytes");
    m.profile = launch.at("profile");
    m.smCount = launch.at("sm_count");
    m.slots = j.at("slots");
    m.rowsPerPass = j.at("rows_per_pass");
    m.streamBytes = j.at("stream_bytes");
    m.workspaceBytes = j.at("workspace_bytes");
    m.workspaceOnes = j.at("workspace_ones");
    m.taggedBytes = j.at("tagged_bytes");
    m.rowsBeyond = j.at("rows_beyond");
    m.callTokens = j.at("call_tokens");
    m.extraRows = j.at("extra_rows");
    m.model = j.at("model").at("name");
    m.vocab = j.at("model").at("vocab");
    const json &pool = j.at("pool");
    m.pages = pool.at("pages");
    m.pageTokens = pool.at("page_tokens");
    m.kvLayers = pool.at("layers");
    m.kvHeads = pool.at("kv_heads");
    m.headDim = pool.at("head_dim");
    const json &rope = j.at("rope");
    m.rope.theta = rope.at("theta");
    m.rope.type = rope.at("type");
    m.rope.factor = rope.at("factor");
    m.rope.lowFreqFactor = rope.at("low");
    m.rope.highFreqFactor = rope.at("high");
    m.rope.originalMaxPositions = rope.at("original");
    m.rope.headDim = m.rope.theta > 0 ? static_cast<int>(m.headDim) : 0;
    for (const json &w : j.at("weights"))
      m.weights.push_back({w.at("name"), w.at("from"), w.at("layers"), w.at("index"), w.at("shape")});
    for (const json &e : j.at("edges"))
      m.edges.push_back({e.at("name"), e.at("place")});
    const json &control = j.at("control");
    m.requestBytes = control.at("request_bytes");
    m.initialState = control.at("initial_state");
    for (const json &s : control.at("states")) // flags stand there when they are true
      m.states.push_back({s.at("name"), s.value("terminal", false), s.value("slot", false)});
    for (const json &f : control.at("fields"))
      m.fields.push_back({f.at("name"), f.at("type"), f.at("offset"), f.value("capacity", int64_t{0}),
                          f.contains("init") && f["init"].is_number()    ? f["init"].get<double>()
                          : f.contains("init") && f["init"].is_boolean() ? double(f["init"].get<bool>())
                                                                         : 0.0});
    for (const json &name : control.at("metrics"))
      m.metrics.push_back(name);
    for (const json &g : control.at("gauges"))
      m.gauges.push_back({g.at("name"), g.at("type")});
    for (const json &s : j.value("stamps", json::array()))
      m.stamps.push_back({s.at("name"), s.at("layer")});
    return m;
  } catch (const json::exception &e) {
    return RuntimeError{"manifest", std::string("the manifest cannot be read: ") + e.what()};
  }
}

std::string Manifest::tensorName(const Weight &weight, int64_t layer) {
  std::string name = weight.from;
  for (size_t at; (at = name.find("{i}")) != std::string::npos;)
    name.replace(at, 3, std::to_string(layer));
  return name;
}

} // namespace megalith::runtime
