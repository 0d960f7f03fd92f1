//===- Measured.h - what `bench` and `sweep` share ------------------------===//
#ifndef MEGALITH_TOOLS_MEASURED_H
#define MEGALITH_TOOLS_MEASURED_H

#include "Common.h"

namespace megalith::tool {

/// What a reader calls the shape: the directory of a config.json, else the file's name. It goes
/// onto terminals and into files of several formats.
std::string shapeName(const std::string &configFile);

/// Request `b`, with a prompt of so many tokens, without EOS. Token `j` is hash32(j ^ hash32(b + 1)) modulo the
/// vocabulary.
Request makeRequest(const Program &program, int64_t context, int64_t b, int64_t tokens);
/// The first ones.
std::vector<Request> makeRequests(const Program &program, int64_t context, int64_t batch, int64_t tokens);

/// The name of the GPU to measure on; nullopt after an error, to which `advice` says what goes without one.
std::optional<std::string> findGpu(const std::string &advice, Diagnostics &diags);

double median(std::vector<double> values);
/// A field of CSV (RFC 4180).
std::string csvField(const std::string &text);
/// Digits that a reader can use.
double significant(double value);

} // namespace megalith::tool
#endif
