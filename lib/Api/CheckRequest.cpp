//===- CheckRequest.cpp - requests of files and of programs ---------------===//
#include "State.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Inputs.h"
#include "megalith/IR/Reducers.h"
#include "megalith/Requests/HostEvents.h"
#include "megalith/Requests/Inputs.h"
#include "megalith/Requests/Requests.h"
#include "megalith/Text/Json.h"
#include "megalith/Text/Text.h"
#include "megalith/Tools.h"
#include "runtime/Edits.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace megalith {

using namespace api;

SourceLoc api::placeOf(const Request &request, const SourceFiles &files) {
  SourceLoc loc;
  if (!request.line || !request.file || request.file > files.size())
    return loc;
  loc.file = request.file - 1;
  loc.line = request.line;
  loc.column = 1;
  loc.length = static_cast<uint32_t>(std::max<size_t>(1, files.line(loc.file, loc.line).rtrim().size()));
  return loc;
}

bool api::hasRequests(const Program::State &program, Diagnostics &diags) {
  if (!ir::ofBuffers(program.compiled.module))
    return true;
  diags.report(Diag::KernelProgram, program.compiled.module.root.loc,
               "a pipeline of buffers has no requests, it is called: `megalith run --inputs=FILE --outputs=FILE`, or "
               "`call` of its kernel");
  return false;
}

bool api::canRun(const Program::State &program, Diagnostics &diags) {
  if (hasRequests(program, diags) && !program.model())
    diags.report(Diag::KernelProgram, program.compiled.module.root.loc, "a pipeline without a model cannot be run yet");
  return program.model();
}

static void checkFits(const ir::Module &module, const Request &r, SourceLoc loc, Diagnostics &diags) {
  for (const ir::Operation *pool : module.all(ir::Op::Pool)) {
    const int64_t pages = pool->get<ir::attr::pages>(), pageTokens = pool->get<ir::attr::page_tokens>();
    const int64_t beyond = pool->get<ir::attr::rows_beyond>();
    // A budget near the largest integer must not overflow.
    const __int128 positions = __int128(r.tokens.size()) + r.maxNewTokens + beyond;
    const __int128 needed = (positions + pageTokens - 1) / pageTokens;
    if (needed > pages)
      diags.report(Diag::RequestTooLarge, loc, r.id.text, int64_t(needed), pool->name, pages);
  }
}

static void checkPositions(const driver::Compilation &compiled, const Request &r, SourceLoc loc, Diagnostics &diags) {
  for (const driver::LoadedModel &model : compiled.models)
    if (const auto limit = model.positions()) {
      const uint64_t tokens = r.tokens.size() + uint64_t(r.maxNewTokens); // no budget is negative
      if (double(tokens) > *limit)
        diags.report(Diag::RequestTooLong, loc, r.id.text, tokens, int64_t(*limit), model.positionsPlace());
    }
}

bool api::readsSettings(const ir::Module &module) {
  bool reads = false;
  ir::walk(module.root.region(), [&](const ir::Operation &op) { reads |= op.op == ir::Op::Sampling; });
  return reads;
}

/// Whether they leave no token of those that all models have, in front of the answer's end. `tokens`: how many these
/// are.
static bool leavesNone(const driver::Compilation &compiled, const Request &r, int64_t &tokens) {
  tokens = INT64_MAX;
  for (const ir::Operation *model : compiled.module.all(ir::Op::Model))
    tokens = std::min<int64_t>(tokens, model->get<ir::attr::vocab>());
  std::set<int32_t> refused(r.sampling.banned.begin(), r.sampling.banned.end());
  if (r.sampling.minNewTokens > 0)
    for (const int32_t token : r.endTokens())
      refused.insert(token);
  const automata::TokenFormat *format = r.format.tokens.get();
  const bool mayEnd =
      format && format->isComplete(format->format.automaton.start) && !format->isFinal(format->format.automaton.start);
  const auto isLeft = [&](int64_t token) {
    const auto id = static_cast<int32_t>(token);
    const bool ends = r.eos && llvm::is_contained(*r.eos, id);
    return token < tokens && !refused.count(id) &&
           (!format || (ends ? mayEnd : format->allows(format->format.automaton.start, id)));
  };
  if (r.sampling.allowed)
    return llvm::none_of(*r.sampling.allowed, isLeft);
  for (int64_t token = 0; token < tokens; ++token)
    if (isLeft(token))
      return false;
  return true;
}

