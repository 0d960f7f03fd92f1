//===- ChromeTrace.h - a timeline for chrome://tracing and Perfetto -------===//
#ifndef MEGALITH_TOOLS_CHROMETRACE_H
#define MEGALITH_TOOLS_CHROMETRACE_H

#include "megalith/Text/Json.h"
#include <string>

namespace megalith::tool {

/// Lanes, which are threads of processes, with ranges on them, and counters. Times are microseconds.
class ChromeTrace {
public:
  using Json = nlohmann::ordered_json;

  void process(int64_t process, const std::string &name);
  /// Lanes of a process stand in the order of their numbers.
  void lane(int64_t process, int64_t lane, const std::string &name);
  void range(int64_t process, int64_t lane, const std::string &name, double begin, double length, Json args = nullptr);
  /// From now on the counter has this value.
  void counter(int64_t process, const std::string &name, double at, int64_t value);

  /// `unit`: `ms` or `ns`, in which a viewer shows times. `about`: of the whole, an object; empty: nothing.
  std::string text(const char *unit, const Json &about) const;

private:
  void add(const Json &event);

  std::string lines; ///< one for each event: readable, and small
};

} // namespace megalith::tool
#endif
