//===- Options.h - what the command line asked for ------------------------===//
#ifndef MEGALITH_TOOLS_OPTIONS_H
#define MEGALITH_TOOLS_OPTIONS_H

#include "megalith/Api.h"
#include "megalith/Support/Diagnostics.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith::tool {

enum class Emit { Ast, Pipe, Tick, Tensor, Plan, Cuda, CudaControl, CudaTensors, Ptx, Cubin, Manifest };
enum class Format { Auto, Json, Text };

/// `megalith compile`.
struct CompileCommand {
  ProgramOptions compile;
  Emit emit = Emit::Cuda;
  bool emitGiven = false;
  std::string arch = "sm_90a";
  std::string output = "-";
  std::vector<std::string> cuFiles; ///< assemble these units in place of the emitted ones
  bool wholeKernel = false;
  bool noSpills = false; ///< a kernel that spills is an error
};

/// `megalith run`.
struct RunCommand {
  ProgramOptions compile;
  KernelOptions kernel;
  RunOptions session;
  std::string requests, arrivalsFile;
  Format format = Format::Auto;
  std::string traceFile, replayFile, logitsFile, draftsFile, timelineFile;
  bool referenceAtGiven = false;          ///< compile.stopAfter is a pass to run the reference at
  std::vector<std::string> corruptions;   ///< TICK:ID:FIELD:VALUE
  std::string acceptance;                 ///< of synthetic drafts
  std::optional<uint64_t> acceptanceSeed; ///< 0 without
};

/// `megalith explore`. Without a file of requests it makes some up.
struct ExploreCommand {
  ProgramOptions compile;
  std::string requests, arrivalsFile, draftsFile;
  std::vector<std::string> cuFiles;
  bool wholeKernel = false;
  int cpuArch = 900;
  std::optional<uint64_t> shufflePages;
  uint32_t seed = 0;
  double replayEpsilon = 0.05, replayError = 0.05;
  uint64_t seeds = 100, firstSeed = 1;
  bool live = false;
};

/// `megalith bench`.
struct BenchCommand {
  ProgramOptions compile;
  /// The name of a model, or "", and its config.json, or the directory of it.
  std::vector<std::pair<std::string, std::string>> configs;
  std::vector<int64_t> contexts, batches; ///< every combination of them
  int64_t tokens = 64, repeats = 5;
  bool prefill = false; ///< feed the contexts, in place of finding their K and V in the pool
  bool cpu = false;     ///< on the CPU executor, without times
  Control control = Control::Resident;
  int64_t ticksPerLaunch = 0;
  int cpuArch = 900;
  bool wholeKernel = false;
  bool phases = false, json = false;
  std::string timelineFile, csvFile, plotFile;
  /// Of live sessions.
  struct Live {
    std::vector<std::string> parts;       ///< of liveParts
    int64_t shortest = 64, longest = 512; ///< prompts
    std::vector<double> loads, rates;     ///< of what can be served; requests per second
    int64_t requests = 400;               ///< of each open loop
    uint32_t seed = 0;                    ///< of their arrivals
    bool busy = false;                    ///< each once more with all cores busy
    double idleSeconds = 5;
  };
  std::optional<Live> live; ///< in place of all else
};
inline const std::vector<std::string> liveParts = {"speed", "first-token", "open-loop", "idle"};

/// `megalith sweep`: every combination.
struct SweepCommand {
  ProgramOptions compile; ///< without `file`
  std::vector<std::string> files;
  /// Random weights of the shapes of these: the name of a model, or "", and its config.json. None with `--model`.
  std::vector<std::pair<std::string, std::string>> configs;
  std::vector<int64_t> requests, tokens, contexts;
  std::vector<std::string> vary; ///< [PIPELINE:]PARAM=a,b,c
  std::vector<Control> controls;
  std::vector<std::string> acceptance; ///< profiles, or `none`
  uint64_t acceptanceSeed = 0;
  int64_t ticksPerLaunch = 0, repeats = 1;
  Device device = Device::Cuda;
  int cpuArch = 900;
  bool wholeKernel = false;
  double watchdogSeconds = 10;
  std::string csvFile;
};

/// `megalith cache`.
struct CacheCommand {
  bool clean = false, clear = false; ///< by the limits; of everything
  bool json = false;
};

/// Each returns whether all went well; what went wrong is in `diags`.
bool compileCommand(const CompileCommand &command, Diagnostics &diags);
bool runCommand(const RunCommand &command, Diagnostics &diags);
bool exploreCommand(const ExploreCommand &command, Diagnostics &diags);
bool benchCommand(const BenchCommand &command, Diagnostics &diags);
bool sweepCommand(const SweepCommand &command, Diagnostics &diags);
bool cacheCommand(const CacheCommand &command, Diagnostics &diags);

/// Whether there is a value; else its errors are in `diags`.
template <class T> bool got(const Expected<T> &result, Diagnostics &diags) {
  diags.adopt(result.errors());
  return bool(result);
}
/// A program with its warnings told, those of what was taken on the user's word as well.
std::optional<Program> compileProgram(const ProgramOptions &options, Diagnostics &diags);
void reportAccepted(const Program &program, Diagnostics &diags);

/// Those of a file, or of the standard input (`-`).
Expected<std::vector<Request>> readRequests(const Program &program, const std::string &path, Diagnostics &diags);

/// A file of the command line.
struct NamedFile {
  std::string option; ///< that names it
  std::string path;   ///< "" or "-": none
};
/// Whether all of `outputs` can be written, asked before what takes long; reports `cannot-write-file`,
/// and `bad-option` for one that is an input or another output as well.
bool checkOutputs(const std::vector<NamedFile> &outputs, const std::vector<NamedFile> &inputs, Diagnostics &diags);
/// `named`, and the files of `--cu`.
std::vector<NamedFile> readFiles(std::vector<NamedFile> named, const std::vector<std::string> &cuFiles);
/// What a compilation has read beside the files of the command line.
std::vector<NamedFile> filesRead(const Program &program);

/// Writes `data` to `path` ("-": the standard output); reports `cannot-write-file`.
bool writeOutput(const std::string &path, llvm::StringRef data, Diagnostics &diags);

/// Shows `text` in place on a terminal's last line of stderr; nothing elsewhere.
void showProgress(const std::string &text);
/// Takes the progress line away.
void clearProgress();

} // namespace megalith::tool
#endif
