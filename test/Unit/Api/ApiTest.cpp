#include "megalith/Api.h"
#include "megalith/Os/Temporary.h"
#include "megalith/Tools.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace megalith;

namespace {

const std::string pipelines = MEGALITH_SOURCE_DIR "/pipelines/", demo = MEGALITH_SOURCE_DIR "/models/demo";

ProgramOptions options() {
  ProgramOptions out;
  out.file = pipelines + "autoregressive.yaml";
  out.models = {{"", demo}};
  return out;
}

std::string textOf(const std::string &path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// All tests run one kernel of the reference executor.
class Runs : public ::testing::Test {
protected:
  static void SetUpTestSuite() {
    auto compiled = Program::compile(options());
    ASSERT_TRUE(compiled) << compiled.errors().text();
    program = new Program(*compiled);
    auto loaded = Kernel::load(*program, {.device = Device::Reference});
    ASSERT_TRUE(loaded) << loaded.errors().text();
    kernel = new Kernel(*loaded);
  }
  static void TearDownTestSuite() {
    delete kernel;
    delete program;
  }
  static Request request(const char *id, int64_t budget = 3) {
    return {.id = id, .tokens = {73, 110, 32}, .maxNewTokens = budget, .eos = std::vector<int32_t>()};
  }
  static Program *program;
  static Kernel *kernel;
};
Program *Runs::program;
Kernel *Runs::kernel;

template <class T> std::string textOf(const Expected<T> &failed) {
  return failed ? "no error" : failed.errors().text();
}

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }
#define EXPECT_ERROR(failed, part) EXPECT_TRUE(contains(textOf(failed), part)) << textOf(failed)

TEST(Programs, GiveSourcePlanAndManifestAsData) {
  ProgramOptions how = options();
  how.weights = false;
  how.profile = "a100";
  auto program = Program::compile(how);
  ASSERT_TRUE(program) << program.errors().text();
  EXPECT_EQ(program->name(), "autoregressive");
  EXPECT_EQ(program->param("no_such_param"), std::nullopt);
  EXPECT_GT(program->param("slots").value_or(0), 0);
  EXPECT_EQ(program->modelFiles(), (std::map<std::string, std::string>{{"target", pipelines + "models/llama.yaml"}}));
  std::string states;
  for (const Program::RequestState &state : program->states())
    states += state.name + (state.slot ? " slot" : "") + (state.terminal ? " terminal" : "") + ", ";
  EXPECT_EQ(states, "QUEUED, PREFILL slot, DECODE slot, COMPLETE terminal, FAILED terminal, ");
  auto source = program->source();
  ASSERT_TRUE(source) << source.errors().text();
  EXPECT_TRUE(contains(source->cuda, "megalith_run"));
  EXPECT_TRUE(contains(source->plan, "plan for a100"));
  EXPECT_TRUE(contains(source->manifest, "\"profile\": \"a100\""));
  auto kernel = Kernel::load(*program, {.device = Device::Reference});
  EXPECT_ERROR(kernel, "without its weights; leave `weights` true [kernel-program]");
}

TEST(Programs, ErrorsAreData) {
  ProgramOptions how = options();
  how.texts[how.file] = "pipeline: p\nmodles: {}\n";
  auto program = Program::compile(how);
  ASSERT_FALSE(program);
  const Error error = program.errors().first();
  EXPECT_FALSE(error.warning);
  EXPECT_EQ(error.kind, "unknown-key");
  EXPECT_EQ(error.message, "unknown key `modles` in the pipeline file");
  EXPECT_EQ(error.file, how.file);
  EXPECT_EQ(error.line, 2u);
  EXPECT_EQ(error.column, 1u);
  EXPECT_EQ(error.length, 6u);
  ASSERT_EQ(error.notes.size(), 1u);
  EXPECT_EQ(error.notes[0].message, "did you mean `models`?");
  EXPECT_EQ(error.text, how.file + ":2:1: error: unknown key `modles` in the pipeline file [unknown-key]\n"
                                   "    2 | modles: {}\n"
                                   "      | ^~~~~~\n"
                                   "note: did you mean `models`?\n");
  how.file = "no/such/file.yaml";
  EXPECT_ERROR(Program::compile(how), "cannot read `no/such/file.yaml`");
}

TEST(Programs, TakeTextsInPlaceOfFiles) {
  ProgramOptions how = options();
  const std::string pipeline = textOf(how.file), model = textOf(pipelines + "models/llama.yaml"),
                    harmless = textOf(pipelines + "models/harmless.yaml");
  how.file = "nowhere/p.yaml";
  how.texts = {
      {"nowhere/p.yaml", pipeline}, {"nowhere/models/llama.yaml", model}, {"nowhere/models/harmless.yaml", harmless}};
  how.weights = false;
  auto program = Program::compile(how);
  EXPECT_TRUE(program) << program.errors().text();
}

TEST(Programs, TheCheckpointChoosesAmongTexts) {
  ProgramOptions how = options();
  how.texts = {{"nowhere/p.yaml", textOf(how.file)},
               {"nowhere/a.yaml", "model: a\nfor: {model_type: another}\n"},
               {"nowhere/models/b.yaml", "model: b\nfor: {model_type: llama}\nconfi: {}\n"}};
  how.file = "nowhere/p.yaml";
  how.weights = false;
  auto program = Program::compile(how);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.errors().first().kind, "unknown-key") << program.errors().text();
  EXPECT_EQ(program.errors().first().file, "nowhere/models/b.yaml");
  how.texts["nowhere/models/b.yaml"] = "model: b\nfor: {model_type: another}\n";
  program = Program::compile(how);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.errors().first().kind, "no-model-file") << program.errors().text();
  EXPECT_GE(program.errors().first().notes.size(), 4u); // two files, the folders, advice
  EXPECT_NE(program.errors().first().notes[1].message.find("`nowhere/models/b.yaml`"), std::string::npos);
}

