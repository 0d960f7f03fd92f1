//===- LaunchImage.h - what a kernel starts from, and what comes back -----===//
//
// The part of running a kernel that does not depend on where it runs. An engine
// allocates every buffer, gives it its first content, writes its address into the
// parameters, launches, sets `result` of the buffers that come back, and asks for
// the outcome.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_LAUNCHIMAGE_H
#define MEGALITH_RUNTIME_LAUNCHIMAGE_H

#include "device/Abi.h"
#include "runtime/Live.h"
#include <cstddef>

namespace megalith::runtime {

/// One buffer that a pointer of abi::HostParams names.
struct LaunchBuffer {
  enum Kind {
    Image,     ///< starts as `image`
    Const,     ///< the same, and the kernel only reads it
    Zero,      ///< starts as zeros, in every launch
    Ones,      ///< all bits are set before every launch
    Unwritten, ///< the kernel writes what it reads; zeros do no harm
  };
  const char *name; ///< of the member of abi::HostParams, or of one of its models
  size_t member;    ///< its offset in abi::HostParams
  size_t bytes;     ///< 0: nothing is ever there, but the pointer is not null
  Kind kind;
  std::vector<char> image = {}; ///< `bytes` long, of Image and Const
  bool fetch = false;           ///< outcome() needs it
  const char *result = nullptr; ///< its bytes after the launch, aligned to 16; set by the engine

  size_t before = 0; ///< bytes in front of what the member points to

  /// Makes `params` point to them, the buffer being at `address`.
  void bind(abi::HostParams &params, const void *address) const;
};

/// The buffers that outlive a run on a device: activations, K and V.
std::vector<LaunchBuffer> lastingBuffers(const Manifest &manifest);

/// Offsets in abi::HostParams of the buffers that are zeros again before a launch with which counts begin anew.
constexpr size_t renewedMembers[] = {offsetof(abi::HostParams, flagged), offsetof(abi::HostParams, sync)};

/// The buffers and numbers of one run.
class LaunchImage {
public:
  /// `corrupt-field` when a corruption names no field. `manifest` must outlive the image. `live`: of a kernel that
  /// takes requests while it runs. Its table starts empty, so there are no `requests`.
  static Outcome<LaunchImage> build(const Manifest &manifest, const std::vector<Request> &requests,
                                    const RunOptions &options, const LiveTable *live = nullptr);
  const std::optional<RingLayout> &ringLayout() const { return rings; } ///< of a live one
  /// Where the kernel sees the memory of the rings. Before the image's buffers are placed.
  void bindRings(const void *address);

  abi::HostParams params = {};       ///< all but the pointers
  std::vector<LaunchBuffer> buffers; ///< without the lasting ones
  const std::vector<Request> &requests() const { return asked; }
  const RunOptions &options() const { return how; }

  /// Reads the results, but for `kernelMs`. `trace-device` when the trace is torn.
  /// `before`: of a launch that was ended in the middle of a tick, the requests' memory an earlier tick ago. Those that
  /// had ended by then are as they were.
  Outcome<RunOutcome> outcome(const std::vector<char> *before = nullptr) const;
  /// Whether the launch ended at its number of ticks, and another one goes on.
  bool unfinished() const;
  /// Whether the next one starts with the buffers of renewedMembers() as they were before the first.
  bool renews() const;
  /// Of the buffer that is bound to a member of LaunchParams; their number when there is none.
  size_t indexOf(size_t member) const;
  /// Only the counts of Stats: what can be relied on when the kernel did not end.
  RunOutcome counts() const;

private:
  LaunchImage(const Manifest &manifest, const std::vector<Request> &requests, const RunOptions &options)
      : manifest(&manifest), asked(requests), how(options) {}
  void addRope(size_t model);
  void addHost();
  void addRequests();
  void addPool(size_t model);
  void addReducing();
  void addResults();
  void addKept();
  Failure addHooks();
  void readRowLogits(RunOutcome &out) const;
  void readTimes(RunOutcome &out) const;
  RunOutcome::Times timesOf(size_t request, int64_t generated) const;
  /// That a request's K and V can reach in this model.
  int64_t positionsOf(const Manifest::Model &model) const { return longest + model.extraRows + 1; }
  size_t entries() const { return rings ? static_cast<size_t>(rings->table.entries) : asked.size(); }
  LaunchBuffer &add(const char *name, size_t member, size_t bytes, LaunchBuffer::Kind kind);
  template <class T>
  LaunchBuffer &addImage(const char *name, size_t member, const std::vector<T> &data, LaunchBuffer::Kind kind);
  /// The result of the buffer of this member of LaunchParams.
  template <class T> const T *result(size_t member) const;

  const Manifest *manifest;
  std::vector<Request> asked;
  RunOptions how;
  std::vector<size_t> tokenBegin;  ///< per request, in `tokens`
  std::vector<size_t> timeBegin;   ///< per request, in `times`
  int64_t longest = 0;             ///< tokens that a request can have
  int64_t mostNew = 0;             ///< tokens that a request can generate
  std::optional<RingLayout> rings; ///< of a live session
};

} // namespace megalith::runtime
#endif
