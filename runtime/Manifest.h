//===- Manifest.h - what the compiler tells the runtime -------------------===//
#ifndef MEGALITH_RUNTIME_MANIFEST_H
#define MEGALITH_RUNTIME_MANIFEST_H

#include "megalith/Checkpoint/RopeTable.h"
#include "megalith/Request.h"
#include "megalith/Support/WeightScheme.h"
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
    bool byRow;          ///< the kernel reads single rows of it, in the checkpoint's order
    WeightScheme scheme; ///< of codes: then scales and perhaps zero points come after it, each of all layers
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
  /// What requests bring.
  struct InputField : Input {
    int64_t offset; ///< of its value, or of its abi::InputRange
  };
  struct Stamp {
    std::string name;
    int64_t layer; ///< -1: outside the layers
  };
  struct Gauge {
    std::string name, type;
  };
  /// Where the packed stream has the order of a matrix's columns: which one stands at each place, then at which place
  /// each stands.
  struct Order {
    int64_t offset, layerBytes, layers, columns;
    std::vector<int64_t> weights; ///< whose they are, by Weight::index; all have the same one
  };
  /// K and V of one model.
  struct Pool {
    int64_t pages, pageTokens, layers, kvHeads, headDim; ///< pages 0: the model has no K and V
    int64_t rowsBeyond;     ///< that calls of a stage may write after all of a request's tokens
    std::string place;      ///< of its declaration
    bool index = false;     ///< it has an index of pages
    int64_t sparePages = 0; ///< of its memory, after its pages
    bool e4m3 = false;      ///< K and V are codes (device/Pool.cuh), else bf16
    int64_t bf16Layers = 0; ///< of a pool of codes: layers that have none, each of which takes the place of two
  };
  struct Model {
    std::string name;
    int64_t vocab, streamBytes, workspaceBytes;
    int64_t extraRows; ///< positions that its calls may write after a request's last token
    Pool pool;
    RopeParams rope;
    std::vector<double> ropeBases; ///< of further tables
    std::vector<Weight> weights;
    std::vector<Order> orders;
  };
  std::string pipeline, profile;
  int64_t ctas, threads, sharedBytes, controlBytes, smCount;
  int64_t slots, rowsPerPass, callTokens, scratchBytes, flaggedBytes;
  int64_t tickPasses = 0; ///< of a tick at most, where each has a record of its own in the trace; else 0
  int64_t draftLines = 0; ///< logits of drafts that may come to be kept; 0: they stand where they are kept
  /// What takes the requests' settings, or their random numbers.
  struct Reducing {
    bool any = false;
    /// Bytes for reducers beside argmax, and the words that they give for a row; 0: the pipeline has none.
    int64_t queryBytes = 0, words = 0, selectionBytes = 0, keptBytes = 0;
    int64_t textBytes = 0; ///< for settings that change rows of logits; 0: it has none of them
  } reducing;
  bool host = false;         ///< something goes by the host's clock, or by when requests arrived
  bool workspaceOnes;        ///< all bits of each workspace are set before a launch
  std::vector<Model> models; ///< 1 to limits::models, in the order of LaunchParams::models
  std::vector<Edge> edges;
  int64_t requestBytes;
  int64_t indexBegin = 0; ///< of abi::IndexedRequest in a descriptor; 0: no pool has an index
  std::vector<State> states;
  int64_t initialState;
  std::string pipelineFile;            ///< whose lines a fault may name
  std::vector<std::string> callPlaces; ///< by the number of the call site
  std::vector<Field> fields;
  std::vector<InputField> inputs;
  std::vector<std::string> metrics;
  std::vector<Gauge> gauges;
  std::vector<Stamp> stamps; ///< what a kernel with stamps takes the time of, in order; else empty

  /// Error `manifest`: not JSON, a missing member, another number of models, or another ABI version.
  static Outcome<Manifest> parse(const std::string &json);
  /// The model of that name, which is one of the manifest's; else the first.
  const Model &model(const std::string &name) const;
  /// Tokens of the largest vocabulary.
  int64_t mostVocab() const;
  /// Of its declaration; `#N` when there is none.
  std::string stateName(unsigned state) const;
  /// Tensor of layer `layer`.
  static std::string tensorName(const Weight &weight, int64_t layer);
};

} // namespace megalith::runtime
#endif
