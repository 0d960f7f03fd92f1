// The driver is opened once per process, so that each test runs its part in a
// child process: this program with one `DISABLED_` test selected, and with a
// libcuda.so.1 made from FakeCuda.c.
#include "TinyManifest.h"
#include "device/Abi.h"
#include "runtime/DriverObjects.h"
#include "runtime/Engine.h"
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace megalith::runtime;

namespace {

/// Makes the fake driver and the counter once, in a directory of this process.
class FakeDriver : public ::testing::Test {
protected:
  static void SetUpTestSuite() {
    std::string pattern = (std::filesystem::temp_directory_path() / "megalith-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(pattern.data()));
    dir = pattern;
    build("test/Unit/Runtime/FakeCuda.c", "libcuda.so.1");
    build("tools/launch_counter/launch_counter.c", "launch_counter.so");
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir); }

  /// The output of the child test `name` under these variables; "" unless it passed.
  static std::string child(const std::string &name, const std::string &variables) {
    std::string program = std::filesystem::read_symlink("/proc/self/exe");
    // A sanitizer's runtime need not come before the preloaded library.
    std::string command = "ASAN_OPTIONS=verify_asan_link_order=0 " + variables + " '" + program +
                          "' --gtest_also_run_disabled_tests --gtest_brief=1 "
                          "--gtest_filter=Child.DISABLED_" +
                          name + " 2>&1";
    FILE *pipe = popen(command.c_str(), "r");
    std::string output;
    std::array<char, 4096> buffer;
    while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
      output.append(buffer.data(), n);
    int status = pclose(pipe);
    EXPECT_EQ(status, 0) << output;
    return status == 0 ? output : "";
  }
  /// The path of weights for tinyManifest().
  static std::string writeWeights() {
    std::string header = R"({"layers.0.w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
                             "layers.1.w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [12, 24]}})";
    const uint64_t length = header.size();
    std::string file(reinterpret_cast<const char *>(&length), 8);
    std::ofstream(dir + "/model.safetensors", std::ios::binary) << file << header << std::string(24, 'w');
    return dir + "/model.safetensors";
  }
  static std::string fake() { return "MEGALITH_LIBCUDA=" + dir + "/libcuda.so.1 "; }

