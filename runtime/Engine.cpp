#include "runtime/Engine.h"
#include "runtime/HostRange.h"
#include "runtime/Memory.h"
#include "runtime/UnitFacts.h"
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <mutex>
#include <thread>

namespace megalith::runtime {

/// `condition` fails the enclosing function with its error.
#define TRY(expression)                                                                                                \
  if (Failure failure_ = (expression))                                                                                 \
  return *failure_

static double millisecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

Outcome<std::unique_ptr<Engine>> Engine::load(Device &device, std::string_view cubin, const std::string &manifest,
                                              const Checkpoints &weights, const LoadOptions &how) {
  const HostRange range(HostStep::Load);
  auto begin = std::chrono::steady_clock::now();
  auto engine = open(device, cubin, manifest);
  if (!engine)
    return engine;
  TRY((*engine)->upload(weights, how));
  (*engine)->loadTime = millisecondsSince(begin);
  return engine;
}

Outcome<std::unique_ptr<Engine>> Engine::loadRandom(Device &device, std::string_view cubin, const std::string &manifest,
                                                    const LoadOptions &how) {
  const HostRange range(HostStep::Load);
  auto begin = std::chrono::steady_clock::now();
  auto engine = open(device, cubin, manifest);
  if (!engine)
    return engine;
  TRY((*engine)->makeRandom(how));
  (*engine)->loadTime = millisecondsSince(begin);
  return engine;
}

Outcome<std::unique_ptr<Engine>> Engine::open(Device &device, std::string_view cubin, const std::string &manifest) {
  std::unique_ptr<Engine> engine(new Engine(device));
  auto info = Manifest::parse(manifest);
  if (!info)
    return info.error;
  engine->info = std::move(*info);
  const Manifest &m = engine->info;
  const DeviceInfo &gpu = device.info();
  if (gpu.smCount < m.ctas || gpu.sharedPerBlockOptin < static_cast<size_t>(m.sharedBytes) || !gpu.cooperative)
    return RuntimeError{"plan-mismatch", "the kernel was planned for " + std::to_string(m.ctas) + " CTAs with " +
                                             std::to_string(m.sharedBytes) + " bytes of shared memory (`" + m.profile +
                                             "`), but this device has " + std::to_string(gpu.smCount) + " SMs and " +
                                             std::to_string(gpu.sharedPerBlockOptin) +
                                             " bytes; compile with `--plan ctas=" + std::to_string(gpu.smCount) +
                                             "` or another `--device-profile`"};
  const Driver &driver = device.driver();
  auto stream = Stream::create(driver);
  if (!stream)
    return stream.error;
  engine->stream.emplace(std::move(*stream.value));
  auto module = Module::load(driver, cubin);
  if (!module)
    return module.error;
  engine->module.emplace(std::move(*module.value));
  UnitFacts control = {}, tensors = {};
  TRY(engine->module->read(*engine->stream, kControlFacts, &control, sizeof control));
  TRY(engine->module->read(*engine->stream, kTensorFacts, &tensors, sizeof tensors));
  TRY(checkUnits(control, tensors));
  auto run = engine->module->function("megalith_run"), pack = engine->module->function("megalith_pack");
  if (!run)
    return run.error;
  if (!pack)
    return pack.error;
  engine->runKernel = *run;
  engine->packKernel = *pack;
  TRY(driver.check("cuFuncSetAttribute",
                   driver.cuFuncSetAttribute(engine->runKernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             static_cast<int>(m.sharedBytes))));
  return engine;
}

Outcome<DeviceBuffer> Engine::place(const LaunchBuffer &buffer, size_t least, abi::HostParams &params) {
  auto memory = DeviceBuffer::allocate(device.driver(), std::max(buffer.bytes, least));
  if (!memory)
    return memory;
  TRY(buffer.image.empty() ? memory->fill(*stream, 0) : memory->copyFrom(*stream, buffer.image.data(), buffer.bytes));
  buffer.bind(params, reinterpret_cast<const void *>(memory->address()));
  return memory;
}

Failure Engine::launchPlain(const Stream &on, CUfunction kernel, unsigned ctas, unsigned threads, size_t shared,
                            void **arguments) {
  const Driver &driver = device.driver();
  return driver.check("cuLaunchKernel",
                      driver.cuLaunchKernel(kernel, ctas, 1, 1, threads, 1, 1, static_cast<unsigned>(shared), on.get(),
                                            arguments, nullptr));
}

Failure Engine::renew(const abi::HostParams &params) {
  const Driver &driver = device.driver();
  const size_t bytes[] = {static_cast<size_t>(info.taggedBytes), abi::kSyncWords * sizeof(unsigned)};
  for (size_t i = 0; i < std::size(renewedMembers); ++i) {
    CUdeviceptr memory = 0;
    std::memcpy(&memory, reinterpret_cast<const char *>(&params) + renewedMembers[i], sizeof(memory));
    if (bytes[i] > 0)
      TRY(driver.check("cuMemsetD8Async", driver.cuMemsetD8Async(memory, 0, bytes[i], stream->get())));
  }
  return std::nullopt;
}

Failure Engine::launch(abi::HostParams &params) {
  const Driver &driver = device.driver();
  void *arguments[] = {&params};
  return driver.check("cuLaunchCooperativeKernel",
                      driver.cuLaunchCooperativeKernel(
                          runKernel, static_cast<unsigned>(info.ctas), 1, 1, static_cast<unsigned>(info.threads), 1, 1,
                          static_cast<unsigned>(info.sharedBytes), stream->get(), arguments));
}

Outcome<int64_t> Engine::launchAll(LaunchImage &image, const std::vector<DeviceBuffer> &memories) {
  const Driver &driver = device.driver();
  const RunOptions &how = image.options();
  // What the host reads behind each launch: whether there is another one, and what it decides on itself in a
  // conventional engine.
  struct Reading {
    const DeviceBuffer *from;
    PinnedBuffer to;
  };
  std::vector<Reading> readings;
  std::vector<size_t> members;
  if (image.params.ticksPerLaunch > 0)
    members.push_back(offsetof(abi::HostParams, stats));
  if (how.control != Control::Resident)
    members.insert(members.end(), {offsetof(abi::HostParams, requests), offsetof(abi::HostParams, tokens)});
  for (const size_t member : members) {
    const size_t index = image.indexOf(member);
    auto pinned = PinnedBuffer::allocate(driver, image.buffers[index].bytes);
    if (!pinned)
      return pinned.error;
    readings.push_back({&memories[index], std::move(*pinned.value)});
  }
  std::optional<KernelGraph> graph;
  if (how.control == Control::Graph) {
    void *arguments[] = {&image.params};
    auto made =
        KernelGraph::create(driver, runKernel, static_cast<unsigned>(info.ctas), static_cast<unsigned>(info.threads),
                            static_cast<unsigned>(info.sharedBytes), arguments);
    if (!made)
      return made.error;
    graph = std::move(*made.value);
  }
  for (int64_t launches = 1;; ++launches) {
    {
      const HostRange range(HostStep::Launch);
      TRY(graph ? graph->launch(*stream) : launch(image.params));
    }
    if (readings.empty())
      return launches;
    const HostRange range(HostStep::Wait);
    for (const Reading &reading : readings)
      TRY(reading.from->copyTo(*stream, reading.to.data(), reading.to.size()));
    TRY(stream->synchronize());
    const auto *stats = static_cast<const abi::Stats *>(readings.front().to.data());
    if (!stats->unfinished)
      return launches;
    if (stats->unfinished == abi::kRenews)
      TRY(renew(image.params));
  }
}

Outcome<RunOutcome> Engine::run(const std::vector<Request> &requests, const RunOptions &options) {
  return withinMemory([&] { return runWithin(requests, options); });
}

Outcome<std::vector<DeviceBuffer>> Engine::placeAll(LaunchImage &image) {
  abi::HostParams &params = image.params;
  for (size_t m = 0; m < models.size(); ++m) {
    params.models[m].weights = reinterpret_cast<const void *const *>(models[m].pointers.address());
    params.models[m].stream = reinterpret_cast<const char *>(models[m].packed.address());
  }
  const auto kept = lastingBuffers(info);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].kind == LaunchBuffer::Ones || kept[i].kind == LaunchBuffer::Zero)
      TRY(lasting[i].fill(*stream, kept[i].kind == LaunchBuffer::Ones ? 0xff : 0));
    kept[i].bind(params, reinterpret_cast<const void *>(lasting[i].address()));
  }
  std::vector<DeviceBuffer> memories;
  for (const LaunchBuffer &buffer : image.buffers) {
    auto memory = place(buffer, 16, params); // even nothing has an address
    if (!memory)
      return memory.error;
    memories.push_back(std::move(*memory.value));
  }
  return memories;
}

