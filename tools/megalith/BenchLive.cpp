//===- BenchLive.cpp - `megalith bench --live` ----------------------------===//
//
// Measures live sessions as a client sees them: a thread submits, the main thread reads.
//===----------------------------------------------------------------------===//
#include "Bench.h"
#include "Measured.h"
#include "megalith/LiveSession.h"
#include "megalith/Text/Json.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <atomic>
#include <cstdio>
#include <fmt/ranges.h>
#include <future>
#include <thread>

namespace megalith::tool {

namespace {

using Json = nlohmann::ordered_json;
using Milliseconds = std::chrono::duration<double, std::milli>;
using Values = std::vector<double>;

/// Milliseconds of the process's clock.
double now() { return Milliseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }
void sleepUntil(double at) {
  while (now() < at)
    std::this_thread::sleep_for(std::chrono::duration_cast<std::chrono::nanoseconds>(Milliseconds(at - now())));
}

/// What a client sees of a request, in milliseconds of the process's clock.
struct Watched {
  double before = 0, after = 0; ///< its submission
  struct Piece {
    double at, returned; ///< the session knew of it, next() gave it out. `at` is of the session's clock
    uint64_t deviceNs;
    int64_t tokens;
  };
  std::vector<Piece> pieces; ///< news with tokens
  std::optional<LiveEnd> end;
  double ended = 0;
};

/// A session and what was seen of its requests.
class Client {
public:
  Client(LiveSession session, size_t requests) : session(std::move(session)), watched(requests) {}

  LiveSession session;
  std::vector<Watched> watched;

  Status submit(const Request &request, size_t number) {
    watched[number].before = now();
    const auto added = session.submit(request, number, std::chrono::hours(1));
    watched[number].after = now();
    return added ? Status(Done()) : Status(added.errors());
  }

  /// Reads until so many have ended since the session opened. A fault is an error.
  bool read(size_t ends, Diagnostics &diags) {
    while (ended < ends) {
      auto next = session.next(std::chrono::milliseconds(100));
      const double returned = now();
      if (!got(next, diags))
        return false;
      if (!*next)
        continue;
      LiveEvent &event = **next;
      Watched &of = watched[event.user];
      if (!event.tokens.empty())
        of.pieces.push_back({event.at, returned, event.deviceNs, std::ssize(event.tokens)});
      if (!event.end)
        continue;
      if (const LiveEnd &end = *event.end; end.finish == "fault") {
        diags.report(Diag::RequestFaulted, {}, std::to_string(event.user), end.fault, faultText(end.fault));
        return false;
      }
      of.end = std::move(event.end);
      of.ended = returned;
      ++ended;
    }
    return true;
  }

  /// When the session's clock was 0. A request is submitted while submit() runs, which bounds it from both sides.
  double zero() const {
    double least = -HUGE_VAL, most = HUGE_VAL;
    for (const Watched &w : watched)
      if (w.end) {
        least = std::max(least, w.before - w.end->submitted);
        most = std::min(most, w.after - w.end->submitted);
      }
    return (least + most) / 2;
  }

private:
  size_t ended = 0;
};

/// Computes on all cores while it lives.
class BusyCores {
public:
  explicit BusyCores(bool busy) {
    for (unsigned i = 0; busy && i < std::max(1u, std::thread::hardware_concurrency()); ++i)
      threads.emplace_back([](std::stop_token stop) {
        for (volatile uint32_t x = 1; !stop.stop_requested();)
          x = x * 3;
      });
  }

private:
  std::vector<std::jthread> threads;
};

/// What `nvidia-smi` says of the first GPU, in watts; nullopt without it.
std::optional<double> watts() {
  FILE *said = popen("nvidia-smi --id=0 --query-gpu=power.draw --format=csv,noheader,nounits 2>/dev/null", "r");
  double value = 0;
  const bool read = said && std::fscanf(said, "%lf", &value) == 1;
  return said && pclose(said) == 0 && read ? std::optional(value) : std::nullopt;
}
/// The median in the second half of so many seconds.
std::optional<double> wattsFor(double seconds) {
  const double begin = now();
  sleepUntil(begin + seconds * 500);
  Values all;
  do {
    if (const auto one = watts())
      all.push_back(*one);
    sleepUntil(now() + 100);
  } while (now() < begin + seconds * 1000);
  return all.empty() ? std::nullopt : std::optional(median(all));
}

Json orNull(const std::optional<double> &value) { return value ? Json(significant(*value)) : Json(); }
Json spread(const Values &values) {
  const auto all = tools::percentilesOf(values);
  if (!all)
    return {};
  return {{"p50", significant(all->p50)},
          {"p95", significant(all->p95)},
          {"p99", significant(all->p99)},
          {"max", significant(all->max)}};
}
/// `1.20 1.31 1.40`: the median, p95 and p99.
std::string shown(const Values &values, int digits) {
  const auto all = tools::percentilesOf(values);
  return all ? fmt::format("{:.{}f} {:.{}f} {:.{}f}", all->p50, digits, all->p95, digits, all->p99, digits) : "-";
}

class LiveBench {
public:
  LiveBench(const BenchCommand &command, const Program &program, const Kernel &kernel, Diagnostics &diags)
      : command(command), live(command.live), program(program), kernel(kernel), diags(diags),
        timed(kernel.device() == Device::Cuda) {}