  static std::string dir;

private:
  static void build(const std::string &source, const std::string &target) {
    std::string command = "cc -shared -fPIC -O1 -o '" + dir + "/" + target + "' '" + MEGALITH_SOURCE_DIR "/" + source +
                          "' -ldl -lpthread";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
};
std::string FakeDriver::dir;

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

void print(const RuntimeError &error) { std::printf("%s [%s]\n", error.message.c_str(), error.kind.c_str()); }

//===----------------------------------------------------------------------===//
// What runs in the child
//===----------------------------------------------------------------------===//

TEST(Child, DISABLED_open) {
  Outcome<const Driver *> driver = Driver::open();
  if (!driver)
    return print(driver.error);
  const char *ordinal = std::getenv("TEST_ORDINAL");
  Outcome<Device> device = Device::open(**driver, ordinal ? std::atoi(ordinal) : 0);
  if (!device)
    return print(device.error);
  const DeviceInfo &info = device->info();
  std::printf("%s %d.%d %d SMs %zu shared %zu total cooperative %d %s\n", info.name.c_str(), info.major, info.minor,
              info.smCount, info.sharedPerBlockOptin, info.totalMemory, info.cooperative, archFor(info).c_str());
}

TEST(Child, DISABLED_memory) {
  Outcome<const Driver *> driver = Driver::open();
  ASSERT_TRUE(driver);
  Outcome<Device> device = Device::open(**driver);
  ASSERT_TRUE(device);
  Outcome<Stream> stream = Stream::create(**driver);
  ASSERT_TRUE(stream);

  Outcome<DeviceBuffer> buffer = DeviceBuffer::allocate(**driver, 64);
  ASSERT_TRUE(buffer);
  const char text[] = "0123456789";
  char back[8] = "";
  EXPECT_FALSE(buffer->fill(*stream, 'x'));
  EXPECT_FALSE(buffer->copyFrom(*stream, text, 4, 2));
  EXPECT_FALSE(buffer->copyTo(*stream, back, 7, 1));
  EXPECT_FALSE(stream->synchronize());
  EXPECT_STREQ(back, "x0123xx");

  Outcome<bool> done = stream->done();
  ASSERT_TRUE(done);
  EXPECT_EQ(*done, std::getenv("FAKE_CUDA_BUSY") == nullptr);

  DeviceBuffer moved = std::move(*buffer);
  EXPECT_NE(moved.address(), 0u);
  EXPECT_EQ(buffer->address(), 0u);
  EXPECT_EQ(DeviceBuffer::allocate(**driver, 0)->address(), 0u);

  Outcome<PinnedBuffer> pinned = PinnedBuffer::allocate(**driver, 16);
  ASSERT_TRUE(pinned);
  EXPECT_NE(pinned->address(), 0u);
  std::memset(pinned->data(), 0, pinned->size());

  Outcome<Event> start = Event::create(**driver), end = Event::create(**driver);
  ASSERT_TRUE(start && end);
  EXPECT_FALSE(start->record(*stream));
  EXPECT_FALSE(end->record(*stream));
  EXPECT_FALSE(end->synchronize());
  EXPECT_EQ(*end->millisecondsSince(*start), 1.5f);

  Outcome<Module> module = Module::load(**driver, "cubin");
  ASSERT_TRUE(module);
  print(module->function("nothing").error);
  print(DeviceBuffer::allocate(**driver, 2 << 20).error);
}

TEST(Child, DISABLED_work) {
  const Driver &driver = **Driver::open();
  Outcome<Device> device = Device::open(driver);
  ASSERT_TRUE(device);
  Outcome<Stream> stream = Stream::create(driver);
  Outcome<Module> module = Module::load(driver, "cubin");
  CUfunction pack = *module->function("megalith_pack"), tick = *module->function("megalith_tick");
  Outcome<DeviceBuffer> buffer = DeviceBuffer::allocate(driver, 1000);
  char bytes[1000] = "";
  EXPECT_FALSE(buffer->fill(*stream, 0));
  EXPECT_FALSE(buffer->copyFrom(*stream, bytes, 1000));
  EXPECT_FALSE(buffer->copyFrom(*stream, bytes, 100));
  for (int i = 0; i < 3; ++i)
    driver.cuLaunchKernel(pack, 1, 1, 1, 32, 1, 1, 0, stream->get(), nullptr, nullptr);
  EXPECT_FALSE(stream->synchronize());
  driver.cuLaunchCooperativeKernel(tick, 132, 1, 1, 256, 1, 1, 0, stream->get(), nullptr);
  EXPECT_FALSE(buffer->copyTo(*stream, bytes, 10));
  EXPECT_FALSE(stream->synchronize());
}

static Outcome<std::unique_ptr<Engine>> loadTiny(Device &device) {
  auto weights = megalith::SafetensorsFile::open(std::getenv("TEST_WEIGHTS"));
  if (!weights)
    return asRuntimeError(weights.error);
  return Engine::load(device, "cubin", tinyManifest(), *weights.value);
}

static const std::vector<megalith::Request> someRequests = {{"a", {1, 2, 3}, 4, std::vector<int32_t>{2}, 0},
                                                            {"b", {4}, 0, {}, 0}};

/// Two runs of an engine whose kernel does nothing.
TEST(Child, DISABLED_engine) {
  Outcome<Device> device = Device::open(**Driver::open());
  ASSERT_TRUE(device);
  auto engine = loadTiny(*device);
  ASSERT_TRUE(engine) << engine.error.message;
  RunOptions options;
  for (bool all : {false, true}) {
    options.trace = options.logits = all;
    options.traceBytes = 4096;
    auto out = (*engine)->run(someRequests, options);
    ASSERT_TRUE(out) << out.error.message;
    ASSERT_EQ(out->requests.size(), 2u);
    EXPECT_EQ(out->requests[0].finish, "limit");
    EXPECT_EQ(out->kernelMs, 1.5);
  }
}

/// Three launches each, in which the host keeps the loop. Prints what it asked of the driver.
TEST(Child, DISABLED_control) {
  Outcome<Device> device = Device::open(**Driver::open());
  ASSERT_TRUE(device);
  auto engine = loadTiny(*device);
  ASSERT_TRUE(engine) << engine.error.message;
  RunOptions options;
  const std::string control = std::getenv("TEST_CONTROL");
  options.control = control == "host"    ? megalith::Control::Host
                    : control == "graph" ? megalith::Control::Graph
                                         : megalith::Control::Resident;
  options.ticksPerLaunch = control == "ticks" ? 5 : 0;
  auto out = (*engine)->run(someRequests, options);
  ASSERT_TRUE(out) << out.error.message;
  std::printf("%d launches of the kernel: %d and %d of graphs, %d waits, %d copies, %d bytes\n", int(out->launches),
              int(out->calls.launches), int(out->calls.graphLaunches), int(out->calls.synchronizations),
              int(out->calls.copies), int(out->calls.bytes));
}

TEST(Child, DISABLED_load) {
  Outcome<Device> device = Device::open(**Driver::open());
  ASSERT_TRUE(device);
  auto engine = loadTiny(*device);
  if (engine)
    std::puts("loaded");
  else
    print(engine.error);
}

/// Loads the weights in small batches. TEST_CUT: of a file that became shorter meanwhile.
TEST(Child, DISABLED_batches) {
  Outcome<Device> device = Device::open(**Driver::open());
  ASSERT_TRUE(device);
  const std::string path = std::getenv("TEST_WEIGHTS");
  auto weights = megalith::SafetensorsFile::open(path);
  ASSERT_TRUE(weights) << weights.error.message;
  if (std::getenv("TEST_CUT"))
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5000);
  LoadOptions how;
  how.batchBytes = std::stoul(std::getenv("TEST_BATCH"));
  how.batches = static_cast<unsigned>(std::stoul(std::getenv("TEST_BATCHES")));
  uint64_t told = 0, calls = 0;
  how.progress = [&](uint64_t done, uint64_t total) {
    ++calls;
    EXPECT_TRUE(told < done && done <= total);
    told = done;
  };
  auto engine = Engine::load(*device, "cubin", std::getenv("TEST_MANIFEST"), *weights.value, how);
  if (!engine)
    return print(engine.error);
  std::printf("%d batches, %d bytes read, %d packed\n", int(calls), int((*engine)->weightBytes().read),
              int((*engine)->weightBytes().packed));
  EXPECT_EQ(told, (*engine)->weightBytes().read);
}

TEST(Child, DISABLED_link) {
  const Driver &driver = **Driver::open();
  auto linked = linkCubins(driver, {{"a.cu", "one "}, {"b.cu", "two"}});
  if (linked)
    std::printf("linked: %s by %s\n", linked->c_str(), driver.version().c_str());
  else
    print(linked.error);
}

//===----------------------------------------------------------------------===//
// What is checked
//===----------------------------------------------------------------------===//

TEST_F(FakeDriver, gpuAbsent) {
  std::string output = child("open", "MEGALITH_LIBCUDA=/nonexistent/libcuda.so.1");
  EXPECT_TRUE(contains(output, "no usable GPU: the NVIDIA driver's library cannot be opened (")) << output;
  EXPECT_TRUE(contains(output, "/nonexistent/libcuda.so.1"));
  EXPECT_TRUE(contains(output, "; `--device=reference` runs on any machine [gpu-absent]"));

  output = child("open", fake() + "FAKE_CUDA_INIT=100");
  EXPECT_TRUE(contains(output, "no usable GPU: the NVIDIA driver does not start (`cuInit` failed with "
                               "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected); "
                               "`--device=reference` runs on any machine [gpu-absent]"))
      << output;
  output = child("open", fake() + "FAKE_CUDA_DEVICES=0");
  EXPECT_TRUE(contains(output, "the NVIDIA driver finds no device")) << output;
  output = child("open", fake() + "TEST_ORDINAL=3");
  EXPECT_TRUE(contains(output, "there is no device number 3")) << output;
  EXPECT_TRUE(contains(output, "[gpu-absent]"));
}

TEST_F(FakeDriver, namesAnErrorThatTheDriverDoesNotKnow) {
  std::string output = child("open", fake() + "FAKE_CUDA_INIT=7777");
  EXPECT_TRUE(contains(output, "`cuInit` failed with an unknown error (7777): the driver does not "
                               "say more"))
      << output;
}

TEST_F(FakeDriver, isFoundByTheLoader) {
  std::string output = child("open", "LD_LIBRARY_PATH=" + dir);
  EXPECT_TRUE(contains(output, "Fake GPU 0 9.0 132 SMs 232448 shared 1048576 total cooperative 1 "
                               "sm_90a\n"))
      << output;
}

TEST_F(FakeDriver, gpuTooOld) {
  std::string output = child("open", fake() + "FAKE_CUDA_CAPABILITY=75");
  EXPECT_TRUE(contains(output, "the GPU `Fake GPU 0` is too old: its compute capability is 7.5, "
                               "8.0 or newer is needed; `--device=reference` runs on any machine "
                               "[gpu-too-old]"))
      << output;
  output = child("open", fake() + "FAKE_CUDA_CAPABILITY=80");
  EXPECT_TRUE(contains(output, "sm_80\n")) << output;
}

TEST_F(FakeDriver, ownsWhatItIsGiven) {
  std::string output = child("memory", fake());
  EXPECT_TRUE(contains(output, "not enough GPU memory: 2097152 bytes are needed, 1048512 are "
                               "available [gpu-out-of-memory]"))
      << output;
  EXPECT_TRUE(contains(output, "`cuModuleGetFunction` failed with CUDA_ERROR_NOT_FOUND: named "
                               "symbol not found (looking for `nothing`) [cuda-driver]"))
      << output;
  EXPECT_TRUE(contains(output, "fake: 0 held")) << output;
  child("memory", fake() + "FAKE_CUDA_BUSY=1");
}

TEST_F(FakeDriver, launchesAreCountedFromOutside) {
  for (const std::string &library : {fake(), "LD_LIBRARY_PATH=" + dir}) {
    std::string output = child("work", library + " LD_PRELOAD=" + dir + "/launch_counter.so");
    EXPECT_TRUE(contains(
        output,
        "{\"launch_counter\": {"
        "\"load\": {\"launches\": {\"megalith_pack\": 3}, \"launch_count\": 3, "
        "\"cooperative_count\": 0, \"graph_count\": 0, \"synchronizations\": 1, \"copies\": 2, \"bytes\": 1100, "
        "\"memsets\": 1}, "
        "\"run\": {\"launches\": {\"megalith_tick\": 1}, \"launch_count\": 1, "
        "\"cooperative_count\": 1, \"graph_count\": 0, \"synchronizations\": 1, \"copies\": 1, \"bytes\": 10, "
        "\"memsets\": 0}}}\n"))
        << output;
  }
}

/// Batches come one after the other through a few places, none of which is written to while it is still needed; the
/// checkpoint is never on the device as a whole.
TEST_F(FakeDriver, weightsAreThereOnce) {
  constexpr int layers = 40, tensorBytes = 64 * 100 * 2, all = layers * tensorBytes;
  std::string header = "{", data;
  for (int i = 0; i < layers; ++i)
    header += (i ? ", " : "") + ("\"layers." + std::to_string(i)) + R"(.w": {"dtype": "BF16", "shape": [64, 100], )" +
              "\"data_offsets\": [" + std::to_string(i * tensorBytes) + ", " + std::to_string((i + 1) * tensorBytes) +
              "]}";
  header += "}";
  uint32_t state = 1, hash = 0;
  for (int i = 0; i < all; ++i) {
    data += static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    hash = (hash ^ static_cast<unsigned char>(data.back())) * 16777619u;
  }
  const uint64_t length = header.size();
  const std::string path = dir + "/batches.safetensors";
  const auto write = [&] {
    std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char *>(&length), 8) << header << data;
  };
  std::string manifest = tinyManifest();
  const auto replace = [&](const std::string &from, const std::string &to) {
    ASSERT_LT(manifest.find(from), manifest.size()) << from;
    manifest.replace(manifest.find(from), from.size(), to);
  };
  replace("\"stream_bytes\": 4096", "\"stream_bytes\": " + std::to_string(all));
  replace("\"layers\": 2, \"index\"", "\"layers\": " + std::to_string(layers) + ", \"index\"");
  replace("\"shape\": [2, 3]", "\"shape\": [64, 100]");
  const std::string facts = std::to_string(megalith::abi::kAbiVersion) + " " +
                            std::to_string(sizeof(megalith::abi::LaunchParams)) +
                            " 191104 6536 24 4120 32 128 0 0 1 260 0 0 0 512 0 0 0 128 0 0 0";
  const auto load = [&](int batch, int batches, const std::string &more = "") {
    return child("batches", fake() + "FAKE_CUDA_FACTS='" + facts + "' FAKE_CUDA_PACK='" + std::to_string(layers) + " " +
                                std::to_string(tensorBytes) + "' TEST_WEIGHTS=" + path + " TEST_MANIFEST='" + manifest +
                                "' TEST_BATCH=" + std::to_string(batch) + " TEST_BATCHES=" + std::to_string(batches) +
                                " " + more);
  };
  write();
  char packed[64];
  std::snprintf(packed, sizeof packed, "fake: packed %08x, peak ", hash);
  // A batch of 4096 bytes has a table of 40 * 32.
  constexpr int pieces = 4096 - layers * 32, expected = (all + pieces - 1) / pieces;
  for (int batches : {1, 2, 3, 4, 7, 12}) {
    const std::string output = load(4096, batches);
    EXPECT_TRUE(contains(output, std::to_string(expected) + " batches, " + std::to_string(all) + " bytes read, " +
                                     std::to_string(all) + " packed\n"))
        << output;
    EXPECT_TRUE(contains(output, packed)) << batches << output;
    EXPECT_TRUE(contains(output, "fake: 0 held")) << output;
    const size_t peak = std::strtoul(output.c_str() + output.find(" peak ") + 6, nullptr, 10);
    // Beside them: activations, K and V, flagged words, the table of addresses.
    EXPECT_LT(peak, size_t(all + std::min(batches, expected) * 4096 + 4096)) << batches;
  }
  EXPECT_TRUE(contains(load(64 << 20, 4), "1 batches, ")) << "no more memory than there is to bring";

