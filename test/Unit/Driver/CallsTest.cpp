// Calls of pipelines of buffers under many schedules: as they are, and with a fault in the device code, which must be
// found.
#include "megalith/Driver/Compilation.h"
#include "megalith/IR/Buffers.h"
#include "megalith/Reference/Buffers.h"
#include "runtime/cpu/CpuCalls.h"
#include "runtime/cpu/Explorer.h"
#include "llvm/ADT/StringRef.h"
#include <gtest/gtest.h>
#include <random>

using namespace megalith;

namespace {

struct Change {
  const char *file, *find, *replace;
};

/// One of pipelines/verify with buffers that are made up.
class Calls {
public:
  Calls(const std::string &name, int64_t b, int64_t g, int64_t w) : diags(sources) {
    driver::CompileOptions options;
    options.file = std::string(MEGALITH_SOURCE_DIR) + "/pipelines/verify/" + name + ".yaml";
    options.profile = "cpu";
    auto compiled = driver::compile(options, diags);
    EXPECT_TRUE(compiled) << diags.render();
    module = std::move(compiled->module);
    const auto plan = driver::makeCallPlan(module, options, diags);
    EXPECT_TRUE(plan) << diags.render();
    source = driver::emitSource(module, *plan, diags);
    shapes = ir::shapesOf(module, {{"b", b}, {"g", g}, {"w", w}});
    for (const ir::Operation *buffer : module.all(ir::Op::Buffer)) {
      int64_t bytes = ir::bytesOf(buffer->get<ir::attr::dtype>());
      for (int64_t size : shapes.shapes.at(buffer->name))
        bytes *= size;
      names.push_back(buffer->name);
      memory.emplace_back(bytes);
    }
    std::mt19937 random(5);
    auto *draft = reinterpret_cast<int64_t *>(memory[0].data()),
         *target = reinterpret_cast<int64_t *>(memory[1].data());
    for (int64_t i = 0; i < b; ++i) {
      const auto right = static_cast<int64_t>(random() % static_cast<uint64_t>(g + 1));
      for (int64_t j = 0; j <= g; ++j)
        target[i * (g + 1) + j] = j < g ? (draft[i * g + j] = static_cast<int64_t>(random() % 100)) + (j == right) : 7;
    }
    for (uint8_t &byte : memory[2])
      byte = static_cast<uint8_t>(random());
    expected = memory;
    std::map<std::string, void *> all;
    for (size_t i = 0; i < names.size(); ++i)
      all[names[i]] = expected[i].data();
    EXPECT_FALSE(reference::runBuffers(module, shapes, all));
  }

  /// How it went wrong in one of the schedules, each with a second call behind it; empty: it did not.
  std::string explore(uint64_t schedules, const Change *change = nullptr) {
    driver::HostOptions host{.checked = true, .arch = 900, .quick = true};
    bool changed = !change;
    if (change)
      host.edit = [&](std::vector<jit::Header> &headers) {
        for (jit::Header &header : headers)
          if (llvm::StringRef(header.name).ends_with(change->file))
            if (const size_t at = header.text.find(change->find); at != std::string::npos) {
              EXPECT_EQ(header.text.find(change->find, at + 1), std::string::npos) << change->find;
              header.text.replace(at, std::string(change->find).size(), change->replace);
              changed = true;
            }
      };
    const auto kernel = driver::assembleHost(source.units, host, diags);
    EXPECT_TRUE(kernel && changed) << diags.render() << (change ? change->find : "");
    if (!kernel || !changed)
      return "";
    auto loaded = cpu::CpuCalls::load(kernel->path, source.manifest);
    EXPECT_TRUE(loaded) << loaded.error.message;
    for (uint64_t seed = 0; seed < schedules; ++seed)
      for (int again = 0; again < 2; ++again)
        if (const std::string wrong = call(**loaded, seed); !wrong.empty())
          return wrong;
    return "";
  }

private:
  SourceFiles sources;
  Diagnostics diags;
  ir::Module module;
  driver::Source source;
  ir::CallShapes shapes;
  std::vector<std::string> names;
  std::vector<std::vector<uint8_t>> memory, expected;

