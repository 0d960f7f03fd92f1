//===- TokenBytes.cpp - what tokens spell, from a file --------------------===//
#include "State.h"
#include "megalith/Os/ReadFile.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Base64.h"

namespace megalith::api {

Expected<std::vector<std::string>> readTokenBytes(const std::string &path, int64_t vocabulary) {
  std::string reason;
  const auto text = os::readFile(path, os::dataBytes, reason);
  if (!text)
    return failure(Diag::TokenBytesFile, fmt::format("{}: {}", path, reason));
  std::vector<std::string> bytes(vocabulary);
  std::vector<bool> has(vocabulary);
  llvm::StringRef rest = *text;
  for (size_t number = 1; !rest.empty(); ++number) {
    llvm::StringRef line;
    std::tie(line, rest) = rest.split('\n');
    line = line.trim();
    if (line.empty())
      continue;
    const auto wrong = [&](const std::string &why) {
      return failure(Diag::TokenBytesFile, fmt::format("{}:{}: {}", path, number, why));
    };
    const auto [spelled, rank] = line.rsplit(' ');
    int64_t token = 0;
    std::vector<char> decoded;
    if (rank.getAsInteger(10, token) || spelled.empty())
      return wrong(fmt::format("expected bytes in base64, a blank and the number of their token, found `{}`",
                               text::printable(line.str(), 60)));
    if (token < 0 || token >= vocabulary)
      return wrong(fmt::format("token {} is outside the vocabulary of {}", token, vocabulary));
    if (has[token])
      return wrong(fmt::format("token {} stands there twice", token));
    if (llvm::Error bad = llvm::decodeBase64(spelled, decoded))
      return wrong(llvm::toString(std::move(bad)));
    has[token] = true;
    bytes[token].assign(decoded.begin(), decoded.end());
  }
  return bytes;
}

} // namespace megalith::api
