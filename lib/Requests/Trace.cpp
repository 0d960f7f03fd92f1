#include "megalith/Requests/Trace.h"
#include "RequestText.h"
#include "megalith/Json/JsonValue.h"
#include "megalith/Json/JsonView.h"
#include "megalith/Os/WriteFile.h"
#include "megalith/Text/Json.h"
#include "megalith/Text/Text.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace megalith;
using nlohmann::json;
using nlohmann::ordered_json;

/// Of the form of the file.
static constexpr int Version = 2;

std::string_view megalith::hostEnd(std::string_view fault) {
  return fault == "CANCELLED" ? "cancelled" : fault == "DEADLINE" ? "deadline" : "";
}

std::string megalith::finishOf(std::string_view fault, bool terminal, bool eos, bool budgetUsedUp) {
  if (const std::string_view end = hostEnd(fault); !end.empty())
    return std::string(end);
  return !fault.empty() ? "fault" : !terminal ? "limit" : eos ? "stop" : budgetUsedUp ? "length" : "state";
}

std::string megalith::faultDetail(std::string_view fault, const FaultNumbers &numbers) {
#define FAULT(Enum, Code, Name, Text, Numbers)                                                                         \
  if (fault == Name)                                                                                                   \
    return fmt::format(fmt::runtime(Numbers), numbers[0], numbers[1], numbers[2]);
#include "megalith/Contract/Faults.def"
  return "";
}

// --- writing

static ordered_json toJson(const TracePass &pass) {
  ordered_json out;
  out["model"] = pass.model;
  ordered_json rows = ordered_json::array();
  for (const Row &r : pass.rows)
    rows.push_back({r.slot, r.token, r.position, r.kvSlot, r.visible, r.parent, r.flags, r.result});
  out["rows"] = std::move(rows);
  if (!pass.reduced.empty())
    out["reduced"] = pass.reduced;
  if (!pass.kvHash.empty()) {
    // As text: JSON numbers of other readers lose bits beyond 2^53.
    ordered_json hashes = ordered_json::array();
    for (uint64_t hash : pass.kvHash)
      hashes.push_back(fmt::format("{:016x}", hash));
    out["kv_hash"] = std::move(hashes);
  }
  return out;
}

/// JSON has no number for what is not finite; the library would write null.
static ordered_json numberJson(double value) {
  if (std::isfinite(value))
    return value;
  return std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
}

static ordered_json toJson(const TraceSlot &slot) {
  ordered_json out;
  out["slot"] = slot.slot;
  out["request"] = slot.request;
  out["before"] = slot.before;
  out["after"] = slot.after;
  out["kv"] = ordered_json::array();
  for (const TraceKv &kv : slot.kv) {
    ordered_json &share = out["kv"].emplace_back(ordered_json{{"pool", kv.pool}, {"len", kv.len}});
    if (kv.first > 0)
      share["first"] = kv.first;
    share["pages"] = kv.pages;
  }
  for (const auto &[name, value] : slot.gauges)
    out["trace"][name] = numberJson(value);
  return out;
}

static ordered_json toJson(const TraceTick &tick) {
  ordered_json out;
  out["tick"] = tick.tick;
  if (tick.nowMs)
    out["now_ms"] = *tick.nowMs;
  for (const TraceEvent &event : tick.events)
    out["events"].push_back({{event.cancels ? "cancels" : "arrives", event.request}});
  out["live"] = tick.live;
  if (!tick.cached.empty())
    out["cached"] = tick.cached;
  out["passes"] = ordered_json::array();
  for (const TracePass &pass : tick.passes)
    out["passes"].push_back(toJson(pass));
  out["slots"] = ordered_json::array();
  for (const TraceSlot &slot : tick.slots)
    out["slots"].push_back(toJson(slot));
  if (!tick.faults.empty()) {
    out["faults"] = ordered_json::array();
    for (const TraceFault &fault : tick.faults)
      out["faults"].push_back({{"request", fault.request}, {"code", fault.code}});
  }
  return out;
}

