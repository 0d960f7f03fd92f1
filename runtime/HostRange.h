//===- HostRange.h - what the host does for a run, and when ---------------===//
//
// A profiler sees the ranges (NVTX, domain `megalith`), where the build found NVTX's
// headers. `megalith run --timeline` keeps them.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_HOSTRANGE_H
#define MEGALITH_RUNTIME_HOSTRANGE_H

#include <chrono>
#include <vector>

namespace megalith::runtime {

enum class HostStep {
  Compile, ///< makes the kernel, or takes it from the cache
  Load,    ///< weights onto the device
  Pack,    ///< asks the device to bring them into the kernel's order. Within Load
  Launch,  ///< of the kernel. On the CPU executor the whole run
  Wait,    ///< until the kernel has ended and its results are here
  Results, ///< makes sense of them
};
const char *nameOf(HostStep step);

/// The step goes on while the object lives. Ranges of a thread may lie in each other.
class HostRange {
public:
  explicit HostRange(HostStep step);
  ~HostRange();
  HostRange(const HostRange &) = delete;
  HostRange &operator=(const HostRange &) = delete;

private:
  HostStep step;
  std::chrono::steady_clock::time_point begin;
};

/// A range that has ended; milliseconds since keepHostSpans().
struct HostSpan {
  HostStep step;
  double begin, end;
};
/// Keeps the ranges that begin from now on, of all threads, and forgets earlier ones.
void keepHostSpans();
/// What was kept, in the order of the begins.
std::vector<HostSpan> hostSpans();

} // namespace megalith::runtime
#endif
