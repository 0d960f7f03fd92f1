#include "megalith/LiveSession.h"
#include "megalith/megalith.h"
#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <type_traits>
#include <vector>

extern "C" const char *version_of_c(void);
extern "C" megalith_code compile_of_c(const char *file, const char *text, megalith_errors **errors);

namespace {

TEST(C, KnowsTheVersion) { EXPECT_EQ(version_of_c(), megalith::version()); }

TEST(C, GivesErrorsAsData) {
  megalith_errors *errors = nullptr;
  ASSERT_EQ(compile_of_c("p.yaml", "pipeline: p\nmodles: {}\n", &errors), MEGALITH_FAILED);
  ASSERT_GE(megalith_errors_count(errors), 1u);
  megalith_error error;
  ASSERT_EQ(megalith_errors_get(errors, 0, &error), MEGALITH_OK);
  EXPECT_STREQ(error.kind, "unknown-key");
  EXPECT_STREQ(error.file, "p.yaml");
  EXPECT_EQ(error.line, 2u);
  megalith_note note;
  ASSERT_EQ(error.num_notes, 1u);
  ASSERT_EQ(megalith_errors_note(errors, 0, 0, &note), MEGALITH_OK);
  EXPECT_STREQ(note.message, "did you mean `models`?");
  EXPECT_EQ(megalith_errors_note(errors, 0, 1, &note), MEGALITH_BAD_ARGUMENT);
  EXPECT_EQ(megalith_errors_get(errors, 99, &error), MEGALITH_BAD_ARGUMENT);
  megalith_errors_free(errors);
}

TEST(C, RefusesWhatItDoesNotKnow) {
  megalith_program *program = nullptr;
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  EXPECT_EQ(megalith_program_compile(&options, &program, nullptr), MEGALITH_BAD_ARGUMENT); // no file
  options.file = "p.yaml";
  options.text = "pipeline: p\n";
  EXPECT_EQ(megalith_program_compile(&options, &program, nullptr), MEGALITH_FAILED);
  options.size = sizeof options + 8; // of a later version
  EXPECT_EQ(megalith_program_compile(&options, &program, nullptr), MEGALITH_BAD_ARGUMENT);
  options.size = 0; // never set
  megalith_errors *errors = nullptr;
  EXPECT_EQ(megalith_program_compile(&options, &program, &errors), MEGALITH_BAD_ARGUMENT);
  EXPECT_NE(std::string(megalith_errors_text(errors)).find("an argument of `megalith_program_compile` is NULL"),
            std::string::npos);
  EXPECT_NE(std::string(megalith_errors_text(errors)).find("[api-argument]"), std::string::npos);
  megalith_errors_free(errors);
  options.size = 2 * sizeof(void *) + sizeof(size_t); // of an earlier one, that ended after `text`
  EXPECT_EQ(megalith_program_compile(&options, &program, nullptr), MEGALITH_FAILED);
  EXPECT_EQ(megalith_kernel_load(nullptr, nullptr, nullptr, nullptr), MEGALITH_BAD_ARGUMENT);
  EXPECT_EQ(megalith_run(nullptr, nullptr, 0, nullptr, nullptr, nullptr), MEGALITH_BAD_ARGUMENT);
  megalith_program_free(nullptr);
}

TEST(C, RunsRequests) {
  const megalith_pair model = {"", MEGALITH_SOURCE_DIR "/models/demo"};
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  options.file = MEGALITH_SOURCE_DIR "/pipelines/autoregressive.yaml";
  options.models = &model;
  options.num_models = 1;
  megalith_program *program = nullptr;
  megalith_errors *errors = nullptr;
  ASSERT_EQ(megalith_program_compile(&options, &program, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  EXPECT_STREQ(megalith_program_name(program), "autoregressive");
  EXPECT_EQ(megalith_program_vocabulary(program), 260);
  megalith_source source;
  ASSERT_EQ(megalith_program_source(program, &source, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  EXPECT_NE(std::string(source.cuda).find("megalith_run("), std::string::npos);
  EXPECT_EQ(source.manifest[0], '{');
  EXPECT_EQ(std::string(source.plan).find("plan for h200"), 0u);
  megalith_kernel_options where = MEGALITH_KERNEL_OPTIONS_INIT;
  where.device = 17;
  megalith_kernel *kernel = nullptr;
  EXPECT_EQ(megalith_kernel_load(program, &where, &kernel, nullptr), MEGALITH_BAD_ARGUMENT);
  where.device = MEGALITH_REFERENCE;
  ASSERT_EQ(megalith_kernel_load(program, &where, &kernel, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  megalith_program_free(program); // the kernel has what it needs
  EXPECT_EQ(megalith_kernel_device(kernel), MEGALITH_REFERENCE);
  EXPECT_EQ(megalith_kernel_cache_hit(kernel), 0); // there was nothing to compile
  const megalith_results *results = nullptr;
  megalith_run_options loop = MEGALITH_RUN_OPTIONS_INIT;
  loop.control = 3;
  EXPECT_EQ(megalith_run(kernel, nullptr, 0, &loop, &results, nullptr), MEGALITH_BAD_ARGUMENT);
  loop.control = MEGALITH_HOST;
  EXPECT_EQ(megalith_run(kernel, nullptr, 0, &loop, &results, &errors), MEGALITH_FAILED);
  EXPECT_NE(std::string(megalith_errors_text(errors)).find("the reference executor launches no kernel"),
            std::string::npos);
  megalith_errors_free(errors);
  errors = nullptr;
  const int32_t prompt[] = {73, 110};
  megalith_request requests[] = {MEGALITH_REQUEST_INIT, MEGALITH_REQUEST_INIT};
  for (megalith_request &request : requests) {
    request.id = "a";
    request.tokens = prompt;
    request.num_tokens = 2;
    request.max_new_tokens = 3;
    request.no_eos = 1;
  }
  EXPECT_EQ(megalith_run(kernel, requests, 2, nullptr, &results, &errors), MEGALITH_FAILED); // the id again
  EXPECT_EQ(results, nullptr);
  megalith_errors_free(errors);
  requests[1].id = "b";
  requests[1].max_new_tokens = 30;
  loop = MEGALITH_RUN_OPTIONS_INIT;
  loop.max_ticks = 9;
  loop.trace = 1;
  ASSERT_EQ(megalith_run(kernel, requests, 2, &loop, &results, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  requests[1].size -= 8; // of two versions
  const megalith_results *none = results;
  EXPECT_EQ(megalith_run(kernel, requests, 2, nullptr, &none, nullptr), MEGALITH_BAD_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  megalith_kernel_free(kernel);
  ASSERT_EQ(results->num_requests, 2u);
  const megalith_result &first = results->requests[0], &second = results->requests[1];
  EXPECT_STREQ(first.id, "a");
  EXPECT_STREQ(first.finish, "length");
  EXPECT_EQ(first.num_tokens, 3u);
  EXPECT_EQ(first.error, nullptr);
  EXPECT_STREQ(second.finish, "limit");
  megalith_error error;
  ASSERT_EQ(megalith_errors_get(second.error, 0, &error), MEGALITH_OK);
  EXPECT_STREQ(error.kind, "request-limit");
  EXPECT_EQ(results->ticks, 9);
  EXPECT_EQ(std::string(results->trace).substr(0, 19), "{\"megalith_trace\":2");
  megalith_results_free(results);
  megalith_results_free(nullptr);
}

/// A kernel on the reference executor of a pipeline of ours, with the demo model.
megalith_kernel *loaded(const char *pipeline) {
  const megalith_pair model = {"", MEGALITH_SOURCE_DIR "/models/demo"};
  const std::string file = std::string(MEGALITH_SOURCE_DIR "/pipelines/") + pipeline;
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  options.file = file.c_str();
  options.models = &model;
  options.num_models = 1;
  megalith_program *program = nullptr;
  megalith_errors *errors = nullptr;
  EXPECT_EQ(megalith_program_compile(&options, &program, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  megalith_kernel_options where = MEGALITH_KERNEL_OPTIONS_INIT;
  where.device = MEGALITH_REFERENCE;
  megalith_kernel *kernel = nullptr;
  EXPECT_EQ(megalith_kernel_load(program, &where, &kernel, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  megalith_program_free(program);
  return kernel;
}

static megalith_request forFourTokens() {
  static const int32_t prompt[] = {73, 110, 32};
  megalith_request request = MEGALITH_REQUEST_INIT;
  request.id = "a";
  request.tokens = prompt;
  request.num_tokens = 3;
  request.max_new_tokens = 4;
  request.no_eos = 1;
  return request;
}

TEST(C, BringsWhatChangesLogits) {
  megalith_kernel *kernel = loaded("sampled.yaml");
  megalith_request request = forFourTokens();
  const megalith_results *results = nullptr;
  const auto run = [&] {
    EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_OK);
    std::vector<int32_t> tokens(results->requests[0].tokens, results->requests[0].tokens + 4);
    megalith_results_free(results);
    return tokens;
  };
  const std::vector<int32_t> plain = run();
  megalith_edits &edits = request.edits;
  edits.banned = plain.data();
  edits.num_banned = 4;
  for (const int32_t token : run())
    EXPECT_EQ(std::count(plain.begin(), plain.end(), token), 0);
  const int32_t two[] = {9, 200};
  const float numbers[] = {1e4f, -1e4f};
  edits.bias_tokens = two;
  edits.bias_values = numbers;
  edits.num_bias = 2;
  EXPECT_EQ(run(), std::vector<int32_t>(4, 9));
  edits.allowed = two + 1;
  edits.num_allowed = 1;
  EXPECT_EQ(run(), std::vector<int32_t>(4, 200));
  edits.allowed = two; // an empty list is no missing one
  edits.num_allowed = 0;
  EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_FAILED);
  edits.allowed = nullptr;
  edits.presence_penalty = 1e4f; // 9 once, then others, but for 200
  edits.frequency_penalty = 1e4f;
  EXPECT_EQ(run()[0], 9);
  EXPECT_NE(run()[1], 9);
  // A program that was built before there were any.
  request.size = offsetof(megalith_request, edits);
  EXPECT_EQ(run(), plain);
  request.size = sizeof request;
  edits.bias_values = nullptr;
  EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_BAD_ARGUMENT);
  megalith_kernel_free(kernel);
}

TEST(C, SaysWhatTokensSpell) {
  const megalith_pair model = {"", MEGALITH_SOURCE_DIR "/models/demo"};
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  const std::string file = MEGALITH_SOURCE_DIR "/pipelines/structured.yaml";
  options.file = file.c_str();
  options.models = &model;
  options.num_models = 1;
  megalith_program *program = nullptr;
  ASSERT_EQ(megalith_program_compile(&options, &program, nullptr), MEGALITH_OK);
  // Token 7 alone begins the answer, 9 alone ends it.
  std::vector<size_t> lengths(260);
  lengths[7] = 3;
  lengths[9] = 2;
  ASSERT_EQ(megalith_program_set_token_bytes(program, "abcde", lengths.data(), lengths.size(), nullptr), MEGALITH_OK);
  megalith_kernel_options where = MEGALITH_KERNEL_OPTIONS_INIT;
  where.device = MEGALITH_REFERENCE;
  megalith_kernel *kernel = nullptr;
  ASSERT_EQ(megalith_kernel_load(program, &where, &kernel, nullptr), MEGALITH_OK);
  megalith_request request = forFourTokens();
  request.edits.format = R"({"regex": "abcde"})";
  const megalith_results *results = nullptr;
  ASSERT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_OK);
  const megalith_result &result = results->requests[0];
  EXPECT_EQ(std::vector<int32_t>(result.tokens, result.tokens + result.num_tokens), (std::vector<int32_t>{7, 9}));
  EXPECT_STREQ(result.format, "complete");
  EXPECT_EQ(result.passes, 2); // the prompt's, and one that verifies both
  megalith_results_free(results);
  megalith_errors *errors = nullptr;
  lengths.resize(261);
  EXPECT_EQ(megalith_program_set_token_bytes(program, "abcde", lengths.data(), lengths.size(), &errors),
            MEGALITH_FAILED);
  EXPECT_NE(std::string(megalith_errors_text(errors)).find("there are the bytes of 261 tokens"), std::string::npos);
  megalith_errors_free(errors);
  EXPECT_EQ(megalith_program_set_token_bytes(program, nullptr, lengths.data(), 8, nullptr), MEGALITH_BAD_ARGUMENT);
  EXPECT_EQ(megalith_program_set_token_bytes(program, "", nullptr, 8, nullptr), MEGALITH_BAD_ARGUMENT);
  megalith_kernel_free(kernel);
  megalith_program_free(program);
}

TEST(C, BringsStopSequences) {
  megalith_kernel *kernel = loaded("autoregressive.yaml");
  megalith_errors *errors = nullptr;
  const int32_t prompt[] = {73, 110, 32};
  megalith_request request = MEGALITH_REQUEST_INIT;
  request.id = "a";
  request.tokens = prompt;
  request.num_tokens = 3;
  request.max_new_tokens = 8;
  request.no_eos = 1;
  const auto run = [&](std::string &finish) {
    const megalith_results *results = nullptr;
    EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_OK);
    const megalith_result &result = results->requests[0];
    finish = result.finish;
    std::vector<int32_t> tokens(result.tokens, result.tokens + result.num_tokens);
    megalith_results_free(results);
    return tokens;
  };
  std::string finish;
  std::vector<int32_t> all = run(finish);
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(finish, "length");
  // Three tokens that never come, then two that do.
  const std::vector<int32_t> stop = {all[3], 259, 259, all[3], all[4]};
  const size_t lengths[] = {3, 2};
  request.stop = stop.data();
  request.stop_lengths = lengths;
  request.num_stop = 2;
  const std::vector<int32_t> cut = run(finish);
  EXPECT_EQ(finish, "stop");
  const auto end = std::search(all.begin(), all.end(), &stop[3], &stop[3] + 2) + 2;
  EXPECT_EQ(cut, std::vector<int32_t>(all.begin(), end));
  // A program that was built before there were any.
  request.size = offsetof(megalith_request, stop);
  EXPECT_EQ(run(finish), all);
  request.size = sizeof request;

  const megalith_results *results = nullptr;
  const auto refused = [&](const std::string &why) {
    EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, &errors), MEGALITH_FAILED);
    EXPECT_NE(std::string(megalith_errors_text(errors)).find(why), std::string::npos) << megalith_errors_text(errors);
    megalith_errors_free(errors);
    errors = nullptr;
  };
  const size_t empty[] = {2, 0};
  request.stop_lengths = empty;
  refused("request `a`: sequence 2 of `stop` is empty; give it at least one token, or leave it out [request-stop]");
  const int32_t outside = 260;
  const size_t one = 1;
  request.stop = &outside;
  request.stop_lengths = &one;
  request.num_stop = 1;
  refused("request `a`: token 260 in `stop` is outside the vocabulary of 260 [request-token-range]");
  request.stop = nullptr;
  EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_BAD_ARGUMENT) << "no tokens";
  request.stop_lengths = nullptr;
  EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_BAD_ARGUMENT) << "no lengths";
  megalith_kernel_free(kernel);
}

TEST(C, TakesRequestsWhileItRuns) {
  megalith_kernel *kernel = loaded("autoregressive.yaml");
  megalith_errors *errors = nullptr;
  const auto failed = [&](megalith_code code, const char *why) {
    EXPECT_EQ(code, MEGALITH_FAILED);
    EXPECT_NE(std::string(megalith_errors_text(errors)).find(why), std::string::npos) << megalith_errors_text(errors);
    megalith_errors_free(errors);
    errors = nullptr;
  };
  megalith_live_options how = MEGALITH_LIVE_OPTIONS_INIT;
  megalith_live *session = nullptr;
  how.ring = 5;
  failed(megalith_live_open(kernel, &how, &session, &errors), "`ring` must be a power of two, found 5");
  EXPECT_EQ(session, nullptr);
  how.size = sizeof how + 8;
  EXPECT_EQ(megalith_live_open(kernel, &how, &session, nullptr), MEGALITH_BAD_ARGUMENT);
  EXPECT_EQ(megalith_live_open(nullptr, nullptr, &session, nullptr), MEGALITH_BAD_ARGUMENT);
  how = MEGALITH_LIVE_OPTIONS_INIT;
  how.places = 3;
  how.max_tokens = 100;
  how.watchdog = -1;
  failed(megalith_live_open(kernel, &how, &session, &errors), "`watchdog` must be from 0 to 1000000000, found -1");
  how.watchdog = 0;
  how.idle_ms = -1; // never
  how.trace = 1 << 20;
  ASSERT_EQ(megalith_live_open(kernel, &how, &session, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  megalith_live *second = nullptr;
  failed(megalith_live_open(kernel, nullptr, &second, &errors), "[kernel-busy]");
  megalith_kernel_free(kernel);

  const int32_t prompt[] = {73, 110};
  megalith_request request = MEGALITH_REQUEST_INIT; // without an id
  request.tokens = prompt;
  request.num_tokens = 2;
  request.max_new_tokens = 99;
  request.no_eos = 1;
  uint64_t number = 9;
  failed(megalith_live_submit(session, &request, 0, 0, -1, -1, &number, &errors), "[live-too-long]");
  EXPECT_EQ(number, 9u);
  EXPECT_EQ(megalith_live_submit(session, &request, 0, -1, -1, -1, &number, nullptr), MEGALITH_BAD_ARGUMENT);
  EXPECT_EQ(megalith_live_submit(session, nullptr, 0, 0, -1, -1, &number, nullptr), MEGALITH_BAD_ARGUMENT);
  request.max_new_tokens = 3;
  ASSERT_EQ(megalith_live_submit(session, &request, 41, 0, -1, -1, &number, &errors), MEGALITH_OK);
  EXPECT_EQ(number, 0u);
  ASSERT_EQ(megalith_live_submit(session, &request, 42, INT64_MAX, -1, -1, nullptr, &errors), MEGALITH_OK);
  failed(megalith_live_cancel(session, 2, &errors), "[live-request]");
  EXPECT_EQ(megalith_live_next(session, -1, nullptr, nullptr), MEGALITH_BAD_ARGUMENT);

  std::vector<int32_t> tokens[2];
  const megalith_live_event *last = nullptr; // stays while others come
  for (int ends = 0; ends < 2;) {
    const megalith_live_event *event = nullptr;
    ASSERT_EQ(megalith_live_next(session, INT64_MAX, &event, &errors), MEGALITH_OK) << megalith_errors_text(errors);
    ASSERT_NE(event, nullptr);
    ASSERT_LT(event->request, 2u);
    EXPECT_EQ(event->user, 41 + event->request);
    tokens[event->request].insert(tokens[event->request].end(), event->tokens, event->tokens + event->num_tokens);
    ends += event->end != nullptr;
    if (event->end && event->request == 0)
      last = event;
    else
      megalith_live_event_free(event);
  }
  EXPECT_EQ(tokens[0].size(), 3u);
  EXPECT_EQ(tokens[0], tokens[1]);
  const megalith_live_event *none = last;
  EXPECT_EQ(megalith_live_next(session, 0, &none, &errors), MEGALITH_OK);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(megalith_live_done(session), 0);
  ASSERT_EQ(megalith_live_cancel(session, 1, &errors), MEGALITH_OK); // it has ended
  request.deadline_ms = 1000000;
  ASSERT_EQ(megalith_live_submit(session, &request, 43, 0, -1, -1, nullptr, &errors), MEGALITH_OK);
  const megalith_live_trace *trace = nullptr;
  failed(megalith_live_take_trace(session, &trace, &errors), "[live-trace]");
  EXPECT_EQ(trace, nullptr);
  ASSERT_EQ(megalith_live_stop(session, 0, &errors), MEGALITH_OK);
  failed(megalith_live_submit(session, &request, 0, 0, -1, -1, nullptr, &errors), "[live-stopped]");
  const megalith_stats *stats = nullptr;
  ASSERT_EQ(megalith_live_stats(session, &stats, &errors), MEGALITH_OK);
  EXPECT_EQ(stats->waiting + stats->running, 0u);
  EXPECT_EQ(stats->num_slots, 8u);
  EXPECT_EQ(stats->slots[0].taken, 0);
  ASSERT_EQ(stats->num_pools, 1u);
  EXPECT_STREQ(stats->pools[0].model, "target");
  EXPECT_EQ(stats->pools[0].pages, 512);
  EXPECT_EQ(stats->pools[0].used, 0);
  EXPECT_EQ(stats->prompt_tokens, 6);
  EXPECT_EQ(stats->generated_tokens, 9);
  ASSERT_EQ(stats->num_ended, 1u);
  EXPECT_STREQ(stats->ended[0].name, "length");
  EXPECT_EQ(stats->ended[0].count, 3);
  ASSERT_EQ(stats->num_metrics, 1u);
  EXPECT_STREQ(stats->metrics[0].name, "tokens_committed");
  ASSERT_EQ(stats->num_increments, 1u);
  EXPECT_STREQ(stats->increments[0].name, "tokens_committed");
  ASSERT_EQ(stats->increments[0].num_times, 32u);
  EXPECT_EQ(stats->increments[0].times[1], 9);
  EXPECT_EQ(stats->metrics[0].count, 9);
  EXPECT_GT(stats->ticks, 0);
  EXPECT_EQ(stats->launched, 0);
  ASSERT_EQ(megalith_live_take_trace(session, &trace, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  EXPECT_EQ(megalith_live_done(session), 0); // its event was not read
  megalith_live_free(session);
  // These are the caller's.
  ASSERT_NE(last, nullptr);
  EXPECT_STREQ(last->state, "COMPLETE");
  EXPECT_STREQ(last->end->finish, "length");
  EXPECT_STREQ(last->end->fault, "");
  EXPECT_EQ(last->end->prompt_tokens, 2);
  EXPECT_EQ(last->end->generated, 3);
  EXPECT_GE(last->end->ended, last->end->first_token);
  megalith_live_event_free(last);
  megalith_live_event_free(nullptr);
  megalith_stats_free(stats);
  megalith_stats_free(nullptr);
  EXPECT_EQ(std::string(trace->trace).substr(0, 19), "{\"megalith_trace\":2");
  EXPECT_NE(std::string(trace->requests).find("\"max_new_tokens\":3"), std::string::npos) << trace->requests;
  megalith_live_trace_free(trace);
  megalith_live_trace_free(nullptr);
  EXPECT_EQ(megalith_live_take_trace(nullptr, &trace, nullptr), MEGALITH_BAD_ARGUMENT);
  megalith_live_free(nullptr);
  EXPECT_EQ(megalith_live_done(nullptr), 1);
  EXPECT_EQ(megalith_live_stats(nullptr, &stats, nullptr), MEGALITH_BAD_ARGUMENT);
  EXPECT_EQ(megalith_live_stop(nullptr, 1, nullptr), MEGALITH_BAD_ARGUMENT);
}

TEST(C, BringsInputs) {
  const char *text = R"(pipeline: p
models:
  target: {graph: )" MEGALITH_SOURCE_DIR R"(/pipelines/models/llama.yaml}
request:
  most: i32 in 1..9 = input
  first: token[3] = input
  share: f32 = input(1)
  loud: bool = input(false)
  texts: token[2, 3] = input([])
states:
  fault: FAILED
  QUEUED: {initial: true, next: [GIVE]}
  GIVE: {slot: true, next: [DONE]}
  DONE: {terminal: true}
  FAILED: {terminal: true}
kv:
  target: {pages: 8, page_tokens: 4}
stages:
  admit: {on: QUEUED, do: [], goto: GIVE}
  give:
    on: GIVE
    do:
      - append(first[:most])
      - append([1] if share == 0.5 and loud else [2])
      - append(texts[-1] if len(texts) > 0 else [])
    goto: DONE
)";
  const megalith_pair model = {"", MEGALITH_SOURCE_DIR "/models/demo"};
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  options.file = "p.yaml";
  options.text = text;
  options.models = &model;
  options.num_models = 1;
  megalith_program *program = nullptr;
  megalith_errors *errors = nullptr;
  ASSERT_EQ(megalith_program_compile(&options, &program, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  // Warnings come beside the program.
  EXPECT_NE(std::string(megalith_errors_text(errors)).find("nothing calls model `target` [unused]"), std::string::npos);
  megalith_errors_free(errors);
  megalith_kernel_options where = MEGALITH_KERNEL_OPTIONS_INIT;
  where.device = MEGALITH_REFERENCE;
  megalith_kernel *kernel = nullptr;
  ASSERT_EQ(megalith_kernel_load(program, &where, &kernel, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  const megalith_results *results = nullptr;
  const int32_t prompt[] = {73}, two = 2, yes = 1, first[] = {5, 6, 7}, texts[] = {2, 40, 41, 1, 42};
  const float half = 0.5f;
  megalith_input inputs[] = {{"most", &two, nullptr, 1},
                             {"first", first, nullptr, 3},
                             {"share", nullptr, &half, 1},
                             {"loud", &yes, nullptr, 1},
                             {"texts", texts, nullptr, 5}};
  megalith_request request = MEGALITH_REQUEST_INIT;
  request.id = "a";
  request.tokens = prompt;
  request.num_tokens = 1;
  request.max_new_tokens = 9;
  request.no_eos = 1;
  const auto refused = [&](const char *why) {
    EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, &errors), MEGALITH_FAILED);
    EXPECT_NE(std::string(megalith_errors_text(errors)).find(why), std::string::npos) << megalith_errors_text(errors);
    megalith_errors_free(errors);
    errors = nullptr;
  };
  refused("input `most` (i32 in 1..9) is missing");
  request.num_inputs = 5;
  EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_BAD_ARGUMENT) << "no list of them";
  request.inputs = inputs;
  inputs[0].floats = &half;
  EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_BAD_ARGUMENT) << "in both lists";
  inputs[0].integers = nullptr;
  refused("input `most` must be an integer from 1 to 8, found `0.5`");
  inputs[0] = {"most", first, nullptr, 2};
  refused("input `most` must be an integer from 1 to 8, found a list of integers");
  inputs[0] = {"most", &two, nullptr, 1};
  inputs[1].count = 1;
  inputs[1].integers = nullptr;
  EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_BAD_ARGUMENT) << "in no list";
  inputs[1].integers = first;
  inputs[1].count = 3;
  inputs[4].count = 2;
  EXPECT_EQ(megalith_run(kernel, &request, 1, nullptr, &results, nullptr), MEGALITH_BAD_ARGUMENT) << "half a row";
  inputs[4].count = 5;
  // Others come later: one is taken back at once, one has no time.
  std::vector<megalith_request> requests(3, request);
  requests[1].id = "b";
  requests[1].arrives.tick = 7;
  requests[1].is_cancelled = 1;
  requests[1].cancelled.tick = 6;
  requests[2].id = "c";
  requests[2].deadline_ms = -1;
  requests[2].arrives.tick = 8;
  const auto allRefused = [&](const char *why) {
    EXPECT_EQ(megalith_run(kernel, requests.data(), 3, nullptr, &results, &errors), MEGALITH_FAILED);
    EXPECT_NE(std::string(megalith_errors_text(errors)).find(why), std::string::npos) << megalith_errors_text(errors);
    megalith_errors_free(errors);
    errors = nullptr;
  };
  allRefused(
      "it is cancelled at tick 6, and arrives at tick 7; a request is cancelled when it has arrived [request-time]");
  requests[1].cancelled.tick = 7;
  allRefused("`deadline_ms` must be 0 (none) or above, found -1");
  requests[2].deadline_ms = 1000;
  requests[2].cache = -1;
  allRefused("`cache` must be 0 (the common one) or above, found -1");
  requests[2].cache = 0;
  requests[2].arrives.tick = 6;
  allRefused("it arrives at tick 6, before request `b` (at tick 7)");
  requests[2].arrives.tick = 8;
  ASSERT_EQ(megalith_run(kernel, requests.data(), 3, nullptr, &results, &errors), MEGALITH_OK)
      << megalith_errors_text(errors);
  const megalith_result *ended = results->requests;
  EXPECT_EQ(std::vector<int32_t>(ended->tokens, ended->tokens + ended->num_tokens),
            (std::vector<int32_t>{5, 6, 1, 42}));
  EXPECT_STREQ(ended[1].finish, "cancelled");
  EXPECT_STREQ(ended[1].state, "FAILED");
  EXPECT_STREQ(ended[1].fault, "");
  EXPECT_STREQ(ended[2].finish, "state");
  megalith_results_free(results);
  megalith_kernel_free(kernel);
  megalith_program_free(program);
}

/// What a struct of C stands for where the program sets nothing is what C++ has.
TEST(C, HasTheDefaultsOfCxx) {
  const auto plain = [](const auto &value) { return value; };
  const auto text = [](const char *value) { return std::string(value ? value : ""); };
  const megalith_run_options run = MEGALITH_RUN_OPTIONS_INIT;
  const megalith::RunOptions cxxRun;
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text) EXPECT_EQ(plain(cxxRun.Name), run.Snake) << #Snake;
#define FLAG(Name, Snake, Text) EXPECT_EQ(cxxRun.Name, run.Snake != 0) << #Snake;
#define TEXT(Name, Snake, Text) EXPECT_EQ(cxxRun.Name, text(run.Snake)) << #Snake;
#include "megalith/RunOptions.def"
  const megalith_live_options live = MEGALITH_LIVE_OPTIONS_INIT;
  const megalith::LiveOptions cxxLive;
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text) EXPECT_EQ(plain(cxxLive.Name), live.Snake) << #Snake;
#include "megalith/LiveOptions.def"
  const megalith_request request = MEGALITH_REQUEST_INIT;
  const megalith::Request cxxRequest;
#define REQUEST(Type, Name, Snake, Default, Text)                                                                      \
  static_assert(std::is_same_v<decltype(cxxRequest.Name), Type>);                                                      \
  EXPECT_TRUE(cxxRequest.Name == Default && request.Snake == Default) << #Snake;
#define SAMPLING(Type, Name, Snake, Default, Text)                                                                     \
  static_assert(std::is_same_v<decltype(cxxRequest.sampling.Name), Type>);                                             \
  EXPECT_TRUE(cxxRequest.sampling.Name == Default && request.sampling.Snake == Default) << #Snake;
#define EDIT(Type, Name, Snake, Default, Text)                                                                         \
  static_assert(std::is_same_v<decltype(cxxRequest.sampling.Name), Type>);                                             \
  EXPECT_TRUE(cxxRequest.sampling.Name == Default && request.edits.Snake == Default) << #Snake;
#include "megalith/Request.def"
  EXPECT_EQ(run.watchdog, 10);
  EXPECT_EQ(live.watchdog, 10);
}

TEST(C, GivesAllThatARunGives) {
  megalith_kernel *kernel = loaded("sampled.yaml");
  megalith_request request = forFourTokens();
  megalith_run_options how = MEGALITH_RUN_OPTIONS_INIT;
  how.logits = how.gauges = 1;
  how.repeat = 2;
  struct Told {
    int asked = 0, progress = 0;
  } told;
  how.user = &told;
  how.progress = [](void *user, const char *) { ++static_cast<Told *>(user)->progress; };
  how.interrupted = [](void *user) -> int { return ++static_cast<Told *>(user)->asked > 100; };
  const megalith_results *results = nullptr;
  megalith_errors *errors = nullptr;
  how.watchdog = -1;
  EXPECT_EQ(megalith_run(kernel, &request, 1, &how, &results, &errors), MEGALITH_FAILED);
  EXPECT_NE(std::string(megalith_errors_text(errors)).find("found -1 [run-options]"), std::string::npos);
  megalith_errors_free(errors);
  how.watchdog = 0;
  ASSERT_EQ(megalith_run(kernel, &request, 1, &how, &results, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  const megalith_result &result = results->requests[0];
  EXPECT_EQ(result.num_logits, 4u * 260);
  EXPECT_EQ(std::max_element(result.logits, result.logits + 260) - result.logits, result.tokens[0]) << "it is greedy";
  EXPECT_EQ(result.num_appends, 4u);
  EXPECT_EQ(result.appends[3].tokens, 1);
  EXPECT_EQ(result.admitted, 0);
  ASSERT_EQ(results->num_metrics, 1u);
  EXPECT_STREQ(results->metrics[0].name, "tokens_committed");
  EXPECT_EQ(results->interrupted, 0);
  EXPECT_TRUE(told.asked > 0 && told.progress > 0);
  megalith_results_free(results);
  told.asked = 99; // at once
  ASSERT_EQ(megalith_run(kernel, &request, 1, &how, &results, nullptr), MEGALITH_OK);
  EXPECT_EQ(results->interrupted, 1);
  EXPECT_STREQ(results->requests[0].finish, "limit");
  megalith_results_free(results);
  megalith_kernel_free(kernel);
}

TEST(C, TellsLogprobs) {
  megalith_kernel *kernel = loaded("sampled.yaml");
  megalith_live_options how = MEGALITH_LIVE_OPTIONS_INIT;
  how.logit_lines = 20;
  megalith_live *session = nullptr;
  megalith_errors *errors = nullptr;
  ASSERT_EQ(megalith_live_open(kernel, &how, &session, &errors), MEGALITH_OK) << megalith_errors_text(errors);
  megalith_kernel_free(kernel);
  const int32_t prompt[] = {73, 110, 32};
  megalith_request request = MEGALITH_REQUEST_INIT;
  request.tokens = prompt;
  request.num_tokens = 3;
  request.max_new_tokens = 4;
  request.no_eos = 1;
  EXPECT_EQ(megalith_live_submit(session, &request, 0, 0, 21, -1, nullptr, &errors), MEGALITH_FAILED);
  EXPECT_NE(std::string(megalith_errors_text(errors)).find("[live-logprobs]"), std::string::npos);
  megalith_errors_free(errors);
  ASSERT_EQ(megalith_live_submit(session, &request, 0, 0, 2, 0, nullptr, &errors), MEGALITH_OK);
  ASSERT_EQ(megalith_live_submit(session, &request, 1, 0, -1, -1, nullptr, &errors), MEGALITH_OK);
  ASSERT_EQ(megalith_live_stop(session, 0, &errors), MEGALITH_OK);
  size_t tokens = 0, ofPrompt = 0;
  while (!megalith_live_done(session)) {
    const megalith_live_event *event = nullptr;
    ASSERT_EQ(megalith_live_next(session, 0, &event, &errors), MEGALITH_OK);
    ASSERT_NE(event, nullptr);
    EXPECT_EQ(event->num_logprobs, event->user == 0 ? event->num_tokens : 0);
    for (size_t i = 0; i < event->num_logprobs; ++i, ++tokens) {
      const megalith_logprob &told = event->logprobs[i];
      EXPECT_EQ(told.rank, 1) << "it is greedy";
      ASSERT_EQ(told.num_likeliest, 2u);
      EXPECT_EQ(told.likeliest[0].token, event->tokens[i]);
      EXPECT_EQ(told.likeliest[0].logprob, told.logprob);
      EXPECT_LT(told.likeliest[1].logprob, told.logprob);
    }
    for (size_t i = 0; i < event->num_prompt_logprobs; ++i, ++ofPrompt) {
      EXPECT_EQ(event->prompt_logprobs[i].rank > 0, i > 0) << "nothing predicts the first one";
      EXPECT_EQ(event->prompt_logprobs[i].num_likeliest, 0u);
    }
    EXPECT_EQ(event->device_ns, 0u);
    megalith_live_event_free(event);
  }
  EXPECT_EQ(tokens, 4u);
  EXPECT_EQ(ofPrompt, 3u);
  megalith_live_free(session);
}

} // namespace