  bool run() {
    if (!command.json)
      print(fmt::format("{}: {}, prompts {} to {}, {} new tokens, {} slots\n", device(),
                        shapeName(program.configFile()), live.shortest, live.longest, command.tokens,
                        program.param("slots").value_or(0)));
    const std::pair<const char *, bool (LiveBench::*)()> parts[] = {{"speed", &LiveBench::speed},
                                                                    {"first-token", &LiveBench::firstToken},
                                                                    {"open-loop", &LiveBench::openLoop},
                                                                    {"idle", &LiveBench::idle}};
    for (const auto &[name, measure] : parts) {
      const bool good = !llvm::is_contained(live.parts, name) || (this->*measure)();
      clearProgress();
      if (!good)
        return false;
    }
    return true;
  }

private:
  const BenchCommand &command;
  const BenchCommand::Live &live;
  const Program &program;
  const Kernel &kernel;
  Diagnostics &diags;
  const bool timed; ///< the device has a clock

  std::string device() const { return timed ? text::printable(kernel.deviceName()) : "CPU executor"; }
  void print(const std::string &text) {
    llvm::outs() << text;
    llvm::outs().flush();
  }
  /// The same for machines and for readers.
  void print(const char *part, const Json &found, const std::string &line) {
    clearProgress();
    Json all = {{"part", part}, {"device", device()}, {"shape", shapeName(program.configFile())}};
    all.update(found);
    print(command.json ? text::dump(all) + "\n" : line + "\n");
  }

  std::optional<Client> open(size_t requests, int64_t idleMs = -1) {
    LiveOptions options;
    options.queue = requests;
    options.maxTokens = live.longest + command.tokens;
    options.idleMs = idleMs;
    options.progress = showProgress;
    auto session = LiveSession::open(kernel, options);
    if (!got(session, diags))
      return std::nullopt;
    return std::optional<Client>(std::in_place, std::move(*session), requests);
  }

  bool stop(Client &client) { return got(client.session.stop(), diags); }

  // --- in a session, and as `run` does it

  std::optional<Results> runOf(const std::vector<Request> &requests) {
    auto results = kernel.run(requests, {.progress = showProgress});
    if (!got(results, diags))
      return std::nullopt;
    for (size_t i = 0; i < requests.size(); ++i)
      if (const RequestResult &r = results->requests[i]; r.finish == "fault" || r.finish == "limit") {
        diags.report(Diag::RequestFaulted, {}, std::to_string(i), r.fault.empty() ? r.finish : r.fault,
                     r.fault.empty() ? "the run was cut off" : faultText(r.fault));
        return std::nullopt;
      }
    return std::move(*results);
  }

  /// News after the kernel's word, in microseconds.
  struct Visible {
    Values seen, returned; ///< the session has read it, next() has given it out
    void add(const Client &client) {
      std::vector<tools::TwoTimes> times;
      Values late;
      const double zero = client.zero();
      for (const Watched &w : client.watched)
        for (const Watched::Piece &p : w.pieces)
          if (p.deviceNs) {
            times.push_back({p.deviceNs, p.at * 1e3});
            late.push_back((p.returned - zero - p.at) * 1e3);
          }
      const Values after = tools::afterFastest(times);
      for (size_t i = 0; i < after.size(); ++i) {
        seen.push_back(after[i]);
        returned.push_back(after[i] + late[i]);
      }
    }
  };

