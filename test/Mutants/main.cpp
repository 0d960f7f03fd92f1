//===- main.cpp - broken kernels that the CPU executor must catch ---------===//
//
//   megalith-mutants --model DIR --whole DIR --codes DIR --whole-codes DIR [--only NAME] [--every N] [--seeds N]
//   [--sound N] [--jobs N]
//
// Takes the shipped adaptive pipeline, breaks its kernel in each of the ways of
// Mutants.def, and explores schedules until one fails: each mutant must be caught, by one
// of the reports that its entry names. The unbroken kernels, with edges by barriers and by
// words, must pass --sound schedules.
// Passes of more than 16 rows have code of their own, as much again to compile: it is there
// where a mutant could depend on it.
// Prints a table with the number of schedules that each mutant needed.
//===----------------------------------------------------------------------===//
#include "megalith/Driver/Compilation.h"
#include "runtime/cpu/Explorer.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace megalith;
namespace cl = llvm::cl;

static cl::opt<std::string> modelDir("model", cl::Required, cl::desc("Checkpoint of the model"));
static cl::opt<std::string> wholeDir("whole", cl::Required, cl::desc("Checkpoint of the model whose passes run whole"));
static cl::opt<std::string> codesDir("codes", cl::Required,
                                     cl::desc("Checkpoint of the model whose weights are codes in groups"));
static cl::opt<std::string> wholeCodesDir("whole-codes", cl::Required,
                                          cl::desc("The same of the model whose passes run whole"));
static cl::opt<std::string> only("only", cl::desc("Only the mutants whose name contains this"));
static cl::opt<unsigned> every("every", cl::init(1),
                               cl::desc("Only each Nth mutant; of the others, that their text stands there"));
static cl::opt<uint64_t> seeds("seeds", cl::init(40), cl::desc("Most schedules for a mutant"));
static cl::opt<uint64_t> sound("sound", cl::init(40), cl::desc("Schedules of the unbroken kernel"));
static cl::opt<unsigned> jobs("jobs", cl::init(2), cl::desc("Mutants at a time"));
static cl::opt<bool> verbose("verbose", cl::desc("Print what was found, and how long it took"));

namespace {

struct Mutant {
  std::string name, what, file, find, replace, reports;
  /// Stalled: one CTA stands still; Resumed: of the kernel with `edges=words`, a launch ends after
  /// each tick; Words: of the kernel with `edges=words`; Parallel: the same of parallel.yaml; Live: of a live
  /// session; Whole: of the kernel whose passes of more than 128 rows run whole; Codes: of a model with
  /// codes, and K and V in e4m3, but for a layer with a window; WholeCodes: both, without windows.
  enum Kind { Plain, Stalled, Resumed, Words, Parallel, Live, Whole, Codes, WholeCodes } kind;
};

const Mutant mutants[] = {
#define MUTANT(Name, What, File, Find, Replace, Reports) {Name, What, File, Find, Replace, Reports, Mutant::Plain},
#define STALLED_MUTANT(Name, What, File, Find, Replace, Reports)                                                       \
  {Name, What, File, Find, Replace, Reports, Mutant::Stalled},
#define RESUMED_MUTANT(Name, What, File, Find, Replace, Reports)                                                       \
  {Name, What, File, Find, Replace, Reports, Mutant::Resumed},
#define WORDS_MUTANT(Name, What, File, Find, Replace, Reports)                                                         \
  {Name, What, File, Find, Replace, Reports, Mutant::Words},
#define PARALLEL_MUTANT(Name, What, File, Find, Replace, Reports)                                                      \
  {Name, What, File, Find, Replace, Reports, Mutant::Parallel},
#define LIVE_MUTANT(Name, What, File, Find, Replace, Reports) {Name, What, File, Find, Replace, Reports, Mutant::Live},
#define WHOLE_MUTANT(Name, What, File, Find, Replace, Reports)                                                         \
  {Name, What, File, Find, Replace, Reports, Mutant::Whole},
#define CODES_MUTANT(Name, What, File, Find, Replace, Reports)                                                         \
  {Name, What, File, Find, Replace, Reports, Mutant::Codes},
#define WHOLE_CODES_MUTANT(Name, What, File, Find, Replace, Reports)                                                   \
  {Name, What, File, Find, Replace, Reports, Mutant::WholeCodes},
#include "Mutants.def"
};

/// Whether it takes the kernel whose passes can have more than 16 rows: what breaks the
/// emitted text breaks it for both, and a device header is read once.
bool isWide(const Mutant &mutant) { return mutant.kind == Mutant::Words || mutant.file == "kernel"; }

struct Verdict {
  bool good = false;
  std::string text;
};

/// Puts the mutant's text in place of the original one, which stands there exactly once.
bool apply(const Mutant &mutant, std::string &text) {
  size_t at = text.find(mutant.find);
  if (at == std::string::npos || text.find(mutant.find, at + 1) != std::string::npos)
    return false;
  text.replace(at, mutant.find.size(), mutant.replace);
  return true;
}

/// The shipped adaptive pipeline with some of its words exchanged, as long as this lives.
class PipelineFile {
public:
  using Words = std::initializer_list<std::pair<std::string_view, std::string_view>>;
  explicit PipelineFile(Words words) {
    const auto original = llvm::MemoryBuffer::getFile(shipped);
    if (!original || llvm::sys::fs::createTemporaryFile("mutants", "yaml", path))
      return;
    std::string text = (*original)->getBuffer().str();
    for (const auto &[before, after] : words)
      if (size_t at = text.find(before); at != std::string::npos)
        text.replace(at, before.size(), after);
    std::error_code failed;
    llvm::raw_fd_ostream(path, failed) << text;
  }
  PipelineFile(const PipelineFile &) = delete;
  ~PipelineFile() { llvm::sys::fs::remove(path); }