  const std::string cut = load(4096, 4, "TEST_CUT=1");
  EXPECT_TRUE(contains(cut, path + ": it changed while it was read [input-changed]\n")) << cut;
  EXPECT_TRUE(contains(cut, "fake: 0 held")) << cut;
}

TEST_F(FakeDriver, linksUnits) {
  std::string output = child("link", fake());
  EXPECT_TRUE(contains(output, "linked: one two by 13.0 (libcuda.so.1)\n")) << output;
  EXPECT_TRUE(contains(output, "fake: 0 held")) << output;
  output = child("link", fake() + "FAKE_CUDA_LINK=500");
  EXPECT_TRUE(contains(output, "`cuLinkComplete` failed with CUDA_ERROR_NOT_FOUND: named symbol not found: undefined "
                               "reference to `controlTicks` [cuda-driver]\n"))
      << output;
  EXPECT_TRUE(contains(output, "fake: 0 held")) << output;
}

TEST_F(FakeDriver, unitsThatDoNotFitAreNotRun) {
  const std::string weights = "TEST_WEIGHTS=" + writeWeights() + " ";
  const auto said = [&](const std::string &control, const std::string &tensors) {
    return child("load",
                 fake() + weights + "FAKE_CUDA_FACTS='" + control + "' FAKE_CUDA_TENSOR_FACTS='" + tensors + "'");
  };
  const std::string params = std::to_string(sizeof(megalith::abi::LaunchParams)),
                    abi = std::to_string(megalith::abi::kAbiVersion),
                    rest = " 191104 6536 24 4120 32 128 0 0 1 260 0 0 0 512 0 0 0 128 0 0 0",
                    good = abi + " " + params + rest;
  EXPECT_TRUE(contains(said(good, good), "loaded\n"));
  std::string other = good;
  other.replace(other.find("191104"), 6, "189056");
  EXPECT_TRUE(
      contains(said(other, good),
               "the units of the kernel do not fit: first byte of control's state in shared memory: 189056 in the "
               "control unit, 191104 in the tensor unit; compile both again [kernel-units]\n"));
  EXPECT_TRUE(contains(said(good + "1", good), "positions of a page: 1 in the control unit, 0 in the tensor unit"));
  const std::string old = "1 " + params + rest, wide = abi + " 8" + rest;
  EXPECT_TRUE(contains(said(old, old), "version of the binary interface: 1 in the kernel, " + abi + " in the runtime"));
  EXPECT_TRUE(contains(said(wide, wide), "bytes of the launch's parameters: 8 in the kernel, " + params));
  EXPECT_TRUE(contains(said("1 2", "1 2"), "`megalith_control_facts` of the kernel has 8 bytes, this runtime reads 92; "
                                           "compile the pipeline again [kernel-units]\n"));
}

