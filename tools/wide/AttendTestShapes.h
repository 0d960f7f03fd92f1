// The shapes and the shared memory of attend.cu and of its entry. DIM, HEADS and KV_HEADS vary.
#pragma once
#include "AttendTestParams.h"
#ifndef DIM
#define DIM 64
#define HEADS 32
#define KV_HEADS 8
#endif
struct Pool {
  static constexpr int model = 0, heads = HEADS, kvHeads = KV_HEADS, headDim = DIM, layers = 16, pages = 512,
                       pageTokens = 128;
#ifdef WINDOW
  static constexpr int mostWindow = WINDOW;
  __device__ static int window(int) { return WINDOW; }
#endif
#ifdef CAP
  static constexpr float softCap = CAP;
#endif
};
#ifndef SCALE
#define SCALE 0.125f
#endif
struct Shared {
  AttendParams params;
  abi::ModelParams model;
  wide::Sync sync;
  wide::Pass pass;
  wide::Deals deals;
  wide::Multiplied multiplied;
  wide::AttendUnit units[2];
  alignas(1024) char turns[kConsumerWarps * wide::kTurnBytes];
  alignas(1024) char stages[wide::kStages * wide::kStageBytes];
};
__device__ __forceinline__ Shared &sharedOfCta() { return *reinterpret_cast<Shared *>(dynamicShared()); }
