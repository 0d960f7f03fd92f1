//===- CudaLive.cpp - a kernel on a GPU that takes requests while it runs -===//
#include "runtime/Engine.h"
#include "runtime/Memory.h"
#include <chrono>
#include <cstring>

namespace megalith::runtime {

class CudaLive : public LiveRun {
public:
  CudaLive(Engine &engine, LaunchImage image) : engine(engine), image(std::move(image)) {}
  ~CudaLive() override { (void)engine.stream->synchronize(); } // memory of a kernel that runs must not go

  Failure open(const LiveTable &table) {
    ringLayout = RingLayout::of(engine.info, table);
    auto pinned = PinnedBuffer::allocate(engine.device.driver(), ringLayout.bytes);
    if (!pinned)
      return pinned.error;
    shared = std::move(*pinned.value);
    std::memset(shared.data(), 0, ringLayout.bytes);
    image.bindRings(reinterpret_cast<const void *>(shared.address()));
    auto placed = engine.placeAll(image);
    if (!placed)
      return placed.error;
    memories = std::move(*placed.value);
    // What the host reads behind a launch.
    auto read = PinnedBuffer::allocate(engine.device.driver(), sizeof(abi::Stats) + sizeof(abi::StopRecord));
    if (!read)
      return read.error;
    ends = std::move(*read.value);
    std::memset(ends.data(), 0, ends.size());
    return engine.stream->synchronize();
  }

  const Manifest &manifest() const override { return engine.info; }
  char *rings() override { return static_cast<char *>(shared.data()); }
  size_t deviceBytes() const override {
    size_t bytes = 0;
    for (const DeviceBuffer &memory : memories)
      bytes += memory.size();
    return bytes;
  }

  Failure launch() override {
    if (statsRead().unfinished == abi::kRenews) // of the last launch
      if (Failure failed = engine.renew(image.params))
        return failed;
    if (Failure failed = engine.launch(image.params))
      return failed;
    char *to = static_cast<char *>(ends.data());
    if (Failure failed = memoryOf(offsetof(abi::HostParams, stats)).copyTo(*engine.stream, to, sizeof(abi::Stats)))
      return failed;
    return memoryOf(offsetof(abi::HostParams, stop))
        .copyTo(*engine.stream, to + sizeof(abi::Stats), sizeof(abi::StopRecord));
  }

  Outcome<Launch> poll() override {
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
    return statsRead().unfinished ? Launch::Rests : Launch::Ended;
  }

  std::optional<RunOutcome::Stop> stopped() override {
    abi::StopRecord stop;
    std::memcpy(&stop, static_cast<const char *>(ends.data()) + sizeof(abi::Stats), sizeof(stop));
    return stopOf(engine.info, stop);
  }

  Failure read(size_t member, void *to, size_t bytes, size_t offset) override {
    if (bytes == 0)
      return std::nullopt;
    if (Failure failed = memoryOf(member).copyTo(*engine.stream, to, bytes, offset))
      return failed;
    return engine.stream->synchronize();
  }

private:
  /// As the last launch left it; zeros before.
  abi::Stats statsRead() const {
    abi::Stats stats;
    std::memcpy(&stats, ends.data(), sizeof(stats));
    return stats;
  }
  unsigned launchesEnded() const {
    return __atomic_load_n(&static_cast<const abi::HostRings *>(shared.data())->launchesEnded, __ATOMIC_ACQUIRE);
  }
  const DeviceBuffer &memoryOf(size_t member) const { return memories[image.indexOf(member)]; }

  Engine &engine;
  LaunchImage image;
  PinnedBuffer shared, ends;
  std::vector<DeviceBuffer> memories;
  unsigned endedBefore = 0;                        ///< HostRings::launchesEnded of the launches before
  std::chrono::steady_clock::time_point nextQuery; ///< of the driver
};

Outcome<std::unique_ptr<LiveRun>> Engine::openLive(const LiveTable &table, const RunOptions &options) {
  return withinMemory([&]() -> Outcome<std::unique_ptr<LiveRun>> {
    auto live = std::make_unique<CudaLive>(*this, LaunchImage::buildLive(info, table, options));
    if (Failure failed = live->open(table))
      return *failed;
    return std::unique_ptr<LiveRun>(std::move(live));
  });
}

} // namespace megalith::runtime
