//===- State.h - what comes after Program, Kernel and Session -----------===//
#ifndef MEGALITH_LIB_API_STATE_H
#define MEGALITH_LIB_API_STATE_H

#include "megalith/Api.h"
#include "megalith/Automata/TokenFormat.h"
#include "megalith/Driver/Compilation.h"
#include "megalith/Tools.h"
#include "runtime/CallEngine.h"
#include "runtime/Engine.h"
#include "runtime/cpu/CpuCalls.h"
#include "runtime/cpu/CpuEngine.h"
#include <atomic>
#include <mutex>
#include <system_error>

namespace megalith {

struct Program::State {
  driver::CompileOptions options;
  /// Of the compilation, and of files of requests. Kernels read it when they report.
  SourceFiles sources;
  driver::Compilation compiled;
  Messages messages;

  /// The first one, whose EOS tokens are those of requests; null without any.
  const driver::LoadedModel *model() const;
  /// Tokens that requests may have: those of the largest vocabulary. A token that a model lacks faults when it is fed.
  int64_t vocabulary() const;
  std::string whyNoPromptLogprobs() const;

  /// The format of this text. Throws automata::Refused. From any thread.
  std::shared_ptr<const automata::TokenFormat> formatOf(const std::string &text) const;
  /// Null: nobody said what tokens spell. Set once, or before sessions are open.
  mutable std::shared_ptr<automata::Formats> formats;
  mutable std::mutex formatsMutex;
};

struct Kernel::State {
  std::shared_ptr<Program::State> program;
  Device device = Device::Reference;
  std::optional<runtime::Device> gpu; ///< outlives its engine
  std::unique_ptr<runtime::Engine> cuda;
  std::unique_ptr<cpu::CpuEngine> cpu;
  std::unique_ptr<runtime::CallEngine> cudaCalls; ///< of a pipeline of buffers
  std::unique_ptr<cpu::CpuCalls> cpuCalls;
  Source source;
  bool checked = false;
  double compileMs = 0;
  LoadedWeights weights;
  std::optional<bool> cacheHit;
  std::string how;
  Messages messages;
  std::atomic<bool> busy = false; ///< a session runs

  /// Memory of the GPU is given back on whatever thread comes last.
  ~State() {
    if (gpu)
      (void)gpu->makeCurrent();
  }
};

} // namespace megalith

