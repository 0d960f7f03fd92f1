#include "megalith/Checkpoint/Trace.h"
#include "JsonText.h"
#include "megalith/Os/ReadFile.h"
#include "megalith/Os/WriteFile.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace megalith;
using nlohmann::json;
using nlohmann::ordered_json;

// --- writing

static ordered_json toJson(const TracePass &pass) {
  ordered_json out;
  out["model"] = pass.model;
  ordered_json rows = ordered_json::array();
  for (const Row &r : pass.rows)
    rows.push_back({r.slot, r.token, r.position, r.kvSlot, r.visible, r.parent,
                    r.flags, r.result});
  out["rows"] = std::move(rows);
  if (!pass.kvHash.empty()) {
    // As text: JSON numbers of other readers lose bits beyond 2^53.
    ordered_json hashes = ordered_json::array();
    for (uint64_t hash : pass.kvHash)
      hashes.push_back(fmt::format("{:016x}", hash));
    out["kv_hash"] = std::move(hashes);
  }
  return out;
}

static ordered_json toJson(const TraceSlot &slot) {
  ordered_json out;
  out["slot"] = slot.slot;
  out["request"] = slot.request;
  out["before"] = slot.before;
  out["after"] = slot.after;
  out["kv"] = ordered_json::array();
  for (const TraceKv &kv : slot.kv)
    out["kv"].push_back(
        {{"pool", kv.pool}, {"len", kv.len}, {"pages", kv.pages}});
  if (!slot.gauges.empty())
    out["trace"] = slot.gauges;
  return out;
}

static ordered_json toJson(const TraceTick &tick) {
  ordered_json out;
  out["tick"] = tick.tick;
  out["live"] = tick.live;
  out["passes"] = ordered_json::array();
  for (const TracePass &pass : tick.passes)
    out["passes"].push_back(toJson(pass));
  out["slots"] = ordered_json::array();
  for (const TraceSlot &slot : tick.slots)
    out["slots"].push_back(toJson(slot));
  if (!tick.faults.empty()) {
    out["faults"] = ordered_json::array();
    for (const TraceFault &fault : tick.faults)
      out["faults"].push_back(
          {{"request", fault.request}, {"code", fault.code}});
  }
  return out;
}

std::string megalith::formatTrace(const Trace &trace) {
  std::string out;
  auto line = [&out](const ordered_json &value) {
    out += value.dump(-1, ' ', false, ordered_json::error_handler_t::replace); // IR text holds any bytes
    out += '\n';
  };
  line({{"megalith_trace", 1}, {"pipeline", trace.pipeline}});
  for (const TraceTick &tick : trace.ticks)
    line(toJson(tick));
  ordered_json results = ordered_json::array();
  for (const TraceRequest &r : trace.requests) {
    ordered_json result = {
        {"id", r.id}, {"tokens", r.tokens}, {"finish", r.finish}};
    if (!r.fault.empty())
      result["fault"] = r.fault;
    results.push_back(std::move(result));
  }
  line({{"results", std::move(results)}, {"metrics", trace.metrics}});
  return out;
}

Result<bool> megalith::writeTrace(const std::string &path, const Trace &trace) {
  const std::string why = os::writeFile(path, formatTrace(trace));
  if (!why.empty())
    return CheckpointError{"trace-write",
                           fmt::format("cannot write the trace: {}", why),
                           path};
  return true;
}

// --- reading

static Row rowFrom(const json &words) {
  if (words.size() != 8)
    throw json::other_error::create(501, "a row has 8 words", &words);
  Row row;
  row.slot = words.at(0).get<int32_t>();
  row.token = words.at(1).get<int32_t>();
  row.position = words.at(2).get<int32_t>();
  row.kvSlot = words.at(3).get<int32_t>();
  row.visible = words.at(4).get<int32_t>();
  row.parent = words.at(5).get<int32_t>();
  row.flags = words.at(6).get<uint32_t>();
  row.result = words.at(7).get<int32_t>();
  return row;
}

static TracePass passFrom(const json &in) {
  TracePass pass;
  in.at("model").get_to(pass.model);
  for (const json &words : in.at("rows"))
    pass.rows.push_back(rowFrom(words));
  if (in.contains("kv_hash"))
    for (const json &hash : in.at("kv_hash"))
      pass.kvHash.push_back(
          std::strtoull(hash.get<std::string>().c_str(), nullptr, 16));
  return pass;
}

static TraceSlot slotFrom(const json &in) {
  TraceSlot slot;
  in.at("slot").get_to(slot.slot);
  in.at("request").get_to(slot.request);
  in.at("before").get_to(slot.before);
  in.at("after").get_to(slot.after);
  for (const json &kv : in.at("kv"))
    slot.kv.push_back({kv.at("pool").get<std::string>(),
                       kv.at("len").get<int64_t>(),
                       kv.at("pages").get<std::vector<int32_t>>()});
  if (in.contains("trace"))
    in.at("trace").get_to(slot.gauges);
  return slot;
}

static TraceTick tickFrom(const json &in) {
  TraceTick tick;
  in.at("tick").get_to(tick.tick);
  in.at("live").get_to(tick.live);
  for (const json &pass : in.at("passes"))
    tick.passes.push_back(passFrom(pass));
  for (const json &slot : in.at("slots"))
    tick.slots.push_back(slotFrom(slot));
  if (in.contains("faults"))
    for (const json &fault : in.at("faults"))
      tick.faults.push_back({fault.at("request").get<int32_t>(),
                             fault.at("code").get<std::string>()});
  return tick;
}

