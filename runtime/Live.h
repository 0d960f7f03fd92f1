//===- Live.h - a kernel that takes requests while it runs ----------------===//
//
// The host's half of what device/Abi.h calls a live session: where things stand in the memory that both sides see, the
// host's side of the two rings, and the launches after them. An engine opens a LiveRun.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_LIVE_H
#define MEGALITH_RUNTIME_LIVE_H

#include "device/Abi.h"
#include "runtime/Manifest.h"
#include "runtime/Run.h"
#include <vector>

namespace megalith::runtime {

/// Where things stand in the memory of the rings; bytes from its beginning. Words of a mailbox are multiples of 4.
struct RingLayout : abi::RingPlaces {
  LiveTable table;
  size_t descriptorBytes = 0;
  size_t lines = 0, lineBytes = 0; ///< rows of logits
  size_t bytes = 0;                ///< of all of it

  static RingLayout of(const Manifest &manifest, const LiveTable &table);
  size_t mailbox(int entry) const { return mailboxes + static_cast<size_t>(entry) * mailboxBytes; }
};

/// How the host reaches memory that a kernel sees, too.
class HostMemory {
public:
  virtual ~HostMemory() = default;
  virtual uint32_t loadAcquire(const uint32_t *at);
  virtual void storeRelease(uint32_t *at, uint32_t value);
  virtual uint32_t loadRelaxed(const uint32_t *at);
  /// Plain accesses; `at` is there.
  virtual void read(void *to, const void *at, size_t bytes);
  virtual void write(void *at, const void *from, size_t bytes);
};

/// Writes what a kernel starts a request with. `descriptor` is zeros. Tokens stand from `tokenBegin` on; what ends the
/// request, and its sequences, go after those in `ends` and `inputs`, of which the first word has the numbers
/// `firstEnd` and `firstInput`.
void writeRequest(const Manifest &manifest, const Request &request, int number, char *descriptor, size_t tokenBegin,
                  std::vector<int> &ends, size_t firstEnd, std::vector<int> &inputs, size_t firstInput);
/// Words that what ends a request takes.
size_t endWordsOf(const Request &request);
/// Lines of logits that its prompt's rows take: all tokens but the first are predicted.
int64_t promptLinesOf(const Request &request);
/// How a request wants tokens to be drawn. `edits`: place of what changes its rows of logits (Edits.h).
abi::Settings settingsOf(const Request &request, uint32_t runSeed, int edits);

/// How a request ended, of its descriptor; tokens are not read.
RequestEnd endOf(const Manifest &manifest, const abi::RequestHeader &header);

/// Set when the watchdog stopped the kernel.
std::optional<RunOutcome::Stop> stopOf(const Manifest &manifest, const abi::StopRecord &stop);

/// What LiveState says.
struct LiveView {
  bool written = false; ///< else nothing was written yet
  int64_t ticks = 0, passes = 0, rows = 0;
  std::vector<int64_t> unheldPages; ///< by model: free or cached ones
  std::vector<int64_t> cachedPages; ///< by model
  struct Slot {
    int entry; ///< -1: it is free
    unsigned state;
    int64_t promptTokens, generated, kvTokens;
  };
  std::vector<Slot> slots;
  std::vector<int64_t> metrics;                 ///< in the manifest's order
  std::vector<std::vector<int64_t>> increments; ///< of each
};

/// The host's side of the rings. One thread, but for view().
class HostRings {
public:
  HostRings(const Manifest &manifest, const RingLayout &layout, char *memory, HostMemory &access, uint32_t seed)
      : manifest(manifest), layout(layout), memory(memory), access(access), seed(seed) {}

  /// Request `number` comes into `entry` of the table, of which the end was read. Its lines of logits begin with
  /// `firstLine`; below 0: it has none. Those of the prompt's rows, if it wants them, stand in front of that one.
  /// `edits`: place of what changes its rows of logits (Edits.h).
  void arrive(int entry, int number, const Request &request, int edits, int64_t firstLine = -1,
              bool promptLines = false);
  /// Once for a request, which has not ended as far as the host knows.
  void cancel(int entry, int number);
  /// After the last order. abi::kStopsDrained or abi::kStopsNow.
  void stop(uint32_t how);

  struct Update {
    abi::News news;
    std::vector<int32_t> tokens;  ///< after the first `known` ones
    std::vector<char> descriptor; ///< of one that has ended; else empty
  };
  /// The next news; nullopt: there is none. `known(entry)`: tokens that the host has of the request in this entry.
  template <class Known> std::optional<Update> next(const Known &known) {
    if (!there())
      return std::nullopt;
    Update update;
    update.news = peek();
    take(update, known(update.news.entry));
    return update;
  }
  /// The row that predicted the token of a line, of which next() told; empty: there was none. Lines of the prompt's
  /// rows are there when News::fed has counted them all, or after the end.
  std::vector<float> logits(int64_t line);
  /// Lets control have the room of what next() gave.
  void release();
  /// As the kernel stood a moment ago. Any thread.
  LiveView view() const;

private:
  abi::HostRings &rings() { return *reinterpret_cast<abi::HostRings *>(memory); }
  bool there();
  abi::News peek();
  void take(Update &update, int known);
  void put(const abi::Order &order);

  const Manifest &manifest;
  const RingLayout &layout;
  char *memory;
  HostMemory &access;
  uint32_t seed;
  uint32_t ordersPut = 0, newsPut = 0, newsRead = 0;
  std::vector<int> promptLen = std::vector<int>(layout.table.entries, 0);
};

/// Launches of a kernel with a table of requests that the host fills while it runs. Not for several threads.
class LiveRun {
public:
  virtual ~LiveRun() = default; ///< waits for a launch
  virtual const Manifest &manifest() const = 0;
  virtual const RingLayout &layout() const = 0;
  /// The memory of the rings, as the host sees it.
  virtual char *rings() = 0;
  /// Begins a launch; none is under way.
  virtual Failure launch() = 0;
  enum class Launch {
    Runs,
    Rests, ///< it has ended, and another one goes on
    Ended,
  };
  /// What became of it.
  virtual Outcome<Launch> poll() = 0;
  /// After Ended: set when the watchdog stopped the kernel.
  std::optional<RunOutcome::Stop> stopped();
  virtual size_t deviceBytes() const = 0; ///< of the table, the rings' other half and the lists of pages
  /// Reads of the buffer that a member of abi::HostParams points to. No launch is under way.
  virtual Failure read(size_t member, void *to, size_t bytes, size_t offset = 0) = 0;
  /// Writes to one, at any time. It is there for requests that are put into the rings afterwards.
  virtual Failure write(size_t member, const void *from, size_t bytes, size_t offset) = 0;
};

/// What a session with a trace leaves.
struct LiveRecord {
  Trace trace;         ///< ticks and metrics. Requests have their numbers, those without a slot stand in no order
  int64_t dropped = 0; ///< records that did not fit
  std::vector<TraceRequest> open; ///< how those stand that recordOf() is asked for. Without a state: it never arrived
};
/// `open`: entries of the table, and the numbers of the requests in them, whose end the host was not told. No launch is
/// under way.
Outcome<LiveRecord> recordOf(LiveRun &run, const std::vector<std::pair<int, int>> &open);

} // namespace megalith::runtime
#endif
