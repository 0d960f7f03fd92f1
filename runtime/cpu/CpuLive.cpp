//===- CpuLive.cpp - a kernel on the CPU that takes requests while it runs -===//
#include "runtime/Memory.h"
#include "runtime/cpu/CpuEngine.h"
#include <cstddef>
#include <cstring>
#include <future>

namespace megalith::cpu {

using runtime::LaunchBuffer;
using runtime::LaunchImage;
using runtime::LiveRun;
using runtime::Outcome;
using runtime::RuntimeError;

/// Of a host that is a thread of the launch: steps in which neither it nor control comes further.
constexpr uint64_t kMostIdleSteps = 20'000'000;

/// Launches go on a thread of their own.
class CpuLive : public LiveRun {
public:
  CpuLive(CpuEngine &engine, LaunchOptions given)
      : engine(engine), image(*engine.image), how(std::move(given)), memory(image.params.host->rings) {
    if (!how.live)
      how.progress = [stats = image.params.stats, rings = reinterpret_cast<const abi::HostRings *>(memory)] {
        const auto word = [](const unsigned &at) { return *static_cast<const volatile unsigned *>(&at); };
        return static_cast<uint64_t>(stats->ticks + stats->rows) + word(rings->ordersPut) + word(rings->newsRead) +
               word(rings->stops) + word(rings->launchesEnded);
      };
  }
  ~CpuLive() override {
    if (running.valid())
      running.wait();
  }
  const runtime::Manifest &manifest() const override { return engine.info; }
  const runtime::RingLayout &layout() const override { return *image.ringLayout(); }
  char *rings() override { return memory; }
  size_t deviceBytes() const override {
    size_t bytes = 0;
    for (const LaunchBuffer &buffer : image.buffers)
      bytes += buffer.bytes;
    return bytes;
  }

  runtime::Failure launch() override {
    running = std::async(std::launch::async, [this] { return engine.launch(how); });
    return std::nullopt;
  }

  Outcome<Launch> poll() override {
    if (!running.valid())
      return Launch::Ended;
    if (running.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      return Launch::Runs;
    try {
      (void)running.get();
    } catch (const std::exception &thrown) { // there was no room for the grid
      return RuntimeError{"out-of-memory", thrown.what()};
    }
    if (const LaunchResult &result = running.get(); result.finding)
      return RuntimeError{"cpu-kernel", std::string("the kernel ended in ") + findingName(result.finding->kind) + ": " +
                                            result.finding->what};
    return image.unfinished() ? Launch::Rests : Launch::Ended;
  }

  runtime::Failure read(size_t member, void *to, size_t bytes, size_t offset) override {
    const size_t index = image.indexOf(member);
    if (index >= image.buffers.size() || offset + bytes > image.buffers[index].bytes)
      return RuntimeError{"trace-device", "the kernel's trace is longer than its memory"};
    if (bytes > 0) // else there may be no memory
      std::memcpy(to, image.buffers[index].result + offset, bytes);
    return std::nullopt;
  }

  runtime::Failure write(size_t member, const void *from, size_t bytes, size_t offset) override {
    const LaunchBuffer &buffer = image.buffers.at(image.indexOf(member));
    std::memcpy(const_cast<char *>(buffer.result) + offset, from, bytes); // the executor's memory
    return std::nullopt;
  }

  CpuEngine &engine;
  const LaunchImage &image; ///< the engine's
  LaunchOptions how;
  char *const memory; ///< of the rings
  std::shared_future<LaunchResult> running;
};

LaunchResult CpuEngine::resultOf(LiveRun &live) { return static_cast<CpuLive &>(live).running.get(); }

Outcome<std::unique_ptr<LiveRun>> CpuEngine::openLive(const runtime::LiveTable &table,
                                                      const runtime::RunOptions &options, LaunchOptions how) {
  return runtime::withinMemory([&]() -> Outcome<std::unique_ptr<LiveRun>> {
    how.live = !how.outside;
    how.maxIdleSteps = how.live ? 0 : kMostIdleSteps; // a host of the process may be silent for as long as it likes
    if (runtime::Failure failure = prepare({}, options, how.check, &table))
      return *failure;
    return std::unique_ptr<LiveRun>(std::make_unique<CpuLive>(*this, std::move(how)));
  });
}

} // namespace megalith::cpu
