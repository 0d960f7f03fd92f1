//===- Live.cpp - sessions that take requests while the kernel runs -------===//
#include "Core.h"
#include "megalith/LiveSession.h"
#include <algorithm>
#include <atomic>

namespace megalith::python {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// So long a wait goes on before it looks for Ctrl-C.
constexpr Milliseconds slice(50);

struct Live {
  explicit Live(LiveSession &&open) : held(std::make_unique<LiveSession>(std::move(open))), session(*held) {}
  Live(Live &&) = default;
  ~Live() { // waits for the kernel, and what it reports may want the GIL
    const nb::gil_scoped_release release;
    held.reset();
  }

  std::unique_ptr<LiveSession> held;
  LiveSession &session;
};

LiveOptions optionsOf(nb::dict from) {
  LiveOptions out;
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text) read(from, #Snake, out.Name);
#include "megalith/LiveOptions.def"
  read(from, "progress", out.progress);
  return out;
}

nb::dict dictOf(const LiveEnd &end) {
  nb::dict out;
  put(end, out);
#define LIVE_END(Type, Name, Snake, Text) out[#Snake] = end.Name;
#include "megalith/RequestEnd.def"
  return out;
}

/// Of each token (logprob or None, [(token, logprob) of the likeliest ones], rank).
nb::list listOf(const std::vector<LiveLogprob> &logprobs) {
  nb::list out;
  for (const LiveLogprob &each : logprobs) {
    nb::list likeliest;
    for (const LiveLogprob::Choice &choice : each.likeliest)
      likeliest.append(nb::make_tuple(choice.token, choice.logprob));
    out.append(nb::make_tuple(each.logprob ? nb::cast(*each.logprob) : nb::none(), likeliest, each.rank));
  }
  return out;
}

/// (request, user, tokens, state, end, at, logprobs, promptLogprobs, found)
nb::object tupleOf(const LiveEvent &event) {
  nb::list tokens;
  for (int32_t token : event.tokens)
    tokens.append(token);
  return nb::make_tuple(event.request, event.user, tokens, text(event.state),
                        event.end ? nb::object(dictOf(*event.end)) : nb::object(nb::none()), event.at,
                        listOf(event.logprobs), listOf(event.promptLogprobs), event.found);
}

/// Waits for `f(patience)` to give something that `isEnd`, for `milliseconds` at most, below 0 for ever. Other threads
/// run meanwhile, and Ctrl-C works.
template <class F, class IsEnd> auto waitFor(double milliseconds, F f, IsEnd isEnd) {
  const Clock::time_point start = Clock::now();
  while (true) {
    Milliseconds patience = slice;
    bool isLast = false;
    if (milliseconds >= 0) {
      const double left = milliseconds - std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      isLast = left <= double(slice.count());
      if (isLast)
        patience = Milliseconds(std::max<int64_t>(0, int64_t(left + 0.999)));
    }
    auto result = [&] {
      const nb::gil_scoped_release release;
      return f(patience);
    }();
    if (isLast || isEnd(result))
      return result;
    checkSignals();
  }
}

/// Up to `most` events: waits for the first, and takes the others that are there. Empty: there was none, or none comes
/// any more.
nb::list next(Live &live, double milliseconds, size_t most) {
  std::vector<LiveEvent> events;
  LiveSession &session = live.session;
  auto first = take(waitFor(
      milliseconds, [&](Milliseconds patience) { return session.next(patience); },
      [&](const auto &result) { return !result || *result || session.done(); }));
  nb::list out;
  while (first) {
    out.append(tupleOf(*first));
    if (out.size() >= most)
      break;
    auto another = session.next();
    if (!another) // it is told by the next call
      break;
    first = std::move(*another);
  }
  return out;
}

uint64_t submit(Live &live, nb::dict from, uint64_t user, double milliseconds) {
  const Request request = requestOf(from);
  int logprobs = -1, promptLogprobs = -1;
  read(from, "logprobs", logprobs);
  read(from, "prompt_logprobs", promptLogprobs);
  return take(waitFor(
      milliseconds,
      [&](Milliseconds patience) { return live.session.submit(request, user, patience, logprobs, promptLogprobs); },
      [](const Expected<uint64_t> &result) { return result || result.errors().first().kind != "live-full"; }));
}

nb::dict dictOf(const LiveStats &stats) {
  nb::dict out, ended, metrics;
#define STAT(Type, Name, Snake, Text) out[#Snake] = stats.Name;
#include "megalith/LiveStats.def"
  nb::list slots, pools;
  for (const LiveStats::Slot &slot : stats.slots) {
    nb::dict one;
    one["request"] = slot.request ? nb::cast(*slot.request) : nb::none();
    one["state"] = text(slot.state);
    one["prompt_tokens"] = slot.promptTokens;
    one["generated"] = slot.generated;
    one["kv_tokens"] = slot.kvTokens;
    slots.append(one);
  }
  out["slots"] = slots;
  for (const LiveStats::Pool &pool : stats.pools) {
    nb::dict one;
    one["model"] = text(pool.model);
    one["pages"] = pool.pages;
    one["used"] = pool.used;
    one["cached"] = pool.cached < 0 ? nb::object(nb::none()) : nb::object(nb::int_(pool.cached));
    pools.append(one);
  }
  out["pools"] = pools;
  for (const auto &[finish, count] : stats.ended)
    ended[text(finish)] = count;
  out["ended"] = ended;
  for (const auto &[name, value] : stats.metrics)
    metrics[text(name)] = value;
  out["metrics"] = metrics;
  nb::dict increments;
  for (const auto &[name, times] : stats.increments) {
    nb::list list;
    for (int64_t each : times)
      list.append(each);
    increments[text(name)] = list;
  }
  out["increments"] = increments;
  return out;
}

template <class F> auto released(F f) {
  const nb::gil_scoped_release release;
  return f();
}

} // namespace

void bindLive(nb::module_ &module) {
  module.def("open_live", [](LoadedKernel &k, nb::dict from) {
    const LiveOptions options = optionsOf(from);
    return Live{take(alone(*k.mutex, [&] { return LiveSession::open(k.kernel, options); }))};
  });

  nb::class_<Live>(module, "Live")
      .def("submit", submit)
      .def("next", next)
      .def("cancel",
           [](Live &live, nb::object request) {
             const auto number = valueOf<uint64_t>(request, "request");
             take(released([&] { return live.session.cancel(number); }));
           })
      .def("stop",
           [](Live &live, bool now) {
             take(released([&] { return live.session.stop(now ? LiveSession::Stop::Now : LiveSession::Stop::Drain); }));
           })
      .def("done", [](Live &live) { return released([&] { return live.session.done(); }); })
      .def("stats", [](Live &live) { return dictOf(released([&] { return live.session.stats(); })); })
      .def("trace",
           [](Live &live) {
             const SessionTrace trace = take(released([&] { return live.session.trace(); }));
             return nb::make_tuple(text(trace.trace), text(trace.requests));
           })
      .def("options", [](Live &live) {
        const LiveOptions &options = live.session.options();
        nb::dict out;
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text) out[#Snake] = options.Name;
#include "megalith/LiveOptions.def"
        return out;
      });
}

} // namespace megalith::python
