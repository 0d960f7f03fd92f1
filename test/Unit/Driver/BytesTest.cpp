// Every textual input with every byte put into it at several places: a value or an error, no
// exception, and nothing in what is shown that a terminal obeys.
#include "../Terminal.h"
#include "megalith/Driver/Compilation.h"
#include "megalith/IR/Text.h"
#include "megalith/Requests/Requests.h"
#include "megalith/Requests/Trace.h"
#include "megalith/Syntax/Parse.h"
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>

using namespace megalith;

namespace {

struct Format {
  const char *name;
  std::string text;
  /// Reads `text` from the registered file; whether it was right.
  std::function<bool(uint32_t file, const std::string &text, Diagnostics &diags)> read;
};

template <class T> bool report(const Result<T> &result, Diagnostics &diags) {
  if (!result)
    driver::reportCheckpoint(diags, result.error);
  return bool(result);
}

std::vector<Request> requests() {
  Request a;
  a.id = "a";
  a.tokens = {1};
  return {a};
}

std::string trace() {
  Trace trace;
  trace.pipeline = "p";
  trace.ticks.resize(1);
  trace.ticks[0].live["m"] = 1;
  trace.ticks[0].passes = {{"m", {{0, 7, 0, 0, 1, -1, 1, 5}}, {1}}};
  trace.ticks[0].slots = {{0, 0, "A", "B", {{"m", 1, 0, {0}}}, {{"g", 0.5}}}};
  trace.requests.resize(1);
  trace.requests[0] = {};
  trace.requests[0].id = "a";
  trace.requests[0].finish = "length";
  return formatTrace(trace);
}

/// Without the list that it names: that is another file.
std::string shippedModel() {
  std::ifstream file(MEGALITH_SOURCE_DIR "/pipelines/models/llama.yaml", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string shared = "  shared: harmless.yaml\n";
  if (const size_t at = text.find(shared); at != std::string::npos)
    text.erase(at, shared.size());
  return text;
}

std::vector<Format> formats() {
  return {
      {"requests", "{\"id\": \"a\", \"tokens\": [1, 2], \"max_new_tokens\": 1, \"eos\": []}\n",
       [](uint32_t, const std::string &text, Diagnostics &diags) {
         return report(parseRequests(text, {260, true}, "f"), diags);
       }},
      {"drafts", "{\"id\": \"a\", \"tokens\": [1, 2]}\n",
       [](uint32_t, const std::string &text, Diagnostics &diags) {
         return report(parseDrafts(text, requests(), 260, "f"), diags);
       }},
      {"a trace", trace(),
       [](uint32_t, const std::string &text, Diagnostics &diags) { return report(parseTrace(text, "f"), diags); }},
      {"config.json", "{\"hidden_size\": 8, \"rope_theta\": 1.5,\n \"eos_token_id\": [1]}",
       [](uint32_t, const std::string &text, Diagnostics &diags) {
         return report(ConfigFile::parse(text, "", "f"), diags);
       }},
      {"generation_config.json", "{\"eos_token_id\": [1, 2]}",
       [](uint32_t, const std::string &text, Diagnostics &diags) {
         return report(ConfigFile::parse("{}", text, "f"), diags);
       }},
      {"a pipeline", "pipeline: p\nparams:\n  a: 'min(1, 2)' # c\nstates: {}\nstages: {}\n",
       [](uint32_t file, const std::string &, Diagnostics &diags) { return bool(ast::parsePipeline(diags, file)); }},
      {"a model", shippedModel(),
       [](uint32_t file, const std::string &, Diagnostics &diags) { return bool(ast::parseModel(diags, file)); }},
      {"IR", "module @m {after = \"lower\", fault = \"F\"} {\n  param @slots {value = 2}\n  state @A {initial}\n}\n",
       [](uint32_t file, const std::string &, Diagnostics &diags) { return bool(ir::parse(diags, file)); }},
  };
}

TEST(Bytes, EveryByteInEveryFormat) {
  for (const Format &format : formats()) {
    // What is right is read, or the rest of this says nothing.
    bool rightOnce = false;
    for (size_t at = 0; at <= format.text.size(); at += std::max<size_t>(1, format.text.size() / 12))
      for (int b = 0; b < 256; ++b) {
        std::string text = format.text;
        text.insert(at, 1, static_cast<char>(b));
        SourceFiles files;
        Diagnostics diags(files);
        const uint32_t file = files.add("f", text);
        const bool right = format.read(file, text, diags);
        rightOnce |= right;
        ASSERT_EQ(right, !diags.hasErrors()) << format.name << ", byte " << b << " at " << at;
        ASSERT_FALSE(controlsTerminal(diags.render())) << format.name << ", byte " << b << " at " << at;
      }
    EXPECT_TRUE(rightOnce) << format.name;
  }
}

TEST(Bytes, ARunHasSoManyRequests) {
  const std::string text = "{\"id\": 1, \"tokens\": [0], \"max_new_tokens\": 1}\n\n"
                           "{\"id\": 2, \"tokens\": [0], \"max_new_tokens\": 1}\n";
  SourceFiles files;
  Diagnostics diags(files);
  files.add("f", text);
  EXPECT_TRUE(report(parseRequests(text, {260, true, 2}, "f"), diags));
  EXPECT_FALSE(report(parseRequests(text, {260, true, 1}, "f"), diags));
  EXPECT_EQ(diags.render(),
            "f:3:1: error: a run has at most 1 requests; give the others to another run [request-count]\n"
            "    3 | {\"id\": 2, \"tokens\": [0], \"max_new_tokens\": 1}\n"
            "      | ^\n");
}

/// The weights are read from files: a header, and an index of shards.
TEST(Bytes, EveryByteInWeights) {
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / "megalith_bytes_test";
  std::filesystem::create_directories(dir);
  const auto check = [&](const char *name, const std::string &text, bool header) {
    for (size_t at = 0; at <= text.size(); at += 5)
      for (int b = 0; b < 256; b += at % 3 ? 7 : 1) {
        std::string edited = text;
        edited.insert(at, 1, static_cast<char>(b));
        std::ofstream out(dir / name, std::ios::binary);
        if (header)
          for (int i = 0; i < 8; ++i)
            out.put(static_cast<char>(edited.size() >> (8 * i)));
        out << edited << (header ? std::string(8, '\0') : "");
        out.close();
        SourceFiles files;
        Diagnostics diags(files);
        if (auto weights = SafetensorsFile::load(dir.string()); !weights)
          driver::reportCheckpoint(diags, weights.error);
        ASSERT_FALSE(controlsTerminal(diags.render())) << name << ", byte " << b << " at " << at;
      }
    std::filesystem::remove(dir / name);
  };
  check("model.safetensors", "{\"w\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", true);
  check("model.safetensors.index.json", "{\"weight_map\": {\"w\": \"a.safetensors\"}}", false);
  std::filesystem::remove_all(dir);
}

} // namespace