std::string megalith::formatTrace(const Trace &trace) {
  std::string out;
  auto line = [&out](const ordered_json &value) {
    out += text::dump(value);
    out += '\n';
  };
  ordered_json header = {{"megalith_trace", Version}, {"pipeline", trace.pipeline}};
  if (!trace.accepted.empty())
    header["accepted"] = trace.accepted;
  if (!trace.synthetic.empty())
    header["synthetic_acceptance"] = trace.synthetic;
  if (trace.seed != 0)
    header["seed"] = trace.seed;
  line(header);
  for (const TraceTick &tick : trace.ticks)
    line(toJson(tick));
  ordered_json results = ordered_json::array();
  for (const TraceRequest &r : trace.requests) {
    ordered_json result = {
        {"id", ordered_json::parse(r.id.json())}, {"tokens", r.tokens}, {"finish", r.finish}, {"state", r.state}};
    if (!r.fault.empty())
      result["fault"] = r.fault;
    if (!r.faultState.empty())
      result["fault_state"] = r.faultState;
    if (!r.place.empty())
      result["place"] = ordered_json::parse(text::json(r.place));
    if (!r.faultDetail.empty())
      result["fault_detail"] = r.faultDetail;
    if (!r.format.empty())
      result["format"] = r.format;
    if (r.sampling != Sampling())
      result["sampling"] = samplingJson(r.sampling);
    for (const auto &[name, value] : r.inputs)
      result["inputs"][name] = inputJson(value);
    results.push_back(std::move(result));
  }
  line({{"results", std::move(results)}, {"metrics", trace.metrics}});
  return out;
}

Result<bool> megalith::writeTrace(const std::string &path, const Trace &trace) {
  const std::string why = os::writeFile(path, formatTrace(trace));
  if (!why.empty())
    return FileError{"trace-write", fmt::format("cannot write the trace: {}", why), path};
  return true;
}

// --- reading

static Row rowFrom(const JsonView &in) {
  // What an executor writes: no slot or position is negative; a row of a draft without a token is fed none.
  static constexpr int32_t least[8] = {0, -1, 0, 0, 0, -1, 0, -2};
  static constexpr int32_t most[8] = {
      INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, RowWantsLogits | RowIsDraft, INT32_MAX};
  if (!in.json().is_array() || in.json().size() != 8)
    in.wrong("must be a list of 8 integers");
  int32_t words[8];
  size_t number = 0;
  in.list([&](const JsonView &word) {
    words[number] = word.integer32(least[number], most[number]);
    ++number;
  });
  return {words[0], words[1], words[2], words[3], words[4], words[5], static_cast<uint32_t>(words[6]), words[7]};
}

static uint64_t hashFrom(const JsonView &in) {
  const std::string &digits = in.string();
  if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != digits.npos)
    in.wrong("must be 16 hexadecimal digits");
  return std::strtoull(digits.c_str(), nullptr, 16);
}

static TracePass passFrom(const JsonView &in) {
  in.only({"model", "rows", "reduced", "kv_hash"});
  TracePass pass;
  pass.model = in.at("model").string();
  in.at("rows").list([&](const JsonView &row) { pass.rows.push_back(rowFrom(row)); });
  if (auto reduced = in.find("reduced")) {
    reduced->list([&](const JsonView &row) { pass.reduced.push_back(row.integers32()); });
    if (pass.reduced.size() != pass.rows.size())
      reduced->wrong(fmt::format("must have one list for each of the {} rows", pass.rows.size()));
  }
  if (auto hashes = in.find("kv_hash")) {
    hashes->list([&](const JsonView &hash) { pass.kvHash.push_back(hashFrom(hash)); });
    if (pass.kvHash.size() != pass.rows.size())
      hashes->wrong(fmt::format("must have one hash for each of the {} rows", pass.rows.size()));
  }
  return pass;
}

static TraceSlot slotFrom(const JsonView &in) {
  in.only({"slot", "request", "before", "after", "kv", "trace"});
  TraceSlot slot;
  slot.slot = in.at("slot").integer32(-1);
  slot.request = in.at("request").integer32(0);
  slot.before = in.at("before").string();
  slot.after = in.at("after").string();
  in.at("kv").list([&](const JsonView &kv) {
    kv.only({"pool", "len", "first", "pages"});
    const auto first = kv.find("first");
    slot.kv.push_back(
        {kv.at("pool").string(), kv.at("len").integer(0), first ? first->integer(1) : 0, kv.at("pages").integers32(0)});
  });
  if (auto gauges = in.find("trace"))
    gauges->members([&](const std::string &name, const JsonView &value) { slot.gauges[name] = value.number(); });
  return slot;
}

