#include "runtime/cpu/CpuEngine.h"
#include "runtime/HostRange.h"
#include "runtime/Memory.h"
#include "runtime/UnitFacts.h"
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>

namespace megalith::cpu {

using runtime::Failure;
using runtime::HostRange;
using runtime::HostStep;
using runtime::LaunchBuffer;
using runtime::LaunchImage;
using runtime::Outcome;
using runtime::RuntimeError;

static double millisecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

using Loaded = Outcome<std::unique_ptr<CpuEngine>>;

Loaded CpuEngine::load(const std::string &sharedObject, const std::string &manifest,
                       const runtime::Checkpoints &weights, const runtime::LoadOptions &how) {
  return loadWith(sharedObject, manifest, [&](CpuEngine &engine) { return engine.upload(weights, how); });
}

Loaded CpuEngine::loadRandom(const std::string &sharedObject, const std::string &manifest,
                             const runtime::LoadOptions &how) {
  return loadWith(sharedObject, manifest, [&](CpuEngine &engine) { return engine.makeRandom(how); });
}

Loaded CpuEngine::loadWith(const std::string &sharedObject, const std::string &manifest,
                           const std::function<Failure(CpuEngine &)> &fillMemory) {
  return runtime::withinMemory([&]() -> Loaded {
    const HostRange range(HostStep::Load);
    auto begin = std::chrono::steady_clock::now();
    auto engine = create(sharedObject, manifest);
    if (!engine)
      return engine;
    if (Failure failure = fillMemory(**engine))
      return *failure;
    (*engine)->loadTime = millisecondsSince(begin);
    return engine;
  });
}

Outcome<std::unique_ptr<CpuEngine>> CpuEngine::create(const std::string &sharedObject, const std::string &manifest) {
  std::unique_ptr<CpuEngine> engine(new CpuEngine());
  auto info = runtime::Manifest::parse(manifest);
  if (!info)
    return info.error;
  engine->info = std::move(*info);
  const runtime::Manifest &m = engine->info;
  if (const unsigned most = Executor::mostCtas(static_cast<unsigned>(m.threads));
      m.ctas > most || static_cast<size_t>(m.sharedBytes) > Executor::mostShared())
    return RuntimeError{"plan-mismatch", "the kernel was planned for " + std::to_string(m.ctas) + " CTAs with " +
                                             std::to_string(m.sharedBytes) + " bytes of shared memory (`" + m.profile +
                                             "`), but the CPU executor has room for " + std::to_string(most) + " and " +
                                             std::to_string(Executor::mostShared()) +
                                             " bytes; compile with `--plan ctas=" + std::to_string(most) +
                                             "` or another `--device-profile`"};
  engine->lasting = runtime::lastingBuffers(engine->info);
  if (Failure failure = engine->open(sharedObject))
    return *failure;
  return engine;
}

CpuEngine::Library::~Library() {
  if (handle)
    dlclose(handle);
}

Failure CpuEngine::open(const std::string &sharedObject) {
  // A bare name would be looked for in the system's libraries.
  library.handle = dlopen(std::filesystem::absolute(sharedObject).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle)
    return RuntimeError{"cpu-kernel", std::string("the kernel cannot be loaded: ") + dlerror()};
  auto find = [&](auto *&target, const char *name) -> Failure {
    target = reinterpret_cast<std::remove_reference_t<decltype(target)>>(dlsym(library.handle, name));
    if (target)
      return std::nullopt;
    return RuntimeError{"cpu-kernel",
                        "`" + sharedObject + "` is no kernel for the CPU: it has no symbol `" + name + "`"};
  };
  const int *version = nullptr;
  if (Failure failure = find(version, "megalith_cpu_version"))
    return failure;
  if (*version != kHostVersion)
    return RuntimeError{"cpu-kernel", "`" + sharedObject + "` was compiled for version " + std::to_string(*version) +
                                          " of the CPU executor, this is version " + std::to_string(kHostVersion) +
                                          "; compile the pipeline again"};
  const runtime::UnitFacts *control = nullptr, *tensors = nullptr;
  if (Failure failure = find(control, runtime::kControlFacts))
    return failure;
  if (Failure failure = find(tensors, runtime::kTensorFacts))
    return failure;
  if (Failure failure = runtime::checkUnits(*control, *tensors))
    return failure;
  if (Failure failure = find(bind, "megalith_cpu_bind"))
    return failure;
  if (Failure failure = find(runKernel, "megalith_run"))
    return failure;
  if (Failure failure = find(packKernel, "megalith_pack"))
    return failure;
  fillKernel = reinterpret_cast<decltype(fillKernel)>(dlsym(library.handle, "megalith_fill")); // not always there
  Dl_info where = {};
  if (dladdr(reinterpret_cast<void *>(runKernel), &where))
    base = static_cast<const char *>(where.dli_fbase);
  return std::nullopt;
}

uint64_t CpuEngine::offsetOf(const void *pc) const { return static_cast<const char *>(pc) - base; }

/// Packing or filling went wrong.
static RuntimeError setupError(const char *what, const Finding &finding) {
  return {"cpu-kernel", std::string(what) + " the weights ended in " + findingName(finding.kind) + ": " + finding.what};
}

/// Calls fn(params) with the parameters as a kernel for so many models takes them.
template <int Models = 1, class Fn> static void withParams(const abi::HostParams &params, size_t models, Fn fn) {
  if constexpr (Models < limits::models)
    if (models > Models)
      return withParams<Models + 1>(params, models, fn);
  abi::LaunchParamsOf<Models> of;
  std::memcpy(&of, &params, sizeof(of)); // they begin alike
  fn(of);
}

/// Memory for what stays, and every batch through a memory of its own, where `bring` puts a piece.
Failure CpuEngine::packAll(const std::vector<runtime::WeightBatches> &models, const runtime::LoadOptions &how,
                           const Bring &bring) {
  const bool several = models.size() > 1;
  const auto nameOf = [&](const char *what, size_t model) {
    return several ? what + (" of " + info.models[model].name) : std::string(what);
  };
  uint64_t done = 0;
  bytes = {};
  for (size_t m = 0; m < models.size(); ++m) {
    const runtime::WeightBatches &batches = models[m];
    const auto &tensors = batches.tensors();
    std::vector<char *> rows(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].byRow)
        rows[i] = executor.allocate(nameOf(tensors[i].name.c_str(), m), tensors[i].elements * 2, Initial::Zero);
    abi::ModelParams &model = fixed.models[m];
    model.weights = reinterpret_cast<const void *const *>(
        executor.allocate(nameOf("weights", m), rows.size() * sizeof(rows[0]), Initial::Const, rows.data()));
    const auto streamBytes = static_cast<size_t>(info.models[m].streamBytes);
    char *stream = executor.allocate(nameOf("stream", m), streamBytes, Initial::Zero);
    auto orders = runtime::orderTables(info.models[m], tensors);
    if (!orders)
      return orders.error;
    for (const runtime::OrderTable &order : *orders.value)
      std::memcpy(stream + order.offset, order.halves.data(), order.halves.size() * sizeof(order.halves[0]));
    char *staging = executor.allocate("staging", batches.mostBytes(), Initial::Zero);
    for (const runtime::WeightBatch &batch : batches.list()) {
      batches.writeTable(batch, reinterpret_cast<uint64_t>(staging), staging);
      for (const runtime::WeightPiece &piece : batch.pieces)
        if (Failure failure = bring(m, tensors[piece.tensor], piece, staging + piece.offset))
          return *failure;
      const HostRange range(HostStep::Pack);
      abi::HostParams params = {};
      params.models[m].weights = model.weights;
      const auto *raw = reinterpret_cast<const abi::RawTensor *>(staging);
      bind(executor.host());
      LaunchResult result = executor.launch({8, 256, 0}, {}, [&, kernel = packKernel] {
        withParams(params, models.size(), [&](const auto &p) {
          using Params = std::remove_cvref_t<decltype(p)>;
          if (several)
            reinterpret_cast<void (*)(Params, const abi::RawTensor *, char *, int)>(kernel)(p, raw, stream, int(m));
          else
            reinterpret_cast<void (*)(Params, const abi::RawTensor *, char *)>(kernel)(p, raw, stream);
        });
      });
      if (result.finding)
        return setupError("packing", *result.finding);
      done += batch.read;
      if (how.progress)
        how.progress(done, totalBytes(models));
    }
    executor.drop(staging);
    bytes.packed += streamBytes;
    for (size_t i = 0; i < tensors.size(); ++i)
      if (rows[i]) {
        executor.reset(rows[i], Initial::Const, rows[i]);
        bytes.byRow += tensors[i].elements * 2;
      }
    executor.reset(stream, Initial::Const, stream);
    model.stream = stream;
  }
  return std::nullopt;
}