static void checkEdits(const driver::Compilation &compiled, const Request &r, SourceLoc loc, Diagnostics &diags) {
  const Sampling &s = r.sampling;
  const std::string id = text::printable(r.id.text, 120);
  int64_t tokens = 0;
  if (const std::string problem = ir::whyNoEdits(compiled.module, runtime::editsByText(s)); !problem.empty())
    diags.report(Diag::RequestEdits, loc, id, s.firstEdit(), problem);
  else if (leavesNone(compiled, r, tokens))
    diags.report(Diag::RequestEdits, loc, id,
                 r.format.tokens     ? "format"
                 : s.allowed         ? "allowed"
                 : !s.banned.empty() ? "banned"
                                     : "min_new_tokens",
                 fmt::format("of the {} tokens that each model has it leaves none that may be drawn", tokens));
}

/// What the reader of files of requests has checked already, but for settings that nothing reads.
static void checkForm(const Program::State &program, Request &r, SourceLoc loc, Diagnostics &diags) {
  const driver::Compilation &compiled = program.compiled;
  const int64_t vocab = program.vocabulary();
  const std::string id = text::printable(r.id.text, 120);
  const unsigned before = diags.errors();
  if (r.id.text.empty())
    diags.report(Diag::RequestKey, loc, "the request has no `id`");
  if (r.tokens.empty())
    diags.report(Diag::RequestEmptyPrompt, loc,
                 fmt::format("request `{}` has an empty prompt; give at least one token", id));
  if (r.maxNewTokens < 0 || r.maxNewTokens > INT32_MAX)
    diags.report(Diag::RequestBudget, loc,
                 fmt::format("request `{}`: the budget must be from 0 to {}, found {}", id, INT32_MAX, r.maxNewTokens));
  if (const std::string problem = whyNot(r.sampling); !problem.empty())
    diags.report(Diag::RequestSampling, loc, fmt::format("request `{}`: {}", id, problem));
  else if (r.sampling.temperature > 0 && !readsSettings(compiled.module))
    diags.report(
        Diag::RequestSampling, loc,
        fmt::format("request `{}` asks for a temperature of {}, but the pipeline draws nothing by the settings of "
                    "requests; take a file that reads `sampling`, or leave the temperature out",
                    id, r.sampling.temperature));
  const auto check = [&](const std::vector<int32_t> &tokens, const char *what) {
    const auto wrong = llvm::find_if(tokens, [&](int32_t token) { return token < 0 || token >= vocab; });
    if (wrong != tokens.end())
      diags.report(
          Diag::RequestTokenRange, loc,
          fmt::format("request `{}`: token {} in `{}` is outside the vocabulary of {}", id, *wrong, what, vocab));
  };
  check(r.tokens, "tokens");
  if (r.eos)
    check(*r.eos, "eos");
  check(r.sampling.banned, "banned");
  if (r.sampling.allowed)
    check(*r.sampling.allowed, "allowed");
  for (const auto &[token, number] : r.sampling.bias)
    check({token}, "bias");
  for (const std::vector<int32_t> &sequence : r.stop)
    check(sequence, "stop");
  if (const std::string problem = whyNot(r.stop); !problem.empty())
    diags.report(Diag::RequestStop, loc, fmt::format("request `{}`: {}", id, problem));
  if (const std::string problem = whyNotThen({r}, 0); !problem.empty())
    diags.report(Diag::RequestTime, loc, fmt::format("request `{}`: {}", id, problem));
  if (!r.sampling.format.empty() && diags.errors() == before)
    try {
      r.format.tokens = program.formatOf(r.sampling.format);
    } catch (const automata::Refused &refused) {
      diags.report(Diag::RequestFormat, loc, fmt::format("request `{}`: {}", id, refused.message));
    }
  if (r.sampling.edits() && diags.errors() == before)
    checkEdits(compiled, r, loc, diags);
  if (const auto problem = checkInputs(ir::inputsOf(compiled.module), r, vocab))
    diags.report(Diag::RequestInput, loc, fmt::format("request `{}`: {}", id, problem->message));
}

void api::checkRequest(const Program::State &program, Request &request, Diagnostics &diags) {
  const SourceLoc loc = placeOf(request, diags.sources());
  const unsigned before = diags.errors();
  checkForm(program, request, loc, diags);
  if (diags.errors() == before)
    checkFits(program.compiled.module, request, loc, diags);
  if (diags.errors() == before)
    checkPositions(program.compiled, request, loc, diags);
}

