//===- RandomPipeline.h - pipeline files that nobody wrote ----------------===//
#ifndef MEGALITH_TEST_RANDOM_RANDOMPIPELINE_H
#define MEGALITH_TEST_RANDOM_RANDOMPIPELINE_H

#include "megalith/Reference/Executor.h"
#include <cstdint>
#include <string>
#include <vector>

namespace megalith::random_pipelines {

/// Tokens of the models that the pipelines run.
constexpr int32_t kVocab = 64;

/// A pipeline file that names `model.yaml`, and requests for it.
struct RandomPipeline {
  std::string yaml;
  bool broken = false;   ///< something was changed that should not be
  int64_t positions = 0; ///< of its pool
  bool samples = false;  ///< it reads more of logits than the best token: its model needs layers
  std::vector<Request> requests;
};

/// Gives the requests values for the pipeline's inputs, but sometimes none where there is a default.
void bringInputs(std::vector<Request> &requests, const std::vector<Input> &declared, uint64_t seed);

/// Gives some of them stop sequences, most of which stand in what they generate without.
void bringStops(std::vector<Request> &requests, const std::vector<std::vector<int32_t>> &generated, uint64_t seed);

/// Lets half of all sets of requests arrive one after the other, some of them be taken back, and some have deadlines.
void bringTimes(std::vector<Request> &requests, uint64_t seed);

/// The pipeline of a seed; the same on every machine.
///
/// What varies: params, inputs and fields of all types with any initial values, sequences and tables, inferred fields;
/// the graph of states, parked ones among them; prefill, decoding, drafts that are verified in one stage or in several,
/// drafts of the model itself in loops of the tick, kept rows and what is drawn with them, trees, settings of requests,
/// two calls in a stage, stages without calls; statements of all kinds, nested; loops and what they change; expressions
/// over all functions and operators, with the largest and least numbers; policies; orders and limits of admission;
/// sizes of pools, pages, slots and passes from 1 to the most there can be. One in four has some words changed,
/// exchanged, doubled or left out. `wordy`: half of the names are words of C++, CUDA and the device code.
RandomPipeline makePipeline(uint64_t seed, bool wordy = false);

} // namespace megalith::random_pipelines
#endif
