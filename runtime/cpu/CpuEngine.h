//===- CpuEngine.h - runs requests on the CPU executor --------------------===//
//
//   auto engine = CpuEngine::load("kernel.so", manifestJson, weights);
//   LaunchOptions how;
//   how.check = true;
//   how.schedule = {Schedule::Random, 7};
//   auto result = (*engine)->run(requests, {}, how);
//
// load() copies the weights and packs them once. Runs of the same requests reuse their
// memory, so that many schedules of one run cost little beside the kernel.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_CPU_CPUENGINE_H
#define MEGALITH_RUNTIME_CPU_CPUENGINE_H

#include "runtime/LaunchImage.h"
#include "runtime/Live.h"
#include "runtime/Weights.h"
#include "runtime/cpu/Executor.h"
#include <map>

namespace megalith::cpu {

/// A run, and how its launch went.
struct CpuOutcome {
  runtime::RunOutcome run; ///< when something was found: only ticks, passes and rows so far
  LaunchResult launch;
};

class CpuEngine {
public:
  /// Loads a shared object that lib/Jit/HostCompiler made. `plan-mismatch` when the executor
  /// has no room for its grid, `cpu-kernel` when it is none, was made for another version of the executor, or its
  /// packing fails; `weight-missing` when a tensor is absent, `input-changed` when a file of weights changed meanwhile,
  /// `out-of-memory` when there is no room for something; run() reports that, too.
  static runtime::Outcome<std::unique_ptr<CpuEngine>> load(const std::string &sharedObject, const std::string &manifest,
                                                           const runtime::Checkpoints &weights,
                                                           const runtime::LoadOptions &how = {});
  /// The same with random weights, K and V, of a source that ends with device/Bench.cuh.
  static runtime::Outcome<std::unique_ptr<CpuEngine>>
  loadRandom(const std::string &sharedObject, const std::string &manifest, const runtime::LoadOptions &how = {});
  CpuEngine(const CpuEngine &) = delete;

  const runtime::Manifest &manifest() const { return info; }
  /// Milliseconds of copying and packing.
  double loadMs() const { return loadTime; }
  runtime::WeightBytes weightBytes() const { return bytes; }
  /// A model's weights as the kernel streams them.
  std::string_view packedWeights(size_t model = 0) const {
    return {fixed.models[model].stream, static_cast<size_t>(info.models[model].streamBytes)};
  }
  /// Of an address in the kernel, as Place::pc: its distance from where the shared object
  /// was loaded.
  uint64_t offsetOf(const void *pc) const;

  /// One launch in the manifest's shape. In a checked one, memory that the kernel must
  /// write first is Unwritten, else zeros. Without `how.progress` the counts of ticks
  /// and rows are the progress. One run at a time, of all engines of a shared object.
  runtime::Outcome<CpuOutcome> run(const std::vector<Request> &requests, const runtime::RunOptions &options,
                                   LaunchOptions how = {});

  /// A kernel that takes requests while it runs. `how`: of its launches. The engine must outlive it, and runs nothing
  /// else meanwhile. Without `how.outside` the host is another thread of the process, and the clock is real.
  runtime::Outcome<std::unique_ptr<runtime::LiveRun>>
  openLive(const runtime::LiveTable &table, const runtime::RunOptions &options, LaunchOptions how = {});

  /// Waits for a launch of what openLive() gave, and tells how it went; poll() tells of it as well.
  LaunchResult resultOf(runtime::LiveRun &live);

  /// Called now and then while a kernel runs: ticks and rows so far.
  std::function<void(int64_t ticks, int64_t rows)> onProgress;

private:
  CpuEngine() = default;
  static runtime::Outcome<std::unique_ptr<CpuEngine>> create(const std::string &sharedObject,
                                                             const std::string &manifest);
  static runtime::Outcome<std::unique_ptr<CpuEngine>>
  loadWith(const std::string &sharedObject, const std::string &manifest,
           const std::function<runtime::Failure(CpuEngine &)> &fillMemory);
  runtime::Outcome<CpuOutcome> runWithin(const std::vector<Request> &requests, const runtime::RunOptions &options,
                                         LaunchOptions how);
  runtime::Failure open(const std::string &sharedObject);
  runtime::Failure upload(const runtime::Checkpoints &weights, const runtime::LoadOptions &how);
  runtime::Failure makeRandom(const runtime::LoadOptions &how);
  using Bring = std::function<runtime::Failure(size_t model, const runtime::WeightTensor &,
                                               const runtime::WeightPiece &, char *to)>;
  runtime::Failure packAll(const std::vector<runtime::WeightBatches> &models, const runtime::LoadOptions &how,
                           const Bring &bring);
  /// One launch of `megalith_fill`: elements `first` to `first + elements`.
  runtime::Failure fill(char *memory, uint64_t first, uint64_t elements, const runtime::Fill &how);
  /// Makes the image of these requests, or of a table for some, and gives all its buffers their first content.
  runtime::Failure prepare(const std::vector<Request> &requests, const runtime::RunOptions &options, bool checked,
                           const runtime::LiveTable *live = nullptr);
  /// Memory of this buffer with its first content, reused from earlier runs.
  char *place(const runtime::LaunchBuffer &buffer, bool checked);
  /// One launch of the image, which begins where the last one ended.
  LaunchResult launch(const LaunchOptions &how);
  friend class CpuLive;

  /// First, so that it is closed last.
  struct Library {
    void *handle = nullptr;
    ~Library();
  } library;
  runtime::Manifest info;
  const char *base = nullptr; ///< of the loaded shared object
  void (*bind)(const Host *) = nullptr;
  void (*runKernel)() = nullptr, (*packKernel)() = nullptr; ///< their types depend on the number of models
  void (*fillKernel)(uint16_t *, unsigned long long, unsigned long long, unsigned, float,
                     float) = nullptr; ///< of a benchmark
  Executor executor;
  abi::HostParams fixed = {}; ///< pointers to the weights and the packed stream
  std::vector<runtime::LaunchBuffer> lasting;
  std::optional<runtime::LaunchImage> image;            ///< of the last run, or of the live session that goes on
  std::vector<char> ones;                               ///< what LaunchBuffer::Ones starts as
  bool placed = false;                                  ///< all of it lies in memory
  std::map<std::pair<size_t, size_t>, char *> memories; ///< by member of LaunchParams and size
  double loadTime = 0;
  runtime::WeightBytes bytes;
};

} // namespace megalith::cpu
#endif
