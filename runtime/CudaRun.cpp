//===- CudaRun.cpp - runs on a GPU ----------------------------------------===//
//
// A run is a launch, or several, each of which goes on where the one before it ended. The host of a batch has put in
// all its orders before the first one; that of a live session and the kernel talk meanwhile.
//===----------------------------------------------------------------------===//
#include "runtime/Engine.h"
#include "runtime/HostRange.h"
#include "runtime/Memory.h"
#include "runtime/Try.h"
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <mutex>
#include <thread>

namespace megalith::runtime {

#define AT(name) offsetof(abi::HostParams, name)

class CudaRun : public LiveRun {
public:
  CudaRun(Engine &engine, LaunchImage image) : engine(engine), image(std::move(image)) {}
  ~CudaRun() override {
    if (runs) // memory of a kernel that runs must not go
      (void)engine.stream->synchronize();
  }

  /// Memory for all of it, with its first content.
  Failure open();

  const Manifest &manifest() const override { return engine.info; }
  const RingLayout &layout() const override { return *image.ringLayout(); }
  char *rings() override { return static_cast<char *>(shared.data()); }
  size_t deviceBytes() const override {
    size_t bytes = 0;
    for (const DeviceBuffer &memory : memories)
      bytes += memory.size();
    return bytes;
  }
  Failure launch() override;
  Outcome<Launch> poll() override;
  Failure read(size_t member, void *to, size_t bytes, size_t offset) override;
  Failure write(size_t member, const void *from, size_t bytes, size_t offset) override;
  /// Launches until all of it has ended, or is about to. How often.
  Outcome<int64_t> launchAll();
  /// Waits for the end, and brings what the image's outcome() needs.
  Failure fetch();

  const DeviceBuffer &memoryOf(size_t member) const { return memories[image.indexOf(member)]; }
  /// As the last launch left it; zeros before.
  const abi::Stats &lastStats() const { return *static_cast<const abi::Stats *>(readings[0].to.data()); }
  unsigned launchesEnded() const {
    return __atomic_load_n(&static_cast<const abi::HostRings *>(shared.data())->launchesEnded, __ATOMIC_ACQUIRE);
  }
  Failure renew();
  /// With zeros.
  Failure pin(PinnedBuffer &memory, size_t bytes) {
    auto pinned = PinnedBuffer::allocate(engine.device.driver(), bytes);
    if (!pinned)
      return pinned.error;
    memory = std::move(*pinned.value);
    std::memset(memory.data(), 0, bytes);
    return std::nullopt;
  }

  Engine &engine;
  LaunchImage image;
  PinnedBuffer shared;                ///< the rings
  std::vector<DeviceBuffer> memories; ///< of the image's buffers
  std::vector<std::vector<char>> fetched;
  /// What the host reads after each launch.
  struct Reading {
    const DeviceBuffer *from;
    PinnedBuffer to;
  };
  std::vector<Reading> readings;
  std::optional<KernelGraph> graph;
  std::optional<Stream> writes; ///< of what is written beside a launch
  bool runs = false;
  unsigned endedBefore = 0;                        ///< HostRings::launchesEnded of the launches before
  std::chrono::steady_clock::time_point nextQuery; ///< of the driver
};

Failure CudaRun::open() {
  abi::HostParams &params = image.params;
  if (image.ringLayout()) {
    TRY(pin(shared, layout().bytes));
    image.bindRings(reinterpret_cast<const void *>(shared.address()));
  }
  for (size_t m = 0; m < engine.models.size(); ++m) {
    params.models[m].weights = reinterpret_cast<const void *const *>(engine.models[m].pointers.address());
    params.models[m].stream = reinterpret_cast<const char *>(engine.models[m].packed.address());
  }
  const auto kept = lastingBuffers(engine.info);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].kind == LaunchBuffer::Ones || kept[i].kind == LaunchBuffer::Zero)
      TRY(engine.lasting[i].fill(*engine.stream, kept[i].kind == LaunchBuffer::Ones ? 0xff : 0));
    kept[i].bind(params, reinterpret_cast<const void *>(engine.lasting[i].address()));
  }
  for (const LaunchBuffer &buffer : image.buffers) {
    auto memory = engine.place(buffer, 16, params); // even nothing has an address
    if (!memory)
      return memory.error;
    memories.push_back(std::move(*memory.value));
  }
  // Whether there is another launch, and what the host decides on itself in a conventional engine.
  const Control control = image.options().control;
  std::vector<size_t> members;
  if (params.ticksPerLaunch > 0 || image.ringLayout())
    members.push_back(AT(stats));
  if (control != Control::Resident)
    members.insert(members.end(), {AT(requests), AT(tokens)});
  for (const size_t member : members) {
    readings.push_back({&memoryOf(member), {}});
    TRY(pin(readings.back().to, image.buffers[image.indexOf(member)].bytes));
  }
  if (control == Control::Graph) {
    const Manifest &m = engine.info;
    void *arguments[] = {&params};
    auto made = KernelGraph::create(engine.device.driver(), engine.runKernel, static_cast<unsigned>(m.ctas),
                                    static_cast<unsigned>(m.threads), static_cast<unsigned>(m.sharedBytes), arguments);
    if (!made)
      return made.error;
    graph = std::move(*made.value);
  }
  return std::nullopt;
}

