//===- Options.h - what the command line asked for ------------------------===//
#ifndef MEGALITH_TOOLS_OPTIONS_H
#define MEGALITH_TOOLS_OPTIONS_H

#include "Schedule.h"
#include "megalith/Driver/Compilation.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith::tool {

enum class Emit { Ast, Pipe, Tick, Tensor, Plan, Cuda, Ptx, Cubin, Manifest };
enum class DeviceChoice { Auto, Cuda, Cpu, Reference };
enum class Format { Auto, Json, Text };

/// `megalith compile`.
struct CompileCommand {
  driver::CompileOptions compile;
  Emit emit = Emit::Cuda;
  bool emitGiven = false;
  std::string arch = "sm_90a";
  std::string output = "-";
  std::string cuFile;    ///< assemble this source in place of the emitted one
  bool noSpills = false; ///< a kernel that spills is an error
};

/// `megalith run`.
struct RunCommand {
  driver::CompileOptions compile;
  bool profileGiven = false;
  std::string requests;
  DeviceChoice device = DeviceChoice::Auto;
  Format format = Format::Auto;
  std::string traceFile, replayFile, cuFile, logitsFile;
  double replayEpsilon = 0.05;
  bool referenceAtGiven = false; ///< compile.stopAfter is a pass to run the reference at
  int64_t maxTicks = 0;          ///< 0 = no limit
  std::optional<uint64_t> shufflePages;
  bool kvHash = false;
  std::string draftsFile;
  std::vector<std::string> corruptions; ///< TICK:ID:FIELD:VALUE
  unsigned delaySeed = 0;
  double watchdogSeconds = 10;
  bool watchdogGiven = false;
  std::optional<cpu::Schedule> schedule; ///< cpu: implies checking
  bool check = false;                    ///< cpu: a checked launch
  int cpuArch = 900;                     ///< cpu: __CUDA_ARCH__
  unsigned repeat = 1;
};

/// `megalith explore`. Without a file of requests it makes some up.
struct ExploreCommand {
  RunCommand run;
  uint64_t seeds = 100, firstSeed = 1;
};

/// `megalith bench`.
struct BenchCommand {
  driver::CompileOptions compile;
  bool profileGiven = false;
  std::string config;                  ///< config.json, or its directory
  std::vector<int64_t> contexts, batches; ///< every combination of them
  int64_t tokens = 64, repeats = 5;
  bool prefill = false;                ///< feed the contexts, in place of finding their K and V in the pool
  bool cpu = false;                    ///< on the CPU executor, without times
  int cpuArch = 900;
  bool phases = false, json = false;
  std::string timelineFile, csvFile, plotFile;
};

/// Each returns whether all went well; what went wrong is in `diags`.
bool compileCommand(const CompileCommand &command, Diagnostics &diags);
bool runCommand(const RunCommand &command, Diagnostics &diags);
bool exploreCommand(const ExploreCommand &command, Diagnostics &diags);
bool benchCommand(const BenchCommand &command, Diagnostics &diags);

/// A file of the command line.
struct NamedFile {
  std::string option; ///< that names it
  std::string path;   ///< "" or "-": none
};
/// Whether all of `outputs` can be written, asked before what takes long; reports `cannot-write-file`,
/// and `bad-option` for one that is an input or another output as well.
bool checkOutputs(const std::vector<NamedFile> &outputs, const std::vector<NamedFile> &inputs, Diagnostics &diags);
/// What a compilation has read beside the files of the command line.
std::vector<NamedFile> filesRead(const driver::Compilation &compiled, const SourceFiles &sources);
/// Warns of each key and tensor that was taken on the user's word.
void reportAccepted(const driver::Compilation &compiled, Diagnostics &diags);

/// Writes `data` to `path` ("-": the standard output); reports `cannot-write-file`.
bool writeOutput(const std::string &path, llvm::StringRef data, Diagnostics &diags);

/// Shows `text` in place on a terminal's last line of stderr; nothing elsewhere.
void showProgress(const std::string &text);
/// Takes the progress line away.
void clearProgress();

} // namespace megalith::tool
#endif