TEST(Programs, WithOtherParamsKeepTheirModelFile) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "megalith-recompiled";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(pipelines, folder, std::filesystem::copy_options::recursive);
  ProgramOptions how = options();
  how.file = (folder / "autoregressive.yaml").string();
  how.weights = false;
  auto program = Program::compile(how);
  ASSERT_TRUE(program) << program.errors().text();
  std::filesystem::copy(folder / "models/llama.yaml", folder / "models/second.yaml");
  EXPECT_FALSE(Program::compile(how)); // two
  auto again = tools::recompile(*program, {{"slots", "3"}});
  ASSERT_TRUE(again) << again.errors().text();
  EXPECT_EQ(again->param("slots"), 3);
  std::filesystem::remove_all(folder);
}

TEST(Programs, AreInspectedWithoutBeingMade) {
  ProgramOptions how = options();
  auto found = inspect(how);
  ASSERT_TRUE(found) << found.errors().text();
  EXPECT_TRUE(found->runs && found->messages.list.empty()) << found->messages.text();
  ASSERT_EQ(found->models.size(), 1u);
  const Inspection::Model &model = found->models[0];
  EXPECT_EQ(model.name, "target");
  EXPECT_EQ(model.where, "pipeline");
  ASSERT_TRUE(model.shape && model.tensors);
  EXPECT_EQ(model.shape->weightBytes, 2 * model.shape->parameters);
  EXPECT_EQ(model.tensors->read, model.tensors->types.at("BF16"));
  how.models[0].second = "nowhere";
  found = inspect(how);
  ASSERT_TRUE(found) << found.errors().text();
  EXPECT_FALSE(found->runs);
  EXPECT_EQ(found->messages.first().kind, "config-missing");
  EXPECT_FALSE(found->models.at(0).shape);
  const auto known = memoryBandwidths();
  EXPECT_TRUE(
      std::any_of(known.begin(), known.end(), [](const auto &of) { return of.first == "h100" && of.second > 0; }));
}

