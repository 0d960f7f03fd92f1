#include "Measured.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <cmath>

namespace megalith::tool {

std::string shapeName(const std::string &configFile) {
  llvm::SmallString<256> path(configFile);
  llvm::sys::fs::make_absolute(path);
  llvm::sys::path::remove_dots(path, /*remove_dot_dot=*/true);
  const llvm::StringRef directory = llvm::sys::path::filename(llvm::sys::path::parent_path(path));
  return text::printable(llvm::sys::path::filename(path) == "config.json" ? directory : llvm::sys::path::stem(path));
}

static uint32_t hash32(uint32_t x) { // as device/Sync.cuh
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

Request makeRequest(const Program &program, int64_t context, int64_t b, int64_t tokens) {
  const auto vocabulary = static_cast<uint32_t>(program.vocabulary());
  Request request;
  request.id = std::to_string(b);
  request.maxNewTokens = tokens;
  request.eos.emplace();
  request.inputs = tools::madeUpInputs(program);
  for (int64_t j = 0; j < context; ++j)
    request.tokens.push_back(static_cast<int32_t>(hash32(uint32_t(j) ^ hash32(uint32_t(b + 1))) % vocabulary));
  return request;
}

std::vector<Request> makeRequests(const Program &program, int64_t context, int64_t batch, int64_t tokens) {
  std::vector<Request> requests;
  for (int64_t b = 0; b < batch; ++b)
    requests.push_back(makeRequest(program, context, b, tokens));
  return requests;
}

std::optional<std::string> findGpu(const std::string &advice, Diagnostics &diags) {
  const auto found = tools::findGpu();
  if (found)
    return *found;
  // The advice after the reason is that of `run`.
  const Error error = found.errors().first();
  const llvm::StringRef reason = llvm::StringRef(error.message).split("; `--device=").first;
  diags.report(AnyDiag{diagByKebab(error.kind)}, {}, reason.str() + "; " + advice);
  return std::nullopt;
}

std::string csvField(const std::string &text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos)
    return text;
  std::string out = "\"";
  for (char c : text)
    out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

double median(std::vector<double> values) { return tools::percentile(std::move(values), 50); }

double significant(double value) {
  return std::isfinite(value) && value != 0 ? std::stod(fmt::format("{:.6g}", value)) : value;
}

} // namespace megalith::tool
