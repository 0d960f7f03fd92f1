#include "WriteModel.h"
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace megalith::random_models {

void writeModel(const std::string &folder, const RandomModel &model, const std::map<std::string, Tensor> &tensors,
                const std::string &pipelineFile, const std::vector<std::pair<std::string, std::string>> &settings,
                const std::vector<Request> &requests) {
  std::filesystem::create_directories(folder);
  auto write = [&](const char *name, const std::string &text) {
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
  };
  write("model.yaml", model.yaml);
  write("config.json", model.config);
  std::ostringstream pipeline;
  pipeline << std::ifstream(pipelineFile).rdbuf();
  std::string text = pipeline.str();
  const std::string unnamed = "target: {}";
  if (size_t at = text.find(unnamed); at != text.npos)
    text.replace(at, unnamed.size(), "target: {graph: model.yaml}");
  write("pipeline.yaml", text);

  nlohmann::json header;
  std::string data;
  for (const auto &[name, tensor] : tensors) {
    size_t begin = data.size();
    data.append(reinterpret_cast<const char *>(tensor.data.data()), tensor.data.size() * 2);
    header[name] = {{"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string head = header.dump();
  head.resize((head.size() + 7) / 8 * 8, ' ');
  uint64_t length = head.size();
  write("model.safetensors", std::string(reinterpret_cast<const char *>(&length), 8) + head + data);

  std::string lines, options;
  for (const Request &r : requests)
    lines += nlohmann::json{{"id", r.id.text},
                            {"tokens", r.tokens},
                            {"max_new_tokens", r.maxNewTokens},
                            {"eos", r.eos.value_or(std::vector<int32_t>())},
                            {"priority", r.priority}}
                 .dump() +
             "\n";
  write("requests.jsonl", lines);
  for (const auto &[name, value] : settings)
    options += fmt::format("--set\n{}={}\n", name, value);
  write("options", options);
}

} // namespace megalith::random_models