  bool speed() {
    if (!command.json)
      print(fmt::format("\n{:>6} {:>13} {:>17} {:>8}   after the kernel's word, us (p50 p95 p99): seen, returned\n",
                        "batch", "run tokens/s", "session tokens/s", "ratio %"));
    for (int64_t batch : command.batches) {
      const auto requests = makeRequests(program, live.shortest, batch, command.tokens);
      Values alone, inSession, ratios;
      Visible visible;
      const int64_t rounds = timed ? command.repeats + 1 : 1; // the first one does not count
      for (int64_t i = 0; i < rounds; ++i) {
        showProgress(fmt::format("batch {}: round {} of {}", batch, i + 1, rounds));
        const auto results = runOf(requests);
        auto client = results ? open(batch + 1) : std::nullopt;
        if (!client)
          return false;
        // The kernel is there already when those that count come.
        if (!got(client->submit(makeRequest(program, live.shortest, batch, 1), batch), diags) ||
            !client->read(1, diags))
          return false;
        for (int64_t b = 0; b < batch; ++b)
          if (!got(client->submit(requests[b], b), diags))
            return false;
        if (!client->read(batch + 1, diags) || !stop(*client))
          return false;
        if (timed && i == 0)
          continue;
        visible.add(*client);
        std::vector<std::vector<tools::TokensAt>> ofRun(batch), ofSession(batch);
        const uint64_t first = client->watched[0].pieces.front().deviceNs;
        for (int64_t b = 0; b < batch; ++b) {
          for (const RequestTimes::Append &append : results->requests[b].times.appends)
            ofRun[b].push_back({append.at * 1e-3, append.tokens});
          for (const Watched::Piece &p : client->watched[b].pieces)
            ofSession[b].push_back({timed ? double(int64_t(p.deviceNs - first)) * 1e-9 : p.at * 1e-3, p.tokens});
        }
        const auto session = tools::steadyRate(ofSession), run = tools::steadyRate(ofRun);
        if (session)
          inSession.push_back(*session);
        if (session && run && timed) {
          alone.push_back(*run);
          ratios.push_back(*session / *run);
        }
      }
      const auto middle = [](const Values &v) { return v.empty() ? std::nullopt : std::optional(median(v)); };
      print("speed",
            {{"batch", batch},
             {"prompt", live.shortest},
             {"tokens", command.tokens},
             {"run_tokens_per_s", orNull(middle(alone))},
             {"session_tokens_per_s", orNull(middle(inSession))},
             {"ratio", orNull(middle(ratios))},
             {"news", visible.seen.size()},
             {"seen_us", spread(visible.seen)},
             {"returned_us", spread(visible.returned)}},
            fmt::format("{:>6} {:>13} {:>17.1f} {:>8}   {}, {}", batch,
                        alone.empty() ? "-" : fmt::format("{:.1f}", median(alone)),
                        inSession.empty() ? 0.0 : median(inSession),
                        ratios.empty() ? "-" : fmt::format("{:.2f}", 100 * median(ratios)), shown(visible.seen, 1),
                        shown(visible.returned, 1)));
    }
    return true;
  }

  // --- from submit() to the first token

  /// Milliseconds from before submit() on.
  struct First {
    Values told;     ///< until the session had read the kernel's word
    Values returned; ///< until next() has given it out
  };
  /// Of one request after another. `rests`: the kernel has ended before each.
  std::optional<First> firstTokens(size_t requests, bool rests) {
    auto client = open(requests + 1, rests ? 5 : -1);
    First out;
    for (size_t i = 0; client && i <= requests; ++i) {
      showProgress(fmt::format("first tokens: {} of {}", i, requests));
      if (i > 0 && rests)
        for (const double until = now() + 10000; client->session.stats().launched && now() < until;)
          sleepUntil(now() + 1);
      else if (i > 0)
        sleepUntil(now() + 5); // it sleeps at once
      if (!got(client->submit(makeRequest(program, live.shortest, i, 2), i), diags) || !client->read(i + 1, diags))
        return std::nullopt;
    }
    if (!client || !stop(*client))
      return std::nullopt;
    const double zero = client->zero();
    for (size_t i = 1; i <= requests; ++i) { // the first launch of all does not count
      const Watched &w = client->watched[i];
      out.told.push_back(zero + w.pieces.front().at - w.before);
      out.returned.push_back(w.pieces.front().returned - w.before);
    }
    return out;
  }

