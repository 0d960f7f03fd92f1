#include "CheckpointFolder.h"
#include "megalith/Json/JsonText.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <regex>

namespace fs = std::filesystem;

namespace megalith {

/// The names of a folder's entries, in order. None of what cannot be read.
static std::vector<std::string> namesIn(const std::string &dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

static std::string firstBytes(const std::string &path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) // a pipe would be waited for
    return "";
  char bytes[200];
  std::ifstream file(path, std::ios::binary);
  file.read(bytes, sizeof bytes);
  return {bytes, static_cast<size_t>(file.gcount())};
}

static bool isPickle(const std::string &name) {
  // What a training leaves beside a model.
  for (const char *other : {"training_args", "optimizer", "scheduler", "rng_state", "scaler"})
    if (name.starts_with(other))
      return false;
  for (const char *end : {".bin", ".pt", ".pth", ".ckpt", ".bin.index.json"})
    if (name.ends_with(end))
      return true;
  return false;
}

Mistaken mistakenFile(const std::string &path) {
  const std::string name = fs::path(path).filename().string(), bytes = firstBytes(path);
  const char *advice = "";
  if (isLfsPointer(bytes))
    advice = lfsAdvice;
  else if (name.ends_with(".gguf") || bytes.starts_with("GGUF"))
    advice =
        "this is a GGUF file, whose weights are mostly quantised; take the checkpoint in Hugging Face's format from "
        "which it was made: a folder with config.json and model.safetensors";
  else if (name.starts_with("adapter_"))
    advice =
        "this belongs to an adapter (LoRA), not to a whole model; merge it into its base model (`merge_and_unload` "
        "of the Python package peft) and save that";
  else if (name.ends_with(".safetensors"))
    advice = "this is a file of weights; give the folder that has it and config.json";
  else if (isPickle(name))
    advice = "these are weights in PyTorch's own format, which is not read because it can run code; download the same "
             "model's `.safetensors` files, or convert it in Python: `AutoModelForCausalLM.from_pretrained(FOLDER)"
             ".save_pretrained(NEW)` of transformers";
  else if (name.ends_with(".h5") || name.ends_with(".msgpack") || name.ends_with(".onnx") || name.ends_with(".npz"))
    advice = "these are weights of another framework; download the same model's `.safetensors` files";
  return {path, advice};
}

Mistaken mistakenFolder(const std::string &dir) {
  std::error_code error;
  const std::vector<std::string> names = namesIn(dir);
  for (const std::string &name : names)
    if (!name.ends_with(".safetensors"))
      if (Mistaken found = mistakenFile(dir + "/" + name); !found.advice.empty() && found.advice != lfsAdvice)
        return found;
  // A cache of downloads has the folders of checkpoints below.
  if (fs::is_directory(dir + "/snapshots", error))
    for (const std::string &name : namesIn(dir + "/snapshots"))
      return {dir, "this is a cache of downloads; give the checkpoint in it, `" + dir + "/snapshots/" + name + "`"};
  return {dir, ""};
}

Mistaken adapterBeside(const std::string &dir) {
  for (const std::string &name : namesIn(dir))
    if (name.starts_with("adapter_config.") || name.starts_with("adapter_model."))
      return {
          dir + "/" + name,
          "there is an adapter (LoRA) beside this model, and it is not applied; merge it (`merge_and_unload` of the "
          "Python package peft) and save that, or move the adapter's files elsewhere to run the model without it"};
  return {dir, ""};
}

OtherShards otherShards(const std::string &dir) {
  OtherShards found;
  for (const std::string &name : namesIn(dir))
    if (name.ends_with(".safetensors.index.json") ||
        (name.starts_with("model.safetensors.") && name.ends_with(".json")))
      found.indices.push_back(name);
    else if (name.ends_with(".safetensors") && !name.starts_with("adapter_"))
      found.files.push_back(name);
  static const std::regex pattern(R"((.*-)(\d{5})(-of-)(\d{5})(.*\.safetensors))");
  std::smatch first;
  if (found.files.empty() || !std::regex_match(found.files.front(), first, pattern))
    return found;
  const int count = std::stoi(first[4]);
  for (int i = 1; i <= count && found.missing.empty(); ++i)
    if (std::string name =
            fmt::format("{}{:05}{}{}{}", first[1].str(), i, first[3].str(), first[4].str(), first[5].str());
        !std::binary_search(found.files.begin(), found.files.end(), name))
      found.missing = std::move(name);
  found.isWhole = found.missing.empty() && found.files.size() == static_cast<size_t>(count);
  return found;
}

} // namespace megalith
