#include "JsonText.h"
#include <algorithm>
#include <set>
#include <vector>

using namespace megalith;

/// `[json.exception.parse_error.101] parse error at line 1, column 3: syntax
/// error while parsing object key - unexpected ...` keeps its last part.
static std::string shortMessage(const std::string &what) {
  size_t at = what.find(": ");
  return at == std::string::npos ? what : what.substr(at + 2);
}

static void setPosition(std::string_view text, JsonProblem &problem) {
  std::string_view before = text.substr(0, problem.byte);
  problem.line = 1 + std::count(before.begin(), before.end(), '\n');
  size_t newline = before.rfind('\n');
  problem.column =
      1 + before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
}

std::optional<JsonProblem> megalith::parseJson(std::string_view text,
                                               nlohmann::json &out) {
  using json = nlohmann::json;
  std::vector<std::set<std::string>> open;
  std::string repeated;
  auto watchKeys = [&](int, json::parse_event_t event, json &value) {
    if (event == json::parse_event_t::object_start)
      open.emplace_back();
    else if (event == json::parse_event_t::object_end)
      open.pop_back();
    else if (event == json::parse_event_t::key && repeated.empty() &&
             !open.back().insert(value.get<std::string>()).second)
      repeated = value.get<std::string>();
    return true;
  };
  JsonProblem problem;
  try {
    out = json::parse(text.begin(), text.end(), watchKeys);
  } catch (const json::parse_error &error) {
    problem.message = shortMessage(error.what());
    // The library counts the byte it stopped behind, from 1.
    problem.byte = error.byte == 0 ? 0 : error.byte - 1;
    problem.byte = std::min<uint64_t>(problem.byte, text.size());
    setPosition(text, problem);
    return problem;
  } catch (const json::exception &error) {
    problem.message = shortMessage(error.what());
    problem.line = problem.column = 1;
    return problem;
  }
  if (repeated.empty())
    return std::nullopt;
  problem.message = "key `" + repeated + "` occurs twice in one object";
  size_t first = text.find('"' + repeated + '"');
  size_t at = first == std::string_view::npos
                  ? first
                  : text.find('"' + repeated + '"', first + 1);
  problem.byte = at == std::string_view::npos ? 0 : at;
  setPosition(text, problem);
  return problem;
}