static TraceTick tickFrom(const JsonView &in, int64_t number) {
  in.only({"tick", "now_ms", "events", "live", "cached", "passes", "slots", "faults"});
  TraceTick tick;
  if (const auto clock = in.find("now_ms"))
    tick.nowMs = clock->integer32(0);
  if (const auto events = in.find("events"))
    events->list([&](const JsonView &event) {
      event.only({"arrives", "cancels"});
      const auto arrives = event.find("arrives"), cancels = event.find("cancels");
      if (!arrives == !cancels)
        event.wrong("must have one of `arrives` and `cancels`");
      tick.events.push_back({!arrives, (arrives ? *arrives : *cancels).integer32(0)});
    });
  tick.tick = in.at("tick").integer();
  // Where nothing was left to do, the tick comes next in which the host wants something.
  const bool skips = !tick.events.empty() && tick.tick < INT32_MAX;
  if (skips ? tick.tick < number : tick.tick != number)
    in.at("tick").wrong(fmt::format("must be {}: ticks follow each other from 0", number));
  in.at("live").members([&](const std::string &pool, const JsonView &pages) { tick.live[pool] = pages.integer(0); });
  if (const auto cached = in.find("cached"))
    cached->members([&](const std::string &pool, const JsonView &pages) { tick.cached[pool] = pages.integer(0); });
  in.at("passes").list([&](const JsonView &pass) { tick.passes.push_back(passFrom(pass)); });
  in.at("slots").list([&](const JsonView &slot) { tick.slots.push_back(slotFrom(slot)); });
  if (auto faults = in.find("faults"))
    faults->list([&](const JsonView &fault) {
      fault.only({"request", "code"});
      tick.faults.push_back({fault.at("request").integer32(0), fault.at("code").string()});
    });
  return tick;
}

static Sampling samplingFrom(const JsonView &in) {
  in.only({"temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty", "presence_penalty",
           "frequency_penalty", "min_new_tokens", "bias", "banned", "allowed", "format"});
  Sampling s;
  s.temperature = static_cast<float>(in.at("temperature").number());
  s.topK = in.at("top_k").integer32();
  s.topP = static_cast<float>(in.at("top_p").number());
  s.minP = static_cast<float>(in.at("min_p").number());
  if (auto seed = in.find("seed"))
    s.seed = static_cast<uint32_t>(seed->integer(0, UINT32_MAX));
  for (const auto &[name, into] :
       {std::pair("repetition_penalty", &s.repetitionPenalty), std::pair("presence_penalty", &s.presencePenalty),
        std::pair("frequency_penalty", &s.frequencyPenalty)})
    if (auto number = in.find(name))
      *into = static_cast<float>(number->number());
  if (auto least = in.find("min_new_tokens"))
    s.minNewTokens = least->integer32(0);
  if (auto bias = in.find("bias"))
    bias->list([&](const JsonView &pair) {
      int members = 0;
      int32_t token = 0;
      float number = 0;
      pair.list([&](const JsonView &member) {
        if (members++ == 0)
          token = member.integer32(0);
        else
          number = static_cast<float>(member.number());
      });
      if (members != 2 || !s.bias.emplace(token, number).second)
        pair.wrong("must be a token, which no other has, and a number");
    });
  if (auto banned = in.find("banned"))
    s.banned = banned->integers32();
  if (auto allowed = in.find("allowed"))
    s.allowed = allowed->integers32();
  if (auto format = in.find("format"))
    s.format = format->string();
  return s;
}

static RequestId idFrom(const JsonView &in) {
  if (in.json().is_number_integer())
    return RequestId::ofInteger(in.json().dump());
  return RequestId(in.string());
}

static InputValue inputFrom(const JsonView &in) {
  const json &value = in.json();
  if (value.is_boolean())
    return value.get<bool>();
  if (value.is_number_integer())
    return in.integer();
  if (!value.is_array())
    return in.number();
  if (!value.empty() && std::all_of(value.begin(), value.end(), [](const json &row) { return row.is_array(); })) {
    std::vector<InputValue> rows;
    in.list([&](const JsonView &row) { rows.push_back(inputFrom(row)); });
    auto table = tableOf(rows);
    if (!table)
      in.wrong("must be a list of lists of numbers");
    return std::move(*table);
  }
  if (std::all_of(value.begin(), value.end(), [](const json &item) { return item.is_number_integer(); }))
    return in.integers32();
  std::vector<float> items;
  in.list([&](const JsonView &item) { items.push_back(static_cast<float>(item.number())); });
  return items;
}

