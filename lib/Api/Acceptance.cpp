//===- Acceptance.cpp - drafts that are right as often as one wants -------===//
#include "State.h"
#include "megalith/IR/Calls.h"
#include "megalith/Requests/PageOrder.h"
#include "megalith/Tools.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith {

using namespace api;

Expected<tools::Acceptance> tools::Acceptance::parse(const std::string &text) {
  const auto bad = [&](const char *why) { return failure(Diag::BadOption, "--acceptance " + text, why); };
  constexpr const char *form =
      "expected `P`, `P,Q,...` by request or `P:TOKENS,Q:TOKENS,...` by phase, each from 0 to 1";
  Acceptance out;
  out.given = text;
  llvm::SmallVector<llvm::StringRef> parts;
  llvm::StringRef(text).split(parts, ',');
  for (llvm::StringRef part : parts) {
    const auto [number, tokens] = part.split(':');
    Part p = {};
    if (number.getAsDouble(p.right) || !(p.right >= 0 && p.right <= 1))
      return bad(form);
    if (number.size() != part.size() && (tokens.getAsInteger(10, p.tokens) || p.tokens < 1 || p.tokens > INT32_MAX))
      return bad(form);
    out.parts.push_back(p);
  }
  for (const Part &p : out.parts)
    if ((p.tokens > 0) != (out.parts.front().tokens > 0))
      return bad("it mixes requests and phases; give all parts a number of tokens, or none");
  return out;
}

double tools::Acceptance::at(size_t request, int64_t position) const {
  if (parts.front().tokens == 0)
    return parts[request % parts.size()].right;
  int64_t all = 0;
  for (const Part &part : parts)
    all += part.tokens;
  position %= all;
  size_t i = 0;
  for (; position >= parts[i].tokens; ++i)
    position -= parts[i].tokens;
  return parts[i].right;
}

bool tools::takesDrafts(const Program &program) {
  const ir::Module &module = program.internals()->compiled.module;
  const auto models = ir::modelsByNumber(module);
  bool drafts = false;
  ir::walk(module.root.region(), [&](const ir::Operation &op) {
    drafts = drafts || op.op == ir::Op::NgramLookup ||
             (ir::isCall(op.op) && op.name != models.front()->name && !ir::reducersOf(op).empty());
  });
  return drafts;
}

static Expected<Results> runPlainly(const Kernel &kernel, const RunOptions &options, llvm::ArrayRef<Request> requests) {
  RunOptions plain;
  plain.watchdogSeconds = options.watchdogSeconds;
  plain.shufflePages = options.shufflePages;
  plain.seed = options.seed;
  plain.progress = options.progress;
  plain.drafts.assign(requests.size(), {-1});
  return kernel.run(requests.vec(), plain);
}

Expected<tools::TokenLists> tools::decodePlainly(const Kernel &kernel, const RunOptions &options,
                                                 const std::vector<Request> &requests) {
  return guarded<TokenLists>([&]() -> Expected<TokenLists> {
    auto results = runPlainly(kernel, options, requests);
    if (!results)
      return results.errors();
    TokenLists tokens;
    for (size_t i = 0; i < requests.size(); ++i) {
      RequestResult *result = &results->requests[i];
      Expected<Results> alone = Messages();
      // Without drafts all go on for longer, side by side: a pool may be full that has room for the run with drafts.
      if (result->finish == "fault" && requests.size() > 1) {
        alone = runPlainly(kernel, options, requests[i]);
        if (!alone)
          return alone.errors();
        result = &alone->requests.front();
      }
      if (result->finish == "fault" || result->finish == "limit")
        return failure(Diag::AcceptancePlain, result->id.text,
                       result->finish == "fault" ? result->fault : "the tick limit", result->tokens.size(),
                       requests[i].maxNewTokens);
      tokens.push_back(std::move(result->tokens));
    }
    return tokens;
  });
}

tools::TokenLists tools::draftsOf(const TokenLists &tokens, int64_t vocabulary, const Acceptance &acceptance,
                                  uint64_t seed) {
  TokenLists out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    // One that the kernel gave nothing is drafted nothing, in place of looked-up tokens.
    std::vector<int32_t> &own = out.emplace_back();
    for (const int32_t token : tokens[i]) {
      const int64_t position = own.size();
      const uint64_t key = splitmix64(splitmix64(splitmix64(seed) ^ i) ^ uint64_t(position));
      const bool right = double(key >> 11) * 0x1p-53 < acceptance.at(i, position) || vocabulary < 2;
      own.push_back(right ? token : int32_t((token + 1 + splitmix64(key) % uint64_t(vocabulary - 1)) % vocabulary));
    }
    if (own.empty())
      own.push_back(-1);
  }
  return out;
}

Expected<tools::TokenLists> tools::syntheticDrafts(const Kernel &kernel, const RunOptions &options,
                                                   const std::vector<Request> &requests, const Acceptance &acceptance,
                                                   uint64_t seed) {
  return guarded<TokenLists>([&]() -> Expected<TokenLists> {
    const auto program = kernel.internals()->program;
    if (!takesDrafts(Program(program)))
      return failure(Diag::BadOption, "--acceptance " + acceptance.text(),
                     "the pipeline neither looks up drafts (`ngram_lookup`) nor has a second model");
    auto tokens = decodePlainly(kernel, options, requests);
    if (!tokens)
      return tokens.errors();
    return draftsOf(*tokens, Program(program).vocabulary(), acceptance, seed);
  });
}

} // namespace megalith
