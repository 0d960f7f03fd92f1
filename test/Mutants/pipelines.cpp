//===- pipelines.cpp - faults of control that give other values -----------===//
//
// The kernel of one pipeline, which has much of what pipelines can have, is compiled with each fault of Pipelines.def.
// Its trace must differ from that of the kernel without a fault, with which the reference executor agrees. So must that
// of another pipeline, whose pool has an index, with faults of that; a checked run may find them as well. The faults
// stand in headers of the control unit alone, so that the tensor units are compiled once.
//===----------------------------------------------------------------------===//
#include "megalith/Automata/TokenFormat.h"
#include "megalith/Driver/Compilation.h"
#include "megalith/Reference/Executor.h"
#include "megalith/Requests/Trace.h"
#include "runtime/cpu/CpuEngine.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include <deque>
#include <sys/wait.h>
#include <unistd.h>

using namespace megalith;
namespace cl = llvm::cl;

static cl::list<std::string> modelDirs("model", cl::desc("NAME=DIR"));
static cl::opt<std::string> only("only", cl::desc("Only faults whose name contains this"));
static cl::opt<unsigned> every("every", cl::init(1),
                               cl::desc("Run each Nth fault; of the others, see that their text stands there"));
static cl::opt<unsigned> jobs("jobs", cl::init(2), cl::desc("Faults at a time"));

namespace {

struct Mutant {
  const char *name, *what, *file, *find, *replace;
  enum Kind { Pipeline, Edits, Index, SameHash } kind; ///< SameHash: of an index in which all pages have one hash
};
const Mutant mutants[] = {
#define PIPELINE_MUTANT(Name, What, File, Find, Replace) {Name, What, File, Find, Replace, Mutant::Pipeline},
#define EDITS_MUTANT(Name, What, File, Find, Replace) {Name, What, File, Find, Replace, Mutant::Edits},
#define INDEX_MUTANT(Name, What, File, Find, Replace) {Name, What, File, Find, Replace, Mutant::Index},
#define SAME_HASH_MUTANT(Name, What, File, Find, Replace) {Name, What, File, Find, Replace, Mutant::SameHash},
#include "Pipelines.def"
};
/// What gives all pages of an index one hash. It changes nothing.
const Mutant sameHash = {"same-hash", "", "Index.cuh", "  return x ^ x >> 31;\n", "  return 0;\n", Mutant::Index};

/// Tensors of a checkpoint, as they stand in its file.
class FileWeights : public reference::WeightSource {
public:
  explicit FileWeights(const driver::Compilation &compiled) : compiled(compiled) {}
  const uint16_t *find(const std::string &model, const std::string &name, std::vector<int64_t> &shape) override {
    for (const driver::LoadedModel &of : compiled.models)
      if (of.name == model)
        if (const TensorView *tensor = of.weights->find(name)) {
          shape = tensor->shape;
          return reinterpret_cast<const uint16_t *>(tensor->data);
        }
    return nullptr;
  }

private:
  const driver::Compilation &compiled;
};

std::vector<Request> someRequests() {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) { // more than slots
    Request r;
    r.id = fmt::format("r{}", i);
    for (int j = 0; j < (i == 2 ? 13 : 3 + i); ++j)
      r.tokens.push_back((i * 7 + j % 5 * 3) % 250 + 3);
    r.maxNewTokens = i == 1 ? 7 : 9;
    r.eos.emplace();
    r.priority = i == 1;
    r.sampling.temperature = i == 3 ? 0.0f : 0.4f + 0.3f * static_cast<float>(i);
    r.sampling.topK = i == 1 ? 30 : 0;
    r.sampling.topP = i == 2 ? 0.7f : 1.0f;
    r.sampling.seed = 5 + i;
    if (i > 3)
      r.arrives.tick = 2;
    if (i == 4)
      r.cancelled = When{9, 0};
    if (i == 5)
      r.deadlineMs = 11;
    requests.push_back(std::move(r));
  }
  return requests;
}

/// The same with settings that follow their texts. Tokens are bytes.
std::vector<Request> editedRequests() {
  std::vector<std::string> bytes(260);
  for (int i = 0; i < 256; ++i)
    bytes[i] = static_cast<char>(i);
  automata::Formats formats(std::make_shared<automata::TokenBytes>(std::move(bytes)));
  std::vector<Request> requests = someRequests();
  for (size_t i = 0; i < requests.size(); ++i) {
    Sampling &s = requests[i].sampling;
    requests[i].arrives.tick = 0; // these are about texts alone
    requests[i].cancelled.reset();
    requests[i].deadlineMs = 0;
    if (i % 2 == 0) {
      s.format = i == 4 ? "{\"regex\": \"[a-f](bb|[c-f])*\"}" : "{\"json\": 1}";
      requests[i].format.tokens = formats.find(s.format);
    }
    if (i % 3 == 0)
      s.repetitionPenalty = 3;
    if (i == 1 || i == 5)
      s.frequencyPenalty = 2.5f;
    if (i == 2)
      s.presencePenalty = -2;
    if (i == 5)
      s.bias = {{requests[i].tokens[0], 3.0f}, {70, 4.0f}};
    if (i == 1) { // each third token ends it
      s.minNewTokens = 4;
      for (int32_t token = 0; token < 260; token += 3)
        requests[i].eos->push_back(token);
    }
  }
  return requests;
}

