//===- Bench.h - the pieces of `megalith bench` ---------------------------===//
#ifndef MEGALITH_TOOLS_BENCH_H
#define MEGALITH_TOOLS_BENCH_H

#include "ProgramCommand.h"
#include "megalith/Tools.h"

namespace megalith::tool {

using tools::BenchKernel;

class BenchCommand : public ProgramCommand {
public:
  BenchCommand();

  /// The name of a model, or "", and its config.json, or the directory of it.
  std::vector<std::pair<std::string, std::string>> configs;
  std::vector<int64_t> contexts, batches; ///< every combination of them
  int64_t tokens = 64, repeats = 5;
  bool prefill = false; ///< feed the contexts, in place of finding their K and V in the pool
  bool cpu = false;     ///< on the CPU executor, without times
  Control control = Control::Resident;
  int64_t ticksPerLaunch = 0;
  bool wholeKernel = false;
  bool phases = false, json = false;
  std::string sampling; ///< of all requests; empty: none
  std::string timelineFile, csvFile, plotFile;
  /// Of live sessions.
  struct Live {
    std::vector<std::string> parts; ///< `speed`, `first-token`, ...; with some, these are measured and nothing else
    int64_t shortest = 64, longest = 512; ///< prompts
    std::vector<double> loads, rates;     ///< of what can be served; requests per second
    int64_t requests = 400;               ///< of each open loop
    uint32_t seed = 0;                    ///< of their arrivals
    bool busy = false;                    ///< each once more with all cores busy
    double idleSeconds = 5;
  } live;

private:
  std::vector<int64_t> prompts;

  void addLive();
  bool runProgram(Diagnostics &diags) override;
  bool checkLive(Diagnostics &diags);
  bool check(Diagnostics &diags) const;
};

/// The decode ticks of a run: from the first at whose begin every prompt is fed up to its
/// last token, to the end of the run.
struct DecodeWindow {
  size_t first = 0;               ///< tick
  double seconds = 0, before = 0; ///< of it, and from the begin of the run to it
  int64_t tokens = 0;             ///< generated in it
  double bytes = 0;               ///< that its passes read at least: weights, K and V; 0: that is not known
};
/// nullopt when there are no such ticks, or they are not all recorded.
std::optional<DecodeWindow> decodeWindow(const BenchKernel::Run &run, const BenchKernel::Shape &shape);

/// What a combination of context and batch gave.
struct BenchPoint {
  int64_t context = 0, batch = 0;
  struct Times {            ///< medians
    double msPerToken;      ///< between two tokens of one request
    double tokensPerSecond; ///< of all requests
    double floorMs;   ///< msPerToken if passes read weights, K and V at `bandwidth` and did nothing else; 0: not known
    double percent;   ///< floorMs of msPerToken
    double bandwidth; ///< bytes per second
    double kernelMs;  ///< of the whole kernel
    double promptMs;  ///< up to the first decode tick: admission, and what is fed of the prompts
  };
  std::optional<Times> times; ///< none on the CPU executor
  int64_t ticks = 0, passes = 0;
  std::vector<int32_t> tokens; ///< that request 0 generated
};

/// How long the CTAs were in a phase.
struct PhaseTime {
  std::string name;
  int64_t calls;            ///< per tick
  double least, mean, most; ///< of a call, over the CTAs, nanoseconds
  double wait;              ///< from its end to the begin of the next phase
  double share;             ///< of the tick, with the wait
};
/// Ticks from `first` to the one before `end`.
struct TickRange {
  int64_t first, end;
};
/// Of those of `ticks` whose stamps were kept; phases of several layers are one.
std::vector<PhaseTime> phaseTimes(const BenchKernel::Run &run, const BenchKernel::Shape &shape, int64_t stampTicks,
                                  TickRange ticks);
/// One such tick for a viewer of Chrome's trace format: a thread per CTA, an event per phase.
std::string formatTimeline(const BenchKernel::Run &run, const BenchKernel::Shape &shape, int64_t stampTicks,
                           TickRange ticks, const std::vector<std::string> &accepted);

/// What was measured, for a reader.
struct BenchSubject {
  std::string device, shape;
  std::vector<std::string> accepted; ///< of config.json, on the user's word
  std::string control;               ///< who keeps the loop
  std::string sampling;              ///< of all requests; empty: that of no member
};
std::string formatCsv(const std::vector<BenchPoint> &points, const BenchSubject &subject);
/// Percent of the floor over the context, or over the batch when only that varies.
std::string formatPlot(const std::vector<BenchPoint> &points, const std::string &title);
std::string formatTableHead(bool timed, bool prompts);
std::string formatTableLine(const BenchPoint &point, bool prompts);
/// Times are microseconds, or steps of the CPU executor.
std::string formatPhases(const std::vector<PhaseTime> &phases, bool timed);
std::string formatJsonLine(const BenchPoint &point, const std::vector<PhaseTime> &phases, const BenchSubject &subject);

/// Measures what the command asks for.
bool bench(const BenchCommand &command, Diagnostics &diags);
/// What `--live` asks for. `program` has room for it.
bool benchLive(const BenchCommand &command, const Program &program, Diagnostics &diags);

} // namespace megalith::tool
#endif
