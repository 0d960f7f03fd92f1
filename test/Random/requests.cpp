//===- requests.cpp - megalith-random-requests ----------------------------===//
//
// Random requests through a live session: they come at random, by several threads, some are cancelled, some have a
// deadline, and the pool has a third of what the slots could use. Every request must be accounted for once, with the
// tokens that a run gives it; after the last one table and pool are empty, and memory is what it was.
//===----------------------------------------------------------------------===//
#include "megalith/LiveSession.h"
#include "megalith/Tools.h"
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <mutex>
#include <queue>
#include <random>
#include <thread>
#include <unistd.h>

using namespace megalith;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {

constexpr const char *usage = R"(megalith-random-requests [--name=value ...]: random requests through a live session
  --pipeline=FILE --model=DIR   default: the shipped priority_serving and models/demo
  --device=reference|cpu|cuda   default: reference
  --want=DEVICE                 whose run says which tokens are right; default: the same. Logits of the reference executor
                                are rounded otherwise: where two are near, another token can come out
  --requests=300 --seed=1       how many, and of all that is random
  --threads=2                   that submit
  --cancels=5 --deadlines=5     percent of the requests; deadlines of up to --deadline-ms=200
  --prompt=40 --tokens=24       most tokens of a prompt, and of a budget
  --slots=8                     of the pipeline
  --places=64 --ring=64 --queue=64 --idle-ms=20
  --pause-ms=2                  between two bursts of requests, on average
  --grows=8                     MiB by which the process may grow after the first fifth
)";

struct Options {
  std::map<std::string, std::string> given;

  explicit Options(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const size_t equals = argument.find('=');
      const bool known = argument.starts_with("--") && equals != std::string::npos &&
                         std::strstr(usage, (argument.substr(0, equals) + "=").c_str());
      if (!known) {
        std::fputs(usage, argument == "--help" ? stdout : stderr);
        std::exit(argument == "--help" ? 0 : 2);
      }
      given[argument.substr(2, equals - 2)] = argument.substr(equals + 1);
    }
  }
  std::string text(const char *name, const char *otherwise) const {
    return given.count(name) ? given.at(name) : otherwise;
  }
  int64_t number(const char *name, int64_t otherwise) const {
    return given.count(name) ? std::stoll(given.at(name)) : otherwise;
  }
};

[[noreturn]] void fail(const std::string &why) {
  fmt::print("FAILED: {}\n", why);
  std::fflush(stdout);
  std::_Exit(1); // other threads may be anywhere
}
template <class T> T must(Expected<T> value) {
  if (!value)
    fail(value.errors().text());
  return std::move(*value);
}

Device deviceOf(const std::string &name) {
  if (name != "reference" && name != "cpu" && name != "cuda")
    fail("no device `" + name + "`");
  return name == "cpu" ? Device::Cpu : name == "cuda" ? Device::Cuda : Device::Reference;
}

/// Resident memory of the process, MiB.
double residentMiB() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return double(resident) * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

Program compile(const Options &options, int64_t slots, int64_t mostTokens) {
  const std::string root = MEGALITH_SOURCE_DIR "/";
  ProgramOptions how;
  how.file = options.text("pipeline", (root + "pipelines/priority_serving.yaml").c_str());
  how.models = {{"", options.text("model", (root + "models/demo").c_str())}};
  const int64_t page = 16, pages = (mostTokens + page - 1) / page;
  how.params = {{"slots", std::to_string(slots)},
                {"page_tokens", std::to_string(page)},
                {"kv_pages", std::to_string(std::max(pages + 1, slots * pages / 3))}};
  return must(Program::compile(how));
}

std::vector<Request> makeRequests(const Options &options, const Program &program) {
  std::mt19937 random(options.number("seed", 1));
  const auto below = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
  Request drawn{.id = "a", .tokens = {65}, .maxNewTokens = 1, .eos = std::vector<int32_t>()};
  drawn.sampling.temperature = 1;
  const bool draws = bool(tools::checkRequests(program, {drawn}));
  std::vector<Request> requests(options.number("requests", 300));
  for (size_t i = 0; i < requests.size(); ++i) {
    Request &r = requests[i];
    r.id = RequestId::ofInteger(std::to_string(i));
    for (int64_t t = 1 + below(options.number("prompt", 40)); t > 0; --t)
      r.tokens.push_back(static_cast<int32_t>(32 + below(90)));
    r.maxNewTokens = 1 + below(options.number("tokens", 24));
    r.eos.emplace();
    if (below(4) == 0)
      r.eos->push_back(' ');
    if (below(8) == 0)
      r.stop = {{'e', ' '}, {'h', 'e'}};
    r.priority = static_cast<int32_t>(below(3));
    if (draws && below(2) == 0)
      r.sampling.temperature = 0.8f;
    if (below(100) < options.number("deadlines", 5))
      r.deadlineMs = static_cast<int32_t>(1 + below(options.number("deadline-ms", 200)));
  }
  return requests;
}