/// Zeros in the buffers of renewedMembers, on the stream.
Failure CudaRun::renew() {
  const Driver &driver = engine.device.driver();
  const size_t bytes[] = {static_cast<size_t>(engine.info.flaggedBytes), abi::kSyncWords * sizeof(unsigned)};
  for (size_t i = 0; i < std::size(renewedMembers); ++i) {
    CUdeviceptr memory = 0;
    std::memcpy(&memory, reinterpret_cast<const char *>(&image.params) + renewedMembers[i], sizeof(memory));
    if (bytes[i] > 0)
      TRY(driver.check("cuMemsetD8Async", driver.cuMemsetD8Async(memory, 0, bytes[i], engine.stream->get())));
  }
  return std::nullopt;
}

Failure CudaRun::launch() {
  const HostRange range(HostStep::Launch);
  const Driver &driver = engine.device.driver();
  const Manifest &m = engine.info;
  if (!readings.empty() && lastStats().unfinished == abi::kRenews)
    TRY(renew());
  runs = true;
  if (graph) {
    TRY(graph->launch(*engine.stream));
  } else {
    void *arguments[] = {&image.params};
    TRY(driver.check("cuLaunchCooperativeKernel",
                     driver.cuLaunchCooperativeKernel(
                         engine.runKernel, static_cast<unsigned>(m.ctas), 1, 1, static_cast<unsigned>(m.threads), 1, 1,
                         static_cast<unsigned>(m.sharedBytes), engine.stream->get(), arguments)));
  }
  for (const Reading &reading : readings)
    TRY(reading.from->copyTo(*engine.stream, reading.to.data(), reading.to.size()));
  return std::nullopt;
}

Outcome<LiveRun::Launch> CudaRun::poll() {
  // The driver is asked when the kernel has said that it ends, and now and then: a fault does not say so.
  const auto now = std::chrono::steady_clock::now();
  const unsigned ended = launchesEnded();
  if (ended == endedBefore && now < nextQuery)
    return Launch::Runs;
  nextQuery = now + std::chrono::milliseconds(10);
  auto done = engine.stream->done();
  if (!done)
    return done.error;
  if (!*done)
    return Launch::Runs;
  endedBefore = launchesEnded();
  return lastStats().unfinished ? Launch::Rests : Launch::Ended;
}

Failure CudaRun::read(size_t member, void *to, size_t bytes, size_t offset) {
  if (bytes == 0)
    return std::nullopt;
  TRY(memoryOf(member).copyTo(*engine.stream, to, bytes, offset));
  return engine.stream->synchronize();
}

Failure CudaRun::write(size_t member, const void *from, size_t bytes, size_t offset) {
  if (!writes) {
    auto made = Stream::create(engine.device.driver());
    if (!made)
      return made.error;
    writes = std::move(*made.value);
  }
  TRY(memoryOf(member).copyFrom(*writes, from, bytes, offset));
  return writes->synchronize();
}

Outcome<int64_t> CudaRun::launchAll() {
  for (int64_t launches = 1;; ++launches) {
    TRY(launch());
    if (readings.empty())
      return launches;
    const HostRange range(HostStep::Wait);
    TRY(engine.stream->synchronize());
    if (!lastStats().unfinished)
      return launches;
  }
}

