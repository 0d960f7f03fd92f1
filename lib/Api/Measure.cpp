//===- Measure.cpp - what a sweep asks of programs and runs ---------------===//
#include "State.h"
#include "megalith/Jit/KernelCache.h"
#include "megalith/Plan/Plan.h"
#include "megalith/Tools.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include <algorithm>

namespace megalith {

using namespace api;

std::vector<std::string> tools::paramNames(const Program &program) {
  std::vector<std::string> names;
  for (const ir::Operation *op : program.internals()->compiled.module.all(ir::Op::Param))
    names.push_back(op->name);
  return names;
}

Status tools::checkRequests(const Program &program, const std::vector<Request> &requests) {
  return guarded<Done>([&]() -> Status {
    Diagnostics diags(program.internals()->sources);
    for (Request request : requests)
      if (!diags.hasErrors()) // one like another
        checkRequest(*program.internals(), request, diags);
    return diags.hasErrors() ? Status(diags.messages()) : Status(Done());
  });
}

/// Texts of 1 to 8 characters, those of one character among them.
static std::vector<std::string> madeUpTexts(int64_t count) {
  std::vector<std::string> texts;
  for (int64_t token = 0; token < count; ++token) {
    std::string &text = texts.emplace_back();
    for (int64_t left = token; text.empty() || left > 0; left /= 95)
      text += static_cast<char>(' ' + left % 95);
  }
  return texts;
}

Expected<std::vector<Request>> tools::withSampling(Program &program, std::vector<Request> requests,
                                                   const std::string &sampling) {
  return guarded<std::vector<Request>>([&]() -> Expected<std::vector<Request>> {
    const Program::State &state = *program.internals();
    auto read = program.parseRequests(
        "{\"id\": \"all\", \"tokens\": [0], \"max_new_tokens\": 1, \"sampling\": " + sampling + "}", "--sampling");
    if (!read)
      return read.errors();
    if (!read->front().sampling.format.empty() && !state.model()->checked.byteVocabulary && !state.formats)
      if (Status status = program.setTokenBytes(madeUpTexts(program.vocabulary())); !status)
        return status.errors();
    Diagnostics diags(program.internals()->sources);
    for (Request &request : requests) {
      request.sampling = read->front().sampling;
      if (!diags.hasErrors())
        checkRequest(state, request, diags);
    }
    if (diags.hasErrors())
      return diags.messages();
    return requests;
  });
}

std::string tools::identityOf(const Program &program, const KernelOptions &options) {
  const Program::State &state = *program.internals();
  std::vector<std::string> parts = {version(), program.ir(), state.options.profileGiven ? state.options.profile : "",
                                    fmt::format("{} {}", options.cpuArch, options.wholeKernel)};
  parts.insert(parts.end(), state.options.planSettings.begin(), state.options.planSettings.end());
  for (const auto &headers : {driver::hostHeaders(), driver::deviceHeaders()})
    for (const jit::Header &header : headers)
      parts.push_back(header.text);
  for (const driver::LoadedModel &model : state.compiled.models)
    if (model.weights)
      for (const std::string &path : model.weights->files()) {
        llvm::sys::fs::file_status status;
        if (!llvm::sys::fs::status(path, status))
          parts.push_back(
              fmt::format("{} {}", status.getSize(), status.getLastModificationTime().time_since_epoch().count()));
      }
  return jit::KernelCache::key(parts);
}

namespace {

/// Of one model, over all passes.
struct Verifies {
  int64_t number = 0, drafts = 0, least = 0, most = 0;

  void add(int64_t block) {
    least = number ? std::min(least, block) : block;
    most = std::max(most, block);
    drafts += block;
    ++number;
  }
};

/// Rows of a request in a pass.
struct Fed {
  int64_t drafts = 0, positions = 0;
  bool wanted = false;
};

} // namespace

static std::map<int, Fed> bySlot(const TracePass &pass) {
  std::map<int, Fed> fed;
  for (const Row &row : pass.rows) {
    auto [found, first] = fed.try_emplace(row.slot);
    Fed &own = found->second;
    own.drafts += (row.flags & RowIsDraft) && !first; // the first row of such a call is no guess
    own.wanted = own.wanted || (row.flags & RowWantsLogits);
    own.positions = std::max<int64_t>(own.positions, int64_t(row.kvSlot) + 1);
  }
  return fed;
}

/// What passes of a model read: K and V, and of the weights one pass.
struct BytesRead {
  std::vector<tools::LayerKv> kv;
  double weights;
};

/// By model. Empty where bytes are not counted.
static std::map<std::string, BytesRead> bytesRead(const Kernel::State &kernel) {
  Program::State &program = *kernel.program;
  if (!kernel.cuda)
    return {};
  Diagnostics unheard(program.sources); // the kernel's own plan had no error
  driver::CompileOptions how = program.options;
  if (!how.profileGiven)
    chooseProfile(how, kernel.gpu->info());
  const ir::Module &module = program.compiled.module;
  const auto plan = driver::makePlan(module, how, unheard);
  if (!plan)
    return {};
  std::map<std::string, BytesRead> bytes;
  for (const auto &[i, model] : llvm::enumerate(ir::modelsByNumber(module)))
    bytes[model->name] = {layersOfKv(module, *model), double(streamedBytes(*plan, i))};
  return bytes;
}

Expected<tools::TraceFigures> tools::figuresOf(const Kernel &kernel, const Results &results) {
  return guarded<TraceFigures>([&]() -> Expected<TraceFigures> {
    const Kernel::State &state = *kernel.internals();
    const ir::Module &module = state.program->compiled.module;
    auto trace = parseTrace(results.trace, "<trace>");
    if (!trace) {
      Diagnostics diags(state.program->sources);
      driver::reportCheckpoint(diags, trace.error);
      return diags.messages();
    }
    std::map<std::string, int64_t> pageTokens;
    for (const ir::Operation *pool : module.all(ir::Op::Pool))
      pageTokens[pool->name] = pool->get<ir::attr::page_tokens>();
    TraceFigures out;
    std::map<std::string, Verifies> verifies; // by model: one that drafts has verifies of its own
    double positions = 0, valid = 0;
    const std::map<std::string, BytesRead> bytes = bytesRead(state);
    if (!bytes.empty())
      out.bytes = 0;
    for (const TraceTick &tick : trace->ticks) {
      for (const TracePass &pass : tick.passes) {
        const auto read = bytes.find(pass.model);
        if (read != bytes.end())
          *out.bytes += read->second.weights;
        for (const auto &[slot, fed] : bySlot(pass)) {
          if (read != bytes.end())
            *out.bytes += kvBytesRead(read->second.kv, double(fed.positions));
          if (fed.wanted)
            verifies[pass.model].add(fed.drafts);
        }
      }
      int64_t pages = 0;
      for (const TraceSlot &slot : tick.slots)
        for (const TraceKv &kv : slot.kv) {
          pages += kv.pages.size();
          positions += double(kv.pages.size()) * double(pageTokens[kv.pool]);
          valid += double(kv.len - kv.first * pageTokens[kv.pool]);
        }
      out.pagesMost = std::max(out.pagesMost, pages);
    }
    out.fragmentation = positions > 0 ? 1 - valid / positions : 0;
    for (const auto &[model, found] : verifies)
      if (found.drafts > 0) {
        out.leastBlock = found.least;
        out.mostBlock = found.most;
        out.meanBlock = double(found.drafts) / double(found.number);
      }
    return out;
  });
}

} // namespace megalith
