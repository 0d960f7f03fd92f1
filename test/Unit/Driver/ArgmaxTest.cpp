// The argmax of device/Rows.cuh, on the CPU executor.
#include "megalith/Driver/Compilation.h"
#include "runtime/cpu/CpuEngine.h"
#include <cmath>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <limits>

using namespace megalith;

namespace {

const char *const kernel = R"(#include "megalith/Device.cuh"
using namespace megalith::device;
// One warp: `count` values dealt to its lanes. Both ways in which lanes put theirs together.
extern "C" __global__ void argmax(const float *values, int count, int *out) {
  Best of;
  for (int i = threadIdx.x; i < count; i += 32)
    of.take(values[i], i);
  Best pairwise = of;
  of.takeLanes();
  for (int d = 1; d < 32; d *= 2)
    pairwise.takeLane(d);
  if (threadIdx.x == 0) {
    out[0] = of.index();
    out[1] = pairwise.index();
  }
})";

struct Case {
  const char *what;
  std::vector<float> values;
  int index;
};

TEST(ArgmaxTest, TheLowestIndexOfTheGreatestValue) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> many(100, -3.0f), late(100, -3.0f);
  many[40] = many[71] = many[99] = 2.5f;
  late[97] = std::numeric_limits<float>::lowest();
  late[98] = -2.0f;
  const std::vector<Case> cases = {
      {"one", {-7.0f}, 0},
      {"equal ones", {1.0f, 3.0f, 3.0f, 2.0f}, 1},
      {"equal ones in several lanes and turns", many, 40},
      {"the last but one", late, 98},
      {"negative ones", {-2.0f, -1.0f, -1.0f, -3.0f}, 1},
      {"zeros of both signs are equal", {-0.0f, 0.0f}, 0},
      {"and the other way round", {-1.0f, 0.0f, -0.0f}, 1},
      {"subnormal", {1e-45f, 3e-45f, -1e-45f}, 1},
      {"nothing but -inf", {-inf, -inf, -inf}, 0},
      {"inf", {3e38f, inf, inf}, 1},
      {"a NaN", {1.0f, nan, inf}, -2},
      {"a negative NaN", {1.0f, 2.0f, std::copysign(nan, -1.0f)}, -2},
  };

  SourceFiles sources;
  Diagnostics diags{sources};
  const auto compiled = driver::assembleHostText(kernel, "argmax.cu", {.checked = true, .arch = 900}, diags);
  ASSERT_TRUE(compiled) << diags.render();
  void *library = dlopen(compiled->path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  auto bind = reinterpret_cast<void (*)(const cpu::Host *)>(dlsym(library, "megalith_cpu_bind"));
  auto argmax = reinterpret_cast<void (*)(const float *, int, int *)>(dlsym(library, "argmax"));
  ASSERT_TRUE(bind && argmax);
  for (const Case &c : cases) {
    cpu::Executor executor;
    bind(executor.host());
    const int count = static_cast<int>(c.values.size());
    const auto *values = reinterpret_cast<const float *>(
        executor.allocate("values", c.values.size() * 4, cpu::Initial::Const, c.values.data()));
    auto *out = reinterpret_cast<int *>(executor.allocate("out", 16, cpu::Initial::Zero));
    cpu::LaunchOptions how;
    how.check = true;
    const auto result = executor.launch({1, 32, 0}, how, [&] { argmax(values, count, out); });
    ASSERT_FALSE(result.finding) << result.finding->what << ": " << c.what;
    EXPECT_EQ(out[0], c.index) << c.what;
    EXPECT_EQ(out[1], c.index) << c.what;
  }
  dlclose(library);
}

} // namespace