TEST(Programs, TakeATextForThePathThatThePipelineGives) {
  ProgramOptions how = options();
  how.weights = false;
  const std::string path = pipelines + "models/../models/llama.yaml"; // that of the disk is found without `models/../`
  std::string &text = how.texts[how.file] = textOf(how.file);
  text.replace(text.find("target: {}"), 10, "target: {graph: models/../models/llama.yaml}");
  auto fromDisk = Program::compile(how);
  ASSERT_TRUE(fromDisk) << fromDisk.errors().text();
  how.texts[path] = "modle: m\n";
  auto given = Program::compile(how);
  ASSERT_FALSE(given);
  EXPECT_EQ(given.errors().first().file, path);
}

TEST(Programs, WithoutAModelCannotRunYet) {
  ProgramOptions how;
  how.file = "p.yaml";
  how.texts[how.file] = R"(pipeline: p
request:
  n: i32 = 0
states:
  A: {initial: true, next: [B]}
  B: {terminal: true}
  F: {terminal: true}
  fault: F
stages:
  s:
    on: A
    do: [{n: 1}]
    goto: B
)";
  auto program = Program::compile(how);
  ASSERT_TRUE(program) << program.errors().text();
  EXPECT_EQ(program->vocabulary(), 0);
  EXPECT_TRUE(program->eos().empty());
  EXPECT_ERROR(program->parseRequests("{\"id\": 1, \"tokens\": [1], \"max_new_tokens\": 1}\n"), "[kernel-program]");
  EXPECT_ERROR(Kernel::load(*program, {.device = Device::Reference}),
               "p.yaml:1:11: error: the program cannot be loaded: a pipeline without a model cannot be run yet "
               "[kernel-program]");
  EXPECT_FALSE(program->source());
}

TEST(Programs, TellOnlyTwentyErrorsAndTheNumberOfTheOthers) {
  ProgramOptions how = options();
  how.texts[how.file] = "pipeline: p\n";
  for (int i = 0; i < 25; ++i)
    how.texts[how.file] += "key" + std::to_string(i) + ": 1\n";
  auto program = Program::compile(how);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.errors().list.size(), 20u);
  EXPECT_GE(program.errors().moreErrors, 5u);
  EXPECT_ERROR(program, "more errors\n");
}

TEST_F(Runs, GiveRequestsBackInOrder) {
  auto results = kernel->run({request("b", 4), request("a", 2)});
  ASSERT_TRUE(results) << results.errors().text();
  ASSERT_EQ(results->requests.size(), 2u);
  EXPECT_EQ(results->requests[0].id.text, "b");
  EXPECT_EQ(results->requests[0].tokens.size(), 4u);
  EXPECT_EQ(results->requests[1].tokens.size(), 2u);
  EXPECT_EQ(results->requests[0].finish, "length");
  EXPECT_EQ(results->requests[0].times.admitted, 0);
  ASSERT_EQ(results->requests[1].times.appends.size(), 2u);
  EXPECT_EQ(results->requests[1].times.appends[1].at, results->requests[1].times.appends[0].at + 1) << "a tick";
  EXPECT_EQ(results->requests[1].times.appends[1].tokens, 1);
  EXPECT_TRUE(results->tickTimes.empty());
  EXPECT_GT(results->ticks, 0);
  EXPECT_TRUE(results->trace.empty());
  EXPECT_FALSE(results->requests[0].error);
}

TEST_F(Runs, AreTheSameEachTime) {
  const auto first = kernel->run({request("a", 5)}, {.trace = true}),
             second = kernel->run({request("a", 5)}, {.trace = true});
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(first->trace.empty());
  EXPECT_EQ(first->trace, second->trace);
}

TEST_F(Runs, RefuseRequestsThatCanNeverRun) {
  Request wrong = request("a");
  wrong.tokens.clear();
  EXPECT_ERROR(kernel->run({wrong}), "empty prompt; give at least one token [request-empty-prompt]");
  wrong.tokens = {1, 1 << 20};
  EXPECT_ERROR(kernel->run({wrong}), "token 1048576 in `tokens` is outside the vocabulary");
  wrong = request("a", -1);
  EXPECT_ERROR(kernel->run({wrong}), "[request-budget]");
  wrong = request("a", 1 << 30);
  EXPECT_ERROR(kernel->run({request("b"), wrong}), "request `a` can never fit");
  EXPECT_ERROR(kernel->run({request("")}), "the request has no `id` [request-key]");
  EXPECT_ERROR(kernel->run({request("a"), request("b"), request("a")}),
               "id `a` is already that of another request [request-duplicate-id]");
}

