//===- RopeTable.h - Rotary position embedding ------------------*- C++ -*-===//
#ifndef MEGALITH_CHECKPOINT_ROPETABLE_H
#define MEGALITH_CHECKPOINT_ROPETABLE_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith {

/// The rotary embedding of a checkpoint, both spellings of config.json brought
/// to one.
struct RopeParams {
  double theta = 10000.0;
  /// `default`, `linear`, `llama3`, `yarn` or `longrope`.
  std::string type = "default";
  /// The divisor of the frequencies; used by `linear`, `llama3` and `yarn`.
  double factor = 1.0;
  /// Used by `llama3` only.
  double lowFreqFactor = 1.0;
  double highFreqFactor = 1.0;
  int64_t originalMaxPositions = 0; ///< of `llama3`, `yarn` and `longrope`
  /// Values per head that are rotated; even.
  int headDim = 0;
  double attention = 1.0; ///< a factor of cosines and sines; of `yarn` and `longrope`
  /// Used by `yarn` only.
  double betaFast = 32.0, betaSlow = 1.0;
  bool truncate = true;
  /// A divisor of each frequency, of `longrope`: those for at most `originalMaxPositions` positions.
  std::vector<double> shortFactors = {};
  /// The frequencies, where they are known already.
  std::vector<float> frequencies = {};

  /// How many positions the frequencies are right for; nullopt: for any number.
  std::optional<int64_t> mostPositions() const {
    return type == "longrope" ? std::optional(originalMaxPositions) : std::nullopt;
  }
};

/// `headDim / 2` inverse frequencies in f32, operation for operation those of
/// `transformers` (`modeling_rope_utils.py`:
/// `_compute_default_rope_parameters`,
/// `_compute_linear_scaling_rope_parameters`, `_compute_llama3_parameters`,
/// `_compute_yarn_parameters`, `_compute_longrope_parameters`).
std::vector<float> inverseFrequencies(const RopeParams &params);

/// Writes `headDim / 2` cosines and as many sines of the angles at `position`, times `attention`:
/// in f32, then rounded to bf16, since `transformers` casts
/// both to the type of the activations.
void ropeCosSin(const RopeParams &params, int64_t position, float *cos, float *sin);

/// The same from frequencies that are already known; use it for many
/// positions.
void ropeCosSin(const std::vector<float> &inverseFrequencies, double attention, int64_t position, float *cos,
                float *sin);

/// A model's tables: the checkpoint's own, and one of type `default` for each of `bases`. Base 0 turns nothing.
std::vector<RopeParams> ropeTables(const RopeParams &own, const std::vector<double> &bases);

} // namespace megalith

#endif
