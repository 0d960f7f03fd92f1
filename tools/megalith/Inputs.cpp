#include "Inputs.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::tool {

SourceLoc RunInputs::place(const SourceFiles &files, size_t request) const {
  SourceLoc loc;
  loc.file = file;
  loc.line = requests[request].line;
  loc.column = 1;
  loc.length = static_cast<uint32_t>(std::max<size_t>(1, files.line(file, loc.line).rtrim().size()));
  return loc;
}

static int indexOf(const std::vector<Request> &requests, llvm::StringRef id) {
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].id.text == id)
      return static_cast<int>(i);
  return -1;
}

std::optional<uint32_t> openInput(const std::string &path, const char *what, Diag missing, Diagnostics &diags) {
  std::string reason;
  auto file = diags.sources().open(path, reason, os::dataBytes);
  if (!file)
    diags.report(missing, {}, fmt::format("{}: cannot read {}: {}", path, what, reason));
  return file;
}

static bool readDrafts(const std::string &path, RunInputs &inputs, Diagnostics &diags) {
  auto file = openInput(path, "the drafts", Diag::DraftsFile, diags);
  if (!file)
    return false;
  auto drafts = parseDrafts(diags.sources().text(*file), inputs.requests, inputs.vocab, path);
  if (!drafts)
    driver::reportCheckpoint(diags, drafts.error);
  else
    inputs.drafts = std::move(*drafts.value);
  return bool(drafts);
}

/// TICK:ID:FIELD:VALUE. An id may contain colons.
static bool readCorruption(const std::string &text, const ir::Module &module, RunInputs &inputs,
                           Diagnostics &diags) {
  auto [tickText, rest] = llvm::StringRef(text).split(':');
  auto [front, valueText] = rest.rsplit(':');
  auto [id, field] = front.rsplit(':');
  RunInputs::Corruption c;
  if (tickText.getAsInteger(10, c.tick) || c.tick < 0 || valueText.getAsInteger(10, c.value) ||
      c.value != static_cast<int32_t>(c.value) || id.empty() || field.empty()) {
    diags.report(Diag::BadOption, {}, "--inject-corrupt " + text, "expected `TICK:ID:FIELD:VALUE`");
    return false;
  }
  c.request = indexOf(inputs.requests, id);
  if (c.request < 0) {
    diags.report(Diag::BadOption, {}, "--inject-corrupt " + text, "no request has the id `" + id.str() + "`");
    return false;
  }
  c.field = field.str();
  if (c.field != "state" && !module.find(ir::Op::Field, c.field)) {
    std::vector<std::string> known = {"state"};
    for (const ir::Operation *op : module.all(ir::Op::Field))
      known.push_back(op->name);
    diags.report(Diag::CorruptField, {}, "no field `" + c.field + "` to corrupt");
    diags.suggest(c.field, known);
    return false;
  }
  inputs.corruptions.push_back(std::move(c));
  return true;
}

static void checkFits(const ir::Module &module, const RunInputs &inputs, Diagnostics &diags) {
  for (const ir::Operation *pool : module.all(ir::Op::Pool)) {
    const int64_t pages = pool->getInt("pages"), pageTokens = pool->getInt("page_tokens", 1);
    const int64_t beyond = pool->getInt("rows_beyond");
    for (size_t i = 0; i < inputs.requests.size(); ++i) {
      const Request &r = inputs.requests[i];
      // A budget near the largest integer must not overflow.
      const __int128 positions = __int128(r.tokens.size()) + r.maxNewTokens + beyond;
      const __int128 needed = (positions + pageTokens - 1) / pageTokens;
      if (needed > pages)
        diags.report(Diag::RequestTooLarge, inputs.place(diags.sources(), i), r.id.text, int64_t(needed),
                     pool->name, pages);
    }
  }
}

static void checkPositions(const driver::Compilation &compiled, const RunInputs &inputs, Diagnostics &diags) {
  for (const driver::LoadedModel &model : compiled.models)
    if (const auto limit = model.positions())
      for (size_t i = 0; i < inputs.requests.size(); ++i) {
        const Request &r = inputs.requests[i];
        const uint64_t tokens = r.tokens.size() + uint64_t(r.maxNewTokens); // no budget is negative
        if (double(tokens) > *limit)
          diags.report(Diag::RequestTooLong, inputs.place(diags.sources(), i), r.id.text, tokens, int64_t(*limit), model.checked.file.path());
      }
}

/// Prompts short and long that repeat themselves, so that looking up finds drafts.
static std::string exampleRequests(int64_t vocab) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    std::string tokens;
    for (int j = 0; j < (i == 1 ? 20 : 4 + i); ++j)
      tokens += fmt::format("{}{}", j ? ", " : "", (i * 7 + j % 3 * 5 + 3) % vocab);
    text += fmt::format("{{\"id\": \"r{}\", \"tokens\": [{}], \"max_new_tokens\": {}, \"eos\": []}}\n", i, tokens, 3 + i);
  }
  return text;
}

std::optional<RunInputs> readInputs(const RunCommand &command, const driver::Compilation &compiled,
                                    Diagnostics &diags) {
  const CheckedModel &model = compiled.models.front().checked;
  RunInputs inputs;
  inputs.vocab = model.vocab;
  inputs.byteVocabulary = model.byteVocabulary;
  RequestOptions options;
  options.vocabSize = model.vocab;
  options.byteVocabulary = model.byteVocabulary;
  std::string name = command.requests;
  if (name.empty()) {
    name = "<made-up requests>";
    inputs.file = diags.sources().add(name, exampleRequests(model.vocab));
  } else if (auto file = openInput(name, "the requests", Diag::RequestsMissing, diags)) {
    inputs.file = *file;
  } else {
    return std::nullopt;
  }
  auto requests = parseRequests(diags.sources().text(inputs.file), options, name);
  if (!requests) {
    driver::reportCheckpoint(diags, requests.error);
    return std::nullopt;
  }
  inputs.requests = std::move(*requests.value);
  for (Request &request : inputs.requests)
    if (!request.eos)
      request.eos = model.eos;
  checkFits(compiled.module, inputs, diags);
  if (!diags.hasErrors())
    checkPositions(compiled, inputs, diags);
  if (!command.draftsFile.empty() && !readDrafts(command.draftsFile, inputs, diags))
    return std::nullopt;
  for (const std::string &text : command.corruptions)
    if (!readCorruption(text, compiled.module, inputs, diags))
      return std::nullopt;
  if (diags.hasErrors())
    return std::nullopt;
  return inputs;
}

} // namespace megalith::tool
