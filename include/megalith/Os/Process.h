//===- Process.h - runs a tool and takes what it prints ---------*- C++ -*-===//
#ifndef MEGALITH_OS_PROCESS_H
#define MEGALITH_OS_PROCESS_H

#include <string>
#include <sys/types.h>
#include <vector>

namespace megalith::os {

struct ProcessOptions {
  std::string directory;  ///< where it runs; empty: here
  std::string temporary;  ///< its TMPDIR; empty: ours
  bool withErrors = true; ///< take standard error too, else drop it
};

struct ProcessResult {
  int status = -1; ///< exit status; 128 + signal; -1: it could not be started
  std::string output;
  std::string error; ///< why it could not be started, or the signal's name
  bool ok() const { return status == 0; }
};

/// A tool under way. No shell, no input, its messages in English (LC_ALL=C). It and what it
/// starts are a process group of their own, which ends with us.
class Process {
public:
  /// `command`: the file to run, with its path, then the arguments.
  Process(const std::vector<std::string> &command, const ProcessOptions &options = {});
  Process(const Process &) = delete;
  ~Process() { finish(); }
  /// Waits for its end.
  ProcessResult finish();

private:
  pid_t pid = -1;
  int pipe = -1;
  std::string error;
};

inline ProcessResult run(const std::vector<std::string> &command, const ProcessOptions &options = {}) {
  return Process(command, options).finish();
}

} // namespace megalith::os
#endif