static void readResults(const JsonView &in, Trace &trace) {
  in.only({"results", "metrics"});
  in.at("results").list([&](const JsonView &r) {
    r.only({"id", "tokens", "finish", "state", "fault", "fault_state", "place", "fault_detail", "format", "sampling",
            "inputs"});
    TraceRequest request;
    request.id = idFrom(r.at("id"));
    request.tokens = r.at("tokens").integers32();
    const JsonView finish = r.at("finish");
    request.finish = finish.string();
    if (const char *known[] = {"fault", "limit", "stop", "length", "state", "cancelled", "deadline"};
        std::find(std::begin(known), std::end(known), request.finish) == std::end(known))
      finish.wrong(fmt::format("must be one of `{}`", fmt::join(known, "`, `")));
    request.state = r.at("state").string();
    auto optional = [&r](const char *key, std::string &value) {
      if (auto given = r.find(key))
        value = given->string();
    };
    optional("fault", request.fault);
    optional("fault_state", request.faultState);
    optional("place", request.place);
    optional("fault_detail", request.faultDetail);
    optional("format", request.format);
    if (auto sampling = r.find("sampling"))
      request.sampling = samplingFrom(*sampling);
    if (const auto inputs = r.find("inputs"))
      inputs->members([&](const std::string &name, const JsonView &value) { request.inputs[name] = inputFrom(value); });
    if ((request.finish == "fault") == request.fault.empty())
      finish.wrong("must be `fault` if there is a `fault`, and only then");
    trace.requests.push_back(std::move(request));
  });
  in.at("metrics").members(
      [&](const std::string &name, const JsonView &value) { trace.metrics[name] = value.integer(); });
}

/// One line of the file. Returns whether it is the last one.
static bool readLine(const json &value, bool first, Trace &trace) {
  if (first) {
    const JsonView header(value, "the first line");
    if (!value.is_object() || !header.find("megalith_trace"))
      throw JsonWrong{"not a trace: the first line has no `megalith_trace`", ""};
    if (value["megalith_trace"] != Version || !value["megalith_trace"].is_number_integer())
      throw JsonWrong{fmt::format("this version reads `megalith_trace` {}", Version), "megalith_trace"};
    header.only({"megalith_trace", "pipeline", "accepted", "synthetic_acceptance", "seed"});
    trace.pipeline = header.at("pipeline").string();
    if (const auto accepted = header.find("accepted"))
      accepted->list([&](const JsonView &name) { trace.accepted.push_back(name.string()); });
    if (const auto synthetic = header.find("synthetic_acceptance"))
      trace.synthetic = synthetic->string();
    if (const auto seed = header.find("seed"))
      trace.seed = static_cast<uint32_t>(seed->integer(0, UINT32_MAX));
    return false;
  }
  const JsonView line(value, "the line");
  if (line.find("megalith_trace"))
    throw JsonWrong{"a second trace begins before the first one has its results", "megalith_trace"};
  if (line.find("results")) {
    readResults(JsonView(value, "the last line"), trace);
    return true;
  }
  trace.ticks.push_back(tickFrom(JsonView(value, "a tick"), trace.ticks.empty() ? 0 : trace.ticks.back().tick + 1));
  return false;
}

/// Every request that a tick names is one of the results. Else the message for tick `number`.
static std::string unknownRequest(const Trace &trace, size_t &number) {
  const int64_t requests = static_cast<int64_t>(trace.requests.size());
  for (number = 0; number < trace.ticks.size(); ++number) {
    const TraceTick &tick = trace.ticks[number];
    int64_t largest = -1;
    for (const TraceSlot &slot : tick.slots)
      largest = std::max<int64_t>(largest, slot.request);
    for (const TraceFault &fault : tick.faults)
      largest = std::max<int64_t>(largest, fault.request);
    for (const TraceEvent &event : tick.events)
      largest = std::max<int64_t>(largest, event.request);
    if (largest >= requests)
      return fmt::format("request {} has no result: the last line has {}", largest, requests);
  }
  return "";
}