Failure CpuEngine::upload(const runtime::Checkpoints &weights, const runtime::LoadOptions &how) {
  auto tensors = runtime::findAllWeights(info, weights);
  if (!tensors)
    return tensors.error;
  const auto models = runtime::batchesOf(std::move(*tensors.value), how.batchBytes);
  const auto read = [&](size_t model, const runtime::WeightTensor &tensor, const runtime::WeightPiece &piece,
                        char *to) -> Failure {
    const uint64_t size = tensor.elementBytes();
    if (auto error = weights[model].read(*tensor.view, piece.begin * size, (piece.end - piece.begin) * size, to))
      return runtime::asRuntimeError(*error);
    return runtime::checkCodes(tensor, to, (piece.end - piece.begin) * size);
  };
  if (Failure failure = packAll(models, how, read))
    return failure;
  bytes.read = totalBytes(models);
  for (size_t m = 0; m < models.size(); ++m)
    if (Failure changed = runtime::whyChanged(weights[m]))
      return changed;
  return std::nullopt;
}

Failure CpuEngine::fill(char *memory, uint64_t first, uint64_t elements, const runtime::Fill &how) {
  bind(executor.host());
  auto *out = reinterpret_cast<uint16_t *>(memory);
  LaunchResult result = executor.launch(
      {1, 32, 0}, {}, [&, kernel = fillKernel] { kernel(out, first, elements, how.seed, how.scale, how.mean); });
  if (result.finding)
    return setupError("filling", *result.finding);
  return std::nullopt;
}