TEST_F(Runs, TellOfAllRequestsThatCanNeverRun) {
  auto refused = kernel->run({request("a", -1), request("b"), request("c", -1)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.errors().list.size(), 2u) << refused.errors().text();
}

/// autoregressive.yaml, whose requests say how many tokens they want at most, and which token ends them.
ProgramOptions withInputs() {
  ProgramOptions how = options();
  std::string text = textOf(how.file);
  const auto edit = [&](const std::string &from, const std::string &to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  edit("states:\n",
       "request:\n  most: i32 in 1..9 = input\n  ends: token[4] = input([])\n  hurry: bool = input(false)\n"
       "states:\n");
  edit("COMPLETE if finished else DECODE", "COMPLETE if finished or hurry or len(tokens) - prompt_len == most or "
                                           "count(i in 0..len(ends), ends[i] == last) > 0 "
                                           "else DECODE");
  how.texts[how.file] = text;
  return how;
}

TEST(Inputs, AreDeclaredCheckedAndRead) {
  auto program = Program::compile(withInputs());
  ASSERT_TRUE(program) << program.errors().text();
  const std::vector<Input> inputs = program->inputs();
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_EQ(inputs[0].name, "most");
  EXPECT_EQ(inputs[0].spelling(), "i32 in 1..9");
  EXPECT_FALSE(inputs[0].otherwise);
  EXPECT_EQ(inputs[1].capacity, 4);
  EXPECT_EQ(inputs[2].otherwise, InputValue(false));
  auto kernel = Kernel::load(*program, {.device = Device::Reference});
  ASSERT_TRUE(kernel) << kernel.errors().text();
  Request request{.id = "a", .tokens = {73, 110, 32}, .maxNewTokens = 20, .eos = std::vector<int32_t>()};
  EXPECT_ERROR(kernel->run({request}),
               "request `a`: input `most` (i32 in 1..9) is missing, and it has no default [request-input]");
  request.inputs = {{"most", 9}};
  EXPECT_ERROR(kernel->run({request}), "request `a`: input `most` must be an integer from 1 to 8, found `9` ");
  request.inputs = {{"most", 5}, {"moist", 5}};
  EXPECT_ERROR(kernel->run({request}), "the pipeline has no input `moist`; it has `most`, `ends`, `hurry` ");
  request.inputs = {{"most", 5}};
  Request second = request;
  second.id = "b";
  second.inputs = {{"most", 5}, {"hurry", true}};
  auto results = kernel->run({request, second});
  ASSERT_TRUE(results) << results.errors().text();
  EXPECT_EQ(results->requests[0].tokens.size(), 5u);
  EXPECT_EQ(results->requests[1].tokens.size(), 1u);
  EXPECT_EQ(results->requests[1].finish, "state");
}

TEST(Inputs, AreMadeUpWhereNobodyBringsThem) {
  auto program = Program::compile(withInputs());
  ASSERT_TRUE(program) << program.errors().text();
  EXPECT_EQ(tools::madeUpInputs(*program), (std::map<std::string, InputValue>{{"most", 1}}));
  auto requests = tools::exampleRequests(*program);
  ASSERT_TRUE(requests) << requests.errors().text();
  EXPECT_EQ((*requests)[2].inputs.at("most"), InputValue(1));
}

TEST_F(Runs, RefuseOptionsThatCannotBe) {
  EXPECT_ERROR(kernel->run({}, {.repeat = 0}), "`repeat` must be from 1 to 4294967295, found 0 [run-options]");
  EXPECT_ERROR(kernel->run({}, {.maxTicks = -1}), "`maxTicks` must be from 0 to 2147483647, found -1 [run-options]");
  EXPECT_ERROR(kernel->run({}, {.watchdogSeconds = -1}), "`watchdogSeconds` must be from 0 to 1000000000, found -1");
  EXPECT_ERROR(kernel->run({}, {.schedule = "random:1"}), "`schedule` needs a kernel on the CPU executor with `check`");
  EXPECT_FALSE(kernel->run({}, {.replay = "{}\n"}));
  EXPECT_ERROR(kernel->run(std::vector<Request>(1'000'001)), "it takes at most 1000000 requests, found 1000001");
}

TEST_F(Runs, AreOneOfAKernelAtATime) {
  std::string other;
  RunOptions how;
  how.interrupted = [&] {
    if (other.empty())
      other = textOf(kernel->run({request("b")}));
    return false;
  };
  ASSERT_TRUE(kernel->run({request("a")}, how));
  EXPECT_TRUE(contains(other, "busy with another run or session; wait for its end, or load the program once more "
                              "[kernel-busy]"))
      << other;
  EXPECT_TRUE(kernel->run({request("b")}));
}

TEST_F(Runs, EndWhenTheyAreInterrupted) {
  RunOptions how;
  how.trace = true;
  how.interrupted = [asked = 0]() mutable { return ++asked > 5; };
  auto results = kernel->run({request("a", 2), request("b", 40)}, how);
  ASSERT_TRUE(results) << results.errors().text();
  EXPECT_TRUE(results->interrupted);
  EXPECT_EQ(results->requests[0].finish, "length");
  EXPECT_EQ(results->requests[1].finish, "limit");
  EXPECT_TRUE(results->trace.empty());
  EXPECT_TRUE(kernel->run({request("b")})) << "the kernel is free";
}

TEST_F(Runs, ExplainRequestsThatWereCutOff) {
  auto requests = program->parseRequests("\n{\"id\": 7, \"tokens\": [73, 110], \"max_new_tokens\": 9}\n", "r.jsonl");
  ASSERT_TRUE(requests) << requests.errors().text();
  auto results = kernel->run(*requests, {.maxTicks = 2});
  ASSERT_TRUE(results) << results.errors().text();
  EXPECT_EQ(results->requests[0].finish, "limit");
  EXPECT_EQ(results->requests[0].id.json(), "7");
  const std::optional<Error> &why = results->requests[0].error;
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->kind, "request-limit");
  EXPECT_EQ(why->file, "r.jsonl");
  EXPECT_EQ(why->line, 2u);
}

/// What is told of a kernel cache that cannot be cleaned: what it is, and why.
TEST(Caches, TellWhatCannotBeRemoved) {
  const os::TemporaryDirectory tmp;
  const bool root = geteuid() == 0; // who may do everything
  const std::string dir = tmp / "cache", file = dir + "/" + std::string(64, 'a') + ".cubin";
  std::filesystem::create_directory(dir);
  std::ofstream(file) << "code";
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::last_write_time(file, old);
  if (root) {
    std::filesystem::permissions(tmp.path(), std::filesystem::perms(0755));
    for (const std::string &path : {file, dir})
      ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  }
  const auto allow = [&](int mode) { ASSERT_EQ(chmod(dir.c_str(), mode), 0); };
  ASSERT_EQ(setenv("MEGALITH_CACHE_DIR", dir.c_str(), 1), 0);
  allow(0500);
  ASSERT_TRUE(!root || seteuid(65534) == 0);
  const auto cleaned = tools::cleanCache(/*all=*/false);
  const auto state = tools::lookAtCache();
  ASSERT_TRUE(!root || seteuid(0) == 0);
  allow(0700);
  unsetenv("MEGALITH_CACHE_DIR");
  ASSERT_TRUE(cleaned && state) << textOf(cleaned);
  EXPECT_EQ(cleaned->messages.text(),
            "error: cannot remove 1 file from the kernel cache `" + dir + "`: Permission denied [cache-not-cleaned]\n");
  EXPECT_EQ(cleaned->interrupted.entries, 0u);
  ASSERT_EQ(state->kinds.size(), 1u);
  EXPECT_EQ(state->kinds[0].name, "interrupted write");
  EXPECT_EQ(state->kinds[0].bytes, 4u);
}

} // namespace