  bool firstToken() {
    const size_t requests = std::min<size_t>(live.requests, 200);
    Values prefills;
    for (int64_t i = 0; i < (timed ? std::max<int64_t>(command.repeats, 50) + 1 : 1); ++i) {
      const auto results = runOf({makeRequest(program, live.shortest, i, 2)});
      if (!results)
        return false;
      if (const auto first = tools::latencyOf(results->requests[0].times).firstToken; first && timed && i > 0)
        prefills.push_back(*first);
    }
    std::optional<double> prefill;
    if (!prefills.empty())
      prefill = median(prefills);
    const auto asleep = firstTokens(requests, false);
    const auto relaunched = asleep ? firstTokens(requests, true) : std::nullopt;
    if (!relaunched)
      return false;
    const auto over = [&](const Values &values) {
      Values out;
      for (double value : values)
        out.push_back(value - prefill.value_or(0));
      return out;
    };
    print("first-token",
          {{"prompt", live.shortest},
           {"requests", requests},
           {"prefill_ms", orNull(prefill)},
           {"prefill_spread_ms", spread(prefills)},
           {"asleep_ms", spread(asleep->returned)},
           {"asleep_told_ms", spread(asleep->told)},
           {"relaunched_ms", spread(relaunched->returned)},
           {"relaunched_told_ms", spread(relaunched->told)},
           {"asleep_over_prefill_ms", spread(prefill ? over(asleep->returned) : Values())},
           {"relaunched_over_prefill_ms", spread(prefill ? over(relaunched->returned) : Values())}},
          fmt::format("\nfirst token of {} requests, ms (p50 p95 p99): kernel asleep {}, relaunched {}; prefill by "
                      "itself {}",
                      requests, shown(asleep->returned, 3), shown(relaunched->returned, 3),
                      prefill ? fmt::format("{:.3f}", *prefill) : "-"));
    return true;
  }

  // --- clients that do not wait for each other

  /// Requests per second that were served; nullopt after an error. `rate` 0: all come at once.
  std::optional<double> loop(double rate, std::optional<double> load, bool busy) {
    const size_t count = live.requests;
    auto arrivals = tools::openArrivals(count, rate > 0 ? rate : 1, live.shortest, live.longest, live.seed);
    std::vector<Request> requests;
    for (size_t i = 0; i < count; ++i)
      requests.push_back(makeRequest(program, arrivals[i].prompt, int64_t(i), command.tokens));
    auto client = open(count + 1);
    if (!client)
      return std::nullopt;
    showProgress(fmt::format("open loop, {}{}", rate > 0 ? fmt::format("{:.4g} requests/s", rate) : "all at once",
                             busy ? ", all cores busy" : ""));
    if (!got(client->submit(makeRequest(program, live.shortest, int64_t(count), 1), count), diags) ||
        !client->read(1, diags))
      return std::nullopt;
    Status submitted = Done();
    const BusyCores cores(busy);
    const double begin = now() + 10;
    const auto due = [&](size_t i) { return begin + (rate > 0 ? 1e3 * arrivals[i].at : 0); };
    std::thread submitter([&] {
      for (size_t i = 0; i < count && submitted; ++i) {
        sleepUntil(due(i));
        submitted = client->submit(requests[i], i);
      }
      if (!submitted) // what was submitted ends, and the reader with it
        (void)client->session.stop(LiveSession::Stop::Now);
    });
    const bool read = client->read(count + 1, diags);
    if (!read) // an error: nothing comes any more
      (void)client->session.stop(LiveSession::Stop::Now);
    submitter.join();
    if (!got(submitted, diags) || !read || !stop(*client))
      return std::nullopt;
    Values first, gaps;
    int64_t tokens = 0;
    double end = begin;
    for (size_t i = 0; i < count; ++i) {
      const Watched &w = client->watched[i];
      for (size_t p = 0; p < w.pieces.size(); ++p) {
        tokens += w.pieces[p].tokens;
        if (p == 0) // from when it should have come: who submits late is late
          first.push_back(w.pieces[p].returned - due(i));
        else
          gaps.push_back(w.pieces[p].returned - w.pieces[p - 1].returned);
      }
      end = std::max(end, w.ended);
    }
    const double seconds = (end - begin) * 1e-3, served = double(count) / seconds;
    print("open-loop",
          {{"server", "megalith"},
           {"load", orNull(load)},
           {"rate", orNull(rate > 0 ? std::optional(rate) : std::nullopt)},
           {"busy", busy},
           {"slots", program.param("slots").value_or(0)},
           {"requests", count},
           {"prompts", {live.shortest, live.longest}},
           {"tokens", command.tokens},
           {"seed", live.seed},
           {"seconds", significant(seconds)},
           {"requests_per_s", significant(served)},
           {"tokens_per_s", significant(double(tokens) / seconds)},
           {"ttft_ms", spread(first)},
           {"itl_ms", spread(gaps)}},
          fmt::format("{:>6} {:>8} {:>5} {:>8.2f} {:>10.1f}   {}, {}", load ? fmt::format("{:.2f}", *load) : "-",
                      rate > 0 ? fmt::format("{:.2f}", rate) : "at once", busy ? "busy" : "idle", served,
                      double(tokens) / seconds, shown(first, 2), shown(gaps, 3)));
    return served;
  }