Failure CpuEngine::makeRandom(const runtime::LoadOptions &how) {
  if (!fillKernel)
    return RuntimeError{"cpu-kernel", "the kernel has no `megalith_fill`, so it cannot make weights"};
  const auto models = runtime::batchesOf(runtime::randomWeightsOfAll(info), how.batchBytes);
  const auto make = [&](size_t, const runtime::WeightTensor &tensor, const runtime::WeightPiece &piece, char *to) {
    return fill(to, tensor.inHalves(piece.begin), tensor.inHalves(piece.end - piece.begin), tensor.fill);
  };
  if (Failure failure = packAll(models, how, make))
    return failure;
  // Each run starts from the same K and V.
  for (LaunchBuffer &buffer : lasting)
    if (auto of = runtime::fillOfKv(buffer.name); of && buffer.bytes) {
      char *memory = executor.allocate(buffer.name, buffer.bytes, Initial::Zero);
      if (Failure failure = fill(memory, 0, buffer.bytes / 2, *of))
        return failure;
      buffer.kind = LaunchBuffer::Image;
      buffer.image.assign(memory, memory + buffer.bytes);
      memories[{buffer.member, buffer.bytes}] = memory;
    }
  return std::nullopt;
}

char *CpuEngine::place(const LaunchBuffer &buffer, bool checked) {
  Initial initial = Initial::Zero;
  if (!buffer.image.empty())
    initial = buffer.kind == LaunchBuffer::Const ? Initial::Const : Initial::Image;
  else if (buffer.kind == LaunchBuffer::Unwritten && checked)
    initial = Initial::Unwritten;
  const void *content = buffer.image.empty() ? nullptr : buffer.image.data();
  if (buffer.kind == LaunchBuffer::Ones) {
    ones.resize(std::max(ones.size(), buffer.bytes), '\xff');
    initial = Initial::Image;
    content = ones.data();
  }
  auto [entry, isNew] = memories.try_emplace({buffer.member, buffer.bytes});
  if (isNew) // even nothing has an address
    entry->second = executor.allocate(buffer.name, buffer.bytes ? buffer.bytes : 16, initial, content);
  else
    executor.reset(entry->second, initial, content);
  return entry->second;
}

