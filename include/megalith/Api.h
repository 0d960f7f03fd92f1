//===- Api.h - compile a pipeline, load its kernel, run requests -*- C++ -*-===//
//
//   auto program = megalith::Program::compile({.file = "p.yaml", .models = {{"", "models/demo"}}});
//   auto kernel = megalith::Kernel::load(*program, {.device = megalith::Device::Cpu});
//   auto results = kernel->run({{.id = "a", .tokens = {73, 110}, .maxNewTokens = 8}});
//
// Needs the standard library only: no LLVM, no yaml-cpp, no CUDA toolkit. docs/library.md
// explains it; megalith/megalith.h has the same for C.
//
// Errors. A function that can fail returns Expected<T>: the value, or the Messages that say
// why there is none. Nothing is thrown, no memory that is short included (`out-of-memory`),
// and a fault of the library itself is an Error of the kind `internal-error`. What does not
// prevent the value, as a warning, is in `messages()` of what was made.
//
// Threads. A Program and the kernels made of it are for one thread at a time. LiveSession.h
// has sessions that take requests while the kernel runs, from any threads.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_API_H
#define MEGALITH_API_H

#include "megalith/Error.h"
#include "megalith/Export.h"
#include "megalith/HostLoop.h"
#include "megalith/Request.h"
#include "megalith/RequestEnd.h"
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megalith {

/// A value, or the messages that say why there is none.
template <class T> class [[nodiscard]] Expected {
public:
  Expected(T value) : held(std::move(value)) {}
  Expected(Messages errors) : why(std::move(errors)) {}

  explicit operator bool() const { return held.has_value(); }
  /// Only when there is one: else the process ends with the messages.
  T &operator*() { return check(), *held; }
  const T &operator*() const { return check(), *held; }
  T *operator->() { return check(), &*held; }
  const T *operator->() const { return check(), &*held; }

  /// Empty when there is a value.
  const Messages &errors() const { return why; }

private:
  std::optional<T> held;
  Messages why;

  void check() const {
    if (!held)
      endWithoutValue(why);
  }
};

/// What a function without a result returns.
struct Done {};
using Status = Expected<Done>;

/// Of the library; "0.2.0".
MEGALITH_API std::string version();

//===----------------------------------------------------------------------===//
// Program
//===----------------------------------------------------------------------===//

/// What to compile.
struct ProgramOptions {
  /// Path of the pipeline. Paths of model files in it are relative to its folder.
  std::string file;
  /// Texts in place of files, by path: the pipeline `file`, a model file, or both. What is not
  /// here is read from disk.
  std::map<std::string, std::string> texts = {};
  /// Checkpoints: the name of a model of the pipeline, or "" for all that have none of their
  /// own, and a folder with config.json and model.safetensors.
  std::vector<std::pair<std::string, std::string>> models = {};
  /// `models` may have names that this pipeline lacks: they are those of several.
  bool modelsOfOthers = false;
  /// Other values of the file's params.
  std::vector<std::pair<std::string, std::string>> params = {};
  /// The device to plan for: h200, h100, a100, b200, cpu. Empty: that on which the kernel is
  /// loaded, and h200 for source() and binary().
  std::string profile = {};
  /// Tunes the plan, `key=value` (docs/compiler.md). Never changes a result.
  std::vector<std::string> plan = {};
  /// Keys of config.json, and tensors, to take although the model file does not understand them.
  std::vector<std::string> accept = {};
  /// A file that says what tokens spell, as Program::setTokenBytes does: of each token a line with its bytes in base64,
  /// a blank and its number, as the files of tiktoken have it.
  std::string tokenBytes = {};
  /// Open and check the weights. A program without them can be looked at and not run.
  bool weights = true;

  // --- for those who look into the compiler
  std::string irFile = {};    ///< start from this IR in place of the YAML's
  std::string stopAfter = {}; ///< the last pass to run; `lower`: none
  bool printAfterAll = false; ///< give the IR after each pass to `sink`
  bool timePasses = false;    ///< and the times of the passes
  std::function<void(const std::string &)> sink = nullptr;
};

/// What a device is given.
struct Source {
  /// The kernel is compiled in units, which are linked (docs/compiler.md).
  struct Unit {
    std::string fileName; ///< what compilers call it
    std::string text;
  };
  Unit control;             ///< the pipeline's
  Unit tensors;             ///< the models'
  std::optional<Unit> wide; ///< the models' in passes that run whole, where the kernel has such passes
  std::string cuda;         ///< all, one after the other: the whole kernel as one text
  std::string manifest;     ///< JSON: launch, request layout, weights, pools
  std::string plan;         ///< for a reader
};

/// An assembled kernel.
struct Binary {
  std::string code; ///< the cubin; empty when PTX was asked for, which is not linked
  std::string ptx;  ///< when it was asked for
  struct Resources {
    std::string kernel;
    int registers = 0, spillStores = 0, spillLoads = 0, stackBytes = 0, sharedBytes = 0;
  };
  std::vector<Resources> kernels;
  double milliseconds = 0;
  bool cacheHit = false;
  /// "compiled", "control unit compiled", "tensor unit compiled", "wide unit compiled", "linked", "taken from the
  /// kernel cache"
  std::string how;
  Messages messages; ///< warnings
};

struct BinaryOptions {
  std::string arch = "sm_90a";
  bool ptx = false;
  std::vector<std::string> sourceFiles = {}; ///< edited units in place of the emitted ones
  bool wholeKernel = false;                  ///< compile it in one unit
};

/// A compiled pipeline.
class MEGALITH_API Program {
public:
  static Expected<Program> compile(const ProgramOptions &options);

  /// Warnings of the compilation.
  const Messages &messages() const;
  /// Of the pipeline.
  std::string name() const;
  /// Keys and tensors that were taken on the user's word.
  std::vector<std::string> accepted() const;
  /// The model file that each model of the pipeline was read from, by the model's name.
  std::map<std::string, std::string> modelFiles() const;
  /// Of a program with weights: how many tensors were F16 or F32, by this name. They are rounded to bf16.
  std::map<std::string, int64_t> converted() const;
  /// Of models whose checkpoints have codes: how, by the model's name: "FP8 in blocks of 128 x 128".
  std::map<std::string, std::string> formats() const;
  /// A param's value; nullopt when there is none of this name.
  std::optional<int64_t> param(std::string_view name) const;
  /// Tokens that requests may have: those of the first model of `kv:`.
  int64_t vocabulary() const;
  /// Columns of RequestResult::logits, which are those of the first model of `kv:`.
  int64_t logitsVocabulary() const;
  /// Of the (first) model: whether token i below 256 is the byte i, positions that it was made for, tokens that end a
  /// text.
  bool byteVocabulary() const;
  std::optional<double> positions() const;
  /// Where that stands, for messages.
  std::string positionsPlace() const;
  std::vector<int32_t> eos() const;
  /// Whether the pipeline draws tokens by the settings of requests. Without that a temperature above 0 is refused.
  bool readsSampling() const;
  /// Why no request of a live session can ask for the logprobs of its prompt; empty: they can.
  std::string whyNoPromptLogprobs() const;
  /// A state of requests.
  struct RequestState {
    std::string name;
    bool slot = false, terminal = false;
  };
  /// In the order of their declaration.
  std::vector<RequestState> states() const;
  /// What requests bring.
  std::vector<Input> inputs() const;
  /// The path of its config.json.
  std::string configFile() const;

  /// What each token spells in the middle of a text, for requests with a `format`: bytes; empty for what is no part of
  /// a text (special tokens, padding), and tokens behind the last one are. A byte vocabulary needs none. Not while a
  /// session is open.
  Status setTokenBytes(std::vector<std::string> bytes);
  /// Of Sampling::format.
  struct AnswerFormat {
    int64_t states = 0, masks = 0;  ///< of its automaton; different sets of tokens
    size_t bytes = 0;               ///< of memory
    std::vector<std::string> notes; ///< what was asked for and is not among its texts
  };
  /// Makes the format, which is kept for the requests that have it; from any thread.
  Expected<AnswerFormat> prepareFormat(const std::string &format) const;

  /// The YAML files as they were read, and the IR: control, models or both.
  std::string ast() const;
  enum class Ir { All, Control, Models };
  std::string ir(Ir part = Ir::All) const;
  /// Plans for the options' profile and writes the text of the kernel's units.
  Expected<Source> source() const;
  /// Compiles the units with NVRTC, but for those that the kernel cache has, and links them.
  Expected<Binary> binary(const BinaryOptions &options) const;

  /// Reads requests, one JSON object a line (docs/running.md), and checks that each can ever
  /// run. Their `eos` is set.
  Expected<std::vector<Request>> readRequests(const std::string &path) const;
  Expected<std::vector<Request>> parseRequests(const std::string &text, const std::string &name = "<requests>") const;

  /// A file that the compilation has read, or that belongs to a checkpoint that it read.
  struct File {
    std::string of, path;
  };
  std::vector<File> files() const;

  struct State;
  explicit Program(std::shared_ptr<State> state);
  const std::shared_ptr<State> &internals() const { return state; }

private:
  std::shared_ptr<State> state;
};

/// What would run of a checkpoint (docs/inspect.md).
struct Inspection {
  struct Key {
    std::string key; ///< of config.json; dots go inside
    /// "read", "required" (of one of the values for which the graph is right), "harmless", "accepted" (on the user's
    /// word), "refused"
    std::string use;
    std::string reason, advice; ///< when it is refused
  };
  /// Sizes; 0 for what the graph does not have.
  struct Shape {
    int64_t layers = 0, heads = 0, kvHeads = 0, headDim = 0, hidden = 0, vocabulary = 0;
    std::vector<std::pair<std::string, int64_t>> others; ///< of the model file's own names: "ffn"
    int64_t parameters = 0;                              ///< each once, however many weights share it
    int64_t weightBytes = 0;                             ///< of all of them; scales of codes in f32
    int64_t streamedBytes = 0;                           ///< of the matrices that a pass reads, whatever its rows
    int64_t kvBytesPerToken = 0;
    /// Weights that the checkpoint has as codes, and how: "FP8 in blocks of 128 x 128".
    std::vector<std::pair<std::string, std::string>> formats;
  };
  struct Tensors {
    std::map<std::string, uint64_t> types; ///< number of tensors, by type: "BF16"
    uint64_t read = 0, harmless = 0, accepted = 0, refused = 0;
    uint64_t missing = 0; ///< weights without one of their tensors
  };
  struct Model {
    std::string name; ///< in the pipeline; empty without one
    std::string config, modelType;
    std::vector<std::string> architectures;
    std::string file; ///< the model file; empty: none was found
    /// Where it was found: "graph" (the pipeline names it), "pipeline" (beside it), "share", "environment"
    std::string where;
    uint64_t candidates = 0;     ///< model files that were looked at
    std::string graph, numerics; ///< what the model file says
    std::optional<Shape> shape;  ///< nullopt: an error came first
    std::optional<double> positions;
    std::vector<Key> keys;
    std::optional<Tensors> tensors;    ///< nullopt: they were not looked at
    std::vector<std::string> accepted; ///< of one that runs: keys and tensors that were taken on the user's word
  };
  std::string pipeline;      ///< its path; empty without
  std::vector<Model> models; ///< as far as the check came
  bool runs = false;
  Messages messages; ///< what compiling and loading would say, warnings included
};
/// Checks the checkpoints of `options` as compile() does, without a pipeline when `file` is empty. That one would not
/// run is no error of this function.
MEGALITH_API Expected<Inspection> inspect(const ProgramOptions &options);

/// The states of a pipeline and the ways between them, as a graph in the language of Graphviz. Only `file` and `texts`
/// of `options` count: no checkpoint is needed.
MEGALITH_API Expected<std::string> stateDiagram(const ProgramOptions &options);

/// GB/s of device memory by the vendor's data sheet, by profile. GPUs only.
MEGALITH_API std::vector<std::pair<std::string, double>> memoryBandwidths();

/// The profile of a GPU architecture (`sm_90a`); empty when none has it.
MEGALITH_API std::string profileOfArch(std::string_view arch);

//===----------------------------------------------------------------------===//
// Kernel
//===----------------------------------------------------------------------===//

/// What runs requests.
enum class Device {
  Auto,      ///< a GPU if there is one, else the reference executor
  Cuda,      ///< a GPU: NVRTC compiles what the kernel cache lacks, and the driver links
  Cpu,       ///< the CPU executor: the host's compiler compiles what the cache lacks of the same units
  Reference, ///< the reference executor: interprets the IR, has no kernel
};

struct KernelOptions {
  Device device = Device::Auto;
  int ordinal = 0;                           ///< of the GPU
  std::vector<std::string> sourceFiles = {}; ///< edited units in place of the emitted ones
  bool wholeKernel = false;                  ///< compile it in one unit
  int cpuArch = 900;                         ///< Cpu: __CUDA_ARCH__, whose variants of the device code run
  bool check = false;                        ///< Cpu: runs can check every access to memory
  /// Called with what is being done, "" when it is over.
  std::function<void(const std::string &)> progress = nullptr;
};

/// What became of a checkpoint on a device.
struct LoadedWeights {
  double milliseconds = 0;
  int64_t bytes = 0; ///< that were read of the checkpoint; 0 where weights were made
  /// Held on the device: in the kernel's order, and tables of which it reads single rows, in the checkpoint's order.
  int64_t packedBytes = 0, rowBytes = 0;
};

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

/// When things happened to a request. On a GPU in milliseconds since the run began, taken by the kernel. Elsewhere in
/// ticks: what happened in tick t, from 0, happened at t. A time that never came is negative.
struct RequestTimes {
  double arrived = -1;  ///< the kernel got to know of it; if it had a time to come at (Request::arrives), that time
  double admitted = -1; ///< it took a slot for the first time
  struct Append {
    double at;      ///< when its tokens were appended
    int32_t tokens; ///< how many
  };
  std::vector<Append> appends; ///< in order, those of one tick as one; the first one is the first token's
};

/// What a run gave of one request, and how it ended.
struct RequestResult : RequestEnd {
  RequestId id = {};
  std::vector<int32_t> tokens = {}; ///< generated
  RequestTimes times = {};
  std::vector<float> logits = {};                         ///< [generated][Program::logitsVocabulary()], when wanted
  std::map<std::string, std::vector<double>> gauges = {}; ///< of each traced value, by tick; when wanted
  /// Why it ended with a fault or was cut off, at its line of the file of requests and at the pipeline's. nullopt of
  /// one that ended well.
  std::optional<Error> error = {};
};

/// What a run gave.
struct Results {
  std::vector<RequestResult> requests; ///< in the order in which they were submitted
  std::map<std::string, int64_t> metrics;
  int64_t ticks = 0, passes = 0, rows = 0;
  int64_t launches = 0;     ///< of the kernel
  HostCalls calls;          ///< on a GPU
  double milliseconds = 0;  ///< on a GPU of the kernel
  bool interrupted = false; ///< RunOptions::interrupted ended it
  /// Milliseconds since the run began, at which each tick began, and one more of its end; when wanted. Of the ticks
  /// that there was room for.
  std::vector<double> tickTimes;
  std::string trace; ///< JSON lines (docs/trace.md), when wanted
  /// Warnings, and what was found wrong by a check that was asked for (`replay`, `repeat`). A
  /// fault of a request is none: see RequestResult::error.
  Messages messages;
};

struct RunOptions {
  // from RunOptions.def: NUMBER, FLAG, TEXT
  int64_t maxTicks = 0; ///< ends the run after so many; 0: no limit
  /// Ends a launch after so many, and launches again; 0: the kernel's loop has one launch, the host's one for each tick
  int64_t ticksPerLaunch = 0;
  uint32_t seed = 0; ///< of random numbers, beside each request's own
  /// Seconds after which a GPU's kernel ends in which nothing moves; 0: never. Elsewhere an executor sees that by
  /// itself
  double watchdogSeconds = 10;
  bool trace = false;     ///< give the trace of results
  bool kvHash = false;    ///< with a hash of each row's K and V in it
  bool gauges = false;    ///< give the traced values of each result
  bool tickTimes = false; ///< give the times of ticks; on a GPU only
  bool logits = false;    ///< give the logits of each result
  unsigned repeat = 1; ///< to check the kernel: so many runs; tokens, logits, traces and KV must be equal bit for bit
  uint32_t delaySeed = 0;      ///< to check the kernel: random delays before waits; 0: none
  std::string replay = {};     ///< to check the kernel: the text of a trace, whose tokens are taken and checked
  std::string replayName = {}; ///< what messages call it
  double replayEpsilon = 0.05; ///< how far a replayed token may be below the maximum
  double replayError = 0.05;   ///< how far off logits may be for the value of another reducer
  /// Of a checked kernel on the CPU executor: order of the threads, as `megalith run --schedule` has it
  std::string schedule = {};
  // ---
  Control control = Control::Resident;
  std::function<void(const std::string &)> progress = nullptr; ///< as KernelOptions has it
  /// Asked often while the kernel runs, perhaps on another thread. `true` ends it: requests that have not ended by
  /// then are `limit`, and there is no trace.
  std::function<bool()> interrupted = nullptr;

  // --- to check the kernel itself (docs/running.md)
  std::optional<uint64_t> shufflePages = {};     ///< deals KV pages in this random order
  std::vector<std::vector<int32_t>> drafts = {}; ///< by request: proposed in place of looking up; -1: nothing
  std::string synthetic = {}; ///< of `drafts`: how often they are right, for the trace. No drafter made them
  std::vector<Corruption> corruptions = {};
};

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// What the elements of a buffer are.
enum class ElementType { I32, I64, F32, Bool, F16, BF16 };

/// A buffer that a call of a pipeline of buffers brings: row-major, without gaps.
struct CallBuffer {
  std::string_view name;
  void *data = nullptr; ///< of the GPU that the kernel was loaded on; of the host for the other executors
  ElementType type = ElementType::I32;
  const int64_t *shape = nullptr; ///< `dimensions` sizes
  size_t dimensions = 0;
};

struct CallOptions {
  void *stream = nullptr; ///< on a GPU a CUstream (cudaStream_t); null: the default stream
  bool perStage = false;  ///< a launch for each stage, and not one for all
};

//===----------------------------------------------------------------------===//
// Kernel
//===----------------------------------------------------------------------===//

/// A program on a device, with its weights. It keeps what it needs of the Program.
class MEGALITH_API Kernel {
public:
  static Expected<Kernel> load(const Program &program, const KernelOptions &options = {});

  /// Runs requests to their ends, on the calling thread. Any that can never run is an error, and then none runs.
  /// Nothing ends one early but `maxTicks`, `interrupted` and the watchdog; LiveSession.h takes requests while the
  /// kernel runs, and gives tokens as they are made. A kernel has one run or session at a time (`kernel-busy`).
  Expected<Results> run(std::vector<Request> requests, const RunOptions &options = {}) const;

  /// Calls a pipeline of buffers. Every buffer is given, also those that stages write. On a GPU it is one launch on the
  /// stream: nothing is allocated or waited for, and a call may be captured into a graph. Calls of one stream run one
  /// after the other, those of others beside it. A fault is told by check(). The other executors have ended when it
  /// returns. One thread at a time. Errors: `call-buffers`, `call-fault`, those of the driver.
  Status call(const CallBuffer *buffers, size_t count, const CallOptions &options = {}) const;
  /// Waits for what the stream has been given, and tells the first fault of all calls since it was last asked
  /// (`call-fault`). What such a call has written means nothing.
  Status check(void *stream = nullptr) const;

  const Messages &messages() const; ///< warnings
  Device device() const;            ///< never Auto
  std::string deviceName() const;   ///< of the GPU; empty elsewhere
  /// What runs. Of the reference executor all is empty.
  const Source &source() const;
  double compileMilliseconds() const, loadMilliseconds() const;
  /// Of a kernel. Of the reference executor all is 0.
  LoadedWeights weights() const;
  std::optional<bool> cacheHit() const; ///< nullopt: there was nothing to compile
  std::string how() const;              ///< as Binary has it

  struct State;
  explicit Kernel(std::shared_ptr<State> state);
  const std::shared_ptr<State> &internals() const { return state; }

private:
  std::shared_ptr<State> state;
};

/// What a fault's code means.
MEGALITH_API std::string faultText(std::string_view code);

} // namespace megalith
#endif
