//===- main.cpp - the commands of megalith, and their options -------------===//
#include "Arguments.h"
#include "Help.h"
#include "Numbers.h"
#include "Options.h"
#include "Usage.h"
#include "megalith/Os/Ending.h"
#include "megalith/Support/Tool.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include <set>

using namespace megalith;
using namespace megalith::tool;
using namespace llvm;

namespace {

cl::SubCommand compileSub("compile", "Compile a pipeline and print any level of it");
cl::SubCommand runSub("run", "Run requests through a pipeline, on a GPU or on the CPU");
cl::SubCommand exploreSub("explore", "Run the emitted kernel on the CPU under many schedules, checking every access");
cl::SubCommand benchSub("bench",
                        "Measure a pipeline with random weights of a config.json's shape against the memory's floor");
cl::SubCommand cacheSub("cache", "Show what lies in the cache of compiled kernels, and clean it");
cl::OptionCategory &category = optionCategory();

#define ALL cl::sub(compileSub), cl::sub(runSub), cl::sub(exploreSub), cl::cat(category)
#define ALL_AND_BENCH cl::sub(compileSub), cl::sub(runSub), cl::sub(exploreSub), cl::sub(benchSub), cl::cat(category)
#define EVERY ALL_AND_BENCH, cl::sub(sweepSub())
#define ALL_AND_SWEEP ALL, cl::sub(sweepSub())
#define AND_INSPECT cl::sub(inspectSub())
#define COMPILE cl::sub(compileSub), cl::cat(category)
#define RUN cl::sub(runSub), cl::cat(category)
#define RUN_AND_BENCH cl::sub(runSub), cl::sub(benchSub), cl::cat(category)
#define RUN_AND_EXPLORE cl::sub(runSub), cl::sub(exploreSub), cl::cat(category)
#define EXPLORE cl::sub(exploreSub), cl::cat(category)
#define BENCH cl::sub(benchSub), cl::cat(category)
#define CACHE cl::sub(cacheSub), cl::cat(category)

// --- of all commands
cl::opt<std::string> pipelineFile(cl::Positional, cl::Required, cl::value_desc("FILE"), cl::desc("<pipeline.yaml>"),
                                  ALL_AND_BENCH);
OptionList modelDirs("model", cl::value_desc("[NAME=]DIR"),
                     cl::desc("Checkpoint (config.json, model.safetensors) of the pipeline's model NAME; "
                              "without NAME of every model that has none of its own"),
                     ALL_AND_SWEEP, AND_INSPECT);
OptionList sets("set", cl::value_desc("param=value"), cl::desc("Give a param of the file another value"), EVERY,
                AND_INSPECT);
OptionList planSettings("plan", cl::value_desc("key=value"),
                        cl::desc("Tune the plan: ctas, ring, flight, chunk, operands, order, edges, spare, stamps, "
                                 "wide; never changes a result"),
                        EVERY);
Option<std::string>
    profile("device-profile", cl::value_desc("name"),
            cl::desc("Device to plan for: h200, h100, a100, b200, cpu (compile: one of --arch, or h200; run: "
                     "the GPU that is there, or cpu)"),
            EVERY, AND_INSPECT);
OptionList acceptNames("accept", cl::value_desc("key"),
                       cl::desc("Take a key of config.json, or a tensor ({i}: any number), that the model file "
                                "does not understand, on your word; all outputs say so"),
                       EVERY, AND_INSPECT);
Option<std::string> irFile("ir", cl::value_desc("file"),
                           cl::desc("Start from this IR, printed by --stop-after and edited, in place of the YAML's"),
                           ALL);
Option<bool> printAfterAll("print-after-all", cl::desc("Print the IR after each pass, to stderr"), ALL);
Option<bool> timePasses("time-passes", cl::desc("Print the time of each pass, to stderr"), ALL);
OptionList cuFiles("cu", cl::value_desc("file"),
                   cl::desc("Compile the units that this edited file holds, one or both, in place of the emitted ones"),
                   ALL);
Option<bool>
    wholeKernel("whole-kernel",
                cl::desc("Compile the kernel in one unit, and not in two that are linked: it runs the same, but an "
                         "edit compiles all of it"),
                EVERY);

Option<std::string> arch("arch", cl::value_desc("sm_XX"), cl::init("sm_90a"),
                         cl::desc("Architecture of ptx and cubin, and on cpu whose variant of the device code runs: "
                                  "sm_80, sm_90a (default), sm_100a, ..."),
                         EVERY);

// --- compile
Option<Emit>
    emitLevel("emit", cl::desc("What to print (default: cuda)"), cl::init(Emit::Cuda),
              cl::values(clEnumValN(Emit::Ast, "ast", "the YAML files as they were read"),
                         clEnumValN(Emit::Pipe, "pipe", "control IR before the passes: states, stages, calls"),
                         clEnumValN(Emit::Tick, "tick", "control IR after the passes: the static list of parts"),
                         clEnumValN(Emit::Tensor, "tensor", "the models' IR after the passes: streams and maps"),
                         clEnumValN(Emit::Plan, "plan", "matrices, buffers, phases and edges on the device"),
                         clEnumValN(Emit::Cuda, "cuda", "the CUDA text of the kernel: both its units"),
                         clEnumValN(Emit::CudaControl, "cuda-control",
                                    "its control unit: the pipeline, which an edit of it compiles"),
                         clEnumValN(Emit::CudaTensors, "cuda-tensors",
                                    "its tensor unit: the models, which all their pipelines share"),
                         clEnumValN(Emit::Ptx, "ptx", "NVRTC's PTX of both units"),
                         clEnumValN(Emit::Cubin, "cubin", "the linked cubin; resources go to stderr"),
                         clEnumValN(Emit::Manifest, "manifest", "what the runtime needs to know, JSON")),
              COMPILE);
Option<std::string> stopAfter("stop-after", cl::value_desc("pass"),
                              cl::desc("Print the whole IR after this pass (`lower`: before the first); --ir reads it"),
                              COMPILE);
Option<bool> noSpills("no-spills", cl::desc("Model code that spills registers is an error"), COMPILE);
Option<std::string> output("o", cl::value_desc("file"), cl::init("-"), cl::desc("Output file (default: stdout)"),
                           COMPILE);

// --- run
Option<std::string> requests("requests", cl::value_desc("file.jsonl"), cl::Required,
                             cl::desc("One request per line: {\"id\", \"tokens\" or \"text\", \"max_new_tokens\", "
                                      "\"eos\", \"stop\", \"priority\", \"sampling\"}"),
                             RUN);
Option<Device>
    device("device", cl::desc("Where to run (default: auto)"), cl::init(Device::Auto),
           cl::values(clEnumValN(Device::Auto, "auto", "a GPU if there is one, else the reference executor"),
                      clEnumValN(Device::Cuda, "cuda", "the GPU: one persistent kernel"),
                      clEnumValN(Device::Cpu, "cpu", "the emitted kernel on the CPU"),
                      clEnumValN(Device::Reference, "reference", "the reference executor: the IR, without a kernel")),
           RUN);
Option<std::string> schedule("schedule", cl::value_desc("schedule"),
                             cl::desc("On cpu: the order of the threads, checked as with --check: round-robin, "
                                      "random:SEED or pct:SEED[:CHANGES]; @N behind it: only its first N decisions"),
                             RUN);
Option<bool> check("check", cl::desc("On cpu: check the memory model, and that no access races"), RUN);
Option<Format> format("format", cl::desc("Form of the results (default: auto)"), cl::init(Format::Auto),
                      cl::values(clEnumValN(Format::Auto, "auto", "text on a terminal, else json"),
                                 clEnumValN(Format::Json, "json", "one JSON object per request, then a summary"),
                                 clEnumValN(Format::Text, "text", "for reading, with charts of traced gauges")),
                      RUN);
Option<std::string> traceFile("trace", cl::value_desc("file.jsonl"), cl::desc("Write what every tick did"), RUN);
Option<std::string> runTimeline("timeline", cl::value_desc("file.json"),
                                cl::desc("Write what slots, passes, pools and the host did, for chrome://tracing or "
                                         "Perfetto"),
                                RUN);
Option<std::string> replayFile("replay", cl::value_desc("file.jsonl"),
                               cl::desc("Use this trace's tokens, check each against the own logits, and compare "
                                        "the control traces (auto: on the reference executor)"),
                               RUN);
RealNumber replayEpsilon(0.05, "replay-epsilon", cl::value_desc("x"),
                         cl::desc("A replayed token may be this far below the own maximum, relative to the norm "
                                  "of the row's logits (default: 0.05)"),
                         RUN_AND_EXPLORE);
RealNumber replayError(0.05, "replay-error", cl::value_desc("x"),
                       cl::desc("Draws and other values of a replay may be those of logits that are off by this part "
                                "of the row's root mean square, and a step of bf16 (default: 0.05)"),
                       RUN_AND_EXPLORE);
Option<std::string> referenceAt("reference-at", cl::value_desc("pass"),
                                cl::desc("Reference executor: run the IR as it is after this pass"), RUN);
WholeNumber<int64_t, 1, INT32_MAX> maxTicks(0, "max-ticks", cl::value_desc("n"), cl::desc("Stop after n ticks"), RUN);
Option<Control>
    control("control", cl::desc("Who keeps the loop (default: resident). The results are the same"),
            cl::init(Control::Resident),
            cl::values(clEnumValN(Control::Resident, "resident", "the kernel, which is launched once"),
                       clEnumValN(Control::Host, "host",
                                  "the host: a launch, a wait, and tokens and states read back for each tick"),
                       clEnumValN(Control::Graph, "graph", "the host, which launches a CUDA graph for each tick")),
            RUN_AND_BENCH);
WholeNumber<int64_t, 1, INT32_MAX>
    ticksPerLaunch(0, "ticks-per-launch", cl::value_desc("n"),
                   cl::desc("End a launch after n ticks and launch again (default: resident never, host and graph 1)"),
                   RUN_AND_BENCH);
WholeNumber<uint32_t> runSeed(0, "seed", cl::value_desc("n"),
                              cl::desc("Seed of random numbers, beside each request's own (default: 0)"),
                              RUN_AND_EXPLORE);
WholeNumber<uint64_t> shufflePages(0, "shuffle-pages", cl::value_desc("seed"),
                                   cl::desc("Deal KV pages in a random order"), RUN_AND_EXPLORE);
Option<bool> kvHash("kv-hash", cl::desc("Put a hash of each row's K and V into the trace"), RUN);
Option<std::string> logitsFile("logits", cl::value_desc("file"),
                               cl::desc("Write the logits behind each generated token: a JSON line, then f32"), RUN);
Option<std::string> arrivalsFile("arrivals", cl::value_desc("file.jsonl"),
                                 cl::desc("When requests arrive: {\"id\", \"tick\" or \"ms\"} per line; the others "
                                          "are there at the start"),
                                 RUN_AND_EXPLORE);
Option<std::string> draftsFile("inject-drafts", cl::value_desc("file.jsonl"),
                               cl::desc("For tests: {\"id\", \"tokens\"} per line, proposed in place of looking up"),
                               RUN_AND_EXPLORE);
Option<std::string>
    acceptance("acceptance", cl::value_desc("P,..."),
               cl::desc("Synthetic drafts, right with probability P: of all requests, P,Q of the requests in turn, or "
                        "P:N,Q:M of a request's first N new tokens, the next M, ...; decodes without drafts first"),
               RUN);
WholeNumber<uint64_t> acceptanceSeed(0, "acceptance-seed", cl::value_desc("n"),
                                     cl::desc("Which of the synthetic drafts are right"), RUN);
OptionList corruptions("inject-corrupt", cl::value_desc("TICK:ID:FIELD:VALUE"),
                       cl::desc("For tests: overwrite a request's field before a tick"), RUN);
WholeNumber<unsigned> delaySeed(0, "delay-seed", cl::value_desc("n"), cl::desc("For tests: random delays before waits"),
                                RUN);
RealNumber watchdog(10, "watchdog", cl::value_desc("seconds"),
                    cl::desc("Stop a kernel in which nothing moves for so long; 0: never (default: 10)"), RUN);
WholeNumber<unsigned, 1> repeat(1, "repeat", cl::value_desc("n"),
                                cl::desc("Run n times; tokens, logits, traces and KV must be equal bit for bit"), RUN);

// --- explore
Option<std::string> exploreRequests("requests", cl::value_desc("file.jsonl"),
                                    cl::desc("As for run (default: three small requests)"), EXPLORE);
WholeNumber<uint64_t, 0, 1000000000>
    seeds(100, "seeds", cl::value_desc("n"),
          cl::desc("Schedules to run beside the first, which is round robin (default: 100)"), EXPLORE);
WholeNumber<uint64_t, 0, INT64_MAX> firstSeed(1, "first-seed", cl::value_desc("n"),
                                              cl::desc("Seed of the first of them"), EXPLORE);
Option<bool> exploreLive("live",
                         cl::desc("The requests come while the kernel runs, from a host that is one more thread under "
                                  "the schedule; it takes some back, and lets the kernel rest and go on"),
                         EXPLORE);

// --- bench
OptionList
    benchConfigs("config", cl::value_desc("[NAME=]path"),
                 cl::desc("config.json of the shape of the pipeline's model NAME, or its directory; without NAME "
                          "of every model that has none of its own. No weights are needed"),
                 BENCH);
OptionList benchContexts("context", cl::value_desc("n,..."), cl::CommaSeparated,
                         cl::desc("Tokens of each prompt (default: 128)"), BENCH);
OptionList benchBatches("batch", cl::value_desc("n,..."), cl::CommaSeparated,
                        cl::desc("Requests at a time (default: 1)"), BENCH);
WholeNumber<int64_t> benchTokens(64, "tokens", cl::value_desc("n"),
                                 cl::desc("Tokens to generate per request (default: 64)"), BENCH);
WholeNumber<int64_t>
    benchRepeats(5, "repeats", cl::value_desc("n"),
                 cl::desc("Runs of each combination, behind one that does not count; medians are printed (default: 5)"),
                 BENCH);
Option<bool> benchPrefill("prefill", cl::desc("Feed the prompts; otherwise their K and V are in the pool, random"),
                          BENCH);
Option<Device>
    benchDevice("device", cl::desc("Where to run (default: cuda, not auto: only a GPU has times)"),
                cl::init(Device::Cuda),
                cl::values(clEnumValN(Device::Cuda, "cuda", "the GPU"),
                           clEnumValN(Device::Cpu, "cpu", "the same kernel on the CPU: ticks and phases, no times")),
                BENCH);
Option<bool> benchPhases("phases", cl::desc("Run once more with stamps, and print how long each phase takes"), BENCH);
Option<std::string> benchTimeline("timeline", cl::value_desc("file.json"),
                                  cl::desc("Write one tick, a thread per CTA, for chrome://tracing or Perfetto"),
                                  BENCH);
Option<std::string> benchCsv("csv", cl::value_desc("file.csv"), cl::desc("Write a line per combination"), BENCH);
Option<std::string> benchPlot("plot", cl::value_desc("file.svg"),
                              cl::desc("Draw the percentage of the floor over the context or the batch"), BENCH);
Option<bool> benchJson("json", cl::desc("Print a JSON object per combination"), BENCH);
OptionList benchLiveParts("live", cl::value_desc("part,..."), cl::CommaSeparated,
                          cl::desc("Measure live sessions instead: speed, first-token, open-loop, idle, or all"),
                          BENCH);
OptionList benchPrompts("prompts", cl::value_desc("n,m"), cl::CommaSeparated,
                        cl::desc("With --live: the shortest and the longest prompt (default: 64,512)"), BENCH);
OptionList benchLoads("loads", cl::value_desc("x,..."), cl::CommaSeparated,
                      cl::desc("With --live: arrivals of the open loop, as shares of what is served when all requests "
                               "come at once (default: 0.25,0.5,0.75,0.9,1)"),
                      BENCH);
OptionList benchRates("rates", cl::value_desc("r,..."), cl::CommaSeparated,
                      cl::desc("With --live: the same in requests per second"), BENCH);
WholeNumber<int64_t, 1, 100000> benchRequests(400, "requests", cl::value_desc("n"),
                                              cl::desc("With --live: requests of each open loop (default: 400)"),
                                              BENCH);
WholeNumber<uint32_t> arrivalSeed(0, "arrival-seed", cl::value_desc("n"),
                                  cl::desc("With --live: of arrivals and lengths (default: 0)"), BENCH);
Option<bool> benchBusy("busy", cl::desc("With --live: run each open loop once more with all cores of the host busy"),
                       BENCH);
RealNumber idleSeconds(5, "idle-seconds", cl::value_desc("s"),
                       cl::desc("With --live: how long power is watched in each state (default: 5)"), BENCH);

// --- cache
Option<bool> cacheClean("clean",
                        cl::desc("Remove now what was not used for longer than $MEGALITH_CACHE_DAYS (30), and the "
                                 "longest unused entries above $MEGALITH_CACHE_SIZE (4G) in all; that happens by "
                                 "itself, too, when a kernel is stored"),
                        CACHE);
Option<bool> cacheClear("clear", cl::desc("Remove all entries"), CACHE);
Option<bool> cacheJson("json", cl::desc("Print a JSON object"), CACHE);

/// `key=value` to a pair; a missing `=` is a `bad-option`.
bool splitPairs(const cl::list<std::string> &list, StringRef option,
                std::vector<std::pair<std::string, std::string>> &out, Diagnostics &diags) {
  for (const std::string &text : list) {
    auto [key, value] = StringRef(text).split('=');
    if (key.empty() || key.size() == text.size()) {
      diags.report(Diag::BadOption, {}, "--" + option.str() + " " + text, "expected `name=value`");
      return false;
    }
    out.push_back({key.trim().str(), value.trim().str()});
  }
  return true;
}

/// "sm_90a" -> 900, as __CUDA_ARCH__ has it; nullopt after an error.
std::optional<int> archNumber(Diagnostics &diags) {
  StringRef text = arch;
  unsigned number = 0;
  if (!text.consume_front("sm_") || text.consumeInteger(10, number) || (!text.empty() && text != "a" && text != "f") ||
      number > 10000)
    diags.report(Diag::BadOption, {}, "--arch " + arch, "expected sm_80, sm_90a or the like");
  else if (number < 80)
    diags.report(Diag::BadOption, {}, "--arch " + arch, "the kernel needs compute capability 8.0 or more");
  else
    return int(number) * 10;
  return std::nullopt;
}

/// The same for commands in which only the CPU executor has one to choose.
std::optional<int> cpuArchNumber(bool cpu, Diagnostics &diags) {
  auto number = archNumber(diags);
  if (!number || cpu || !arch.getNumOccurrences())
    return number;
  diags.report(Diag::BadOption, {}, "--arch " + arch, "only `--device=cpu` runs another architecture's code");
  return std::nullopt;
}

/// Reports numbers that are none, and every option that is given with nothing behind it.
bool checkCommonTexts(Diagnostics &diags) {
  for (NumberOption *number : NumberOption::all())
    if (number->given())
      if (const std::string why = number->read(); !why.empty())
        diags.report(Diag::BadOption, {}, number->shown(), why);
  checkTexts({&profile, &irFile, &arch, &stopAfter, &output, &requests, &schedule, &traceFile, &runTimeline,
              &replayFile, &referenceAt, &logitsFile, &arrivalsFile, &draftsFile, &acceptance, &exploreRequests,
              &benchTimeline, &benchCsv, &benchPlot},
             {modelDirs, sets, planSettings, cuFiles, corruptions, benchContexts, benchBatches, benchConfigs,
              benchLiveParts, benchPrompts, benchLoads, benchRates},
             diags);
  if (pipelineFile.empty() && !sweepSub() && !inspectSub())
    diags.report(Diag::BadOption, {}, "FILE", "the path of the pipeline is empty");
  return !diags.hasErrors();
}

bool fillCommon(ProgramOptions &options, Diagnostics &diags) {
  if (!checkCommonTexts(diags) || !readModels("model", "DIR", modelDirs, options.models, diags))
    return false;
  options.file = pipelineFile;
  if (!sweepSub() && !inspectSub()) { // they have their own
    std::vector<std::string *> cu;
    for (std::string &file : cuFiles)
      cu.push_back(&file);
    if (!checkStandardInput({{"FILE", {&options.file}},
                             {"--requests", {&requests, &exploreRequests}},
                             {"--ir", {&irFile}},
                             {"--cu", cu},
                             {"--replay", {&replayFile}},
                             {"--arrivals", {&arrivalsFile}},
                             {"--inject-drafts", {&draftsFile}}},
                            diags) ||
        !findPipeline(options.file, options.texts, diags))
      return false;
  }
  options.plan.assign(planSettings.begin(), planSettings.end());
  options.accept.assign(acceptNames.begin(), acceptNames.end());
  options.profile = profile;
  options.irFile = irFile;
  options.printAfterAll = printAfterAll;
  options.timePasses = timePasses;
  options.sink = [](const std::string &text) { errs() << (errs().is_displayed() ? text::printableLines(text) : text); };
  return splitPairs(sets, "set", options.params, diags);
}

bool compileMain(Diagnostics &diags) {
  CompileCommand command;
  if (!fillCommon(command.compile, diags))
    return false;
  if (!archNumber(diags))
    return false;
  if (profile.empty())
    command.compile.profile = profileOfArch(std::string_view(arch));
  command.compile.stopAfter = stopAfter;
  command.emit = emitLevel;
  command.emitGiven = emitLevel.getNumOccurrences() > 0;
  command.arch = arch;
  command.output = output;
  command.cuFiles.assign(cuFiles.begin(), cuFiles.end());
  command.wholeKernel = wholeKernel;
  command.noSpills = noSpills;
  return compileCommand(command, diags);
}

bool runMain(Diagnostics &diags) {
  RunCommand command;
  if (!fillCommon(command.compile, diags))
    return false;
  if (schedule.getNumOccurrences() && !tools::isSchedule(std::string_view(schedule))) {
    diags.report(Diag::BadOption, {}, "--schedule " + schedule, std::string("expected ") + tools::scheduleForm);
    return false;
  }
  const auto number = cpuArchNumber(device == Device::Cpu, diags);
  if (!number)
    return false;
  command.compile.stopAfter = referenceAt;
  command.referenceAtGiven = !referenceAt.empty();
  command.kernel.device = device;
  command.kernel.cpuArch = *number;
  command.kernel.check = check;
  command.kernel.sourceFiles.assign(cuFiles.begin(), cuFiles.end());
  command.kernel.wholeKernel = wholeKernel;
  command.requests = requests;
  command.format = format;
  command.traceFile = traceFile;
  command.timelineFile = runTimeline;
  command.replayFile = replayFile;
  command.logitsFile = logitsFile;
  command.arrivalsFile = arrivalsFile;
  command.draftsFile = draftsFile;
  command.acceptance = acceptance;
  if (acceptanceSeed.given())
    command.acceptanceSeed = uint64_t(acceptanceSeed);
  command.corruptions.assign(corruptions.begin(), corruptions.end());
  RunOptions &session = command.session;
  session.schedule = schedule;
  session.replayEpsilon = replayEpsilon;
  session.replayError = replayError;
  session.maxTicks = maxTicks;
  session.control = control;
  session.ticksPerLaunch = ticksPerLaunch;
  if (shufflePages.given())
    session.shufflePages = uint64_t(shufflePages);
  session.seed = runSeed;
  session.kvHash = kvHash;
  session.delaySeed = delaySeed;
  session.watchdogSeconds = watchdog;
  session.repeat = repeat;
  return runCommand(command, diags);
}

bool exploreMain(Diagnostics &diags) {
  ExploreCommand command;
  if (!fillCommon(command.compile, diags))
    return false;
  const auto number = archNumber(diags);
  if (!number)
    return false;
  command.cpuArch = *number;
  command.requests = exploreRequests;
  command.cuFiles.assign(cuFiles.begin(), cuFiles.end());
  command.wholeKernel = wholeKernel;
  if (shufflePages.given())
    command.shufflePages = uint64_t(shufflePages);
  command.seed = runSeed;
  command.arrivalsFile = arrivalsFile;
  command.draftsFile = draftsFile;
  command.replayEpsilon = replayEpsilon;
  command.replayError = replayError;
  command.seeds = seeds;
  command.firstSeed = firstSeed;
  command.live = exploreLive;
  return exploreCommand(command, diags);
}

/// Positive numbers of a list.
bool realsOf(const OptionList &list, StringRef option, std::vector<double> &out, Diagnostics &diags) {
  for (const std::string &text : list) {
    double number = 0;
    if (StringRef(text).getAsDouble(number) || !(number > 0) || number > 1e9) {
      diags.report(Diag::BadOption, {}, "--" + option.str() + " " + text,
                   "expected a number above 0, or several with commas");
      return false;
    }
    out.push_back(number);
  }
  return true;
}

/// What stands behind `--live` and belongs to it. Unset without it.
bool readLive(std::optional<BenchCommand::Live> &out, Diagnostics &diags) {
  const std::pair<const char *, bool> own[] = {
      {"--prompts", !benchPrompts.empty()},   {"--loads", !benchLoads.empty()},        {"--rates", !benchRates.empty()},
      {"--requests", benchRequests.given()},  {"--arrival-seed", arrivalSeed.given()}, {"--busy", benchBusy},
      {"--idle-seconds", idleSeconds.given()}};
  const std::pair<const char *, bool> others[] = {{"--context", !benchContexts.empty()},
                                                  {"--prefill", benchPrefill},
                                                  {"--phases", benchPhases},
                                                  {"--timeline", !benchTimeline.empty()},
                                                  {"--csv", !benchCsv.empty()},
                                                  {"--plot", !benchPlot.empty()},
                                                  {"--control", control.getNumOccurrences() > 0},
                                                  {"--ticks-per-launch", ticksPerLaunch.given()}};
  const bool wanted = !benchLiveParts.empty();
  for (const auto &[option, given] : own)
    if (given && !wanted)
      diags.report(Diag::BadOption, {}, option, "it belongs to `--live`");
  for (const auto &[option, given] : others)
    if (given && wanted)
      diags.report(Diag::BadOption, {}, option, "`--live` does not have it");
  if (!wanted || diags.hasErrors())
    return !diags.hasErrors();
  BenchCommand::Live live;
  for (const std::string &part : benchLiveParts)
    if (part == "all") {
      live.parts = liveParts;
    } else if (is_contained(liveParts, part)) {
      live.parts.push_back(part);
    } else {
      diags.report(Diag::BadOption, {}, "--live " + part, "expected " + join(liveParts, ", ") + " or all");
      return false;
    }
  std::vector<int64_t> prompts;
  if (!benchPrompts.empty()) {
    if (!numbersOf(benchPrompts, "prompts", 0, prompts, diags))
      return false;
    if (prompts.size() != 2 || prompts[0] < 1 || prompts[1] < prompts[0] || prompts[1] > 1 << 28) {
      diags.report(Diag::BadOption, {}, "--prompts " + join(benchPrompts, ","),
                   "expected the shortest and the longest one, such as 64,512");
      return false;
    }
    live.shortest = prompts[0];
    live.longest = prompts[1];
  }
  if (!realsOf(benchLoads, "loads", live.loads, diags) || !realsOf(benchRates, "rates", live.rates, diags))
    return false;
  if (!live.loads.empty() && !live.rates.empty()) {
    diags.report(Diag::BadOption, {}, "--loads", "there are `--rates`; give one of the two");
    return false;
  }
  if (live.loads.empty())
    live.loads = {0.25, 0.5, 0.75, 0.9, 1};
  live.requests = benchRequests;
  live.seed = arrivalSeed;
  live.busy = benchBusy;
  live.idleSeconds = idleSeconds;
  out = std::move(live);
  return true;
}

bool benchMain(Diagnostics &diags) {
  BenchCommand command;
  if (benchConfigs.empty()) {
    diags.report(Diag::BadOption, {}, "megalith bench", "needs `--config=[NAME=]path`");
    return false;
  }
  if (!fillCommon(command.compile, diags) || !numbersOf(benchContexts, "context", 128, command.contexts, diags) ||
      !numbersOf(benchBatches, "batch", 1, command.batches, diags) ||
      !readModels("config", "path", benchConfigs, command.configs, diags) || !readLive(command.live, diags))
    return false;
  if (command.live)
    command.contexts = {command.live->longest};
  command.cpu = benchDevice == Device::Cpu;
  const auto number = cpuArchNumber(command.cpu, diags);
  if (!number)
    return false;
  command.cpuArch = *number;
  command.wholeKernel = wholeKernel;
  command.tokens = benchTokens;
  command.repeats = benchRepeats;
  command.control = control;
  command.ticksPerLaunch = ticksPerLaunch;
  command.prefill = benchPrefill;
  command.phases = benchPhases;
  command.json = benchJson;
  command.timelineFile = benchTimeline;
  command.csvFile = benchCsv;
  command.plotFile = benchPlot;
  return benchCommand(command, diags);
}

bool sweepCommonMain(Diagnostics &diags) {
  SweepCommand command;
  if (!fillCommon(command.compile, diags))
    return false;
  const auto number = archNumber(diags);
  if (!number)
    return false;
  command.cpuArch = *number;
  command.wholeKernel = wholeKernel;
  return sweepMain(std::move(command), diags);
}

bool inspectCommonMain(Diagnostics &diags) {
  ProgramOptions options;
  return fillCommon(options, diags) && inspectMain(std::move(options), diags);
}

bool cacheMain(Diagnostics &diags) {
  if (cacheClean && cacheClear) {
    diags.report(Diag::BadOption, {}, "--clean", "`--clear` removes everything; give one of the two");
    return false;
  }
  CacheCommand command;
  command.clean = cacheClean;
  command.clear = cacheClear;
  command.json = cacheJson;
  return cacheCommand(command, diags);
}

bool isSet(const char *variable) {
  const char *value = std::getenv(variable);
  return value && *value;
}

/// "error:" and the like in colours, where they begin a message.
std::string colored(StringRef text) {
  std::string out;
  while (!text.empty()) {
    StringRef line;
    std::tie(line, text) = text.split('\n');
    for (const auto &[word, color] :
         {std::pair("error:", "1;31"), std::pair("warning:", "1;35"), std::pair("note:", "1;36")}) {
      // At the begin, or behind FILE:LINE:COLUMN.
      const size_t at = line.starts_with(word) ? 0 : line.find(std::string(": ") + word);
      if (at == StringRef::npos)
        continue;
      const size_t begin = at ? at + 2 : 0, length = StringRef(word).size();
      out += fmt::format("{}\x1b[{}m{}\x1b[0m", line.take_front(begin).str(), color, word);
      line = line.drop_front(begin + length);
      break;
    }
    out += line.str() + "\n";
  }
  return out;
}

void print(const Diagnostics &diags, Color color) {
  const char *terminal = std::getenv("TERM");
  const bool colors = color == Color::Always || (color == Color::Auto && errs().is_displayed() && !isSet("NO_COLOR") &&
                                                 terminal && StringRef(terminal) != "dumb");
  errs() << (colors ? colored(diags.render()) : diags.render());
}

/// Whether the command line was wrong, and nothing else was tried.
bool isUsage(const Diagnostics &diags) { return diags.messages().first().kind == diagInfo(Diag::BadOption).kebab; }

int megalithMain(int argc, char **argv) {
  SourceFiles sources;
  Diagnostics diags(sources);
  if (argc == 1) {
    errs() << programHelp(helpWidth());
    return 2;
  }
  const std::vector<StringRef> given(argv + 1, argv + argc);
  const CommandLine line = readCommandLine(given, diags);
  if (line.asks == CommandLine::Version) {
    outs() << "megalith " << version() << "\n";
    return 0;
  }
  if (line.asks == CommandLine::Help && (line.command || !diags.hasErrors())) {
    outs() << (line.command ? commandHelp(*line.command, helpWidth()) : programHelp(helpWidth()));
    return 0;
  }
  if (diags.hasErrors()) {
    print(diags, line.color);
    return 2;
  }
  const std::string name = line.command->sub->getName().str();
  std::vector<const char *> arguments = {argv[0], name.c_str()};
  for (const std::string &argument : line.arguments)
    arguments.push_back(argument.c_str());
  std::string wrong;
  raw_string_ostream wrongStream(wrong);
  if (!cl::ParseCommandLineOptions(static_cast<int>(arguments.size()), arguments.data(), "", &wrongStream)) {
    errs() << text::printableLines(wrong);
    return 2;
  }
  const bool ok = line.command->main(diags);
  outs().flush();
  clearProgress();
  print(diags, line.color);
  if (const int signal = os::interrupted())
    return 128 + signal;
  return ok && !diags.hasErrors() ? 0 : isUsage(diags) ? 2 : 1;
}

} // namespace

