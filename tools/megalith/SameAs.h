//===- SameAs.h - whether two pipelines give the same tokens --------------===//
//
// `megalith run --same-as`: drafting that is lossless gives the tokens of plain decoding.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TOOLS_SAMEAS_H
#define MEGALITH_TOOLS_SAMEAS_H

#include "Common.h"
#include "megalith/Api.h"

namespace megalith::tool {

/// What another pipeline gave for the same requests.
struct OtherRun {
  std::string name;                    ///< as the command line has it
  std::vector<RequestResult> requests; ///< in the order in which they were given
};

/// Runs `requests` through the pipeline `path`, which messages call `name`, with the checkpoints, params and device of
/// another one whose options these are. A param that it does not have says nothing. nullopt after an error.
std::optional<OtherRun> runOther(const std::string &name, const std::string &path, const ProgramOptions &options,
                                 const KernelOptions &kernel, const RunOptions &running,
                                 const std::vector<Request> &requests, Diagnostics &diags);

/// Compares what requests have generated, and how they ended; reports `same-as-differs` with the first one that has
/// something else, and its first token that differs.
bool checkSame(const std::vector<RequestResult> &results, const OtherRun &other, Diagnostics &diags);

} // namespace megalith::tool
#endif
