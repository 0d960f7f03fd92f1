//===- RandomModel.h - model files that nobody wrote ----------------------===//
#ifndef MEGALITH_TEST_RANDOM_RANDOMMODEL_H
#define MEGALITH_TEST_RANDOM_RANDOMMODEL_H

#include <cstdint>
#include <map>
#include <string>

namespace megalith::random_models {

/// A model file and the config.json it reads.
struct RandomModel {
  std::string yaml, config;
  bool fused = false; ///< numerics: fused
  /// Mean of the values of a weight vector, by its name: 1 for what scales, 0 for
  /// what is added.
  std::map<std::string, double> means;
};

/// The model of a seed; the same on every machine.
///
/// What varies: names, also words that mean something to the language or to CUDA;
/// the order of sections, weights and statements; widths that are no multiples of
/// anything; pre-norm, post-norm, sandwich and parallel blocks; RMS and layer norms,
/// whole, by head or by group; biases; gates and activations; what is shared among
/// layers; what stands before, in and after the repeat; a second carried value; no
/// repeat at all; tied and untied heads, soft caps; rotary embeddings and none.
RandomModel makeModel(uint64_t seed);

} // namespace megalith::random_models
#endif