Failure CudaRun::fetch() {
  // Not in a copy, which has the driver to itself until the kernel ends: the interrupter would never come.
  TRY(engine.stream->synchronize());
  runs = false;
  fetched.resize(memories.size());
  for (size_t i = 0; i < memories.size(); ++i) {
    LaunchBuffer &buffer = image.buffers[i];
    if (!buffer.fetch)
      continue;
    fetched[i].resize(buffer.bytes);
    TRY(memories[i].copyTo(*engine.stream, fetched[i].data(), buffer.bytes));
    buffer.result = fetched[i].data(); // it is there: memory that is not pinned
  }
  return std::nullopt;
}

Outcome<std::unique_ptr<LiveRun>> Engine::openLive(const LiveTable &table, const RunOptions &options) {
  return withinMemory([&]() -> Outcome<std::unique_ptr<LiveRun>> {
    auto image = LaunchImage::build(info, {}, options, &table);
    if (!image)
      return image.error;
    auto live = std::make_unique<CudaRun>(*this, std::move(*image.value));
    TRY(live->open());
    TRY(stream->synchronize());
    return std::unique_ptr<LiveRun>(std::move(live));
  });
}

/// A thread that asks whether a run shall end, while the host waits for the kernel. Then it copies the requests as they
/// are, lets the kernel come to a later tick, and asks it to stop as its watchdog does.
class Engine::Interrupter {
public:
  Interrupter(const CudaRun &run, Stream stream)
      : run(run), device(run.engine.device), stream(std::move(stream)), thread([this] { watch(); }) {}

  /// After the end of the kernel. What was copied; null when nobody wanted the end.
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
  const CudaRun &run;
  Device &device;
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

  void watch() {
    do {
      if (pause(std::chrono::milliseconds(20)))
        return;
    } while (!run.image.options().interrupt.asked());
    if (device.makeCurrent() || !copyRequests())
      return;
    // A thread of the kernel may have been about to write what was copied as it was before.
    const auto tick = tickOf();
    for (int i = 0; i < 200 && tick && tickOf() < *tick + 2; ++i)
      if (pause(std::chrono::milliseconds(10)))
        break;
    const Driver &driver = device.driver();
    const CUdeviceptr flag = run.memoryOf(AT(sync)).address() + abi::kStopWord * sizeof(unsigned);
    stopped =
        !driver.check("cuMemsetD32Async", driver.cuMemsetD32Async(flag, 1, 1, stream.get())) && !stream.synchronize();
  }

  bool copyRequests() {
    const DeviceBuffer &requests = run.memoryOf(AT(requests));
    before.resize(requests.size());
    return !requests.copyTo(stream, before.data(), before.size()) && !stream.synchronize();
  }

  std::optional<int64_t> tickOf() {
    abi::Stats stats;
    if (run.memoryOf(AT(stats)).copyTo(stream, &stats, sizeof stats) || stream.synchronize())
      return std::nullopt;
    return stats.ticks;
  }
};

Outcome<RunOutcome> Engine::run(const std::vector<Request> &requests, const RunOptions &options) {
  return withinMemory([&] { return runWithin(requests, options); });
}

Outcome<RunOutcome> Engine::runWithin(const std::vector<Request> &requests, const RunOptions &options) {
  const Driver &driver = device.driver();
  auto image = LaunchImage::build(info, requests, options);
  if (!image)
    return image.error;
  CudaRun all(*this, std::move(*image.value));
  TRY(all.open());

  // --- one launch and one synchronisation, or some of both
  auto start = Event::create(driver), end = Event::create(driver);
  if (!start)
    return start.error;
  if (!end)
    return end.error;
  std::unique_ptr<Interrupter> interrupter;
  if (options.interrupt.asked) {
    auto ofItsOwn = Stream::create(driver);
    if (!ofItsOwn)
      return ofItsOwn.error;
    interrupter = std::make_unique<Interrupter>(all, std::move(*ofItsOwn.value));
  }
  const HostCalls before = Driver::calls();
  TRY(start->record(*stream));
  const auto launches = all.launchAll();
  if (!launches)
    return launches.error;
  TRY(end->record(*stream));
  std::optional<HostRange> wait(std::in_place, HostStep::Wait);
  TRY(all.fetch());
  const HostCalls calls = Driver::calls() - before;
  wait.reset();
  const std::vector<char> *ended = interrupter ? interrupter->finish() : nullptr;

  const HostRange range(HostStep::Results);
  auto ms = end->millisecondsSince(*start);
  if (!ms)
    return ms.error;
  auto out = all.image.outcome(ended);
  if (out) {
    out->kernelMs = *ms;
    out->launches = *launches;
    out->calls = calls;
  }
  return out;
}

} // namespace megalith::runtime
