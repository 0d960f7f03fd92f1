//===- ReadFile.h - a whole input at once -----------------------*- C++ -*-===//
//
// Every file that a user names is read here: once, from front to end, up to a limit.
// A pipe, as of `<(...)`, is as good as a file. No LLVM: the runtime uses this as well.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_OS_READFILE_H
#define MEGALITH_OS_READFILE_H

#include <cstdint>
#include <optional>
#include <string>

namespace megalith::os {

/// Bytes that an input may have: YAML, IR and CUDA text; JSON that describes a checkpoint;
/// requests, drafts and traces.
inline constexpr uint64_t sourceBytes = 16ull << 20;
inline constexpr uint64_t jsonBytes = 64ull << 20;
inline constexpr uint64_t dataBytes = 4ull << 30;
/// What has no size beforehand (a pipe, a terminal, `/dev/zero`) may have this many at most.
inline constexpr uint64_t streamBytes = 256ull << 20;

/// All of the file, or nothing, and why in `reason`: the system's words, the limit, or
/// that it changed while it was read. No exception leaves this, no memory included.
std::optional<std::string> readFile(const std::string &path, uint64_t most, std::string &reason);

/// The same of what must be a regular file, as what lies in a checkpoint: a pipe there would
/// be waited for.
std::optional<std::string> readRegularFile(const std::string &path, uint64_t most, std::string &reason);

/// The same of what is open already, as the standard input is.
std::optional<std::string> readDescriptor(int descriptor, uint64_t most, std::string &reason);

} // namespace megalith::os
#endif