namespace megalith::api {

/// Runs a step of the library and keeps what it throws from leaving it: `out-of-memory`, else
/// `internal-error`.
template <class T, class Step> Expected<T> guarded(Step &&step) {
  Messages caught(const char *what);
  try {
    return step();
  } catch (const std::bad_alloc &) {
    return caught(nullptr);
  } catch (const std::length_error &) { // a size that no memory has
    return caught(nullptr);
  } catch (const std::system_error &error) { // no thread could be started
    return error.code() == std::errc::resource_unavailable_try_again ? caught(nullptr) : caught(error.what());
  } catch (const std::exception &error) {
    return caught(error.what());
  } catch (...) {
    return caught("an exception of an unknown kind");
  }
}
/// `what`: null where memory is short.
Messages caught(const char *what);

/// One error without a place.
template <class... Args> Messages failure(DiagFor<Args...> kind, const Args &...args) {
  SourceFiles none;
  Diagnostics diags(none);
  diags.report(AnyDiag{kind.id}, {}, args...);
  return diags.messages();
}

/// What is wrong with an option outside of its limits; empty: nothing.
template <class T> std::string outside(const char *name, T value, T least, T most) {
  return value >= least && value <= most
             ? ""
             : fmt::format("`{}` must be from {} to {}, found {}", name, least, most, value);
}

using Report = std::function<void(const std::string &)>;
/// Tells about loading weights, or making them.
runtime::LoadOptions loading(const Report &progress, bool random);

inline void tell(const Report &progress, const std::string &text) {
  if (progress)
    progress(text);
}

void reportRuntime(Diagnostics &diags, const runtime::RuntimeError &error);

/// FILE:LINE of a source as a place, all of its line; no place when it is none.
SourceLoc placeOf(llvm::StringRef place, const SourceFiles &files);
/// Where a request stands in its file; no place when it is in none.
SourceLoc placeOf(const Request &request, const SourceFiles &files);

/// The watchdog ended a kernel that was allowed to stand still for so long.
void reportStop(const runtime::RunOutcome::Stop &stop, double seconds, Diagnostics &diags);
void reportFaulted(const std::string &id, const std::string &fault, SourceLoc loc, Diagnostics &diags);

/// The profile to plan for the CPU executor; no GPU is like it.
constexpr const char *cpuProfile = "cpu";
/// Plans for the GPU that is there: by its name, else like the profile with the nearest number
/// of SMs, with one CTA per SM.
void chooseProfile(driver::CompileOptions &options, const runtime::DeviceInfo &info);
/// The GPU `ordinal`, or why there is none.
runtime::Outcome<runtime::Device> openGpu(int ordinal);

/// The driver of the GPU on which a kernel will run.
class DriverLinker : public jit::Linker {
public:
  explicit DriverLinker(const runtime::Driver &driver) : driver(driver) {}
  std::string identity() const override;
  Result link(llvm::StringRef arch, llvm::ArrayRef<Part> parts) const override;

private:
  const runtime::Driver &driver;
};

/// Held while a kernel of the CPU executor is loaded or runs: kernels of one program share the code that they are
/// bound to.
std::mutex &cpuMutex();

/// Plans with these options and emits; edited units stand in for emitted ones. nullopt after an error.
std::optional<Source> makeSource(Program::State &program, const driver::CompileOptions &options,
                                 const std::vector<std::string> &sourceFiles, Diagnostics &diags);
/// As the driver takes them.
emit::Units unitsOf(const Source &source);

/// The kernels that make random weights and measure the read stream, as a unit of its own.
inline emit::Unit benchUnit() { return {"bench.cu", "#include \"megalith/Bench.cuh\"\n"}; }
/// Bytes of the matrices that a pass of a model streams, without padding.
int64_t streamedBytes(const plan::Plan &plan, size_t model);
/// The layers of a model that append K and V.
std::vector<tools::LayerKv> layersOfKv(const ir::Module &module, const ir::Operation &model);
/// Bytes per second at which the engine's GPU reads its memory; nullopt without an engine.
Expected<std::optional<double>> bandwidthOf(runtime::Engine *engine);

/// The options of the compiler's own chain.
driver::CompileOptions compileOptions(const ProgramOptions &options);
/// ProgramOptions::tokenBytes. Reports `token-bytes-file`.
Expected<std::vector<std::string>> readTokenBytes(const std::string &path, int64_t vocabulary);

/// Whether it is no pipeline of buffers; reports `kernel-program`.
bool hasRequests(const Program::State &program, Diagnostics &diags);
/// Whether the program is one that can run; reports `kernel-program`.
bool canRun(const Program::State &program, Diagnostics &diags);
/// Whether something in the pipeline goes by how the request wants tokens to be drawn.
bool readsSettings(const ir::Module &module);
/// Whether a request can ever run: its tokens, its pools (`request-too-large`), the models'
/// positions (`request-too-long`).
/// Makes its format.
void checkRequest(const Program::State &program, Request &request, Diagnostics &diags);
/// All requests of a run, as an executor takes them.
std::vector<Request> checkedRequests(const Program::State &program, std::vector<Request> requests, Diagnostics &diags);

/// Options of a run that every executor takes.
runtime::RunOptions engineOptions(const RunOptions &options, const runtime::Manifest &manifest,
                                  const std::vector<Request> &requests, size_t leastTraceBytes);

/// Runs the requests on the kernel, as often as the options want. nullopt after an error.
/// Reports what a check found, too.
/// `replay`: null, or the trace whose results the runs take.
std::optional<runtime::RunOutcome> execute(Kernel::State &kernel, const RunOptions &options,
                                           const std::vector<Request> &requests, const Trace *replay,
                                           Diagnostics &diags);
std::optional<runtime::RunOutcome> executeOnReference(const Program::State &program, const RunOptions &options,
                                                      const std::vector<Request> &requests, const Trace *replay,
                                                      Diagnostics &diags);
/// Reports `repeat-differs` unless run number `number` (from 2) equals the first.
bool checkRepeat(const runtime::RunOutcome &first, const runtime::RunOutcome &again, unsigned number,
                 Diagnostics &diags);

} // namespace megalith::api
#endif
