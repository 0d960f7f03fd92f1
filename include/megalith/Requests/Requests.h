//===- Requests.h - The requests of a run -----------------------*- C++ -*-===//
#ifndef MEGALITH_REQUESTS_REQUESTS_H
#define MEGALITH_REQUESTS_REQUESTS_H

#include "megalith/Os/Result.h"
#include "megalith/Request.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// A file has at most so many requests, and a line of it so many bytes.
constexpr size_t MaxRequests = 1'000'000;
constexpr size_t MaxRequestLineBytes = 256 << 20;

struct RequestOptions {
  /// Token ids must be below it.
  int64_t vocabSize = 0;
  /// Allows `text`: each byte of its UTF-8 form is one token.
  bool byteVocabulary = false;
  size_t most = MaxRequests;
  /// What requests bring.
  std::vector<Input> inputs = {};
};

/// Why no request may have these settings; empty when one may.
std::string whyNot(const Sampling &sampling);

/// A request has at most so many stop sequences, each of so many tokens.
constexpr size_t MaxStops = 16;
constexpr size_t MaxStopTokens = 32;
/// Why no request may have these stop sequences; empty when one may. The tokens are not looked at.
std::string whyNot(const std::vector<std::vector<int32_t>> &stop);

/// Reads JSON lines
/// `{"id", "tokens" or "text", "max_new_tokens"[, "eos"][, "stop"][, "priority"][, "sampling"][, "inputs"]}`;
/// blank lines are skipped, and a byte order mark in front of the first one. `file`
/// is named in errors. The first error is returned with its line and, where it is
/// known, its column. Errors: `request-syntax`, `request-key`,
/// `request-empty-prompt`, `request-budget`, `request-duplicate-id`,
/// `request-token-range`, `request-stop`, `request-sampling`, `request-time`, `request-input`, `request-count`.
Result<std::vector<Request>> parseRequests(std::string_view text, const RequestOptions &options,
                                           const std::string &file);

/// The lines that parseRequests() reads as these requests.
std::string formatRequests(const std::vector<Request> &requests);

/// Reads JSON lines `{"id", "tick" or "ms"}` of some of `requests`, in any order: when each arrives. Gives the requests
/// in the order of their arrivals, those of one moment in their own; one without a line is there at the start. Error:
/// `arrivals-file`.
Result<std::vector<Request>> parseArrivals(std::string_view text, std::vector<Request> requests,
                                           const std::string &file);

/// Reads JSON lines `{"id", "tokens"}` of some of `requests`: what is proposed to each
/// of these in place of looking up. In the order of `requests`. Error: `drafts-file`.
Result<std::vector<std::vector<int32_t>>> parseDrafts(std::string_view text, const std::vector<Request> &requests,
                                                      int64_t vocabSize, const std::string &file);

} // namespace megalith

#endif