  static constexpr const char *shipped = MEGALITH_SOURCE_DIR "/pipelines/adaptive_speculative.yaml";
  llvm::SmallString<128> path;
};

/// Prompts short and long, so that passes of both variants of the code come up. `whole`: passes that run whole, too.
std::vector<Request> someRequests(bool whole) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    Request r;
    r.id = fmt::format("r{}", i);
    const int length = i == 2 ? (whole ? 330 : 40) : 5 + 4 * i;
    for (int j = 0; j < length; ++j)
      r.tokens.push_back((i * 7 + j % 5 * 3) % 50 + 3);
    r.maxNewTokens = whole ? 2 + i % 2 : 5 + i;
    r.priority = i % 2;
    requests.push_back(r);
  }
  return requests;
}

runtime::RunOptions someOptions(const std::vector<Request> &requests) {
  runtime::RunOptions run;
  // Drafts at every other token: rows of a pass come and go. The last one is no token:
  // the request fails, and who fails alone leaves a tick without rows.
  for (const Request &r : requests) {
    std::vector<int32_t> &drafts = run.oracleDrafts.emplace_back();
    for (int i = 0; i < r.maxNewTokens; ++i)
      drafts.push_back(i % 2 ? -1 : i + 4 > r.maxNewTokens ? INT32_MAX : (i * 5 + 3) % 50);
  }
  run.watchdogSeconds = 0.01; // of the executor's clock
  return run;
}

class Bench {
public:
  /// `edges`: a value of `--plan edges=`; `rows`: one of `--set rows_per_pass=`; `whole`: passes of that many rows run
  /// whole.
  Bench(Diagnostics &diags, std::string file, std::string edges, std::string rows, std::string model,
        bool whole = false, const char *pageTokens = "4")
      : diags(diags), file(std::move(file)), edges(std::move(edges)), rows(std::move(rows)), model(std::move(model)),
        whole(whole), pageTokens(pageTokens), requests(someRequests(whole)) {}

