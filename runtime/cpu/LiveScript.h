//===- LiveScript.h - a host that plays a live session --------------------===//
//
// The host's side of a live session as one more thread of a checked launch: it fills the table, reads the news, takes
// requests back, and stops, the same in every schedule but for when things happen.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_LIVESCRIPT_H
#define MEGALITH_RUNTIME_CPU_LIVESCRIPT_H

#include "runtime/cpu/CpuEngine.h"

namespace megalith::cpu {

/// What happens in the session.
struct LiveScript {
  int entries = 2;    ///< of the table
  int newsSlots = 4;  ///< of the ring to the host
  int cancelEach = 3; ///< each so-manieth request is taken back when it has `cancelAfter` tokens; 0: none
  int cancelAfter = 1;
  uint32_t renewPasses = 3; ///< counts begin anew after so many passes
  int restEach = 2;         ///< after each so-manieth end the host waits until the launch has ended; 0: never
};

/// How a request of the session ended.
struct LiveOutcome {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;       ///< of each token
  std::vector<std::vector<float>> promptLogits; ///< of each token of its prompt but the first, if it asked for them
  std::string finish;                           ///< empty: it did not
  int ends = 0;                                 ///< of which the host was told
};

/// Plays one session under a schedule. What went wrong in the launches is in `launch`.
struct LivePlay {
  std::vector<LiveOutcome> requests;
  LaunchResult launch; ///< of the last one; its steps are those of all
  int64_t ticks = 0, rows = 0, launches = 0;
};
runtime::Outcome<LivePlay> playLive(CpuEngine &engine, const std::vector<Request> &requests,
                                    const runtime::RunOptions &options, const LiveScript &script, LaunchOptions how);

/// What is wrong with it, beside a plain run of the same requests; empty: nothing. Who was taken back has the first
/// ones of its tokens.
std::string whyNotLike(const LivePlay &play, const runtime::RunOutcome &plain, const std::vector<Request> &requests);

} // namespace megalith::cpu
#endif
