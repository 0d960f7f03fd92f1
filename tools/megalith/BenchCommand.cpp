//===- BenchCommand.cpp - megalith bench ----------------------------------===//
#include "Bench.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/ranges.h>

namespace megalith::tool {

static const std::vector<std::string> liveParts = {"speed", "first-token", "open-loop", "idle"};

/// Of `--live`.
static Value parts(std::vector<std::string> &to) {
  const auto take = [&to](llvm::StringRef text) -> std::string {
    if (text == "all")
      to = liveParts;
    else if (llvm::is_contained(liveParts, text))
      to.push_back(text.str());
    else
      return fmt::format("expected {} or all", fmt::join(liveParts, ", "));
    return "";
  };
  return {.form = "part,...", .take = take, .words = liveParts, .isList = true, .isComma = true};
}

BenchCommand::BenchCommand()
    : ProgramCommand(
          {.name = "bench",
           .description = "Measure a pipeline with random weights of a config.json's shape against the memory's floor",
           .examples =
               R"(megalith bench FILE --config=DIR --context=128,4096,32768 --phases --csv=sweep.csv --plot=sweep.svg
  measures ms per token against what reading weights and KV takes; needs config.json only
megalith bench FILE --config=DIR --live=all --batch=1,8,16 --tokens=128 --busy
  measures live sessions: speed beside a run, first tokens, requests at given rates, power of a kernel that sleeps)"}) {
  addTokenBytes();
  addKernel(wholeKernel);
  addLoop(control, ticksPerLaunch);
  add("config", models(configs, "path"),
      "config.json of the shape of the pipeline's model NAME, or its directory; without NAME of every model that has "
      "none of its own. No weights are needed")
      .isRequired = true;
  add("context", numbers(contexts, "n,...", 1 << 28), "Tokens of each prompt (default: 128)");
  add("batch", numbers(batches, "n,...", 1 << 16), "Requests at a time (default: 1)");
  add("tokens", number(tokens, "n", 1, 1 << 24), "Tokens to generate per request (default: 64)");
  add("sampling", text(sampling, "json"),
      "How tokens are drawn, as `sampling` of a request says it, in a file that draws by that: "
      "'{\"temperature\": 0.8, \"frequency_penalty\": 0.5}'. For a format without `--token-bytes`, the texts of tokens "
      "are made up");
  add("repeats", number(repeats, "n", 1, 1000),
      "Runs of each combination, after one that does not count; medians are printed (default: 5)");
  add("prefill", flag(prefill), "Feed the prompts; otherwise their K and V are in the pool, random");
  add("device",
      choice(cpu,
             {{false, "cuda", "the GPU"}, {true, "cpu", "the same kernel on the CPU: ticks and phases, no times"}}),
      "Where to run (default: cuda, not auto: only a GPU has times)");
  add("phases", flag(phases), "Run once more with stamps, and print how long each phase takes");
  add("csv", outputFile(text(csvFile, "file.csv")), "Write a line per combination");
  add("plot", outputFile(text(plotFile, "file.svg")), "Draw the percentage of the floor over the context or the batch");
  add("timeline", outputFile(text(timelineFile, "file.json")),
      "Write one tick, a thread per CTA, for chrome://tracing or Perfetto");
  add("json", flag(json), "Print a JSON object per combination");
  addLive();
}

void BenchCommand::addLive() {
  add("live", parts(live.parts), "Measure live sessions instead: speed, first-token, open-loop, idle, or all");
  add("prompts", numbers(prompts, "n,m", 1 << 28),
      "With --live: the shortest and the longest prompt (default: 64,512)");
  add("loads", realNumbers(live.loads, "x,..."),
      "With --live: arrivals of the open loop, as shares of what is served when all requests come at once (default: "
      "0.25,0.5,0.75,0.9,1)");
  add("rates", realNumbers(live.rates, "r,..."), "With --live: the same in requests per second");
  add("requests", number(live.requests, "n", 1, 100000), "With --live: requests of each open loop (default: 400)");
  add("arrival-seed", number(live.seed, "n"), "With --live: of arrivals and lengths (default: 0)");
  add("busy", flag(live.busy), "With --live: run each open loop once more with all cores of the host busy");
  add("idle-seconds", number(live.idleSeconds, "s"),
      "With --live: how long power is watched in each state (default: 5)");
}

/// The options of `--live`, and those that it does not have.
bool BenchCommand::checkLive(Diagnostics &diags) {
  const bool wanted = !live.parts.empty();
  for (const char *own : {"prompts", "loads", "rates", "requests", "arrival-seed", "busy", "idle-seconds"})
    if (given(own) && !wanted)
      badOption(diags, std::string("--") + own, "it belongs to `--live`");
  for (const char *other :
       {"context", "prefill", "phases", "timeline", "csv", "plot", "control", "ticks-per-launch", "sampling"})
    if (given(other) && wanted)
      badOption(diags, std::string("--") + other, "`--live` does not have it");
  if (diags.hasErrors())
    return false;
  if (!prompts.empty()) {
    if (prompts.size() != 2 || prompts[1] < prompts[0])
      return badOption(diags, shown("prompts"), "expected the shortest and the longest one, such as 64,512");
    live.shortest = prompts[0];
    live.longest = prompts[1];
  }
  if (!live.loads.empty() && !live.rates.empty())
    return badOption(diags, "--loads", "there are `--rates`; give one of the two");
  if (live.loads.empty())
    live.loads = {0.25, 0.5, 0.75, 0.9, 1};
  return true;
}

bool BenchCommand::check(Diagnostics &diags) const {
  if (cpu && control == Control::Graph)
    return badOption(diags, "--control=graph", "only `--device=cuda` has CUDA graphs");
  if (cpu && !plotFile.empty())
    return badOption(diags, "--plot", "the CPU executor has no times; a plot needs a GPU");
  if (!timelineFile.empty() && contexts.size() * batches.size() > 1)
    return badOption(diags, "--timeline", "it shows one tick; give one context and one batch");
  if (prefill && (phases || !timelineFile.empty()) && llvm::is_contained(contexts, 1))
    return badOption(diags, "--context 1",
                     "`--prefill` shows the ticks that feed all but the last token of the prompts, and there are none");
  for (const std::string &setting : compile.plan)
    if (llvm::StringRef(setting).starts_with("stamps="))
      return badOption(diags, "--plan " + setting, "`--phases` and `--timeline` choose that");
  std::vector<NamedFile> read = inputs();
  for (const auto &[name, path] : configs)
    read.push_back({"--config", path});
  return checkOutputs(files(Value::Output), read, diags);
}

bool BenchCommand::runProgram(Diagnostics &diags) {
  if (!checkLive(diags) || !checkArch(cpu, diags))
    return false;
  if (!live.parts.empty())
    contexts = {live.longest};
  if (contexts.empty())
    contexts = {128};
  if (batches.empty())
    batches = {1};
  return check(diags) && bench(*this, diags);
}

Command &benchCommand() {
  static BenchCommand command;
  return command;
}

} // namespace megalith::tool
