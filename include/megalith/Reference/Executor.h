//===- Executor.h - the reference executor ----------------------*- C++ -*-===//
//
// Interprets the IR, control and tensors, one operation at a time: the
// specification in running form. docs/ir.md says what it does; it takes a module
// after any pass and gives the same trace for each.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_REFERENCE_EXECUTOR_H
#define MEGALITH_REFERENCE_EXECUTOR_H

#include "megalith/IR/IR.h"
#include "megalith/Request.h"
#include "megalith/RequestEnd.h"
#include "megalith/Requests/Replay.h"
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace megalith::reference {

/// A coded matrix [rows, columns] as the checkpoint has it.
struct CodedMatrix {
  WeightScheme scheme;
  int64_t rows = 0, columns = 0;
  std::vector<uint8_t> codes; ///< [rows][columns]
  std::vector<float> scales;  ///< [blocks of rows][blocks of columns]; those of an order are of its groups
  std::vector<uint8_t> zeros; ///< a zero point beside each scale; of e4m3 they are 0
  std::vector<int32_t> order; ///< the columns, sorted by their groups; empty: as they are
};

/// Where the tensors of the checkpoints come from.
struct WeightSource {
  virtual ~WeightSource() = default;
  /// The bf16 data of a tensor of the pipeline's model `model`, row-major, valid as long
  /// as the source; sets `shape`. Null when that model has no such tensor.
  virtual const uint16_t *find(const std::string &model, const std::string &tensorName,
                               std::vector<int64_t> &shape) = 0;
  /// The codes that stand in place of a tensor `M.weight`, valid as long as the source; null when it has none.
  virtual const CodedMatrix *findCodes(const std::string & /*model*/, const std::string & /*tensorName*/) {
    return nullptr;
  }
};

struct Progress {
  int64_t ticks = 0, passes = 0, rows = 0;
  int64_t finished = 0, requests = 0;
};

/// By how much a metric of a live run grew is counted up to here: by 0, 1, ... and by one less than this or more.
constexpr size_t LiveIncrements = 32;

/// What a run knows of its host, at the start of a tick. Times are milliseconds of its clock.
struct Host {
  /// What it wants of request `number`.
  struct Order {
    int64_t number;
    std::shared_ptr<const Request> request; ///< it arrives; null: it is taken back
    bool keepLogits = false;                ///< the host is told the logits after its tokens
    bool keepPrompt = false;                ///< promptRow() is called for it
  };
  struct News {
    std::vector<Order> orders; ///< numbers of those that arrive grow
    int64_t ms = 0;            ///< of the host's clock, which the whole tick sees
    bool stop = false;         ///< the run is cut off here
  };
  virtual ~Host() = default;
  /// At a tick's start, and no more than so many orders.
  virtual News news(int64_t tick, int most) = 0;
  /// All that arrived have ended: waits for others. The tick in which they come, this one or a later one; nullopt: none
  /// come.
  virtual std::optional<int64_t> wait(int64_t tick) = 0;
  /// Nothing moved in a tick, and some request waits: for news, or for the clock.
  virtual void pause() {}
};

/// The host of a run that goes on: requests come while it runs, and all that becomes of them is told at once. It is
/// called from the thread of the run.
struct LiveHost : Host {
  virtual double now() = 0;
  /// What the end of a tick leaves.
  struct Standing {
    struct Slot {
      std::optional<int64_t> request;
      std::string state;
      int64_t promptTokens = 0, generated = 0, kvTokens = 0; ///< K and V of the first model
    };
    struct Pool {
      std::string model;
      int64_t pages = 0, used = 0, cached = -1;
    };
    std::vector<Slot> slots;
    std::vector<Pool> pools;
    std::map<std::string, int64_t> metrics;
    std::map<std::string, std::vector<int64_t>> increments; ///< as LiveStats has them
    int64_t ticks = 0, passes = 0, rows = 0;
  };
  /// A tick has ended, and what happened in it follows.
  virtual void tickEnds() = 0;
  /// A row of the first model that predicts token number `token` of the prompt of a request.
  virtual void promptRow(int64_t number, int64_t token, std::span<const float> logits) = 0;
  /// `found`: positions of its prompt that it took from an index. `logits`: of each token, where it was asked for: the
  /// row that predicted it, empty where there is none.
  virtual void tell(int64_t number, std::span<const int32_t> tokens, std::span<const std::vector<float>> logits,
                    const std::string &state, int64_t found, double at) = 0;
  /// `admitted`: when it took a slot for the first time; negative: it never did.
  virtual void end(int64_t number, RequestEnd end, double admitted, double at) = 0;
  virtual void stands(Standing standing) = 0;
  /// Whether ticks are recorded: traced() gets each before anything is told of it.
  virtual bool traces() const { return false; }
  virtual void traced(TraceTick) {}
};

struct Options {
  int64_t maxTicks = 1 << 20;
  /// Seed of the order of the free lists (PageOrder.h); pool i uses seed + i.
  std::optional<uint64_t> shufflePages;
  uint32_t seed = 0; ///< of the run: with each request's own it keys all random numbers
  /// Uses this trace's results in place of its own and checks each (Replay.h), until the
  /// row tables differ.
  const Trace *replay = nullptr;
  double replayEpsilon = 0;
  /// Of values of reducers: how far a logit may be off, as part of its row's root mean square (Reduce.h).
  double replayError = 0;
  bool keepLogits = false;
  bool hashKv = false; ///< fill TracePass::kvHash
  /// Test hook: per request the future tokens that `ngram_lookup` proposes in
  /// place of looking up: [generated, generated + width), up to the first that is below 0.
  std::vector<std::vector<int32_t>> oracleDrafts;
  std::vector<Corruption> corruptions;
  std::function<void(const Progress &)> progress; ///< called after each tick
  std::function<bool()> interrupted;              ///< asked before each tick; the run ends there
  /// The run goes on until this host stops it. Requests come from it alone, and ticks are recorded by it: what is of a
  /// trace or of given requests is not looked at, and the result is empty.
  LiveHost *live = nullptr;
};

struct RequestResult : RequestEnd {
  std::vector<int32_t> tokens; ///< generated
  int64_t arrivedTick = -1;
  int64_t firstTick = -1, lastTick = -1; ///< in which it held a slot
  struct Append {
    int64_t tick, tokens;
  };
  std::vector<Append> appends; ///< in order
  /// With keepLogits: for each generated token the row that predicted it.
  std::vector<std::vector<float>> logits;
};

struct RunResult {
  /// Set when the module cannot be run (a tensor is missing or misshaped, an
  /// operation is not executable); nothing else is valid then.
  std::string error;
  std::vector<RequestResult> requests;
  Trace trace;
  std::map<std::string, int64_t> metrics;
  int64_t ticks = 0, passes = 0, rows = 0;
  bool interrupted = false;
  std::vector<ReplayMismatch> mismatches;
  /// With replay: first difference of the two traces, else empty.
  std::string replayDifference;
};

/// Runs `requests` to their ends. The module must have been verified.
RunResult run(const ir::Module &module, WeightSource &weights, const std::vector<Request> &requests,
              const Options &options = {});

} // namespace megalith::reference
#endif