/// A thread that asks whether a run shall end, while the host waits for the kernel. Then it copies the requests as they
/// are, lets the kernel come to a later tick, and asks it to stop as its watchdog does.
class Engine::Interrupter {
public:
  static Outcome<std::unique_ptr<Interrupter>> start(Engine &engine, const LaunchImage &image,
                                                     const std::vector<DeviceBuffer> &memories) {
    auto stream = Stream::create(engine.device.driver());
    if (!stream)
      return stream.error;
    return std::unique_ptr<Interrupter>(new Interrupter(engine, image, memories, std::move(*stream.value)));
  }

  /// Behind the end of the kernel. What was copied; null when nobody wanted the end.
  const std::vector<char> *finish() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ended = true;
    }
    wakes.notify_all();
    if (thread.joinable())
      thread.join();
    return stopped ? &before : nullptr;
  }

  ~Interrupter() { finish(); }

private:
  Interrupter(Engine &engine, const LaunchImage &image, const std::vector<DeviceBuffer> &memories, Stream stream)
      : engine(engine), image(image), memories(memories), stream(std::move(stream)), thread([this] { watch(); }) {}

  Engine &engine;
  const LaunchImage &image;
  const std::vector<DeviceBuffer> &memories;
  Stream stream;
  std::vector<char> before;
  bool stopped = false;
  std::mutex mutex;
  std::condition_variable wakes;
  bool ended = false;
  std::thread thread; ///< last: it uses the others

  /// Whether the kernel ended meanwhile.
  bool pause(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex);
    return wakes.wait_for(lock, time, [this] { return ended; });
  }

  const DeviceBuffer &memory(size_t member) const { return memories[image.indexOf(member)]; }

  void watch() {
    do {
      if (pause(std::chrono::milliseconds(20)))
        return;
    } while (!image.options().interrupt.asked());
    if (engine.device.makeCurrent() || !copyRequests())
      return;
    // A thread of the kernel may have been about to write what was copied as it was before.
    const auto tick = tickOf();
    for (int i = 0; i < 200 && tick && tickOf() < *tick + 2; ++i)
      if (pause(std::chrono::milliseconds(10)))
        break;
    const Driver &driver = engine.device.driver();
    const CUdeviceptr flag = memory(offsetof(abi::HostParams, sync)).address() + abi::kStopWord * sizeof(unsigned);
    stopped =
        !driver.check("cuMemsetD32Async", driver.cuMemsetD32Async(flag, 1, 1, stream.get())) && !stream.synchronize();
  }

  bool copyRequests() {
    const size_t index = image.indexOf(offsetof(abi::HostParams, requests));
    before.resize(image.buffers[index].bytes);
    return !memories[index].copyTo(stream, before.data(), before.size()) && !stream.synchronize();
  }

  std::optional<int64_t> tickOf() {
    abi::Stats stats;
    if (memory(offsetof(abi::HostParams, stats)).copyTo(stream, &stats, sizeof stats) || stream.synchronize())
      return std::nullopt;
    return stats.ticks;
  }
};

