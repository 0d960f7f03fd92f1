//===- WriteModel.h - a random model as files -----------------------------===//
#ifndef MEGALITH_TEST_RANDOM_WRITEMODEL_H
#define MEGALITH_TEST_RANDOM_WRITEMODEL_H

#include "RandomModel.h"
#include "megalith/Reference/Executor.h"
#include <utility>
#include <vector>

namespace megalith::random_models {

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<uint16_t> data; ///< bf16, row-major
};

/// Writes into `folder` what `megalith run` takes: model.yaml, pipeline.yaml (that
/// uses it), config.json, model.safetensors, requests.jsonl, and `options` with the
/// `--set`s, one word per line.
void writeModel(const std::string &folder, const RandomModel &model, const std::map<std::string, Tensor> &tensors,
                const std::string &pipelineFile, const std::vector<std::pair<std::string, std::string>> &settings,
                const std::vector<Request> &requests);

} // namespace megalith::random_models
#endif
