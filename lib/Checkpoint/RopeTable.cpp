#include "megalith/Checkpoint/RopeTable.h"
#include "megalith/Checkpoint/BFloat16.h"
#include <algorithm>
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

/// The frequencies between which `_compute_yarn_parameters` goes over from one formula to the other.
static std::pair<double, double> rangeOfYarn(const RopeParams &params) {
  auto dimension = [&](double rotations) {
    return params.headDim *
           std::log(static_cast<double>(params.originalMaxPositions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(params.theta));
  };
  double low = dimension(params.betaFast), high = dimension(params.betaSlow);
  if (params.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, params.headDim - 1.0);
  return {low, low == high ? high + 0.001 : high};
}

/// One frequency of `_compute_yarn_parameters`, whose reciprocal is `period`.
static float scaleYarn(float period, size_t i, const RopeParams &params, std::pair<double, double> range) {
  const float extrapolated = 1.0f / period;
  const float interpolated = 1.0f / (static_cast<float>(params.factor) * period);
  const float ramp =
      (static_cast<float>(i) - static_cast<float>(range.first)) / static_cast<float>(range.second - range.first);
  const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
  return interpolated * (1.0f - kept) + extrapolated * kept;
}

std::vector<float> megalith::inverseFrequencies(const RopeParams &params) {
  if (!params.frequencies.empty())
    return params.frequencies;
  std::vector<float> result(params.headDim / 2);
  if (params.theta == 0)
    return result;
  const auto range = params.type == "yarn" ? rangeOfYarn(params) : std::pair(0.0, 0.0);
  for (size_t i = 0; i < result.size(); ++i) {
    float exponent = static_cast<float>(2 * i) / static_cast<float>(params.headDim);
    float period = std::pow(static_cast<float>(params.theta), exponent);
    float frequency = 1.0f / period;
    if (params.type == "linear")
      frequency /= static_cast<float>(params.factor);
    else if (params.type == "llama3")
      frequency = scaleLlama3(frequency, params);
    else if (params.type == "yarn")
      frequency = scaleYarn(period, i, params, range);
    else if (params.type == "longrope")
      frequency = 1.0f / (static_cast<float>(params.shortFactors[i]) * period);
    result[i] = frequency;
  }
  return result;
}

void megalith::ropeCosSin(const std::vector<float> &frequencies, double attention, int64_t position, float *cos,
                          float *sin) {
  const float scale = static_cast<float>(attention);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    float angle = static_cast<float>(position) * frequencies[i];
    cos[i] = roundToBf16(std::cos(angle) * scale);
    sin[i] = roundToBf16(std::sin(angle) * scale);
  }
}

void megalith::ropeCosSin(const RopeParams &params, int64_t position, float *cos, float *sin) {
  ropeCosSin(inverseFrequencies(params), params.attention, position, cos, sin);
}

std::vector<RopeParams> megalith::ropeTables(const RopeParams &own, const std::vector<double> &bases) {
  std::vector<RopeParams> tables = {own};
  for (double base : bases)
    tables.push_back({.theta = base, .headDim = own.headDim});
  return tables;
}
