//===- CheckPipeline.h - one random pipeline through every stage ----------===//
#ifndef MEGALITH_TEST_RANDOM_CHECKPIPELINE_H
#define MEGALITH_TEST_RANDOM_CHECKPIPELINE_H

#include "RandomPipeline.h"
#include "megalith/Emit/Emit.h"
#include <memory>
#include <string>

namespace megalith::random_pipelines {

/// Two small models in folders of their own, as long as this lives: one without attention, whose kernels compile soon,
/// and one of a layer.
class Models {
public:
  Models();
  Models(const Models &) = delete;
  ~Models();
  std::string folder(bool attends) const { return root + (attends ? "/attends" : "/flat"); }

private:
  std::string root;
};

struct CheckOptions {
  bool run = false;     ///< also on the CPU executor
  bool wordy = false;   ///< see makePipeline
  bool attends = false; ///< with the model that has attention, if the pool is small enough for it
};

/// What became of one seed.
struct Outcome {
  std::string failure; ///< empty: all is well
  std::string yaml;    ///< for the message
  bool accepted = false;
  std::string refusal; ///< the first error's id
  int64_t tokens = 0, passes = 0, faults = 0, limits = 0;
  bool ran = false;    ///< on the CPU executor
  emit::Units units;   ///< the whole source
  std::string control; ///< of it what depends on the pipeline, in a namespace `pSEED`
};

/// Takes the pipeline of `seed` through the checks. What they refuse must be refused at a line of the file. What they
/// accept must pass the verifier after every pass and read back as printed, must give the same trace after each on the
/// reference executor, and must have a plan; with `run` the kernel's trace on the CPU executor must be that of the
/// reference, too.
Outcome checkPipeline(uint64_t seed, const Models &models, const CheckOptions &options);

/// Compiles `text`, of `Outcome::control` or several of them, with the host's compiler, or with NVRTC for `arch`.
/// Returns what they say about it; empty: they accept it.
std::string hostErrors(const std::string &text);
std::string cudaErrors(const std::string &text, const std::string &arch);
/// The source around the control halves of several pipelines.
std::string unitOf(const std::vector<std::pair<uint64_t, std::string>> &controls);

} // namespace megalith::random_pipelines
#endif