/// The first request ends by a stop sequence that crosses two appends. That of the second begins in its prompt, and
/// ends nothing.
void bringStops(std::vector<Request> &requests, const reference::RunResult &free) {
  const std::vector<int32_t> &tokens = free.requests[0].tokens;
  size_t border = 0;
  for (const auto &append : free.requests[0].appends)
    if (border += append.tokens; border < tokens.size())
      requests[0].stop = {{tokens[border], -1}, {tokens[border - 1], tokens[border]}};
  requests[1].stop = {{requests[1].tokens.back(), free.requests[1].tokens.front()}};
}

/// Requests that begin alike, together and one after the other, in a pool that is too small to keep all. One is taken
/// back and one is late when a page of theirs is full and has not entered; one is another tenant's.
std::vector<Request> alikeRequests() {
  std::vector<Request> requests;
  const auto add = [&](int prefix, int own, int tick) -> Request & {
    Request &r = requests.emplace_back();
    r.id = fmt::format("r{}", requests.size());
    for (int i = 0; i < prefix; ++i)
      r.tokens.push_back(20 + i * 7 % 40);
    for (int i = 0; i < own; ++i)
      r.tokens.push_back(70 + int(requests.size()) * 9 + i);
    r.maxNewTokens = 5;
    r.eos.emplace();
    r.arrives.tick = tick;
    return r;
  };
  add(24, 3, 0);
  add(24, 5, 0);
  add(24, 0, 30);
  add(12, 9, 40).cache = 7;
  add(12, 9, 60).cancelled = When{62, 0};
  add(17, 20, 70).deadlineMs = 3;
  add(24, 0, 80);
  add(0, 40, 90);
  add(24, 7, 90);
  add(24, 2, 130);
  add(16, 9, 130);
  add(8, 4, 131);
  const std::vector<int32_t> common = requests[0].tokens;
  Request &other = add(0, 8, 160); // pages of the common ones, behind other pages
  other.tokens.insert(other.tokens.end(), common.begin() + 8, common.begin() + 20);
  add(0, 40, 200); // these two reserve almost all, and hold nothing yet, when the third one finds pages
  add(0, 41, 200);
  add(24, 1, 200);
  return requests;
}

class Bench {
public:
  Bench(Diagnostics &diags, Mutant::Kind kind)
      : diags(diags), index(kind == Mutant::Index), requests(index                   ? alikeRequests()
                                                             : kind == Mutant::Edits ? editedRequests()
                                                                                     : someRequests()) {}

  bool prepare() {
    options.file = std::string(MEGALITH_SOURCE_DIR "/test/Mutants/Inputs/") + (index ? "index.yaml" : "pipeline.yaml");
    for (const std::string &model : modelDirs) {
      const auto [name, dir] = llvm::StringRef(model).split('=');
      if (!index || name == "target")
        options.models.push_back({name.str(), dir.str()});
    }
    options.needWeights = true;
    options.profile = "cpu";
    options.planSettings = {"ctas=2"};
    compiled = driver::compile(options, diags);
    if (!compiled)
      return false;
    auto plan = driver::makePlan(compiled->module, options, diags);
    if (!plan)
      return false;
    source = driver::emitSource(compiled->module, *plan, diags);
    FileWeights weights(*compiled);
    if (!index)
      bringStops(requests, reference::run(compiled->module, weights, requests, {}));
    return true;
  }

  /// Runs the kernel without a fault. What the reference executor has to say against it.
  std::string runUnbroken() {
    auto outcome = run({});
    if (!outcome)
      return outcome.error.message;
    if (outcome->launch.finding)
      return outcome->launch.finding->what;
    if (outcome->run.stop)
      return "it stopped";
    unbroken = std::move(outcome->run.trace);
    reference::Options again;
    again.replay = &unbroken;
    again.replayEpsilon = again.replayError = 1e-3;
    FileWeights weights(*compiled);
    const auto result = reference::run(compiled->module, weights, requests, again);
    return !result.error.empty()        ? result.error
           : !result.mismatches.empty() ? "the reference executor has other values"
                                        : result.replayDifference;
  }

