//===- LiveTrace.h - what a live session keeps for its trace ----*- C++ -*-===//
#ifndef MEGALITH_LIB_API_LIVETRACE_H
#define MEGALITH_LIB_API_LIVETRACE_H

#include "megalith/IR/IR.h"
#include "megalith/LiveSession.h"
#include "megalith/Requests/Trace.h"
#include <span>
#include <unordered_map>

namespace megalith::api {

/// What the first line of a session's trace says.
Trace traceHead(const Kernel::State &kernel, const LiveOptions &options);

/// The requests of a session, and what became of them; on the reference executor its ticks, too. The worker fills it
/// in, and when that has ended anyone may read it.
class LiveTrace {
public:
  /// `most`: bytes of memory, of requests and of ticks each; 0: nothing is kept.
  explicit LiveTrace(size_t most) : most(most) {}

  bool wanted() const { return most > 0; }
  /// The run is given a request, as it is here.
  void comes(uint64_t number, std::shared_ptr<const Request> request);
  void tells(uint64_t number, std::span<const int32_t> tokens, const std::string &state);
  void ends(uint64_t number, const RequestEnd &end);
  void ticks(TraceTick tick);
  /// What a kernel says at its end of a request that is not known to have ended: all that it generated.
  void stands(uint64_t number, TraceRequest how);

  /// As texts. `trace` has no requests, and requests of its ticks have the session's numbers; without ticks it gets
  /// those that were kept.
  Expected<SessionTrace> texts(Trace trace, const ir::Module &module) const;
  /// There is no room for more.
  Messages tooLong() const;

private:
  struct Kept {
    std::shared_ptr<const Request> request;
    TraceRequest how;
  };
  void add(size_t &bytes, size_t more);

  const size_t most;
  size_t requestBytes = 0, tickBytes = 0;
  bool full = false;
  std::unordered_map<uint64_t, Kept> kept;
  std::vector<TraceTick> recorded;
};

} // namespace megalith::api
#endif
