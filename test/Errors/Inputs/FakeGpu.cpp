// A libcuda.so.1 for tests of `megalith run --device=cuda` without a GPU: the fake
// driver of test/Unit/Runtime with a resident kernel that ends every request at
// once, or fails as FAKE_GPU says:
//   stop      the watchdog ended it at edge 2 of tick 5
//   noise     its run number is the first generated token
//   dropped   three records of the trace did not fit
//   torn      the trace is not one
//   symbol    the cubin has no such kernel
//   units     its tensor unit finds control at another place than its control unit
// Each request is admitted 1 ms and gets its token 2.5 ms after the begin of the run.
// A run that wants records of its ticks gets two of 1 ms and 2 ms; the second is the
// first that decodes. If it wants a trace, too, each of them has a record.
#include "device/Abi.h"

#define FAKE_CUDA_LAUNCHED
#define cuModuleGetFunction findNothing
extern "C" {
#include "test/Unit/Runtime/FakeCuda.c"
}
#undef cuModuleGetFunction

using namespace megalith;

static bool fails(const char *how) {
  const char *wanted = getenv("FAKE_GPU");
  return wanted && strcmp(wanted, how) == 0;
}

/// The facts of units that fit.
__attribute__((constructor)) static void makeFacts() {
  char facts[120];
  snprintf(facts, sizeof facts, "%d %zu 191104 6536 24 4120 32 128 0 0 1 260 0 0 0 512 0 0 0 128 0 0 0",
           abi::kAbiVersion, sizeof(abi::LaunchParams));
  setenv("FAKE_CUDA_FACTS", facts, 0);
  snprintf(facts, sizeof facts, "%d %zu 189056 6536 24 4120 32 128 0 0 1 260 0 0 0 512 0 0 0 128 0 0 0",
           abi::kAbiVersion, sizeof(abi::LaunchParams));
  if (fails("units"))
    setenv("FAKE_CUDA_TENSOR_FACTS", facts, 0);
}

extern "C" int cuModuleGetFunction(void **function, void *, const char *name) {
  if (fails("symbol") && strcmp(name, "megalith_run") == 0)
    return 500;
  return *function = (void *)name, 0;
}

/// The descriptors carry fields after the header: the test says how long each is.
static void launched(void **parameters) {
  static int runs = 0;
  ++runs;
  const auto &p = *static_cast<abi::LaunchParams *>(parameters[0]);
  const long bytes = setting("FAKE_GPU_REQUEST_BYTES", sizeof(abi::RequestOf<1>));
  for (int i = 0; i < p.numRequests; ++i) {
    auto &request = *reinterpret_cast<abi::RequestHeader *>(p.requests + i * bytes);
    request.state = setting("FAKE_GPU_STATE", 3); // terminal
    request.generated = 1;
    p.times[request.timeBegin] = {2000000, 0, 0, 1};
    p.times[request.timeBegin + 1] = {3500000, 0, 1, 1};
    p.tokens[request.tokenBegin + request.promptLen] = fails("noise") ? runs : 65;
  }
  p.stats->begin = 1000000;
  if (p.ticks) {
    p.stats->ticks = 2;
    p.ticks[0] = {1000000, p.numRequests, p.numRequests, 0, 0, 0};
    p.ticks[1] = {2000000, p.numRequests, 0, 0, p.numRequests * p.kvInPlace, p.numRequests};
    p.ticks[2] = {4000000, 0, 0, p.numRequests, 0, 0};
    for (unsigned tick = 0; tick < 2 && p.trace; ++tick) { // with tick + 1 live pages, and nothing else
      const unsigned words[] = {abi::kTraceTick, abi::kTraceTickWords, tick, tick + 1, 0, 0, 8, 0};
      memcpy(p.trace + tick * abi::kTraceTickWords, words, sizeof words);
      p.stats->traceWords += abi::kTraceTickWords;
    }
  }
  if (fails("stop"))
    *p.stop = {1, 7, 2, 5};
  if (fails("dropped"))
    p.stats->traceDropped = 3;
  if (p.kept) { // three launches
    p.stats->ticks = runs;
    p.stats->unfinished = runs < 3;
  }
  if (fails("torn"))
    p.stats->traceWords = 12;
}
