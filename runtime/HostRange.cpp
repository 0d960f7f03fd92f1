#include "runtime/HostRange.h"
#include <algorithm>
#include <atomic>
#include <mutex>
#ifdef MEGALITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace megalith::runtime {

using Clock = std::chrono::steady_clock;

const char *nameOf(HostStep step) {
  static const char *const names[] = {"compile", "load", "pack", "launch", "wait", "results"};
  return names[static_cast<int>(step)];
}

namespace {

/// What --timeline keeps.
struct Log {
  std::atomic<bool> keeps = false; ///< asked first: a host that launches each tick has no time to lose
  std::mutex mutex;
  Clock::time_point zero;
  std::vector<HostSpan> spans;
};

Log &theLog() {
  static Log log;
  return log;
}

/// Without a profiler the calls do nothing.
#ifdef MEGALITH_NVTX
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t ours = nvtxDomainCreateA("megalith");
  return ours;
}
void push(const char *name) {
  nvtxEventAttributes_t what = {};
  what.version = NVTX_VERSION;
  what.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  what.messageType = NVTX_MESSAGE_TYPE_ASCII;
  what.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &what);
}
void pop() { nvtxDomainRangePop(domain()); }
#else
void push(const char *) {}
void pop() {}
#endif

} // namespace

HostRange::HostRange(HostStep step) : step(step), begin(Clock::now()) { push(nameOf(step)); }

HostRange::~HostRange() {
  pop();
  Log &log = theLog();
  if (!log.keeps)
    return;
  const auto end = Clock::now();
  const std::lock_guard<std::mutex> lock(log.mutex);
  if (begin < log.zero)
    return;
  const auto since = [&](Clock::time_point t) {
    return std::chrono::duration<double, std::milli>(t - log.zero).count();
  };
  try {
    log.spans.push_back({step, since(begin), since(end)});
  } catch (const std::bad_alloc &) { // a picture with a range less
  }
}

void keepHostSpans() {
  Log &log = theLog();
  const std::lock_guard<std::mutex> lock(log.mutex);
  log.zero = Clock::now();
  log.spans.clear();
  log.keeps = true;
}

std::vector<HostSpan> hostSpans() {
  Log &log = theLog();
  const std::lock_guard<std::mutex> lock(log.mutex);
  std::vector<HostSpan> spans = log.spans;
  std::stable_sort(spans.begin(), spans.end(), [](const HostSpan &a, const HostSpan &b) { return a.begin < b.begin; });
  return spans;
}

} // namespace megalith::runtime