  bool prepare() {
    options.file = file;
    options.models = {{"", model}};
    options.needWeights = true;
    options.profile = "cpu";
    // Few slots and pages, so that requests wait and pages come back; a ring that turns, and lends a stage.
    options.sets = {{"slots", "3"},
                    {"kv_pages", "40"},
                    {"page_tokens", pageTokens},
                    {"prefill_chunk", "24"},
                    {"rows_per_pass", rows}};
    options.planSettings = {"ctas=3", "ring=3", "operands=40960", "wide=2", "edges=" + edges};
    if (whole) { // in pairs of CTAs, and pages of eights
      options.sets = {{"slots", "3"},          {"kv_pages", "60"},      {"page_tokens", "8"},
                      {"prefill_chunk", rows}, {"rows_per_pass", rows}, {"rows_beside", rows}};
      options.planSettings = {"ctas=2", "ring=3", "edges=" + edges, "passes=whole"};
    }
    compiled = driver::compile(options, diags);
    if (!compiled)
      return false;
    auto plan = driver::makePlan(compiled->module, options, diags);
    if (!plan)
      return false;
    source = driver::emitSource(compiled->module, *plan, diags);
    return true;
  }

  /// Runs the unbroken kernel once, unchecked: mutants must differ from that or be reported.
  bool runUnbroken() {
    auto assembled = driver::assembleHost(source.units, {}, diags);
    if (!assembled)
      return false;
    auto engine = cpu::CpuEngine::load(assembled->path, source.manifest, weights());
    if (!engine)
      return false;
    runtime::RunOptions run = someOptions(requests);
    run.trace = run.kvHash = run.logits = true;
    auto outcome = (*engine)->run(requests, run, {});
    if (!outcome || outcome->launch.finding)
      return false;
    unbroken = std::move(outcome->run);
    return true;
  }

  /// Whether the mutant's text stands where it says.
  Verdict find(const Mutant &mutant) const {
    std::string text = driver::wholeText(source.units);
    if (mutant.file != "kernel")
      for (const jit::Header &header : driver::hostHeaders())
        if (header.name == "megalith/" + mutant.file)
          text = header.text;
    return apply(mutant, text) ? Verdict{true, "   -  not run"} : noSuchText(mutant);
  }

  /// Explores one mutant, or with null the unbroken kernel.
  /// `kind`: Stalled, Resumed or Live, or anything else.
  Verdict examine(const Mutant *mutant, Mutant::Kind kind) {
    emit::Units units = source.units;
    driver::HostOptions host;
    host.checked = true;
    host.quick = mutant != nullptr; // mostly the first schedule finds it
    bool applied = !mutant || (mutant->file == "kernel" &&
                               (apply(*mutant, units.control.text) || apply(*mutant, units.tensors.text) ||
                                (units.wide && apply(*mutant, units.wide->text))));
    if (mutant && mutant->file != "kernel")
      host.edit = [&](std::vector<jit::Header> &headers) {
        for (jit::Header &header : headers)
          if (header.name == "megalith/" + mutant->file)
            applied = apply(*mutant, header.text);
      };
    auto assembled = driver::assembleHost(units, host, diags);
    if (!applied)
      return noSuchText(*mutant);
    if (!assembled)
      return {false, diags.render()};
    auto engine = cpu::CpuEngine::load(assembled->path, source.manifest, weights());
    if (!engine)
      return {false, engine.error.message};
    cpu::ExploreOptions explore;
    explore.schedules = mutant ? seeds : sound;
    explore.stall = kind == Mutant::Stalled;
    explore.shrinkRuns = 0;
    runtime::RunOptions run = someOptions(requests);
    run.ticksPerLaunch = kind == Mutant::Resumed;
    if (kind == Mutant::Live) { // the host's side is what is broken: a run without it is as it should be
      explore.live.emplace();
      run.oracleDrafts.clear();
    } else if (mutant) {
      explore.expected = &unbroken;
    }
    auto result = cpu::explore(**engine, requests, run, explore);
    if (!result)
      return {false, result.error.message};
    return judge(mutant, *result);
  }

private:
  Diagnostics &diags;
  std::string file, edges, rows, model;
  bool whole;
  const char *pageTokens;
  std::vector<Request> requests;
  driver::CompileOptions options;
  std::optional<driver::Compilation> compiled;
  driver::Source source;
  runtime::RunOutcome unbroken;

