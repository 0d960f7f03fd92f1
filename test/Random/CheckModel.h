//===- CheckModel.h - one random model through every stage ----------------===//
#ifndef MEGALITH_TEST_RANDOM_CHECKMODEL_H
#define MEGALITH_TEST_RANDOM_CHECKMODEL_H

#include <cstdint>
#include <string>

namespace megalith::random_models {

struct CheckOptions {
  std::string pipelines; ///< the folder with the pipeline files
  std::string arch;      ///< compile the emitted source for it; empty: do not
  std::string writeTo;   ///< a folder that gets the model's files; empty: none
};

/// What became of one seed.
struct Outcome {
  std::string failure; ///< empty: all is well
  std::string yaml;    ///< the model file, for the message
  bool fused = false;  ///< numerics: fused
  bool planned = false;
  std::string unsupported; ///< why there is no plan
  int64_t tokens = 0, passes = 0;
  int64_t faults = 0; ///< requests that ended in one (a NaN, say)
};

/// Compiles the model of `seed` under one of the pipelines, runs a few requests
/// after lowering and after each pass, and compares tokens, the bits of all logits,
/// traces and KV hashes; then plans and emits. A pass that may drop roundings
/// (fuse-epilogues, for `numerics: fused`) starts a new comparison.
Outcome checkModel(uint64_t seed, const CheckOptions &options);

} // namespace megalith::random_models
#endif