/// Of a file that is registered.
static Expected<std::vector<Request>> read(Program::State &program, uint32_t file, Diagnostics &diags) {
  if (!canRun(program, diags))
    return diags.messages();
  const CheckedModel &model = program.model()->checked;
  RequestOptions options;
  options.vocabSize = program.vocabulary();
  options.byteVocabulary = model.byteVocabulary;
  options.inputs = ir::inputsOf(program.compiled.module);
  auto requests = parseRequests(program.sources.text(file), options, program.sources.name(file).str());
  if (!requests) {
    driver::reportCheckpoint(diags, requests.error);
    return diags.messages();
  }
  for (Request &request : *requests) {
    request.file = file + 1;
    if (!request.eos)
      request.eos = model.eos;
    checkFits(program.compiled.module, request, placeOf(request, program.sources), diags);
  }
  if (!diags.hasErrors())
    for (const Request &request : *requests)
      checkPositions(program.compiled, request, placeOf(request, program.sources), diags);
  if (diags.hasErrors())
    return diags.messages();
  return std::move(*requests.value);
}

/// Reads a file of data and registers it, once: a pipe gives its text a single time. Reports
/// `missing`, with `what` it holds.
static std::optional<uint32_t> openInput(const std::string &path, const char *what, Diag missing, Diagnostics &diags) {
  std::string reason;
  auto file = diags.sources().open(path, reason, os::dataBytes);
  if (!file)
    diags.report(AnyDiag{missing}, {}, fmt::format("{}: cannot read {}: {}", path, what, reason));
  return file;
}

Expected<std::vector<Request>> Program::readRequests(const std::string &path) const {
  return guarded<std::vector<Request>>([&]() -> Expected<std::vector<Request>> {
    Diagnostics diags(state->sources);
    if (!canRun(*state, diags))
      return diags.messages();
    auto file = openInput(path, "the requests", Diag::RequestsMissing, diags);
    if (!file)
      return diags.messages();
    return read(*state, *file, diags);
  });
}

Expected<std::vector<Request>> Program::parseRequests(const std::string &text, const std::string &name) const {
  return guarded<std::vector<Request>>([&] {
    Diagnostics diags(state->sources);
    return read(*state, state->sources.add(name, text), diags);
  });
}

//===----------------------------------------------------------------------===//
// Inputs of tests
//===----------------------------------------------------------------------===//

/// Some value that the input may have.
static InputValue madeUp(const Input &input, int64_t vocabulary) {
  if (input.rows) {
    Input row = input;
    row.rows.reset();
    const InputValue items = madeUp(row, vocabulary);
    return std::vector<std::vector<int32_t>>(std::min<int64_t>(*input.rows, 3), std::get<std::vector<int32_t>>(items));
  }
  if (input.capacity) {
    std::vector<int32_t> items;
    for (int64_t i = 0; i < std::min<int64_t>(*input.capacity, 9); ++i)
      items.push_back(input.type == "token"  ? static_cast<int32_t>((i % 3 * 5 + 3) % std::max<int64_t>(1, vocabulary))
                      : input.type == "bool" ? static_cast<int32_t>(i % 2)
                                             : static_cast<int32_t>(i));
    return items;
  }
  if (input.type == "bool")
    return false;
  return std::clamp<int64_t>(0, input.least, input.most);
}

std::map<std::string, InputValue> tools::madeUpInputs(const Program &program) {
  std::map<std::string, InputValue> inputs;
  for (const Input &input : program.inputs())
    if (!input.otherwise)
      inputs[input.name] = madeUp(input, program.vocabulary());
  return inputs;
}

/// What madeUpInputs() gives as a member of a line of requests.
static std::string madeUpMember(const Program &program) {
  std::string members;
  for (const auto &[name, value] : tools::madeUpInputs(program)) {
    members += fmt::format("{}\"{}\": {}", members.empty() ? "" : ", ", name, text::dump(inputJson(value)));
  }
  return members.empty() ? "" : ", \"inputs\": {" + members + "}";
}

/// Prompts short and long that repeat themselves, so that looking up finds drafts.
Expected<std::vector<Request>> tools::exampleRequests(const Program &program) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    std::string tokens;
    for (int j = 0; j < (i == 1 ? 20 : 4 + i); ++j)
      tokens +=
          fmt::format("{}{}", j ? ", " : "", (i * 7 + j % 3 * 5 + 3) % std::max<int64_t>(1, program.vocabulary()));
    text += fmt::format("{{\"id\": \"r{}\", \"tokens\": [{}], \"max_new_tokens\": {}, \"eos\": []{}}}\n", i, tokens,
                        3 + i, madeUpMember(program));
  }
  return program.parseRequests(text, "<made-up requests>");
}