  runtime::Checkpoints weights() const {
    const driver::LoadedModel &loaded = compiled->models.front();
    return {{&*loaded.weights}, {loaded.checked.quantisation.get()}};
  }

  static Verdict noSuchText(const Mutant &mutant) {
    return {false, "its text does not stand in " + mutant.file + " exactly once"};
  }

  static Verdict judge(const Mutant *mutant, const cpu::ExploreResult &result) {
    const auto &failure = result.failure;
    if (!mutant && !failure)
      return {true, fmt::format("{:>4}  -", result.runs)};
    if (!failure)
      return {false, fmt::format("not caught by {} schedules", result.runs)};
    std::string text = fmt::format("{:>4}  {}", result.runs, failure->kind);
    if (verbose || !mutant) {
      text += "\n      " + (failure->finding ? failure->finding->what : failure->difference) + " (" +
              cpu::nameOf(failure->schedule) + ")";
      for (const auto &party : failure->finding ? failure->finding->parties : std::vector<cpu::Finding::Party>())
        text += fmt::format("\n      {}: CTA {} thread {} ({} alike), edge {}", party.role, party.place.cta,
                            party.place.thread, party.alike, party.place.edge);
    }
    if (!mutant)
      return {false, text};
    llvm::SmallVector<llvm::StringRef> allowed;
    llvm::StringRef(mutant->reports).split(allowed, ' ');
    if (llvm::is_contained(allowed, failure->kind))
      return {true, text};
    return {false, text + ", which is none of: " + mutant->reports};
  }
};

double seconds(int who) {
  rusage used;
  getrusage(who, &used);
  return double(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * double(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/// Runs `work` in a process of its own, so that a broken kernel takes only itself along.
class Job {
public:
  Job(std::string name, const std::function<Verdict()> &work) : name(std::move(name)) {
    int ends[2];
    if (pipe(ends) != 0)
      return;
    process = fork();
    if (process == 0) {
      close(ends[0]);
      Verdict v = work();
      std::string text = (v.good ? "+" : "-") + v.text;
      if (verbose && seconds(RUSAGE_SELF) > 0.05) // it ran
        text += fmt::format("\n      {:.1f} s of CPU, and {:.1f} s to compile", seconds(RUSAGE_SELF),
                            seconds(RUSAGE_CHILDREN));
      while (!text.empty()) {
        ssize_t n = write(ends[1], text.data(), text.size());
        if (n <= 0)
          break;
        text.erase(0, n);
      }
      _exit(0);
    }
    close(ends[1]);
    reader = ends[0];
  }

  Verdict wait() {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(reader, buffer, sizeof buffer)) > 0;)
      text.append(buffer, n);
    close(reader);
    int status = 0;
    waitpid(process, &status, 0);
    if (text.empty())
      return {false, WIFSIGNALED(status) ? fmt::format("ended by signal {}", WTERMSIG(status)) : "gave no result"};
    return {text[0] == '+', text.substr(1)};
  }

  std::string name;

private:
  pid_t process = -1;
  int reader = -1;
};

} // namespace

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv, "Broken kernels that the CPU executor must catch\n");
  if (llvm::none_of(mutants, [](const Mutant &mutant) { return llvm::StringRef(mutant.name).contains(only); })) {
    llvm::errs() << fmt::format("error: no mutant of test/Mutants/Mutants.def has `{}` in its name\n", only.getValue());
    return 1;
  }
  SourceFiles files;
  Diagnostics diags(files);
#define GRAPH(Name) "target: {graph: '" MEGALITH_SOURCE_DIR "/test/Mutants/Inputs/" Name "'}"
  const PipelineFile ofParallel({{"target: {}", GRAPH("parallel.yaml")}}),
      ofCodes({{"target: {}", GRAPH("windows.yaml")}, {"on_full: fail", "on_full: fail, dtype: fp8, windows: bf16"}}),
      ofWholeCodes({{"on_full: fail", "on_full: fail, dtype: fp8"}}); // scales of K and V come in eights