static void readResults(const json &in, Trace &trace) {
  for (const json &r : in.at("results")) {
    TraceRequest request;
    r.at("id").get_to(request.id);
    r.at("tokens").get_to(request.tokens);
    r.at("finish").get_to(request.finish);
    if (r.contains("fault"))
      r.at("fault").get_to(request.fault);
    trace.requests.push_back(std::move(request));
  }
  in.at("metrics").get_to(trace.metrics);
}

Result<Trace> megalith::parseTrace(std::string_view text,
                                   const std::string &file) {
  Trace trace;
  unsigned line = 0;
  bool ended = false;
  while (!text.empty() && !ended) {
    size_t newline = text.find('\n');
    std::string_view current = text.substr(0, newline);
    text.remove_prefix(newline == text.npos ? text.size() : newline + 1);
    ++line;
    json value;
    if (auto problem = parseJson(current, value))
      return CheckpointError{"trace-syntax", problem->message, file, line,
                             problem->column};
    try {
      if (line == 1) {
        if (!value.is_object() || !value.contains("megalith_trace"))
          return CheckpointError{"trace-key",
                                 "not a trace: the first line has no "
                                 "`megalith_trace`",
                                 file, line};
        if (value.at("megalith_trace") != 1)
          return CheckpointError{"trace-key",
                                 "this version reads `megalith_trace` 1", file,
                                 line};
        value.at("pipeline").get_to(trace.pipeline);
      } else if (value.contains("results")) {
        readResults(value, trace);
        ended = true;
      } else {
        trace.ticks.push_back(tickFrom(value));
      }
    } catch (const json::exception &e) {
      // nlohmann's text is `[json.exception.name.id] what was wrong`.
      std::string_view what = e.what();
      if (size_t bracket = what.find("] "); bracket != what.npos)
        what.remove_prefix(bracket + 2);
      return CheckpointError{"trace-key", std::string(what), file, line};
    }
  }
  if (!ended)
    return CheckpointError{"trace-end",
                           "the file ends before the line with the results",
                           file, line};
  return trace;
}

Result<Trace> megalith::readTrace(const std::string &path) {
  std::string reason;
  auto text = os::readFile(path, os::dataBytes, reason);
  if (!text)
    return CheckpointError{"trace-missing",
                           fmt::format("cannot read the trace: {}", reason),
                           path};
  return parseTrace(*text, path);
}

// --- comparing

/// `PLACE: A against B`, or nothing when they are equal.
template <class T>
static std::string differ(const std::string &place, const T &a, const T &b) {
  if (a == b)
    return {};
  return fmt::format("{}: {} against {}", place, a, b);
}

static std::string comparePass(const std::string &place, const TracePass &a,
                               const TracePass &b) {
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
    if (!d.empty())
      return d;
  }
  return differ(place + ", rows", a.rows.size(), b.rows.size());
}

static std::string compareSlot(const std::string &where, const TraceSlot &a,
                               const TraceSlot &b) {
  std::string place = fmt::format("{}, request {}", where, a.request);
  std::string d;
  auto check = [&](const std::string &name, const auto &left,
                   const auto &right) {
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
    check("pages", a.kv[i].pages, b.kv[i].pages);
  }
  check("traced values", a.gauges, b.gauges);
  return d;
}

static std::string compareTick(const TraceTick &a, const TraceTick &b) {
  std::string place = fmt::format("tick {}", a.tick);
  if (auto d = differ(place + ", number", a.tick, b.tick); !d.empty())
    return d;
  if (auto d = differ(place + ", live pages", a.live, b.live); !d.empty())
    return d;
  for (size_t i = 0; i < std::min(a.passes.size(), b.passes.size()); ++i)
    if (auto d = comparePass(fmt::format("{}, pass {}", place, i), a.passes[i],
                             b.passes[i]);
        !d.empty())
      return d;
  if (auto d = differ(place + ", passes", a.passes.size(), b.passes.size());
      !d.empty())
    return d;
  for (size_t i = 0; i < std::min(a.slots.size(), b.slots.size()); ++i)
    if (auto d = compareSlot(place, a.slots[i], b.slots[i]); !d.empty())
      return d;
  if (auto d = differ(place + ", requests", a.slots.size(), b.slots.size());
      !d.empty())
    return d;
  for (size_t i = 0; i < std::min(a.faults.size(), b.faults.size()); ++i) {
    auto text = [](const TraceFault &f) {
      return fmt::format("{} of request {}", f.code, f.request);
    };
    if (a.faults[i] != b.faults[i])
      return differ(place + ", fault", text(a.faults[i]), text(b.faults[i]));
  }
  return differ(place + ", faults", a.faults.size(), b.faults.size());
}

std::string megalith::compareTraces(const Trace &a, const Trace &b) {
  if (auto d = differ("pipeline", a.pipeline, b.pipeline); !d.empty())
    return d;
  for (size_t i = 0; i < std::min(a.ticks.size(), b.ticks.size()); ++i)
    if (auto d = compareTick(a.ticks[i], b.ticks[i]); !d.empty())
      return d;
  if (auto d = differ("ticks", a.ticks.size(), b.ticks.size()); !d.empty())
    return d;
  if (auto d = differ("requests", a.requests.size(), b.requests.size());
      !d.empty())
    return d;
  for (size_t i = 0; i < a.requests.size(); ++i) {
    const TraceRequest &x = a.requests[i], &y = b.requests[i];
    std::string place = fmt::format("request {}, ", i);
    for (const std::string &d :
         {differ(place + "id", x.id, y.id),
          differ(place + "tokens", x.tokens, y.tokens),
          differ(place + "finish", x.finish, y.finish),
          differ(place + "fault", x.fault, y.fault)})
      if (!d.empty())
        return d;
  }
  return differ("metrics", a.metrics, b.metrics);
}
