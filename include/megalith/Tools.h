//===- Tools.h - what checks and measures a kernel --------------*- C++ -*-===//
//
// What `megalith explore`, `megalith bench`, `megalith cache` and the test hooks of `megalith
// run` need beside Api.h. It knows how a kernel is made, so that it may change with every
// version, and it is not installed. Like Api.h it needs the standard library only, and throws nothing.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_H
#define MEGALITH_TOOLS_H

#include "megalith/Api.h"
#include <set>

namespace megalith::tools {

/// Paths of the pipelines that come with this version, by their names.
std::map<std::string, std::string> shippedPipelines();

//===----------------------------------------------------------------------===//
// Inputs of tests
//===----------------------------------------------------------------------===//

/// Whether RunOptions::schedule can be this, and what it can be.
bool isSchedule(std::string_view text);
constexpr const char *scheduleForm = "round-robin|random:SEED|pct:SEED[:CHANGES], each with an optional @PREFIX";

/// Values for the inputs that have no default.
std::map<std::string, InputValue> madeUpInputs(const Program &program);
/// Three small requests that any model can run.
Expected<std::vector<Request>> exampleRequests(const Program &program);
/// The requests in the order of their arrivals, of which JSON lines `{"id", "tick" or "ms"}` tell.
Expected<std::vector<Request>> readArrivals(const Program &program, const std::string &path,
                                            std::vector<Request> requests);
/// Drafts of JSON lines `{"id", "tokens"}`, as RunOptions::drafts has them.
Expected<std::vector<std::vector<int32_t>>> readDrafts(const Program &program, const std::string &path,
                                                       const std::vector<Request> &requests);
/// `TICK:ID:FIELD:VALUE`. An id may contain colons.
Expected<Corruption> parseCorruption(const Program &program, const std::string &text,
                                     const std::vector<Request> &requests);
/// The text of a trace, read as a whole and found to be one.
Expected<std::string> readTrace(const std::string &path);

//===----------------------------------------------------------------------===//
// Pipelines of buffers
//===----------------------------------------------------------------------===//

/// Whether another program calls it with buffers: it has no requests.
bool isOfBuffers(const Program &program);
/// How it is called.
struct FileCall {
  bool perStage = false;     ///< as CallOptions has it
  std::string schedule = {}; ///< as RunOptions has it
  unsigned repeat = 1;       ///< calls with the same buffers; what they write must be equal
};
/// Calls it: buffers are the tensors of a file, `inputs`, by their names. Those that stages write are written to the
/// file `outputs`; one that `inputs` lacks has zeros where nothing is written. Errors: `call-buffers`, `call-fault`,
/// `repeat-differs`, those of safetensors files, `cannot-write-file`.
Messages callWithFiles(const Kernel &kernel, const std::string &inputs, const std::string &outputs,
                       const FileCall &how);

//===----------------------------------------------------------------------===//
// Synthetic drafts
//===----------------------------------------------------------------------===//

/// How often drafts are right, for measurements: what a policy is worth depends on it, and a real drafter's rate cannot
/// be chosen. Results carry a mark, for they say nothing of a drafter.
class Acceptance {
public:
  /// `P`: of all drafts. `P,Q,...`: of the requests, in turn. `P:N,Q:M,...`: of a request's first N new tokens, of the
  /// next M, and so on, in turn. Each from 0 to 1. Reports `bad-option`.
  static Expected<Acceptance> parse(const std::string &text);
  /// As it was given.
  const std::string &text() const { return given; }
  /// With which probability the draft of new token `position` (from 0) of request `request` is right.
  double at(size_t request, int64_t position) const;

private:
  struct Part {
    double right;
    int64_t tokens; ///< 0: it is a request's, and no phase
  };
  std::string given;
  std::vector<Part> parts;
};

/// Whether the pipeline proposes what it looks up (`ngram_lookup`), or what models after the first one say, so that
/// other drafts can take that place.
bool takesDrafts(const Program &program);
/// Tokens of each request.
using TokenLists = std::vector<std::vector<int32_t>>;
/// What the requests generate when nothing is proposed to them; one that faults beside the others is run alone, too.
/// `options`: of the run that comes after this one.
Expected<TokenLists> decodePlainly(const Kernel &kernel, const RunOptions &options,
                                   const std::vector<Request> &requests);
/// A draft of each of these tokens: the token itself with its probability, else another one. Which is keyed by `seed`,
/// request and position: any block size and any batch finds the same.
TokenLists draftsOf(const TokenLists &tokens, int64_t vocabulary, const Acceptance &acceptance, uint64_t seed);
/// Both. Error `bad-option`: the pipeline looks up no drafts.
Expected<TokenLists> syntheticDrafts(const Kernel &kernel, const RunOptions &options,
                                     const std::vector<Request> &requests, const Acceptance &acceptance, uint64_t seed);

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

/// The value below which `percent` of a hundred lie, between two neighbours on the line through them. There must be a
/// value. 50: the median.
double percentile(std::vector<double> values, double percent);
struct Percentiles {
  double p50, p95, p99, max;
};
/// nullopt without any value.
std::optional<Percentiles> percentilesOf(std::vector<double> values);

/// What who waits for a request's tokens sees, in the unit of RequestTimes. What never came is not there.
struct Latency {
  std::optional<double> queued;     ///< from the begin of the run to its admission
  std::optional<double> firstToken; ///< from the begin of the run to its first append
  std::optional<double> perToken;   ///< mean of the tokens after those of the first append
  std::vector<double> gaps;         ///< between two appends
};
Latency latencyOf(const RequestTimes &times);
/// Those of all requests that have them.
struct Latencies {
  std::vector<double> queued, firstToken, perToken, gaps;
};
Latencies latenciesOf(const Results &results);

/// What the host did: `compile`, `load`, `pack` (within `load`), `launch`, `wait` or `results`. Milliseconds since
/// keepHostRanges().
struct HostRange {
  std::string name;
  double begin, end;
};
/// Keeps the ranges of this process from now on, and forgets earlier ones.
void keepHostRanges();
/// In the order of their begins.
std::vector<HostRange> hostRanges();

/// A pool of K and V of the pipeline.
struct PoolSize {
  std::string name;
  int64_t pages, pageTokens;
  bool index; ///< requests share its pages
};
std::vector<PoolSize> poolsOf(const Program &program);

//===----------------------------------------------------------------------===//
// Live sessions
//===----------------------------------------------------------------------===//

/// A request of an open loop, whose clients do not wait for each other.
struct OpenArrival {
  double at;      ///< seconds since the first one
  int64_t prompt; ///< tokens
};
/// Gaps of an exponential distribution, lengths of a uniform one. Of the same seed and another rate the gaps are the
/// same but for a factor. bench/pytorch_server.py makes the same:
///   draw(i, what) = hash32((2 i + what) ^ hash32(seed + 1))       hash32: device/Sync.cuh
///   gap after request i = -ln((draw(i, 0) + 0.5) / 2^32) / perSecond
///   prompt of request i = shortest + draw(i, 1) % (longest - shortest + 1)
std::vector<OpenArrival> openArrivals(size_t number, double perSecond, int64_t shortest, int64_t longest,
                                      uint32_t seed);

/// When something happened on the device, and when the host saw it.
struct TwoTimes {
  uint64_t device; ///< nanoseconds
  double host;     ///< microseconds of another clock
};
/// By how many microseconds each was seen later than by the fastest way there was. The clocks may begin anywhere and go
/// at different speeds: the line below all of (device, host - device) that is nearest to them stands for both.
std::vector<double> afterFastest(const std::vector<TwoTimes> &seen);

struct TokensAt {
  double at;
  int64_t tokens;
};
/// Tokens per unit of time while all requests generate: from when the last of them has its first token to when the
/// first of them has its last one. nullopt: there is no such time.
std::optional<double> steadyRate(const std::vector<std::vector<TokensAt>> &requests);

//===----------------------------------------------------------------------===//
// Explore
//===----------------------------------------------------------------------===//

struct ExploreOptions {
  uint64_t schedules = 100, firstSeed = 1; ///< beside the first one, which is round robin
  /// The requests come while the kernel runs, from a host that is one more thread under the schedule. It takes some of
  /// them back, reads late, and lets the kernel rest and go on. What they bring of their own of that is not looked at.
  bool live = false;
  std::vector<std::string> sourceFiles = {};
  bool wholeKernel = false;
  int cpuArch = 900;
  std::optional<uint64_t> shufflePages = {};
  uint32_t seed = 0; ///< as RunOptions has it
  std::vector<std::vector<int32_t>> drafts = {};
  double replayEpsilon = 0.05, replayError = 0.05;
  std::function<void(const std::string &)> progress = nullptr;
};

struct Exploration {
  uint64_t runs = 0, steps = 0; ///< of schedules; calls of threads into the host
  double seconds = 0;
  int64_t ticks = 0, rows = 0, tokens = 0; ///< of each; of a live session those of a run beside it
  uint64_t launches = 0;                   ///< of all live sessions
  Messages messages;                       ///< warnings
};

/// Calls a pipeline of buffers under many schedules, in one launch and with one for each stage. `inputs`: a file, as of
/// callWithFiles(). `schedules`, `firstSeed`, `sourceFiles`, `cpuArch` and `progress` of the options count. What stages
/// write, and a fault, must be those of the reference executor.
Expected<Exploration> exploreCalls(const Program &program, const std::string &inputs, const ExploreOptions &options);

/// Runs the requests under many schedules of the CPU executor, checking every access. What is
/// found, results that differ between schedules or from the reference executor's: an error.
Expected<Exploration> explore(const Program &program, const std::vector<Request> &requests,
                              const ExploreOptions &options);

//===----------------------------------------------------------------------===//
// Bench
//===----------------------------------------------------------------------===//

/// The same program with other values of params. No file is read again.
Expected<Program> recompile(const Program &program, const std::vector<std::pair<std::string, std::string>> &params);
/// A layer that appends K and V.
struct LayerKv {
  int64_t window;     ///< of attention; 0: none
  int64_t tokenBytes; ///< of both, of a token
};
/// Bytes of K and V that a row reads that sees `positions`, of all layers together.
double kvBytesRead(const std::vector<LayerKv> &layers, double positions);
/// Gives each pool of KV room for `batch` requests of so many positions that no call waits.
void makeRoom(Program &program, int64_t batch, int64_t positions);

/// A kernel with random weights.
class BenchKernel {
public:
  struct Options {
    Device device = Device::Cuda; ///< or Cpu
    bool stamps = false;          ///< it takes the time of its phases
    bool stampsFollow = false;    ///< a kernel with `stamps` will be wanted, too: on a GPU it compiles beside this one
    bool wholeKernel = false;     ///< compile it in one unit
    int cpuArch = 900;
    std::function<void(const std::string &)> progress = nullptr;
  };
  static Expected<BenchKernel> load(const Program &program, const Options &options);