ArrayRef<Command> tool::commands() {
  static const Command all[] = {
      {&compileSub, compileMain, "FILE",
       R"(megalith compile autoregressive --model models/demo
  prints the CUDA text of the pipeline's kernel
megalith compile autoregressive --model models/demo --emit=cubin -o kernel.cubin
  compiles it, and reports registers, spills and shared memory
megalith compile FILE --model DIR --stop-after=form-ticks -o edited.ir
megalith run FILE --model DIR --requests R.jsonl --ir edited.ir
  stops in the middle, and goes on from there after an edit)"},
      {&runSub, runMain, "FILE",
       R"(megalith run adaptive_speculative --model models/demo --requests R.jsonl
  runs the requests in one launch of one kernel, or without a GPU
make_requests | megalith run FILE --model DIR --requests -
  the same of requests from a pipe
megalith run FILE --model DIR --requests R.jsonl --device=cuda --trace T.jsonl
megalith run FILE --model DIR --requests R.jsonl --device=reference --replay T.jsonl
  checks a run on the GPU against the reference executor)"},
      {&exploreSub, exploreMain, "FILE",
       R"(megalith explore FILE --model DIR --seeds 200
  looks for races, deadlocks and the like in the emitted kernel, without a GPU)"},
      {&benchSub, benchMain, "FILE",
       R"(megalith bench FILE --config=DIR --context=128,4096,32768 --phases --csv=sweep.csv --plot=sweep.svg
  measures ms per token against what reading weights and KV takes; needs config.json only
megalith bench FILE --config=DIR --live=all --batch=1,8,16 --tokens=128 --busy
  measures live sessions: speed beside a run, first tokens, requests at given rates, power of a kernel that sleeps)"},
      {&sweepSub(), sweepCommonMain, "FILE ...",
       R"(megalith sweep FILE FILE --model DIR --requests=2,4,8,16 --tokens=32,64 --vary PIPELINE:block=1,2,4 --csv=F.csv
  measures every combination; the same command goes on where it was interrupted)"},
      {&inspectSub(), inspectCommonMain, "[FILE]",
       R"(megalith inspect --model models/demo
  shows what would run of a checkpoint, and why it would not)"},
      {&cacheSub, cacheMain, "",
       R"(megalith cache --clean
  removes old kernels from the cache, and shows what lies there)"},
      {&completionSub(), completionMain, "bash|zsh|man",
       R"(source <(megalith completion bash)
  completes commands, options and their values in this shell
megalith completion man | man -l -
  shows the man page)"},
  };
  return all;
}

int main(int argc, char **argv) {
  return runTool([&] { return megalithMain(argc, argv); });
}