Outcome<RunOutcome> Engine::runWithin(const std::vector<Request> &requests, const RunOptions &options) {
  const Driver &driver = device.driver();
  auto image = LaunchImage::build(info, requests, options);
  if (!image)
    return image.error;
  auto placed = placeAll(*image);
  if (!placed)
    return placed.error;
  const std::vector<DeviceBuffer> memories = std::move(*placed.value);

  // --- one launch and one synchronisation, or some of both
  auto start = Event::create(driver), end = Event::create(driver);
  if (!start)
    return start.error;
  if (!end)
    return end.error;
  std::unique_ptr<Interrupter> interrupter;
  if (options.interrupt.asked) {
    auto started = Interrupter::start(*this, *image, memories);
    if (!started)
      return started.error;
    interrupter = std::move(*started.value);
  }
  const HostCalls before = Driver::calls();
  TRY(start->record(*stream));
  const auto launches = launchAll(*image, memories);
  if (!launches)
    return launches.error;
  TRY(end->record(*stream));
  std::vector<std::vector<char>> fetched(memories.size());
  // Not in a copy, which has the driver to itself until the kernel ends: the interrupter would never come.
  std::optional<HostRange> wait(std::in_place, HostStep::Wait);
  TRY(stream->synchronize());
  for (size_t i = 0; i < memories.size(); ++i) {
    LaunchBuffer &buffer = image->buffers[i];
    if (!buffer.fetch)
      continue;
    fetched[i].resize(buffer.bytes);
    TRY(memories[i].copyTo(*stream, fetched[i].data(), buffer.bytes));
    buffer.result = fetched[i].data(); // it is there: memory that is not pinned
  }
  const HostCalls calls = Driver::calls() - before;
  wait.reset();
  const std::vector<char> *ended = interrupter ? interrupter->finish() : nullptr;

  const HostRange range(HostStep::Results);
  auto ms = end->millisecondsSince(*start);
  if (!ms)
    return ms.error;
  auto out = image->outcome(ended);
  if (out) {
    out->kernelMs = *ms;
    out->launches = *launches;
    out->calls = calls;
  }
  return out;
}

} // namespace megalith::runtime
