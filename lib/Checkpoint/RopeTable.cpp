#include "megalith/Checkpoint/RopeTable.h"
#include "megalith/Checkpoint/BFloat16.h"
#include <cmath>
#include <numbers>

using namespace megalith;

/// One frequency of `_compute_llama3_parameters`. PyTorch computes `number /
/// tensor` as `reciprocal(tensor) * number`; the same roundings are made here.
static float scaleLlama3(float frequency, const RopeParams &params) {
  float factor = static_cast<float>(params.factor);
  double context = static_cast<double>(params.originalMaxPositions);
  float lowWavelength = static_cast<float>(context / params.lowFreqFactor);
  float highWavelength = static_cast<float>(context / params.highFreqFactor);
  float wavelength = (1.0f / frequency) * static_cast<float>(2 * std::numbers::pi);
  if (wavelength > lowWavelength)
    return frequency / factor;
  if (wavelength < highWavelength)
    return frequency;
  float smooth = ((1.0f / wavelength) * static_cast<float>(context) - static_cast<float>(params.lowFreqFactor)) /
                 static_cast<float>(params.highFreqFactor - params.lowFreqFactor);
  float scaled = (1.0f - smooth) * frequency / factor;
  return scaled + smooth * frequency;
}

std::vector<float> megalith::inverseFrequencies(const RopeParams &params) {
  std::vector<float> result(params.headDim / 2);
  for (size_t i = 0; i < result.size(); ++i) {
    float exponent = static_cast<float>(2 * i) / static_cast<float>(params.headDim);
    float frequency = 1.0f / std::pow(static_cast<float>(params.theta), exponent);
    if (params.type == "linear")
      frequency /= static_cast<float>(params.factor);
    else if (params.type == "llama3")
      frequency = scaleLlama3(frequency, params);
    result[i] = frequency;
  }
  return result;
}

void megalith::ropeCosSin(const std::vector<float> &frequencies, int64_t position, float *cos, float *sin) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    float angle = static_cast<float>(position) * frequencies[i];
    cos[i] = roundToBf16(std::cos(angle));
    sin[i] = roundToBf16(std::sin(angle));
  }
}

void megalith::ropeCosSin(const RopeParams &params, int64_t position, float *cos, float *sin) {
  ropeCosSin(inverseFrequencies(params), position, cos, sin);
}
