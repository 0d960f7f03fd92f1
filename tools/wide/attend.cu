//===- what the emitter will write of a wide pass's attention -------------===//
#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/WideAttend.cuh"

namespace abi = megalith::abi;
using namespace megalith::device;

#include "AttendTestShapes.h"

__constant__ wide::Step kSteps[] = {wide::attentionStep(wide::AttendShape<Pool>::tilesOfRow)};

struct Wide {
  static constexpr float scale = SCALE;
  __device__ __forceinline__ static Shared &shared() { return sharedOfCta(); }
  __device__ __forceinline__ static int rows() { return sharedOfCta().pass.rows; }
  __device__ __forceinline__ static const wide::Step *steps() { return kSteps; }
  using Kind = void; // of codes: bf16
  __device__ __forceinline__ static void await(const u32 *counter, u32 least) {
    while ((int)(loadAcquire(counter) - least) < 0) {
    }
  }
  __device__ __forceinline__ static const abi::ModelParams &model() { return sharedOfCta().model; }
  __device__ __forceinline__ static int runs() { return sharedOfCta().params.runs; }
  __device__ __forceinline__ static PassRun run(int i) {
    const AttendParams::Run &run = sharedOfCta().params.run[i];
    return {run.slot, run.firstRow, run.rows, run.position, run.firstToken};
  }
  __device__ __forceinline__ static const char *queries(int) { return sharedOfCta().params.queries; }
  __device__ __forceinline__ static char *attended(int) { return sharedOfCta().params.attended; }
  __device__ __forceinline__ static char *parts() {
    return sharedOfCta().params.parts + blockIdx.x * wide::AttendShape<Pool>::partBytes;
  }
};

#if MEGALITH_TEST_INLINED // no registers of a caller are saved: what ptxas spills then is a spill
extern "C" __global__ void __launch_bounds__(kConsumerThreads + 128, 1) inlined(int layer) {
  wide::attend<Wide, Pool>(layer);
}
#else
extern "C" {
__device__ void megalith_wide_deal() { wide::dealSteps<Wide>(); }
__device__ void megalith_wide_attend(int layer) { wide::attend<Wide, Pool>(layer); }
__device__ void megalith_wide_keys(int layer, int part) { wide::bringKeys<Wide, Pool>(layer, part); }
__device__ void megalith_wide_queries(int layer) { wide::bringQueries<Wide, Pool>(layer); }
}
#endif
