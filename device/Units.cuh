//===- Units.cuh - what crosses between the two units of a kernel ---------===//
//
// A kernel is compiled in two units, which are linked:
//
//   control   the pipeline: its request, its stages, its ticks. It compiles in a second.
//   tensors   the models, and the entry points `megalith_run` and `megalith_pack`. Pipelines of a model share its
//             code: no name of theirs is in its text, and it is short or full (docs/compiler.md).
//
// Both include this file. All else that they share is memory: the launch's parameters, control's state and
// PassShared, all three in shared memory. Each unit leaves a record of the sizes that it was compiled with. The host
// compares the two records before a launch.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Pass.cuh"

namespace megalith::device {

/// What a unit was compiled with.
struct UnitFacts {
#define UNIT_FACT(Name, Text) int Name;
#define MODEL_FACT(Name, Text) int Name[limits::models];
#include "megalith/UnitFacts.def"
};

/// Of model number `model`: the one model's, or an element of a list.
__device__ constexpr int factOf(int fact, int) { return fact; }
template <int Count> __device__ constexpr int factOf(const int (&facts)[Count], int model) { return facts[model]; }

/// `Plan`: what the emitted text says of the plan, or of the pipeline.
template <class Plan> __device__ constexpr UnitFacts factsOfUnit() {
  UnitFacts facts = {};
  facts.abi = abi::kAbiVersion;
  facts.paramsBytes = sizeof(abi::LaunchParams);
  facts.controlBegin = Plan::controlBegin;
  facts.passBytes = sizeof(PassOf<Plan>);
  facts.passRows = MEGALITH_OFFSET(PassShared, rows);
  facts.passPlaces = MEGALITH_OFFSET(PassShared, kv);
  facts.rowBytes = sizeof(Row);
  facts.rowsPerPass = readRowsOf<Plan>();
  facts.wide = mayRunWide<Plan>();
  facts.reduces = asksMore<Plan>() ? resultsOf<Plan>() : 0;
  facts.models = abi::kModels;
  for (int i = 0; i < abi::kModels; ++i) {
    facts.vocab[i] = factOf(Plan::vocab, i);
    facts.pages[i] = factOf(Plan::pages, i);
    facts.pageTokens[i] = factOf(Plan::pageTokens, i);
  }
  return facts;
}

} // namespace megalith::device

extern "C" {
/// The control unit's. CTA 0's consumers call it before the first tick. `pass`: CTA 0's.
__device__ void controlStart(megalith::device::PassShared &pass);
/// The control unit's. CTA 0's consumers call it: ticks up to the next pass, or to the end of the loop.
/// `afterPass`: first the rest of the tick whose pass has run.
__device__ void controlTicks(bool afterPass);
/// The control unit's. CTA 0's consumers call it after the last tick of a launch after which another one goes on.
__device__ void controlKeep();

// Each unit defines its own. The host finds them by these names.
MEGALITH_VISIBLE extern const __device__ megalith::device::UnitFacts megalith_control_facts;
MEGALITH_VISIBLE extern const __device__ megalith::device::UnitFacts megalith_tensor_facts;
}

#undef MEGALITH_OFFSET
#undef MEGALITH_VISIBLE
