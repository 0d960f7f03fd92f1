//===- Manifest.h - what the compiler tells the runtime -------------------===//
#ifndef MEGALITH_RUNTIME_MANIFEST_H
#define MEGALITH_RUNTIME_MANIFEST_H

#include "megalith/Checkpoint/RopeTable.h"
#include "runtime/RuntimeError.h"
#include <cstdint>
#include <string>
#include <vector>

namespace megalith::runtime {

/// The manifest of one kernel; lib/Emit/Manifest.cpp writes it.
struct Manifest {
  struct Weight {
    std::string name, from; ///< `from` may contain `{i}`
    int64_t layers, index;  ///< layers 0: one tensor; index of its first pointer
    std::vector<int64_t> shape;
  };
  struct Edge {
    std::string name, place;
  };
  struct State {
    std::string name;
    bool terminal, slot;
    std::string place; ///< of its declaration
  };
  struct Field {
    std::string name, type;
    int64_t offset, capacity; ///< capacity 0: a scalar
    double init;
  };
  struct Stamp {
    std::string name;
    int64_t layer; ///< -1: outside the layers
  };
  struct Gauge {
    std::string name, type;
  };
  std::string pipeline, profile, model;
  int64_t ctas, threads, sharedBytes, smCount;
  int64_t slots, rowsPerPass, streamBytes, workspaceBytes, taggedBytes, vocab, rowsBeyond, callTokens;
  bool workspaceOnes; ///< all bits of the workspace are set before a launch
  int64_t extraRows;  ///< positions that calls may write behind a request's last token
  int64_t pages, pageTokens, kvLayers, kvHeads, headDim;
  RopeParams rope;
  std::vector<Weight> weights;
  std::vector<Edge> edges;
  int64_t requestBytes;
  std::vector<State> states;
  int64_t initialState;
  std::string pipelineFile;            ///< whose lines a fault may name
  std::vector<std::string> callPlaces; ///< by the number of the call site
  std::string poolPlace;
  std::vector<Field> fields;
  std::vector<std::string> metrics;
  std::vector<Gauge> gauges;
  std::vector<Stamp> stamps; ///< what a kernel with stamps takes the time of, in order; else empty

  /// Error `manifest`: not JSON, a missing member, or another ABI version.
  static Outcome<Manifest> parse(const std::string &json);
  /// Of its declaration; `#N` when there is none.
  std::string stateName(unsigned state) const;
  /// Tensor of layer `layer`.
  static std::string tensorName(const Weight &weight, int64_t layer);
};

} // namespace megalith::runtime
#endif
