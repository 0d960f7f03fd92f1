//===- Report.h - the results of a run, for machines and for readers ------===//
#ifndef MEGALITH_TOOLS_REPORT_H
#define MEGALITH_TOOLS_REPORT_H

#include "megalith/Api.h"
#include <string>
#include <vector>

namespace megalith::tool {

/// What was run, and what came of it.
struct RunReport {
  const Program &program;
  const Kernel &kernel;
  const std::vector<Request> &requests;
  const Results &results;
  std::string synthetic = {}; ///< `--acceptance`: drafts were synthetic
  Control control = Control::Resident;
  std::string sameAs = {}; ///< the pipeline that gave the same tokens

  int64_t tokens() const;
  double tokensPerPass() const;
};

/// `resident`, `host` or `graph`, and the ticks of a launch if there is a number.
std::string controlName(Control control, int64_t ticksPerLaunch = 0);

/// `1 launch`, `2 launches`.
std::string counted(int64_t number, const char *one, const char *several);

/// What was taken on the user's word, as a line for readers; empty without.
std::string acceptedLine(const std::vector<std::string> &accepted);

/// One JSON object per request, then one line with the summary. Tokens below 256 of a model
/// whose vocabulary is bytes are text.
std::string formatJson(const RunReport &report);

/// Prompts and continuations, a chart of each traced gauge, totals.
std::string formatText(const RunReport &report);

/// The run for a viewer of Chrome's trace format: a lane of each slot with the states of its requests, a lane of
/// passes, counters of the pools' pages, and what the host did. It needs the trace. `rangesBefore`: how many of
/// tools::hostRanges() there were when the run began.
std::string formatRunTimeline(const RunReport &report, size_t rangesBefore);

/// The name of --device.
const char *deviceName(Device device);

/// A header line `{"ids", "shapes", "dtype": "f32"}`, then per request
/// [generated][vocab] little-endian floats.
std::string formatLogits(const RunReport &report);

} // namespace megalith::tool
#endif