/// A run is one cooperative launch and one synchronisation, and fetches what the outcome
/// needs and no more.
TEST_F(FakeDriver, engineMovesWhatItMust) {
  const std::string facts = std::to_string(megalith::abi::kAbiVersion) + " " +
                            std::to_string(sizeof(megalith::abi::LaunchParams)) +
                            " 191104 6536 24 4120 32 128 0 0 1 260 0 0 0 512 0 0 0 128 0 0 0";
  std::string output = child("engine", fake() + "FAKE_CUDA_FACTS='" + facts + "' TEST_WEIGHTS=" + writeWeights() +
                                           " LD_PRELOAD=" + dir + "/launch_counter.so");
  // Weights: a table of two entries of 32 bytes, and two pieces of 16 bytes.
  const int weights = 2 * 32 + 2 * 16;
  // Up: requests 224, tokens 32, eos 8, slots 16, free list 16, rope table 176.
  // Down: requests, tokens, stop 16, metrics 16, stats 56, times 6 * 16; then trace 4096 and logits 2 * 4 * 5 * 4, too.
  const int up = 224 + 32 + 8 + 16 + 16 + 176, down = 224 + 32 + 16 + 16 + 56 + 96;
  // `load` ends with the first launch: the facts of both units, a batch of weights, the table of those that stay in the
  // checkpoint's order, and all that run 1 starts from.
  EXPECT_TRUE(contains(
      output, "\"load\": {\"launches\": {\"megalith_pack\": 1}, \"launch_count\": 1, "
              "\"cooperative_count\": 0, \"graph_count\": 0, \"synchronizations\": 5, \"copies\": 10, \"bytes\": " +
                  std::to_string(2 * 92 + weights + 16 + up) + ", \"memsets\": 13}"))
      << output;
  EXPECT_TRUE(contains(
      output, "\"run\": {\"launches\": {\"megalith_run\": 2}, \"launch_count\": 2, "
              "\"cooperative_count\": 2, \"graph_count\": 0, \"synchronizations\": 2, \"copies\": 20, \"bytes\": " +
                  std::to_string(down + up + down + 4096 + 160) + ", \"memsets\": 10}"))
      << output;
  EXPECT_TRUE(contains(output, "fake: 0 held")) << output;
}

