//===- Report.h - the results of a run, for machines and for readers ------===//
#ifndef MEGALITH_TOOLS_REPORT_H
#define MEGALITH_TOOLS_REPORT_H

#include "megalith/Checkpoint/Requests.h"
#include "megalith/Checkpoint/Trace.h"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace megalith::tool {

/// How one request ended.
struct RequestReport {
  std::vector<int32_t> tokens; ///< generated
  std::string finish, state, fault, faultState, place; ///< as in TraceRequest
  int64_t passes = 0, rows = 0;
  std::vector<float> logits; ///< [generated][vocab], when wanted
};

/// The same for all executors.
struct RunReport {
  std::string device; ///< "cuda", "cpu" or "reference"
  std::string deviceName;
  std::vector<RequestReport> requests; ///< in file order
  Trace trace;
  std::map<std::string, int64_t> metrics;
  int64_t ticks = 0, passes = 0, rows = 0;
  double runMs = 0; ///< on cuda the time of the kernel
  double loadMs = 0, compileMs = 0;
  std::optional<bool> cacheHit; ///< cuda and cpu
  unsigned launches = 0;        ///< of the resident kernel
  std::vector<std::string> accepted; ///< of the checkpoints, on the user's word

  int64_t tokens() const;
  double tokensPerPass() const;
};

/// What was taken on the user's word, as a line for readers; empty without.
std::string acceptedLine(const std::vector<std::string> &accepted);

/// Explanation of a fault's name (IR/Faults.def).
std::string faultText(const std::string &name);

/// One JSON object per request, then one line with the summary. `bytes`: tokens
/// below 256 are bytes of text.
std::string formatJson(const RunReport &report, const std::vector<Request> &requests, bool bytes);

/// Prompts and continuations, a chart of each traced gauge, totals.
std::string formatText(const RunReport &report, const std::vector<Request> &requests, bool bytes);

/// A header line `{"ids", "shapes", "dtype": "f32"}`, then per request
/// [generated][vocab] little-endian floats.
std::string formatLogits(const RunReport &report, const std::vector<Request> &requests, int64_t vocab);

} // namespace megalith::tool
#endif