  struct Stamp {
    std::string name;
    int64_t layer; ///< -1: outside the layers
  };
  struct Shape {
    std::string pipeline, device;
    int64_t vocabulary = 0, pages = 0, ctas = 0;
    std::vector<LayerKv> kv;
    int64_t weightBytes = 0;   ///< of the matrices that a pass streams, without padding; 0: passes of a tick differ
    std::vector<Stamp> stamps; ///< what it takes the time of, in order
  };
  const Shape &shape() const;
  const Messages &messages() const; ///< warnings of load()

  struct RunOptions {
    int64_t kvInPlace = 0;   ///< K and V of the first so many positions of each prompt are in the pool already
    int64_t tickRecords = 0; ///< room for so many
    int64_t stampTicks = 0;  ///< keep the stamps of the last so many ticks
    Control control = Control::Resident;
    int64_t ticksPerLaunch = 0; ///< as RunOptions has it
  };
  /// Of a tick, and one more of the end.
  struct Tick {
    uint64_t begin; ///< nanoseconds of the device's clock
    int64_t open, prompts, generated, kvTokens, rows;
  };
  struct Run {
    std::vector<std::vector<int32_t>> tokens; ///< of each request
    int64_t ticks = 0, passes = 0;
    double milliseconds = 0;
    std::vector<Tick> records;
    /// [stampTicks][CTAs][stamps][begin, end], nanoseconds; tick t stands at t modulo stampTicks.
    std::vector<uint64_t> stamps;
  };
  /// A request that faults, and a kernel that was stopped, is an error.
  Expected<Run> run(const std::vector<Request> &requests, const RunOptions &options);
  /// Bytes per second at which a GPU reads its memory; nullopt on the CPU executor.
  Expected<std::optional<double>> bandwidth();

