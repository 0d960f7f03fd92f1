#include "ChromeTrace.h"
#include <cmath>

namespace megalith::tool {

static double toTheNanosecond(double microseconds) { return std::round(microseconds * 1000) / 1000; }

void ChromeTrace::add(const Json &event) {
  if (!lines.empty())
    lines += ",\n";
  lines += megalith::text::dump(event);
}

void ChromeTrace::process(int64_t process, const std::string &name) {
  add({{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", name}}}});
}

void ChromeTrace::lane(int64_t process, int64_t lane, const std::string &name) {
  add({{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", lane}, {"args", {{"name", name}}}});
  add({{"name", "thread_sort_index"}, {"ph", "M"}, {"pid", process}, {"tid", lane}, {"args", {{"sort_index", lane}}}});
}

void ChromeTrace::range(int64_t process, int64_t lane, const std::string &name, double begin, double length,
                        Json args) {
  Json event = {{"name", name},
                {"ph", "X"},
                {"pid", process},
                {"tid", lane},
                {"ts", toTheNanosecond(begin)},
                {"dur", toTheNanosecond(length)}};
  if (!args.is_null())
    event["args"] = std::move(args);
  add(event);
}

void ChromeTrace::counter(int64_t process, const std::string &name, double at, int64_t value) {
  add({{"name", name}, {"ph", "C"}, {"pid", process}, {"ts", toTheNanosecond(at)}, {"args", {{"value", value}}}});
}

std::string ChromeTrace::text(const char *unit, const Json &about) const {
  std::string out = std::string("{\"displayTimeUnit\": \"") + unit + "\", ";
  if (!about.empty())
    out += "\"otherData\": " + megalith::text::dump(about) + ", ";
  return out + "\"traceEvents\": [\n" + lines + "\n]}\n";
}

} // namespace megalith::tool