/// Who keeps the loop asks for what the mode says, and the counts of a run are those that are seen from outside.
TEST_F(FakeDriver, controlModesAskForWhatTheySay) {
  using megalith::abi::LaunchParams, megalith::abi::Stats;
  const std::string facts = std::to_string(megalith::abi::kAbiVersion) + " " + std::to_string(sizeof(LaunchParams)) +
                            " 191104 6536 24 4120 32 128 0 0 1 260 0 0 0 512 0 0 0 128 0 0 0";
  const auto run = [&](const std::string &control, int unfinished) {
    return child("control", fake() + "FAKE_CUDA_FACTS='" + facts + "' TEST_WEIGHTS=" + writeWeights() +
                                " TEST_CONTROL=" + control + " FAKE_CUDA_UNFINISHED=" + std::to_string(unfinished) +
                                " FAKE_CUDA_WORD='" + std::to_string(offsetof(LaunchParams, stats)) + " " +
                                std::to_string(offsetof(Stats, unfinished)) + "' LD_PRELOAD=" + dir +
                                "/launch_counter.so");
  };
  const int stats = 56, times = 6 * 16, results = 224 + 32 + 16 + 16 + stats + times, states = 224 + 32;
  struct {
    const char *control;
    int launches, graphs, waits, copies, bytes;
  } modes[] = {{"resident", 1, 0, 1, 6, results},
               {"ticks", 3, 0, 4, 3 + 6, 3 * stats + results},
               {"host", 3, 0, 4, 9 + 6, 3 * (stats + states) + results},
               {"graph", 0, 3, 4, 9 + 6, 3 * (stats + states) + results}};
  for (const auto &mode : modes) {
    const bool resident = mode.control == std::string("resident");
    const std::string output = run(mode.control, resident ? 0 : 2);
    const auto text = [](const char *format, auto... values) {
      char buffer[300];
      std::snprintf(buffer, sizeof buffer, format, values...);
      return std::string(buffer);
    };
    EXPECT_TRUE(
        contains(output, text("%d launches of the kernel: %d and %d of graphs, %d waits, %d copies, %d bytes\n",
                              resident ? 1 : 3, mode.launches, mode.graphs, mode.waits, mode.copies, mode.bytes)))
        << mode.control << output;
    EXPECT_TRUE(contains(output, text("\"launch_count\": %d, \"cooperative_count\": %d, \"graph_count\": %d, "
                                      "\"synchronizations\": %d, \"copies\": %d, \"bytes\": %d, \"memsets\": 0}}}",
                                      mode.launches, mode.launches, mode.graphs, mode.waits, mode.copies, mode.bytes)))
        << mode.control << output;
    EXPECT_TRUE(contains(output, "fake: 0 held")) << output;
  }
}

TEST(ArchFor, picksACubinThatRuns) {
  auto arch = [](int major, int minor) {
    DeviceInfo info;
    info.major = major;
    info.minor = minor;
    return archFor(info);
  };
  EXPECT_EQ(arch(8, 0), "sm_80");
  EXPECT_EQ(arch(8, 9), "sm_80");
  EXPECT_EQ(arch(9, 0), "sm_90a");
  EXPECT_EQ(arch(10, 0), "sm_100a");
  EXPECT_EQ(arch(10, 3), "sm_103");
  EXPECT_EQ(arch(12, 0), "sm_120");
}

} // namespace