/// What `parse(text)` makes of a file of data.
template <class T, class Parse>
static Expected<T> readWith(const Program &program, const std::string &path, const char *what, Diag missing,
                            Parse parse) {
  return guarded<T>([&]() -> Expected<T> {
    Diagnostics diags(program.internals()->sources);
    auto file = openInput(path, what, missing, diags);
    if (!file)
      return diags.messages();
    auto parsed = parse(diags.sources().text(*file));
    if (parsed)
      return std::move(*parsed.value);
    driver::reportCheckpoint(diags, parsed.error);
    return diags.messages();
  });
}

Expected<std::vector<std::vector<int32_t>>> tools::readDrafts(const Program &program, const std::string &path,
                                                              const std::vector<Request> &requests) {
  return readWith<std::vector<std::vector<int32_t>>>(
      program, path, "the drafts", Diag::DraftsFile,
      [&](std::string_view text) { return parseDrafts(text, requests, program.vocabulary(), path); });
}

Expected<std::vector<Request>> tools::readArrivals(const Program &program, const std::string &path,
                                                   std::vector<Request> requests) {
  return readWith<std::vector<Request>>(program, path, "the arrivals", Diag::ArrivalsFile, [&](std::string_view text) {
    return parseArrivals(text, std::move(requests), path);
  });
}

Expected<Corruption> tools::parseCorruption(const Program &program, const std::string &text,
                                            const std::vector<Request> &requests) {
  auto [tickText, rest] = llvm::StringRef(text).split(':');
  auto [front, valueText] = rest.rsplit(':');
  auto [id, field] = front.rsplit(':');
  Corruption c;
  const auto bad = [&](const std::string &why) { return failure(Diag::BadOption, "--inject-corrupt " + text, why); };
  if (tickText.getAsInteger(10, c.tick) || c.tick < 0 || valueText.getAsInteger(10, c.value) ||
      c.value != static_cast<int32_t>(c.value) || id.empty() || field.empty())
    return bad("expected `TICK:ID:FIELD:VALUE`");
  const auto request = llvm::find_if(requests, [&](const Request &r) { return r.id.text == id; });
  if (request == requests.end())
    return bad("no request has the id `" + id.str() + "`");
  c.request = static_cast<int32_t>(request - requests.begin());
  c.field = field.str();
  const ir::Module &module = program.internals()->compiled.module;
  if (c.field == "state" || module.find(ir::Op::Field, c.field))
    return c;
  std::vector<std::string> known = {"state"};
  for (const ir::Operation *op : module.all(ir::Op::Field))
    known.push_back(op->name);
  SourceFiles none;
  Diagnostics diags(none);
  diags.report(Diag::CorruptField, {}, "no field `" + c.field + "` to corrupt");
  diags.suggest(c.field, known);
  return diags.messages();
}

Expected<Program> tools::recompile(const Program &program,
                                   const std::vector<std::pair<std::string, std::string>> &params) {
  return guarded<Program>([&]() -> Expected<Program> {
    const auto state = std::make_shared<Program::State>();
    state->options = program.internals()->options;
    state->options.sets.insert(state->options.sets.end(), params.begin(), params.end());
    for (const driver::LoadedModel &model : program.internals()->compiled.models)
      state->options.graphs.push_back({model.name, program.internals()->sources.name(model.file).str()});
    // What was read is not read again: a pipe would not give it.
    const SourceFiles &sources = program.internals()->sources;
    for (uint32_t i = 0; i < sources.size(); ++i)
      state->sources.give(sources.name(i).str(), sources.text(i).str());
    Diagnostics diags(state->sources);
    auto compiled = driver::compile(state->options, diags);
    if (!compiled)
      return diags.messages();
    state->compiled = std::move(*compiled);
    state->messages = diags.messages();
    state->formats = program.internals()->formats;
    return Program(state);
  });
}

Expected<std::string> tools::readTrace(const std::string &path) {
  return guarded<std::string>([&]() -> Expected<std::string> {
    SourceFiles sources;
    Diagnostics diags(sources);
    auto file = openInput(path, "the trace", Diag::TraceMissing, diags);
    if (!file)
      return diags.messages();
    auto read = parseTrace(sources.text(*file), path);
    if (read)
      return sources.text(*file).str();
    driver::reportCheckpoint(diags, read.error);
    return diags.messages();
  });
}

} // namespace megalith