Result<Trace> megalith::parseTrace(std::string_view text, const std::string &file) {
  Trace trace;
  unsigned line = 0;
  bool ended = false;
  while (!text.empty()) {
    size_t newline = text.find('\n');
    std::string_view current = text.substr(0, newline);
    text.remove_prefix(newline == text.npos ? text.size() : newline + 1);
    ++line;
    if (ended)
      return FileError{"trace-end", "the line with the results is the last one; nothing may follow it", file, line, 1};
    bool parsed = false;
    try {
      json value;
      parseJsonText(current, value);
      parsed = true;
      ended = readLine(value, line == 1, trace);
    } catch (const JsonWrong &problem) {
      if (!parsed)
        return FileError{"trace-syntax", problem.message, file, line, problem.column};
      return FileError{"trace-key", problem.message, file, line, columnOfMember(current, problem.member)};
    }
  }
  if (!ended)
    return FileError{"trace-end", "the file ends before the line with the results", file, line};
  size_t tick = 0;
  if (std::string problem = unknownRequest(trace, tick); !problem.empty())
    return FileError{"trace-key", problem, file, static_cast<unsigned>(tick + 2), 1};
  return trace;
}

// --- comparing

/// `PLACE: A against B`, or nothing when they are equal.
template <class T> static std::string differ(const std::string &place, const T &a, const T &b) {
  if (a == b)
    return {};
  return fmt::format("{}: {} against {}", place, a, b);
}

static std::string comparePass(const std::string &place, const TracePass &a, const TracePass &b) {
  if (auto d = differ(place + ", model", a.model, b.model); !d.empty())
    return d;
  size_t common = std::min(a.rows.size(), b.rows.size());
  for (size_t i = 0; i < common; ++i) {
    const Row &x = a.rows[i], &y = b.rows[i];
    std::string row = fmt::format("{}, row {}, ", place, i);
    std::string d;
    auto word = [&](const char *name, auto left, auto right) {
      if (d.empty())
        d = differ(row + name, left, right);
    };
    word("slot", x.slot, y.slot);
    word("token", x.token, y.token);
    word("position", x.position, y.position);
    word("kv slot", x.kvSlot, y.kvSlot);
    word("visible", x.visible, y.visible);
    word("parent", x.parent, y.parent);
    word("flags", x.flags, y.flags);
    word("result", x.result, y.result);
    const auto reduced = [&](const TracePass &of) {
      return i < of.reduced.size() ? of.reduced[i] : std::vector<int32_t>();
    };
    if (d.empty() && reduced(a) != reduced(b))
      d = fmt::format("{}reduced: [{}] against [{}]", row, fmt::join(reduced(a), ", "), fmt::join(reduced(b), ", "));
    if (!d.empty())
      return d;
  }
  return differ(place + ", rows", a.rows.size(), b.rows.size());
}

/// The inputs of a request that differ; "nothing" where one has none of this name.
static std::string differInputs(const std::string &place, const TraceRequest &a, const TraceRequest &b) {
  const auto shown = [](const TraceRequest &of, const std::string &name) {
    const auto found = of.inputs.find(name);
    return found == of.inputs.end() ? std::string("nothing") : jsonShort(inputJson(found->second));
  };
  for (const TraceRequest *of : {&a, &b})
    for (const auto &[name, value] : of->inputs) {
      const auto x = a.inputs.find(name), y = b.inputs.find(name);
      if (x == a.inputs.end() || y == b.inputs.end() || inputJson(x->second) != inputJson(y->second))
        return fmt::format("{}input {}: {} against {}", place, text::printable(name, 120), shown(a, name),
                           shown(b, name));
    }
  return {};
}

/// Equal, a NaN being equal to a NaN.
static bool sameGauges(const std::map<std::string, double> &a, const std::map<std::string, double> &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto &x, const auto &y) {
    return x.first == y.first && (x.second == y.second || (std::isnan(x.second) && std::isnan(y.second)));
  });
}

static std::string compareSlot(const std::string &where, const TraceSlot &a, const TraceSlot &b) {
  std::string place = fmt::format("{}, request {}", where, a.request);
  std::string d;
  auto check = [&](const std::string &name, const auto &left, const auto &right) {
    if (d.empty())
      d = differ(place + ", " + name, left, right);
  };
  check("number", a.request, b.request);
  check("slot", a.slot, b.slot);
  check("state before", a.before, b.before);
  check("state after", a.after, b.after);
  check("pools", a.kv.size(), b.kv.size());
  for (size_t i = 0; d.empty() && i < a.kv.size(); ++i) {
    check("pool", a.kv[i].pool, b.kv[i].pool);
    check("kv length", a.kv[i].len, b.kv[i].len);
    check("first page", a.kv[i].first, b.kv[i].first);
    check("pages", a.kv[i].pages, b.kv[i].pages);
  }
  if (!sameGauges(a.gauges, b.gauges))
    check("traced values", a.gauges, b.gauges);
  return d;
}