/// What a run gives each of them, without deadlines: some are at a time in a table.
std::vector<std::vector<int32_t>> wanted(const Kernel &kernel, const std::vector<Request> &requests) {
  std::vector<std::vector<int32_t>> out;
  const size_t most = 2000;
  for (size_t begin = 0; begin < requests.size(); begin += most) {
    std::vector<Request> some(requests.begin() + begin, requests.begin() + std::min(requests.size(), begin + most));
    for (Request &request : some)
      request.deadlineMs = 0;
    Results results = must(kernel.run(std::move(some)));
    for (RequestResult &result : results.requests) {
      if (result.finish != "length" && result.finish != "stop")
        fail(fmt::format("in the run request {} ended as {} {}", result.id.text, result.finish, result.fault));
      out.push_back(std::move(result.tokens));
    }
  }
  return out;
}

class Stress {
public:
  Stress(const Options &options, const Program &program, const Kernel &kernel, std::vector<Request> requests,
         std::vector<std::vector<int32_t>> want, LiveSession session)
      : options(options), requests(std::move(requests)), want(std::move(want)), session(std::move(session)),
        heard(this->requests.size()), taken(this->requests.size()) {}

  void run() {
    const auto begin = Clock::now();
    std::vector<std::thread> threads;
    const auto submitters = static_cast<size_t>(options.number("threads", 2));
    for (size_t t = 0; t < submitters; ++t)
      threads.emplace_back([this, t, submitters] { submitAll(t, submitters); });
    threads.emplace_back([this] { cancelAll(); });
    listen();
    for (std::thread &thread : threads)
      thread.join();
    checkEmpty();
    if (auto stopped = session.stop(); !stopped)
      fail(stopped.errors().text());
    if (auto last = session.next(); !last || *last || !session.done())
      fail("there is an event after the last end");
    tell(std::chrono::duration<double>(Clock::now() - begin).count());
  }

private:
  const Options &options;
  const std::vector<Request> requests;
  const std::vector<std::vector<int32_t>> want;
  LiveSession session;

  struct Heard {
    int64_t number = -1; ///< the session's
    size_t tokens = 0;
    bool ended = false;
  };
  std::vector<Heard> heard;                ///< the reader's
  std::vector<std::atomic<uint8_t>> taken; ///< back by us
  std::map<std::string, int64_t> finishes;
  int64_t tokens = 0;
  double early = 0; ///< MiB after the first fifth

  struct Cancel {
    Clock::time_point at;
    uint64_t number;
    bool operator<(const Cancel &other) const { return at > other.at; } // the first one is on top
  };
  std::mutex mutex;
  std::priority_queue<Cancel> cancels;
  std::atomic<size_t> submitting = 0;
  std::atomic<bool> allEnded = false;

  void submitAll(size_t thread, size_t threads) {
    std::mt19937 random(options.number("seed", 1) * 1000 + thread);
    const auto pause = static_cast<double>(options.number("pause-ms", 2));
    for (size_t i = thread, burst = 0; i < requests.size(); i += threads) {
      if (burst == 0) {
        burst = 1 + random() % 20;
        std::this_thread::sleep_for(
            std::chrono::duration<double, std::milli>(std::exponential_distribution<>(1)(random) * pause));
      }
      --burst;
      const bool cancel = static_cast<int64_t>(random() % 100) < options.number("cancels", 5);
      if (cancel)
        taken[i] = 1;
      const uint64_t number = must(session.submit(requests[i], i, std::chrono::hours(1)));
      if (cancel) {
        const std::lock_guard<std::mutex> lock(mutex);
        cancels.push({Clock::now() + std::chrono::microseconds(random() % 40000), number});
      }
    }
    ++submitting;
  }

