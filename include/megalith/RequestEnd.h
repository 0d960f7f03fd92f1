//===- RequestEnd.h - how a request ended -----------------------*- C++ -*-===//
//
// Plain data: results of runs, events of live sessions, traces, the reference
// executor and the runtime have the same struct.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_REQUESTEND_H
#define MEGALITH_REQUESTEND_H

#include <cstdint>
#include <string>

namespace megalith {

/// How a request ended.
struct RequestEnd {
  // from RequestEnd.def: END
  /// `stop` (an EOS or a stop sequence), `length` (the budget), `state` (the pipeline ended it), `cancelled`,
  /// `deadline`, `fault`, or `limit` (the run was cut off, or the session stopped at once)
  std::string finish = {};
  std::string state = {};      ///< in which it ended
  std::string fault = {};      ///< the code, with `fault`
  std::string faultState = {}; ///< in which it happened
  std::string place = {};      ///< FILE:LINE of the pipeline
  /// Numbers of the fault in words, `position 7 holds token 5, and was fed 9`; some have none
  std::string faultDetail = {};
  int64_t passes = 0; ///< of models that it was in
  int64_t rows = 0;   ///< that it fed
  /// Positions of its prompt that the first model's pool had in its index, so that they were not fed
  int64_t found = 0;
  std::string format = {}; ///< of a request with a format: `complete` (the answer is one of its texts) or `partial`
  // ---
  bool operator==(const RequestEnd &) const = default;
};

} // namespace megalith
#endif