  /// What the kernel does with this fault.
  std::string examine(const Mutant &mutant) {
    std::vector<const Mutant *> edits = {&mutant};
    if (mutant.kind == Mutant::SameHash)
      edits.push_back(&sameHash);
    for (const Mutant *edit : edits)
      if (!edited(*edit, driver::hostHeaders()))
        return fmt::format("its text does not stand in {} exactly once", edit->file);
    if (&mutant != &sameHash && (&mutant - mutants) % every != 0)
      return "not run";
    driver::HostOptions how;
    how.edit = [&](std::vector<jit::Header> &headers) {
      for (const Mutant *edit : edits)
        headers = *edited(*edit, std::move(headers));
    };
    auto outcome = run(how);
    if (!outcome)
      return "no kernel: " + outcome.error.message;
    if (outcome->run.stop || outcome->launch.finding)
      return "differs: it stopped";
    const std::string difference = compareTraces(unbroken, outcome->run.trace);
    return difference.empty() ? "same" : "differs: " + difference;
  }

private:
  /// The headers with the fault in them; nullopt: its text does not stand there exactly once.
  static std::optional<std::vector<jit::Header>> edited(const Mutant &mutant, std::vector<jit::Header> headers) {
    for (jit::Header &header : headers)
      if (header.name == fmt::format("megalith/{}", mutant.file)) {
        const size_t begin = header.text.find(mutant.find);
        if (begin == std::string::npos || header.text.find(mutant.find, begin + 1) != std::string::npos)
          return std::nullopt;
        header.text.replace(begin, std::string_view(mutant.find).size(), mutant.replace);
        return headers;
      }
    return std::nullopt;
  }

  runtime::Outcome<cpu::CpuOutcome> run(driver::HostOptions how) {
    how.checked = index;
    auto assembled = driver::assembleHost(source.units, how, diags);
    if (!assembled)
      return runtime::RuntimeError{"cpu-compile", diags.render()};
    std::vector<const SafetensorsFile *> weights;
    for (const driver::LoadedModel &model : compiled->models)
      weights.push_back(&*model.weights);
    auto engine = cpu::CpuEngine::load(assembled->path, source.manifest, weights);
    if (!engine)
      return engine.error;
    runtime::RunOptions options;
    options.trace = true;
    options.maxTicks = index ? 400 : 200;
    options.watchdogSeconds = 0.5; // of the executor's clock
    cpu::LaunchOptions launch;
    launch.check = index;
    return (*engine)->run(requests, options, launch);
  }

  Diagnostics &diags;
  const bool index; ///< of the pipeline whose pool has an index
  driver::CompileOptions options;
  std::optional<driver::Compilation> compiled;
  driver::Source source;
  std::vector<Request> requests;
  Trace unbroken;
};

/// Looks at one in a process of its own, which takes only itself along.
struct Job {
  std::string name;
  pid_t process;
  int reader;
};

Job start(Bench &bench, const Mutant &mutant) {
  int ends[2];
  if (pipe(ends) != 0)
    return {mutant.name, -1, -1};
  const pid_t process = fork();
  if (process == 0) {
    close(ends[0]);
    const std::string text = bench.examine(mutant);
    const ssize_t written = write(ends[1], text.data(), std::min<size_t>(text.size(), 4000));
    _exit(written < 0);
  }
  close(ends[1]);
  return {mutant.name, process, ends[0]};
}

std::string wait(const Job &job) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(job.reader, buffer, sizeof buffer)) > 0;)
    text.append(buffer, n);
  close(job.reader);
  int status = 0;
  waitpid(job.process, &status, 0);
  return !text.empty() ? text : "differs: it ended by a signal";
}

} // namespace

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv, "Faults of control that give other values\n");
  SourceFiles files;
  Diagnostics diags(files);
  Bench bench(diags, Mutant::Pipeline), ofEdits(diags, Mutant::Edits), ofIndex(diags, Mutant::Index);
  if (!bench.prepare() || !ofEdits.prepare() || !ofIndex.prepare()) {
    llvm::errs() << diags.render();
    return 1;
  }
  unsigned failed = 0, next = 0, tried = 0;
  const auto tell = [&](const char *name, const std::string &against) {
    llvm::outs() << fmt::format("{:<28} {}\n", name, against.empty() ? "good" : "FAILED: " + against);
    llvm::outs().flush(); // what is there would be told by each process
    failed += !against.empty();
    ++tried;
  };
  tell("(unbroken)", bench.runUnbroken());
  tell("(unbroken, edits)", ofEdits.runUnbroken());
  tell("(unbroken, an index)", ofIndex.runUnbroken());
  const std::string ofHash = ofIndex.examine(sameHash);
  tell("(unbroken, all hashes equal)", ofHash == "same" ? "" : ofHash);
  std::deque<Job> running;
  std::vector<const Mutant *> list;
  for (const Mutant &mutant : mutants)
    if (llvm::StringRef(mutant.name).contains(only))
      list.push_back(&mutant);
  while (next < list.size() || !running.empty()) {
    if (next < list.size() && running.size() < std::max(1u, unsigned(jobs))) {
      const Mutant::Kind kind = list[next]->kind;
      running.push_back(start(kind == Mutant::Pipeline ? bench
                              : kind == Mutant::Edits  ? ofEdits
                                                       : ofIndex,
                              *list[next]));
      ++next;
      continue;
    }
    const std::string said = wait(running.front());
    const bool good = said == "not run" || llvm::StringRef(said).starts_with("differs");
    failed += !good;
    llvm::outs() << fmt::format("{:<28} {}{}\n", running.front().name, good ? "" : "FAILED: ", said);
    llvm::outs().flush();
    running.pop_front();
  }
  llvm::outs() << fmt::format("{} of {} as they should be\n", list.size() + tried - failed, list.size() + tried);
  return failed ? 1 : 0;
}