  std::string call(cpu::CpuCalls &calls, uint64_t seed) {
    auto own = memory;
    std::vector<runtime::CallBuffer> buffers;
    for (size_t i = 0; i < names.size(); ++i)
      buffers.push_back({own[i].data(), shapes.shapes.at(names[i]).data()});
    if (calls.image().prepare(buffers, false))
      return "refused";
    cpu::LaunchOptions how;
    how.check = true;
    how.schedule = cpu::scheduleOf(seed);
    how.maxIdleSteps = 300'000;
    how.progress = [] { return 0; };
    const auto ran = calls.run(buffers, false, how);
    if (!ran)
      return ran.error.message;
    if (ran->launch.finding)
      return cpu::findingName(ran->launch.finding->kind);
    return own == expected ? "" : "another result";
  }
};

TEST(Calls, AreSound) {
  EXPECT_EQ(Calls("verify_pack", 13, 40, 5).explore(100), "");
  EXPECT_EQ(Calls("verify_pack", 70, 3, 2100).explore(20), "");   // rows of more than one part
  EXPECT_EQ(Calls("verify_two_step", 70, 30, 3).explore(20), ""); // a scan by the CTA that ends a stage
}

TEST(Calls, PlantedFaultsAreFound) {
  const Change oneScan[] = {
      // A stage does not wait for the one before it; or sees that it is through, and not what it has written.
      {"Call.cuh", "while (loadAcquire(done) < u32(call.work[stage].need))", "while (false)"},
      {"Call.cuh", "while (loadAcquire(done) < u32(call.work[stage].need))",
       "while (loadRelaxed(done) < u32(call.work[stage].need))"},
      {"Call.cuh", "        addRelease(done, 1);", "        atomicAdd(done, 1u);"},
      // Counters are left as they are.
      {"Call.cuh", "atomicExch(&counters.done[(taken >> abi::kCallTicketBits & 1) ^ 1], 0u);", ";"},
      {"Call.cuh", "atomicAdd(&counters.ticket, (1u << abi::kCallTicketBits) - gridDim.x);", ";"},
      // Two warps have the same item; two parts of a copy overlap.
      {"Call.cuh", "for (long long i = work.low + rank; i < work.high; i += ranks) {\n    if constexpr",
       "for (long long i = work.low + rank / 2; i < work.high; i += ranks / 2) {\n    if constexpr"},
      {"Call.cuh", "t.bytes : cut(part + 1)) - begin);", "t.bytes : min(t.bytes, cut(part + 1) + 2)) - begin);"},
      // What a CTA scans for itself is read before all of it is there.
      {"Call.cuh", "      total = wrapAdd(total, __shfl_sync(~0u, sumsBefore, 31));\n      __syncthreads();",
       "      total = wrapAdd(total, __shfl_sync(~0u, sumsBefore, 31));"},
  };
  for (const Change &change : oneScan)
    EXPECT_NE(Calls("verify_pack", 70, 3, 2100).explore(60, &change), "") << change.find << "\n  " << change.replace;
  const Change byTheLast[] = {
      // The first CTA that ends goes on, and not the last.
      {"Call.cuh", "shared.ended = addAcquireRelease(done, 1) + 1 == u32(next.need);",
       "shared.ended = addAcquireRelease(done, 1) + 2 == u32(next.need);"},
      {"Call.cuh", "    __syncthreads(); // what all threads of the CTA have written\n", ""},
  };
  for (const Change &change : byTheLast)
    EXPECT_NE(Calls("verify_two_step", 70, 30, 3).explore(60, &change), "") << change.find << "\n  " << change.replace;
}

} // namespace
