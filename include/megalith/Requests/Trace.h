//===- Trace.h - what a run did, tick by tick -------------------*- C++ -*-===//
//
// The reference executor and the runtime write the same trace; docs/trace.md
// describes the file. Plain structs, so that the runtime can use them without
// the compiler.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_REQUESTS_TRACE_H
#define MEGALITH_REQUESTS_TRACE_H

#include "megalith/Contract/Row.h"
#include "megalith/Os/Result.h"
#include "megalith/Request.h"
#include "megalith/RequestEnd.h"
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// A request's share of one pool at the end of a tick.
struct TraceKv {
  std::string pool;
  int64_t len = 0;            ///< leading tokens whose KV is valid
  int64_t first = 0;          ///< leading pages that were given back, as all rows to come see later positions only
  std::vector<int32_t> pages; ///< its page table from there on, position order
  bool operator==(const TraceKv &) const = default;
};

/// One request in one tick.
struct TraceSlot {
  int32_t slot = -1; ///< -1: it changed state without holding a slot
  int32_t request = 0;
  std::string before, after;            ///< state at the start and the end of the tick
  std::vector<TraceKv> kv;              ///< in the order of the pools
  std::map<std::string, double> gauges; ///< values of `trace` in this tick
  bool operator==(const TraceSlot &) const = default;
};

/// One pass that had rows.
struct TracePass {
  std::string model;
  std::vector<Row> rows;
  /// Of K and V of each row's position in all layers; may be absent, never compared.
  std::vector<uint64_t> kvHash = {};
  /// Empty, or of each row the bits of what its call's reducers gave, in their order; `argmax` is Row::result. -1: the
  /// reducer does not read the row.
  std::vector<std::vector<int32_t>> reduced = {};
};

struct TraceFault {
  int32_t request = 0;
  std::string code; ///< a name of Contract/Faults.def
  bool operator==(const TraceFault &) const = default;
};

/// What the host did: a request of it arrives, or is taken back.
struct TraceEvent {
  bool cancels = false; ///< else the request arrives
  int32_t request = 0;
  bool operator==(const TraceEvent &) const = default;
};

struct TraceTick {
  int64_t tick = 0;
  std::vector<TraceEvent> events;      ///< that the tick took, in order; empty where the run has no host's side
  std::optional<int64_t> nowMs;        ///< the host's clock in this tick; nullopt as well
  std::map<std::string, int64_t> live; ///< pages in use per pool, as the tick's code saw it
  /// Of pools with an index: pages that it has and nobody holds, then.
  std::map<std::string, int64_t> cached = {};
  std::vector<TracePass> passes; ///< in the order in which they ran
  /// Every slot that holds a request at the end of the tick, ascending; then the
  /// requests without slot that changed state, ascending.
  std::vector<TraceSlot> slots;
  std::vector<TraceFault> faults; ///< by request
};

/// What Contract/Faults.def calls the numbers of a fault.
using FaultNumbers = std::array<int32_t, 3>;

/// These in words; "" of a fault that has none.
std::string faultDetail(std::string_view fault, const FaultNumbers &numbers);

/// What a request generated, and how it ended. Its `passes` and `rows` are in no trace. compareTraces() compares no
/// places: files may lie elsewhere.
struct TraceRequest : RequestEnd {
  RequestId id = {};
  std::vector<int32_t> tokens = {}; ///< generated
  Sampling sampling = {};           ///< its settings, with the seed that it used
  /// What the pipeline's inputs were, defaults included.
  std::map<std::string, InputValue> inputs = {};
  bool operator==(const TraceRequest &) const = default;
};

/// How a request ends at the host's wish, or at its deadline, whatever state that leads to. Else it is a fault's name.
std::string_view hostEnd(std::string_view fault);

/// Why a request ended: what hostEnd() gives of `fault`, "cancelled" or "deadline"; "fault"; "limit" (the run was cut
/// off before it reached a terminal state); "stop" (it appended an EOS or a stop sequence); "length" (its budget is
/// used up); or "state": the pipeline's own logic took it to a terminal state.
std::string finishOf(std::string_view fault, bool terminal, bool eos, bool budgetUsedUp);

struct Trace {
  std::string pipeline;
  std::vector<std::string> accepted; ///< of the checkpoints, on the user's word; not compared
  std::string synthetic;             ///< drafts were synthetic: with which probability they are right; not compared
  uint32_t seed = 0;                 ///< of the run
  std::vector<TraceTick> ticks;
  std::vector<TraceRequest> requests; ///< in file order
  std::map<std::string, int64_t> metrics;
};

/// JSON lines: a header, one line per tick, one last line with the results.
std::string formatTrace(const Trace &trace);

/// Writes formatTrace() to `path`. Error: `trace-write`.
Result<bool> writeTrace(const std::string &path, const Trace &trace);

/// Reads what formatTrace() writes and nothing else; `file` is named in errors.
/// These carry the line: `trace-syntax` (not JSON), `trace-key` (a member that is
/// missing, unknown or not what it must be), `trace-end` (the text ends before the
/// line with the results, or continues after it).
Result<Trace> parseTrace(std::string_view text, const std::string &file);

/// The first difference, as one line that names tick and place; empty when the
/// traces are equal. KV hashes are not compared.
std::string compareTraces(const Trace &a, const Trace &b);

} // namespace megalith

#endif
