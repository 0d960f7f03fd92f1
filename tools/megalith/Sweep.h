//===- Sweep.h - the pieces of `megalith sweep` ---------------------------===//
#ifndef MEGALITH_TOOLS_SWEEP_H
#define MEGALITH_TOOLS_SWEEP_H

#include "ProgramCommand.h"
#include "megalith/Tools.h"

namespace megalith::tool {

/// `megalith sweep`: every combination.
class SweepCommand : public ProgramCommand {
public:
  SweepCommand();

  /// Random weights of the shapes of these: the name of a model, or "", and its config.json. None with `--model`.
  std::vector<std::pair<std::string, std::string>> configs;
  std::vector<int64_t> requests, tokens, contexts;
  std::vector<std::string> vary; ///< [PIPELINE:]PARAM=a,b,c
  std::vector<Control> controls;
  std::vector<std::string> acceptance; ///< profiles, or `none`
  uint64_t acceptanceSeed = 0;
  int64_t ticksPerLaunch = 0, repeats = 1;
  Device device = Device::Cuda;
  bool wholeKernel = false;
  double watchdogSeconds = 10;
  std::string csvFile;

private:
  bool runProgram(Diagnostics &diags) override;
};

/// A pipeline with values of the params that vary.
struct SweepKernel {
  Program program;
  std::map<std::string, std::string> params; ///< of those that vary for it
  bool drafts;                               ///< it looks some up
};

/// One combination.
struct SweepPoint {
  size_t kernel;
  int64_t context, tokens, requests;
  std::string acceptance; ///< `none`: the pipeline's own drafts
  Control control;
};

/// What a sweep measures, in the order in which it does: kernel by kernel, what others are compared with first.
struct SweepPlan {
  std::vector<SweepKernel> kernels; ///< those without drafts first
  std::vector<SweepPoint> points;
  std::vector<std::string> params; ///< that vary, in the order of the command line
  std::string deviceName;          ///< of a GPU
  std::string key;                 ///< of all options, kernels and the device
};
/// Compiles the programs and checks that all can run. nullopt after an error.
std::optional<SweepPlan> planSweep(const SweepCommand &command, Diagnostics &diags);

/// A line of the file, by column.
using SweepRow = std::map<std::string, std::string>;

/// The CSV of a sweep: what it has already, and what comes.
class SweepTable {
public:
  SweepTable(const SweepCommand &command, const SweepPlan &plan);

  /// Takes what the file has. False after an error: it is no file of this sweep.
  bool open(Diagnostics &diags);
  size_t rows() const { return all.size(); }
  /// The columns that say which row it is.
  SweepRow keyOf(const SweepPoint &point, int64_t repeat) const;
  bool has(const SweepRow &key) const;
  /// Fills in what compares it with other rows, and writes it after them. False after an error.
  bool add(const SweepPoint &point, SweepRow row, Diagnostics &diags);
  /// `ms` on a GPU, else `ticks`.
  const char *unit() const { return gpu ? "ms" : "ticks"; }

private:
  const SweepPlan &plan;
  const std::string path; ///< "" or "-": the standard output
  const bool gpu;
  bool begun = false; ///< the header is there
  std::vector<std::string> columns, keyColumns;
  std::vector<SweepRow> all;

  std::string lineOf(const SweepRow &row) const;
  /// The rows that say the same in these columns.
  std::vector<const SweepRow *> like(const SweepRow &wanted) const;
  void compareControls(const SweepPoint &point, SweepRow &row) const;
  void comparePlain(const SweepPoint &point, SweepRow &row) const;
};

/// Measures what the command asks for.
bool sweep(const SweepCommand &command, Diagnostics &diags);

} // namespace megalith::tool
#endif
