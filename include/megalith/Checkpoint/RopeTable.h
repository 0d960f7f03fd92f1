//===- RopeTable.h - Rotary position embedding ------------------*- C++ -*-===//
#ifndef MEGALITH_CHECKPOINT_ROPETABLE_H
#define MEGALITH_CHECKPOINT_ROPETABLE_H

#include <cstdint>
#include <string>
#include <vector>

namespace megalith {

/// The rotary embedding of a checkpoint, both spellings of config.json brought
/// to one.
struct RopeParams {
  double theta = 10000.0;
  /// `default`, `linear` or `llama3`.
  std::string type = "default";
  /// The divisor of the frequencies; used by `linear` and `llama3`.
  double factor = 1.0;
  /// The rest is used by `llama3` only.
  double lowFreqFactor = 1.0;
  double highFreqFactor = 1.0;
  int64_t originalMaxPositions = 0;
  /// Values per head; even. All of them are rotated.
  int headDim = 0;
};

/// `headDim / 2` inverse frequencies in f32, operation for operation those of
/// `transformers` (`modeling_rope_utils.py`:
/// `_compute_default_rope_parameters`,
/// `_compute_linear_scaling_rope_parameters`, `_compute_llama3_parameters`).
std::vector<float> inverseFrequencies(const RopeParams &params);

/// Writes `headDim / 2` cosines and as many sines of the angles at `position`:
/// angle and function in f32, then rounded to bf16, since `transformers` casts
/// both to the type of the activations.
void ropeCosSin(const RopeParams &params, int64_t position, float *cos, float *sin);

/// The same from frequencies that are already known; use it for many
/// positions.
void ropeCosSin(const std::vector<float> &inverseFrequencies, int64_t position, float *cos, float *sin);

} // namespace megalith

#endif