  struct State;
  explicit BenchKernel(std::shared_ptr<State> state);

private:
  std::shared_ptr<State> state;
};

/// The name of the GPU to measure on.
Expected<std::string> findGpu();

//===----------------------------------------------------------------------===//
// Sweep
//===----------------------------------------------------------------------===//

/// Names of the program's params, those that its file leaves out included.
std::vector<std::string> paramNames(const Program &program);
/// Whether all of these can ever run, each for itself.
Status checkRequests(const Program &program, const std::vector<Request> &requests);
/// The requests with this `sampling`, JSON as files of requests have it, for a kernel. Of a vocabulary whose tokens are
/// no bytes nobody says here what they spell: for a format they get texts that are made up.
Expected<std::vector<Request>> withSampling(Program &program, std::vector<Request> requests,
                                            const std::string &sampling);
/// What makes two kernels one: the program after all passes, the code of the device, how it is compiled, and size and
/// time of the weights' files. 64 hex digits.
std::string identityOf(const Program &program, const KernelOptions &options);

enum class Weights {
  Checkpoint,
  Random, ///< as BenchKernel has them; the program may be compiled without weights
};
/// As Kernel::load. On a GPU readBandwidth() can measure beside the kernel.
Expected<Kernel> loadToMeasure(const Program &program, const KernelOptions &options, Weights weights);
/// Fills the kernel cache with what loadToMeasure() of each will want, several at a time. Without a cache it does
/// nothing.
Status compileAhead(const std::vector<Program> &programs, const KernelOptions &options, Weights weights);
/// As BenchKernel::bandwidth(), of a kernel of loadToMeasure().
Expected<std::optional<double>> readBandwidth(const Kernel &kernel);

/// What a trace says of a whole run.
struct TraceFigures {
  /// Drafts that a verify proposed. A verify is the rows of one request in one pass of which at least one wants a
  /// result. 0 where nothing is proposed.
  int64_t leastBlock = 0, mostBlock = 0;
  double meanBlock = 0;
  int64_t pagesMost = 0;    ///< in the tables of all requests at the end of a tick, all pools together
  double fragmentation = 0; ///< positions of these pages without valid K and V, of all their positions, over all ticks
  /// Bytes that the passes read at least: weights, K and V. nullopt without a GPU.
  std::optional<double> bytes;
};
/// `results`: of a run with `trace`.
Expected<TraceFigures> figuresOf(const Kernel &kernel, const Results &results);

//===----------------------------------------------------------------------===//
// The kernel cache
//===----------------------------------------------------------------------===//

using CacheTime = std::chrono::system_clock::time_point;

/// What lies in the cache of compiled kernels. A folder that is not used is an error.
struct CacheState {
  std::string directory;
  bool exists = false; ///< otherwise nothing was stored yet
  int64_t limitDays = 0;
  uint64_t limitBytes = 0;
  std::optional<CacheTime> cleaned; ///< last
  struct Kind {
    std::string name;                    ///< "linked kernel", "control unit", "CPU object", ...
    std::set<std::string> architectures; ///< "sm_90a"
    uint64_t entries = 0, bytes = 0;
    CacheTime oldest, newest; ///< of their last uses
  };
  /// In one order at all times, without those that have none. The last one is "interrupted write", of entries without
  /// all parts, and of files that were not finished.
  std::vector<Kind> kinds;
  Messages messages; ///< warnings
};
Expected<CacheState> lookAtCache();

/// What was removed.
struct CacheCleaning {
  struct Group {
    uint64_t entries = 0, bytes = 0;
  };
  Group old;         ///< not used for longer than the limit
  Group crowded;     ///< the longest unused, of more than the limit
  Group interrupted; ///< interrupted writes
  Group cleared;     ///< with `all`
  Messages messages; ///< warnings; errors when something could not be removed
};
/// Removes what is beyond the limits; with `all` every entry.
Expected<CacheCleaning> cleanCache(bool all);

} // namespace megalith::tools
#endif