#undef GRAPH
  Bench narrow(diags, PipelineFile::shipped, "barrier", "16", modelDir),
      wide(diags, PipelineFile::shipped, "barrier", "64", modelDir),
      words(diags, PipelineFile::shipped, "words", "64", modelDir),
      parallel(diags, ofParallel.path.str().str(), "words", "64", modelDir),
      whole(diags, PipelineFile::shipped, "words", "160", wholeDir, true),
      codes(diags, ofCodes.path.str().str(), "words", "64", codesDir, false, "8"),
      wholeCodes(diags, ofWholeCodes.path.str().str(), "words", "160", wholeCodesDir, true);
  // Of some of them what a kernel of its own would cost pays only where all mutants run.
  const auto runs = [](Mutant::Kind kind) { return kind != Mutant::WholeCodes || every == 1; };
  for (Bench *bench : {&narrow, &wide, &words, &parallel, &whole, &codes, &wholeCodes})
    if (!bench->prepare() || ((bench != &wholeCodes || runs(Mutant::WholeCodes)) && !bench->runUnbroken())) {
      llvm::errs() << diags.render();
      return 1;
    }
  std::vector<std::pair<std::string, std::function<Verdict()>>> work;
  if (only.empty()) {
    work.push_back({"(unbroken)", [&] { return wide.examine(nullptr, Mutant::Plain); }});
    work.push_back({"(unbroken, a CTA stands still)", [&] { return narrow.examine(nullptr, Mutant::Stalled); }});
    work.push_back({"(unbroken, words)", [&] { return words.examine(nullptr, Mutant::Plain); }});
    work.push_back({"(unbroken, words, one stands)", [&] { return words.examine(nullptr, Mutant::Stalled); }});
    work.push_back({"(unbroken, parallel)", [&] { return parallel.examine(nullptr, Mutant::Plain); }});
    work.push_back({"(unbroken, a tick a launch)", [&] { return narrow.examine(nullptr, Mutant::Resumed); }});
    work.push_back({"(unbroken, words, a tick)", [&] { return words.examine(nullptr, Mutant::Resumed); }});
    work.push_back({"(unbroken, whole)", [&] { return whole.examine(nullptr, Mutant::Whole); }});
    work.push_back({"(unbroken, codes)", [&] { return codes.examine(nullptr, Mutant::Codes); }});
    if (runs(Mutant::WholeCodes))
      work.push_back({"(unbroken, codes, whole)", [&] { return wholeCodes.examine(nullptr, Mutant::WholeCodes); }});
    work.push_back({"(unbroken, a live session)", [&] { return narrow.examine(nullptr, Mutant::Live); }});
  }
  for (const Mutant &mutant : mutants)
    if (llvm::StringRef(mutant.name).contains(only))
      work.push_back({mutant.name, [&, isRun = (&mutant - mutants) % every == 0 && runs(mutant.kind)] {
                        Bench &bench = mutant.kind == Mutant::Whole        ? whole
                                       : mutant.kind == Mutant::Codes      ? codes
                                       : mutant.kind == Mutant::WholeCodes ? wholeCodes
                                       : mutant.kind == Mutant::Parallel   ? parallel
                                       : mutant.kind == Mutant::Words      ? words
                                       : mutant.kind == Mutant::Resumed    ? words
                                       : isWide(mutant)                    ? wide
                                                                           : narrow;
                        return isRun ? bench.examine(&mutant, mutant.kind) : bench.find(mutant);
                      }});

  unsigned failed = 0;
  llvm::outs() << fmt::format("{:<32} runs  report\n", "mutant");
  std::vector<Job> running;
  for (size_t next = 0; next < work.size() || !running.empty();) {
    if (next < work.size() && running.size() < std::max(1u, unsigned(jobs))) {
      running.emplace_back(work[next].first, work[next].second);
      ++next;
      continue;
    }
    Verdict verdict = running.front().wait();
    failed += !verdict.good;
    llvm::outs() << fmt::format("{:<32} {}{}\n", running.front().name, verdict.good ? "" : "FAILED: ", verdict.text);
    llvm::outs().flush();
    running.erase(running.begin());
  }
  llvm::outs() << fmt::format("{} of {} as they should be\n", work.size() - failed, work.size());
  return failed ? 1 : 0;
}
