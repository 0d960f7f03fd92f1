#include "SameAs.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::tool {

std::optional<OtherRun> runOther(const std::string &name, const std::string &path, const ProgramOptions &options,
                                 const KernelOptions &kernel, const RunOptions &running,
                                 const std::vector<Request> &requests, Diagnostics &diags) {
  const auto of = [&]() -> std::optional<OtherRun> {
    diags.note("of the pipeline of `--same-as`, `" + name + "`");
    return std::nullopt;
  };
  ProgramOptions own = {.file = path,
                        .texts = options.texts,
                        .models = options.models,
                        .modelsOfOthers = true,
                        .profile = options.profile,
                        .accept = options.accept,
                        .tokenBytes = options.tokenBytes,
                        .weights = false};
  const auto params = Program::compile(own);
  if (!got(params, diags))
    return of();
  llvm::copy_if(options.params, std::back_inserter(own.params),
                [&](const auto &param) { return params->param(param.first).has_value(); });
  own.weights = true;
  const auto program = compileProgram(own, diags);
  if (!program)
    return of();
  auto loaded =
      Kernel::load(*program, {.device = kernel.device, .cpuArch = kernel.cpuArch, .progress = kernel.progress});
  if (!got(loaded, diags))
    return of();
  diags.adopt(loaded->messages());
  RunOptions how;
  how.maxTicks = running.maxTicks;
  how.seed = running.seed;
  how.watchdogSeconds = running.watchdogSeconds;
  how.progress = kernel.progress;
  auto results = loaded->run(requests, how);
  if (!got(results, diags))
    return of();
  diags.adopt(results->messages);
  return OtherRun{name, std::move(results->requests)};
}

/// What a request has as its new token number `number`, or how it ended before.
static std::string at(const RequestResult &result, size_t number) {
  return number < result.tokens.size() ? fmt::format("has token {}", result.tokens[number])
                                       : fmt::format("ends (`{}`)", result.finish);
}

bool checkSame(const std::vector<RequestResult> &results, const OtherRun &other, Diagnostics &diags) {
  const auto isOther = [](const RequestResult &a, const RequestResult &b) {
    return a.tokens != b.tokens || a.finish != b.finish;
  };
  size_t differ = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    const RequestResult &own = results[i], &there = other.requests[i];
    if (!isOther(own, there) || differ++ > 0)
      continue;
    const size_t first = std::ranges::mismatch(own.tokens, there.tokens).in1 - own.tokens.begin();
    diags.report(Diag::SameAsDiffers, {}, text::printable(own.id.text, 120), first + 1, at(own, first), other.name,
                 at(there, first));
  }
  if (differ)
    diags.note(fmt::format("{} of {} requests differ", differ, results.size()));
  return differ == 0;
}

} // namespace megalith::tool
