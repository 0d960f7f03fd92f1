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
  CpuLive(CpuEngine &engine, LaunchImage image, const runtime::LiveTable &table, LaunchOptions how)
      : engine(engine), image(std::move(image)), how(std::move(how)) {
    ringLayout = runtime::RingLayout::of(engine.info, table);
  }
  ~CpuLive() override {
    if (running.valid())
      running.wait();
  }
  const runtime::Manifest &manifest() const override { return engine.info; }
  char *rings() override { return memory; }
  size_t deviceBytes() const override {
    size_t bytes = 0;
    for (const LaunchBuffer &buffer : image.buffers)
      bytes += buffer.bytes;
    return bytes;
  }

  runtime::Failure launch() override {
    if (running.valid() && image.renews())
      engine.renew(image.params);
    running = std::async(std::launch::async, [this] {
      engine.bind(engine.executor.host());
      return engine.launch(image.params, how);
    });
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

  std::optional<runtime::RunOutcome::Stop> stopped() override { return std::nullopt; } // there is no watchdog

  runtime::Failure read(size_t member, void *to, size_t bytes, size_t offset) override {
    const size_t index = image.indexOf(member);
    if (index >= image.buffers.size() || offset + bytes > image.buffers[index].bytes)
      return RuntimeError{"trace-device", "the kernel's trace is longer than its memory"};
    if (bytes > 0) // else there may be no memory
      std::memcpy(to, image.buffers[index].result + offset, bytes);
    return std::nullopt;
  }

  void bind() {
    std::vector<char *> kept;
    for (const LaunchBuffer &buffer : engine.lasting)
      kept.push_back(engine.place(buffer, how.check));
    memory = engine.place({"rings", SIZE_MAX, ringLayout.bytes, LaunchBuffer::Zero}, how.check);
    image.bindRings(memory);
    engine.bindAll(image, kept, how.check, false);
    if (!how.live)
      how.progress = [stats = image.params.stats, rings = reinterpret_cast<const abi::HostRings *>(memory)] {
        const auto word = [](const unsigned &at) { return *static_cast<const volatile unsigned *>(&at); };
        return static_cast<uint64_t>(stats->ticks + stats->rows) + word(rings->ordersPut) + word(rings->newsRead) +
               word(rings->stops) + word(rings->launchesEnded);
      };
    engine.image.reset(); // another run's buffers may have been ours
    engine.placed = false;
  }

  CpuEngine &engine;
  LaunchImage image;
  LaunchOptions how;
  char *memory = nullptr;
  std::shared_future<LaunchResult> running;
};

LaunchResult CpuEngine::resultOf(LiveRun &live) { return static_cast<CpuLive &>(live).running.get(); }

Outcome<std::unique_ptr<LiveRun>> CpuEngine::openLive(const runtime::LiveTable &table,
                                                      const runtime::RunOptions &options, LaunchOptions how) {
  return runtime::withinMemory([&]() -> Outcome<std::unique_ptr<LiveRun>> {
    how.live = !how.outside;
    how.maxIdleSteps = how.live ? 0 : kMostIdleSteps; // a host of the process may be silent for as long as it likes
    auto live = std::make_unique<CpuLive>(*this, LaunchImage::buildLive(info, table, options), table, std::move(how));
    live->bind();
    return std::unique_ptr<LiveRun>(std::move(live));
  });
}

} // namespace megalith::cpu
