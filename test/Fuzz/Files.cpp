//===- Files.cpp - targets that read files beside the programs ------------===//
#include "Fuzz.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include "megalith/Jit/KernelCache.h"
#include "megalith/Requests/Requests.h"
#include "megalith/Requests/Trace.h"
#include "runtime/Manifest.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

namespace megalith::fuzz {

using nlohmann::json;

// --- safetensors

/// The bytes of a file with these tensors of one line of bf16 each.
static std::string tensorFile(std::initializer_list<std::pair<const char *, int>> tensors) {
  json header;
  int end = 0;
  for (const auto &[name, columns] : tensors) {
    header[name] = {{"dtype", "BF16"}, {"shape", {columns}}, {"data_offsets", {end, end + 2 * columns}}};
    end += 2 * columns;
  }
  const std::string text = header.dump();
  std::string out(8, '\0');
  for (int i = 0; i < 8; ++i)
    out[i] = static_cast<char>(text.size() >> 8 * i);
  return out + text + std::string(end, '\1');
}

/// Every tensor lies in the file, where its header says.
static void checkTensors(const SafetensorsFile &file, std::string_view bytes) {
  uint64_t headerBytes = 0;
  std::memcpy(&headerBytes, bytes.data(), 8);
  const std::string_view data = bytes.substr(8 + headerBytes);
  uint64_t total = 0;
  const uint8_t *first = nullptr;
  for (const auto &[name, view] : file.tensors()) {
    uint64_t size = dtypeSize(view.dtype);
    for (int64_t dim : view.shape)
      if (dim < 0 || __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size))
        finding("tensor `" + name + "` has the shape " + view.shapeText());
    if (size != view.size || file.find(name) != &view)
      finding(fmt::format("tensor `{}`: {} bytes, {} by its shape", name, view.size, size));
    total += size;
    if (size && (!first || view.data < first))
      first = view.data;
  }
  if (total != data.size() || (total && std::memcmp(first, data.data(), total) != 0))
    finding(fmt::format("the tensors are {} bytes, the data {}", total, data.size()));
}

void fuzzSafetensors(std::string_view input) {
  static const std::string dir = [] {
    writeScratch("weights/one.safetensors", tensorFile({{"a", 4}, {"b", 2}}));
    writeScratch("weights/two.safetensors", tensorFile({{"c", 3}}));
    writeScratch("weights/deeper/three.safetensors", tensorFile({{"d", 1}}));
    return scratch() + "/weights";
  }();
  const bool isIndex = input.starts_with("{");
  const std::string single = dir + "/model.safetensors";
  if (isIndex) {
    std::filesystem::remove(single);
    writeScratch("weights/model.safetensors.index.json", input);
  } else {
    writeScratch("weights/model.safetensors", input);
  }
  Result<SafetensorsFile> file = SafetensorsFile::load(dir);
  if (!file)
    return checkError(file.error, input);
  if (!isIndex)
    return checkTensors(*file, input);
  unsigned sum = 0;
  for (const auto &[name, view] : file->tensors())
    for (uint64_t i = 0; i < view.size; ++i)
      sum += view.data[i];
  uint64_t bytes = 0;
  for (const auto &[name, view] : file->tensors())
    bytes += view.size;
  if (sum != bytes) // all of them are ones
    finding("a tensor of a shard has other bytes than the shard");
}

// --- requests

static void checkRequests(std::string_view input, const RequestOptions &options) {
  const std::string path = scratch() + "/requests.jsonl";
  Result<std::vector<Request>> requests = parseRequests(input, options, path);
  if (!requests)
    return checkError(requests.error, input);
  std::set<std::string> ids;
  std::string again;
  unsigned line = 0;
  for (const Request &request : *requests) {
    const auto inVocabulary = [&](const std::vector<int32_t> &tokens) {
      return std::all_of(tokens.begin(), tokens.end(), [&](int32_t t) { return t >= 0 && t < options.vocabSize; });
    };
    if (request.id.text.empty() || !ids.insert(request.id.text).second)
      finding("a request without an id of its own: " + request.id.json());
    if (request.tokens.empty() || !inVocabulary(request.tokens) || (request.eos && !inVocabulary(*request.eos)) ||
        !std::all_of(request.stop.begin(), request.stop.end(), inVocabulary))
      finding("request " + request.id.json() + " has tokens outside the vocabulary, or none");
    if (request.maxNewTokens < 0)
      finding("request " + request.id.json() + " asks for less than nothing");
    if (request.line <= line || request.line > 1 + std::count(input.begin(), input.end(), '\n'))
      finding(fmt::format("request {} stands in line {}", request.id.json(), request.line));
    line = request.line;
    json form = {{"id", json::parse(request.id.json())},
                 {"tokens", request.tokens},
                 {"max_new_tokens", request.maxNewTokens},
                 {"priority", request.priority}};
    if (request.eos)
      form["eos"] = *request.eos;
    if (!request.stop.empty())
      form["stop"] = request.stop;
    again += form.dump() + "\n";
  }
  // What was read, written down: reads as the same.
  Result<std::vector<Request>> back = parseRequests(again, options, path);
  if (!back)
    finding("what was read is refused when it is written down: " + back.error.message + "\n" + again);
  for (size_t i = 0; i < requests->size(); ++i) {
    const Request &a = (*requests)[i], &b = (*back)[i];
    if (a.id != b.id || a.tokens != b.tokens || a.maxNewTokens != b.maxNewTokens || a.eos != b.eos ||
        a.stop != b.stop || a.priority != b.priority)
      finding("a request reads as another when it is written down:\n" + again);
  }
}

