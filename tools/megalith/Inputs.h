//===- Inputs.h - requests and test hooks, read and checked ---------------===//
#ifndef MEGALITH_TOOLS_INPUTS_H
#define MEGALITH_TOOLS_INPUTS_H

#include "Options.h"
#include "megalith/Checkpoint/Requests.h"

namespace megalith::tool {

/// What a run starts from.
struct RunInputs {
  std::vector<Request> requests;          ///< `eos` is always set
  uint32_t file = 0;                      ///< of the requests, in the sources
  std::vector<std::vector<int32_t>> drafts; ///< per request; empty: no hook
  struct Corruption {
    int64_t tick;
    int32_t request;
    std::string field;
    int64_t value;
  };
  std::vector<Corruption> corruptions;
  int64_t vocab = 0;
  bool byteVocabulary = false;

  /// Where a request stands in its file.
  SourceLoc place(const SourceFiles &files, size_t request) const;
};

/// Reads a file of data and registers it, once: a pipe gives its text a single time. Reports
/// `missing`, with `what` it holds.
std::optional<uint32_t> openInput(const std::string &path, const char *what, Diag missing, Diagnostics &diags);

/// Reads the requests (without a file: some small ones) and the hooks, and checks that each request can ever fit
/// its pools (`request-too-large`) and the models' positions (`request-too-long`). nullopt after an error.
std::optional<RunInputs> readInputs(const RunCommand &command, const driver::Compilation &compiled,
                                    Diagnostics &diags);

} // namespace megalith::tool
#endif