  bool openLoop() {
    if (!command.json)
      print(fmt::format("\n{:>6} {:>8} {:>5} {:>8} {:>10}   ms (p50 p95 p99): first token, between tokens\n", "load",
                        "rate/s", "cores", "served/s", "tokens/s"));
    std::vector<std::pair<double, std::optional<double>>> rates; // and the load
    for (double rate : live.rates)
      rates.push_back({rate, std::nullopt});
    if (live.rates.empty()) {
      const auto most = loop(0, std::nullopt, false);
      if (!most || (live.busy && !loop(0, std::nullopt, true)))
        return false;
      for (double load : live.loads)
        rates.push_back({load * *most, load});
    }
    for (const auto &[rate, load] : rates)
      for (bool busy : {false, true})
        if ((!busy || live.busy) && !loop(rate, load, busy))
          return false;
    return true;
  }

  // --- a kernel that has nothing to do

  bool idle() {
    showProgress("idle: before the launch");
    const auto before = wattsFor(live.idleSeconds);
    const size_t batch = *std::max_element(command.batches.begin(), command.batches.end());
    const size_t most = 1 << 14; // more than there will be
    auto client = open(most);
    if (!client || !got(client->submit(makeRequest(program, live.shortest, 0, 1), 0), diags) || !client->read(1, diags))
      return false;
    showProgress("idle: asleep");
    sleepUntil(now() + 20); // the state is written now and then
    const int64_t ticks = client->session.stats().ticks;
    const auto asleep = wattsFor(live.idleSeconds);
    const int64_t ticksAsleep = client->session.stats().ticks - ticks;
    showProgress("idle: busy");
    auto power = std::async(std::launch::async, wattsFor, live.idleSeconds);
    size_t submitted = 1, ended = 1;
    const Request request = makeRequest(program, live.shortest, 1, command.tokens);
    while (power.wait_for(std::chrono::seconds(0)) != std::future_status::ready || ended < submitted) {
      const bool more = power.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
      for (; more && submitted < ended + batch && submitted < most; ++submitted)
        if (!got(client->submit(request, submitted), diags))
          return false;
      if (ended < submitted && !client->read(++ended, diags))
        return false;
    }
    const auto busy = power.get();
    if (!stop(*client))
      return false;
    const auto share = before && asleep && busy && *busy > *before
                           ? std::optional((*asleep - *before) / (*busy - *before))
                           : std::nullopt;
    const auto text = [](const std::optional<double> &value) { return value ? fmt::format("{:.1f}", *value) : "-"; };
    print("idle",
          {{"seconds", live.idleSeconds},
           {"ticks_asleep", ticksAsleep},
           {"before_w", orNull(before)},
           {"asleep_w", orNull(asleep)},
           {"busy_w", orNull(busy)},
           {"asleep_share", orNull(share)}},
          fmt::format("\npower, W: before the launch {}, asleep {}, busy {}; ticks while asleep {}", text(before),
                      text(asleep), text(busy), ticksAsleep));
    return true;
  }
};

} // namespace

bool benchLive(const BenchCommand &command, const Program &program, Diagnostics &diags) {
  auto kernel = tools::loadToMeasure(program,
                                     {.device = command.cpu ? Device::Cpu : Device::Cuda,
                                      .wholeKernel = command.wholeKernel,
                                      .cpuArch = command.cpuArch,
                                      .progress = showProgress},
                                     tools::Weights::Random);
  if (!got(kernel, diags))
    return false;
  diags.adopt(kernel->messages());
  return LiveBench(command, program, *kernel, diags).run();
}

} // namespace megalith::tool