void fuzzRequests(std::string_view input) {
  checkRequests(input, {300, false});
  checkRequests(input, {260, true});
  // The same file as drafts of two requests.
  static const std::vector<Request> requests = [] {
    auto parsed = parseRequests(R"({"id": "a", "tokens": [1], "max_new_tokens": 1}
{"id": 7, "tokens": [1], "max_new_tokens": 1})",
                                {300, false}, "requests.jsonl");
    return *parsed;
  }();
  const std::string path = scratch() + "/drafts.jsonl";
  auto drafts = parseDrafts(input, requests, 300, path);
  if (!drafts)
    return checkError(drafts.error, input);
  if (drafts->size() != requests.size())
    finding("drafts of other requests");
  for (const std::vector<int32_t> &tokens : *drafts)
    if (std::any_of(tokens.begin(), tokens.end(), [](int32_t t) { return t < 0 || t >= 300; }))
      finding("a draft outside the vocabulary");
}

// --- traces

void fuzzTrace(std::string_view input) {
  const std::string path = scratch() + "/run.trace";
  Result<Trace> trace = parseTrace(input, path);
  if (!trace)
    return checkError(trace.error, input);
  const std::string text = formatTrace(*trace);
  Result<Trace> back = parseTrace(text, path);
  if (!back)
    finding("a trace that is refused when it is written down: " + back.error.message + "\n" + text);
  if (std::string difference = compareTraces(*trace, *back); !difference.empty())
    finding("a trace that reads as another when it is written down: " + difference);
  if (formatTrace(*back) != text)
    finding("a trace that is written down in two ways:\n" + text);
}

// --- the kernel cache

namespace {

/// Whether a parser that calls itself can have it.
bool isShallow(std::string_view text) {
  int depth = 0;
  for (char c : text)
    if (depth += c == '[' || c == '{'; depth > 16)
      return false;
  return true;
}

/// Whether it can be written down: an infinity, which `1e999` is, cannot.
bool isJson(const llvm::json::Value &value) {
  llvm::Expected<llvm::json::Value> back = llvm::json::parse(llvm::formatv("{0}", value).str());
  if (!back)
    llvm::consumeError(back.takeError());
  return static_cast<bool>(back);
}

} // namespace

/// The input is KEY.json, a line `@@` and the code.
void fuzzCache(std::string_view input) {
  SourceFiles files;
  Diagnostics diags(files);
  static const jit::KernelCache cache(scratch() + "/cache", diags);
  if (!cache.enabled())
    finding("a cache in an empty folder is off:\n" + diags.render());
  const std::string key = jit::KernelCache::key({"fuzz"});
  const size_t cut = input.find("\n@@\n");
  const std::string code(cut == input.npos ? "" : input.substr(cut + 4));
  const std::string text(input.substr(0, cut));
  for (const char *suffix : {".cubin", ".so"}) {
    // Put there by somebody who does not know the secret, as it is and with the right key.
    const std::string json = "cache/" + key + ".json";
    writeScratch("cache/" + key + suffix, code);
    for (const std::string &planted :
         {text, llvm::StringRef(text).starts_with("{") ? "{\"key\": \"" + key + "\"," + text.substr(1) : "{}"}) {
      writeScratch(json, planted);
      if (cache.loadEntry(key, suffix) || cache.load(key))
        finding("an entry is taken that the cache did not write");
    }
    // Stored, it comes back; with other code or under another key it does not.
    jit::KernelCache::Entry entry{code, llvm::json::Object()};
    if (isShallow(text)) {
      llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(text);
      if (!parsed)
        llvm::consumeError(parsed.takeError());
      else if (parsed->getAsObject() && isJson(*parsed))
        for (auto &[name, value] : *parsed->getAsObject()) // the seal is the cache's own
          if (llvm::StringRef(name) != "seal")
            entry.info[name] = std::move(value);
    }
    if (!cache.storeEntry(key, suffix, std::move(entry), "// source\n", diags))
      finding("an entry cannot be stored:\n" + diags.render());
    auto back = cache.loadEntry(key, suffix);
    if (!back || back->code != code)
      finding("an entry that was stored does not come back");
    if (auto result = cache.load(key); result && (result->cubin != code || std::string_view(suffix) != ".cubin"))
      finding("a kernel comes back with another code");
    const std::string other = jit::KernelCache::key({"other"});
    for (const char *end : {".json", suffix})
      std::filesystem::copy_file(cache.path(key, end), cache.path(other, end),
                                 std::filesystem::copy_options::overwrite_existing);
    if (cache.loadEntry(other, suffix))
      finding("an entry is taken under another key");
    writeScratch("cache/" + key + suffix, code + "\n");
    if (cache.loadEntry(key, suffix))
      finding("an entry is taken with another code");
    std::filesystem::remove(cache.path(key, suffix));
  }
  checkMessages(diags, false);
}

// --- manifests

void fuzzManifest(std::string_view input) {
  runtime::Outcome<runtime::Manifest> manifest = runtime::Manifest::parse(std::string(input));
  if (!manifest) {
    if (manifest.error.kind != "manifest" || manifest.error.message.empty())
      finding("an error without a text: " + manifest.error.kind);
    return;
  }
  for (const auto &weight : manifest->models[0].weights)
    runtime::Manifest::tensorName(weight, 3);
}

} // namespace megalith::fuzz