  /// In every state: at once, while a request waits, runs, or after its end.
  void cancelAll() {
    while (!allEnded) {
      std::vector<uint64_t> due;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        for (; !cancels.empty() && cancels.top().at <= Clock::now(); cancels.pop())
          due.push_back(cancels.top().number);
      }
      for (uint64_t number : due)
        must(session.cancel(number));
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  void listen() {
    std::mt19937 random(options.number("seed", 1));
    size_t ended = 0;
    auto last = Clock::now();
    while (ended < requests.size()) {
      const auto event = must(session.next(milliseconds(100)));
      if (!event && Clock::now() - last > std::chrono::minutes(10))
        fail(fmt::format("nothing came for ten minutes; {} of {} have ended", ended, requests.size()));
      if (!event)
        continue;
      last = Clock::now();
      hear(*event);
      ended += event->end.has_value();
      if (event->end && ended == requests.size() / 5)
        early = residentMiB();
      if (random() % 500 == 0) // a reader that is slow at times
        std::this_thread::sleep_for(milliseconds(5));
    }
    allEnded = true;
  }

  void hear(const LiveEvent &event) {
    if (event.user >= requests.size())
      fail(fmt::format("an event of nobody, {}", event.user));
    const Request &request = requests[event.user];
    const std::vector<int32_t> &right = want[event.user];
    Heard &h = heard[event.user];
    const auto wrong = [&](const std::string &what) {
      fail(fmt::format("request {}, number {}: {}", event.user, event.request, what));
    };
    if (h.number >= 0 && h.number != static_cast<int64_t>(event.request))
      wrong(fmt::format("it was number {} before", h.number));
    h.number = static_cast<int64_t>(event.request);
    if (h.ended)
      wrong("an event after its end");
    for (int32_t token : event.tokens) {
      if (h.tokens >= right.size() || right[h.tokens] != token)
        wrong(fmt::format("token {} is {}, and {} in a run", h.tokens, token,
                          h.tokens < right.size() ? right[h.tokens] : -1));
      ++h.tokens;
    }
    tokens += std::ssize(event.tokens);
    if (!event.end)
      return;
    const LiveEnd &end = *event.end;
    h.ended = true;
    ++finishes[end.finish];
    if (end.generated != static_cast<int64_t>(h.tokens) || end.promptTokens != std::ssize(request.tokens))
      wrong(fmt::format("{} of {} tokens, its end says {} of {}", h.tokens, request.tokens.size(), end.generated,
                        end.promptTokens));
    if (end.firstToken >= 0 && (end.firstToken < end.submitted || end.firstToken > end.ended))
      wrong("its times have another order");
    if (end.finish == "length" || end.finish == "stop") {
      if (h.tokens != right.size())
        wrong(fmt::format("it ended as {} with {} tokens, a run gives {}", end.finish, h.tokens, right.size()));
    } else if (end.finish == "cancelled" ? !taken[event.user] : end.finish == "deadline" ? !request.deadlineMs : true) {
      wrong("it ended as " + end.finish + " " + end.fault + ", which nobody asked for");
    }
  }

  /// After the last end. What is told of the kernel comes now and then.
  void checkEmpty() {
    LiveStats stats;
    int64_t pages = 0, seated = 0;
    for (const auto until = Clock::now() + std::chrono::minutes(10); Clock::now() < until;) {
      stats = session.stats();
      pages = seated = 0;
      for (const LiveStats::Pool &pool : stats.pools)
        pages += pool.used;
      for (const LiveStats::Slot &slot : stats.slots)
        seated += slot.request.has_value();
      if (pages == 0 && seated == 0 && stats.running == 0 && stats.waiting == 0)
        break;
      std::this_thread::sleep_for(milliseconds(10));
    }
    if (pages || seated || stats.running || stats.waiting)
      fail(fmt::format("after the last end {} pages are used, {} slots, {} requests run and {} wait", pages, seated,
                       stats.running, stats.waiting));
    if (stats.pools.empty() || stats.slots.empty())
      fail("nothing is told of pools or slots");
    std::map<std::string, int64_t> ended(stats.ended.begin(), stats.ended.end());
    if (ended != finishes || stats.generatedTokens != tokens)
      fail(fmt::format("the session counts {} tokens, the events had {}", stats.generatedTokens, tokens));
    fmt::print("{} ticks, {} passes, {} rows, {} launches; device {} KiB, host {} KiB\n", stats.ticks, stats.passes,
               stats.rows, stats.launches, stats.deviceBytes >> 10, stats.hostBytes >> 10);
  }

  void tell(double seconds) {
    const double late = residentMiB();
    std::string how;
    for (const auto &[finish, count] : finishes)
      how += fmt::format(", {} {}", count, finish);
    fmt::print("{} requests, {} tokens: all accounted for once{}\n", requests.size(), tokens, how);
    fmt::print("pool and table empty; memory {:.1f} MiB after the first fifth, {:.1f} MiB at the end; {:.1f} s\n",
               early, late, seconds);
    if (late - early > double(options.number("grows", 8)))
      fail("the process has grown");
  }
};

int stress(const Options &options) {
  const int64_t most = options.number("prompt", 40) + options.number("tokens", 24);
  const Program program = compile(options, options.number("slots", 8), most);
  const std::string device = options.text("device", "reference");
  const Kernel kernel = must(Kernel::load(program, {.device = deviceOf(device)}));
  std::vector<Request> requests = makeRequests(options, program);
  const auto begin = Clock::now();
  auto want =
      wanted(options.given.count("want") ? must(Kernel::load(program, {.device = deviceOf(options.given.at("want"))}))
                                         : kernel,
             requests);
  fmt::print("{}: a run took {:.1f} s\n", device, std::chrono::duration<double>(Clock::now() - begin).count());
  std::fflush(stdout);
  LiveOptions how;
  how.places = static_cast<size_t>(options.number("places", 64));
  how.ring = static_cast<size_t>(options.number("ring", 64));
  how.queue = static_cast<size_t>(options.number("queue", 64));
  how.idleMs = options.number("idle-ms", 20);
  how.maxTokens = most;
  Stress(options, program, kernel, std::move(requests), std::move(want), must(LiveSession::open(kernel, how))).run();
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  try {
    return stress(Options(argc, argv));
  } catch (const std::exception &error) {
    fail(error.what());
  }
}