Failure CpuEngine::prepare(const std::vector<Request> &requests, const runtime::RunOptions &options, bool checked,
                           const runtime::LiveTable *live) {
  // First, since the pool is what may not fit: the image lists its pages.
  std::vector<char *> kept;
  for (const LaunchBuffer &buffer : lasting)
    kept.push_back(place(buffer, checked));
  const auto isLast = [&] { // the image of the last run is that of this one
    if (!placed || live || image->ringLayout())
      return false;
    runtime::RunOptions last = image->options();
    last.delaySeed = options.delaySeed;
    return last == options && image->requests() == requests;
  };
  const bool again = isLast();
  if (!again) {
    placed = false;
    auto built = LaunchImage::build(info, requests, options, live);
    if (!built)
      return built.error;
    image.emplace(std::move(*built.value));
  }
  if (live)
    image->bindRings(place({"rings", SIZE_MAX, image->ringLayout()->bytes, LaunchBuffer::Zero}, checked));
  abi::HostParams &params = image->params;
  params.delaySeed = options.delaySeed;
  for (size_t m = 0; m < info.models.size(); ++m) {
    params.models[m].weights = fixed.models[m].weights;
    params.models[m].stream = fixed.models[m].stream;
  }
  for (size_t i = 0; i < kept.size(); ++i)
    lasting[i].bind(params, kept[i]);
  for (LaunchBuffer &buffer : image->buffers) {
    if (again && buffer.kind == LaunchBuffer::Const)
      continue;
    buffer.result = place(buffer, checked);
    buffer.bind(params, buffer.result);
  }
  placed = true;
  return std::nullopt;
}

LaunchResult CpuEngine::launch(const LaunchOptions &how) {
  const abi::HostParams &params = image->params;
  if (image->renews()) // of the last launch
    for (const size_t member : runtime::renewedMembers) {
      char *memory = nullptr;
      std::memcpy(&memory, reinterpret_cast<const char *>(&params) + member, sizeof(memory));
      executor.reset(memory, Initial::Zero);
    }
  bind(executor.host()); // another engine of this shared object may have bound its own
  return executor.launch(
      {static_cast<unsigned>(info.ctas), static_cast<unsigned>(info.threads), static_cast<size_t>(info.sharedBytes)},
      how, [&params, models = info.models.size(), kernel = runKernel] {
        withParams(params, models,
                   [&](const auto &p) { reinterpret_cast<void (*)(std::remove_cvref_t<decltype(p)>)>(kernel)(p); });
      });
}

Outcome<CpuOutcome> CpuEngine::run(const std::vector<Request> &requests, const runtime::RunOptions &options,
                                   LaunchOptions how) {
  return runtime::withinMemory([&] { return runWithin(requests, options, std::move(how)); });
}

Outcome<CpuOutcome> CpuEngine::runWithin(const std::vector<Request> &requests, const runtime::RunOptions &options,
                                         LaunchOptions how) {
  if (Failure failure = prepare(requests, options, how.check))
    return *failure;
  const abi::HostParams &params = image->params;
  if (!how.progress) {
    const volatile abi::Stats *stats = params.stats;
    how.progress = [stats, this] {
      if (onProgress)
        onProgress(stats->ticks, stats->rows);
      return static_cast<uint64_t>(stats->ticks + stats->rows);
    };
  }
  // What a thread was about to write is there a tick later.
  std::vector<char> before;
  int64_t tickOfBefore = 0;
  const auto now = [&] { return static_cast<const volatile abi::Stats *>(params.stats)->ticks; };
  if (options.interrupt.asked)
    how.interrupted = [&] {
      if (!before.empty())
        return now() > tickOfBefore;
      if (options.interrupt.asked()) {
        const runtime::LaunchBuffer &requests = image->buffers[image->indexOf(offsetof(abi::HostParams, requests))];
        before.assign(requests.result, requests.result + requests.bytes);
        tickOfBefore = now() + 1;
      }
      return false;
    };
  auto begin = std::chrono::steady_clock::now();
  LaunchResult launch;
  int64_t launches = 0;
  do {
    const HostRange range(HostStep::Launch);
    launch = this->launch(how);
    ++launches;
  } while (!launch.finding && !launch.interrupted && image->unfinished());
  const double ms = millisecondsSince(begin);
  if (launch.finding)
    return CpuOutcome{image->counts(), std::move(launch)};
  const HostRange range(HostStep::Results);
  auto outcome = image->outcome(launch.interrupted ? &before : nullptr);
  if (!outcome)
    return outcome.error;
  outcome->kernelMs = ms;
  outcome->launches = launches;
  return CpuOutcome{std::move(*outcome.value), std::move(launch)};
}

} // namespace megalith::cpu
