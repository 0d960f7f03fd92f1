//===- TinyManifest.h - a manifest small enough to count its bytes --------===//
#ifndef MEGALITH_TEST_UNIT_RUNTIME_TINYMANIFEST_H
#define MEGALITH_TEST_UNIT_RUNTIME_TINYMANIFEST_H

#include "device/Abi.h"
#include "runtime/Manifest.h"
#include <string>

namespace megalith::runtime {

/// One matrix per layer, two slots, four pages of two tokens, three fields and two metrics.
inline std::string tinyManifest() {
  return R"({"abi": )" + std::to_string(abi::kAbiVersion) + R"(, "pipeline": "p",
    "launch": {"ctas": 3, "threads": 288, "shared_bytes": 1024, "control_bytes": 3072, "profile": "cpu", "sm_count": 4},
    "slots": 2, "rows_per_pass": 8, "call_tokens": 8, "scratch_bytes": 0, "workspace_ones": false, "flagged_bytes": 256,
    "models": [{"name": "m", "vocab": 5,
      "stream_bytes": 4096, "workspace_bytes": 512, "workspace_row_bytes": 32, "extra_rows": 3,
      "pool": {"pages": 4, "page_tokens": 2, "layers": 2, "kv_heads": 1, "head_dim": 4, "rows_beyond": 2,
               "place": "p.yaml:9"},
      "rope": {"theta": 10000.0, "type": "default", "factor": 1, "low": 1, "high": 4, "original": 0},
      "weights": [{"name": "w", "from": "layers.{i}.w", "layers": 2, "index": 0, "shape": [2, 3]}]}],
    "edges": [{"name": "tick", "place": ""}, {"name": "w", "place": "m.yaml:3"}],
    "control": {"request_bytes": 112, "initial_state": 1,
      "states": [{"name": "DONE", "place": "p.yaml:4", "terminal": true},
                 {"name": "RUN", "place": "p.yaml:5", "slot": true}],
      "file": "p.yaml", "calls": ["p.yaml:12", "p.yaml:20"],
      "fields": [{"name": "window", "type": "i32", "offset": 96, "init": 3},
                 {"name": "rate", "type": "f32", "offset": 100, "init": 0.5},
                 {"name": "draft", "type": "seq", "offset": 104, "capacity": 1, "init": 9}],
      "metrics": ["hits", "misses"], "gauges": []}})";
}

} // namespace megalith::runtime
#endif