static std::string compareTick(const TraceTick &a, const TraceTick &b) {
  std::string place = fmt::format("tick {}", a.tick);
  if (auto d = differ(place + ", number", a.tick, b.tick); !d.empty())
    return d;
  const auto clock = [](const TraceTick &of) { return of.nowMs ? std::to_string(*of.nowMs) : "none"; };
  if (auto d = differ(place + ", milliseconds of the clock", clock(a), clock(b)); !d.empty())
    return d;
  const auto events = [](const TraceTick &of) {
    std::string text;
    for (const TraceEvent &event : of.events)
      text += fmt::format("{}request {} {}", text.empty() ? "" : ", ", event.request,
                          event.cancels ? "is cancelled" : "arrives");
    return text.empty() ? "none" : text;
  };
  if (auto d = differ(place + ", events", events(a), events(b)); !d.empty())
    return d;
  if (auto d = differ(place + ", live pages", a.live, b.live); !d.empty())
    return d;
  if (auto d = differ(place + ", cached pages", a.cached, b.cached); !d.empty())
    return d;
  for (size_t i = 0; i < std::min(a.passes.size(), b.passes.size()); ++i)
    if (auto d = comparePass(fmt::format("{}, pass {}", place, i), a.passes[i], b.passes[i]); !d.empty())
      return d;
  if (auto d = differ(place + ", passes", a.passes.size(), b.passes.size()); !d.empty())
    return d;
  for (size_t i = 0; i < std::min(a.slots.size(), b.slots.size()); ++i)
    if (auto d = compareSlot(place, a.slots[i], b.slots[i]); !d.empty())
      return d;
  if (auto d = differ(place + ", requests", a.slots.size(), b.slots.size()); !d.empty())
    return d;
  for (size_t i = 0; i < std::min(a.faults.size(), b.faults.size()); ++i) {
    auto text = [](const TraceFault &f) { return fmt::format("{} of request {}", f.code, f.request); };
    if (a.faults[i] != b.faults[i])
      return differ(place + ", fault", text(a.faults[i]), text(b.faults[i]));
  }
  return differ(place + ", faults", a.faults.size(), b.faults.size());
}

std::string megalith::compareTraces(const Trace &a, const Trace &b) {
  if (auto d = differ("pipeline", a.pipeline, b.pipeline); !d.empty())
    return d;
  if (auto d = differ("seed", a.seed, b.seed); !d.empty())
    return d;
  // What comes of other inputs is another run.
  for (size_t i = 0; i < std::min(a.requests.size(), b.requests.size()); ++i)
    if (auto d = differInputs(fmt::format("request {}, ", i), a.requests[i], b.requests[i]); !d.empty())
      return d;
  for (size_t i = 0; i < std::min(a.ticks.size(), b.ticks.size()); ++i)
    if (auto d = compareTick(a.ticks[i], b.ticks[i]); !d.empty())
      return d;
  if (auto d = differ("ticks", a.ticks.size(), b.ticks.size()); !d.empty())
    return d;
  if (auto d = differ("requests", a.requests.size(), b.requests.size()); !d.empty())
    return d;
  for (size_t i = 0; i < a.requests.size(); ++i) {
    const TraceRequest &x = a.requests[i], &y = b.requests[i];
    std::string place = fmt::format("request {}, ", i);
    for (const std::string &d :
         {differ(place + "id", x.id.json(), y.id.json()), differ(place + "tokens", x.tokens, y.tokens),
          differ(place + "finish", x.finish, y.finish), differ(place + "state", x.state, y.state),
          differ(place + "fault", x.fault, y.fault), differ(place + "state of the fault", x.faultState, y.faultState),
          differ(place + "numbers of the fault", x.faultDetail, y.faultDetail),
          differ(place + "format", x.format, y.format),
          differ(place + "sampling", text::dump(samplingJson(x.sampling)), text::dump(samplingJson(y.sampling)))})
      if (!d.empty())
        return d;
  }
  return differ("metrics", a.metrics, b.metrics);
}
