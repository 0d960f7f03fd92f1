// Calls of pipelines of buffers through the library, in C++ and C, on the reference and the CPU executor.
#include "megalith/Api.h"
#include "megalith/megalith.h"
#include <gtest/gtest.h>
#include <limits>

using namespace megalith;

namespace {

constexpr const char *text = R"(pipeline: halves
dims: {n: 0..64, m: 1..4}
buffers:
  x:    {shape: '[n, m]', dtype: i64}
  sums: {shape: '[n]', dtype: i32}
  half: {shape: '[n]', dtype: f32}
stages:
  add:
    over: i in 0..n
    do:
      - s: sum(j in 0..m, x[i][j])
      - sums[i]: s
      - half[i]: f32(s) / 2
)";

std::string refusal(const Status &status) {
  return status.errors().begin() == status.errors().end() ? "" : status.errors().begin()->message;
}

struct Call : testing::TestWithParam<Device> {
  Call() {
    auto program = Program::compile({.file = "halves.yaml", .texts = {{"halves.yaml", text}}});
    EXPECT_TRUE(program);
    auto loaded = Kernel::load(*program, {.device = GetParam(), .check = GetParam() == Device::Cpu});
    EXPECT_TRUE(loaded);
    kernel.emplace(std::move(*loaded));
    buffers = {{"x", x.data(), ElementType::I64, shape.data(), 2},
               {"sums", sum.data(), ElementType::I32, shape.data(), 1},
               {"half", half.data(), ElementType::F32, shape.data(), 1}};
  }
  Status call(const std::vector<CallBuffer> &given, CallOptions options = {}) {
    return kernel->call(given.data(), given.size(), options);
  }
  /// Why a call is refused that has `buffer` in place of number `which`.
  std::string with(size_t which, CallBuffer buffer) {
    auto given = buffers;
    given[which] = buffer;
    return refusal(call(given));
  }

  std::optional<Kernel> kernel;
  std::vector<int64_t> x = {1, 2, 3, 4, 5, -6}, shape = {3, 2}, other = {2, 2};
  std::vector<int32_t> sum = {9, 9, 9};
  std::vector<float> half = {9, 9, 9};
  std::vector<CallBuffer> buffers;
};

TEST_P(Call, WritesBuffers) {
  for (bool perStage : {false, true}) {
    sum = {9, 9, 9};
    ASSERT_TRUE(call(buffers, {.perStage = perStage}));
    EXPECT_EQ(sum, std::vector<int32_t>({3, 7, -1}));
    EXPECT_EQ(half, std::vector<float>({1.5f, 3.5f, -.5f}));
  }
  ASSERT_TRUE(call({buffers[2], buffers[0], buffers[1]})); // in any order
  ASSERT_TRUE(kernel->check());
}

TEST_P(Call, OfNothing) {
  shape[0] = 0;
  for (CallBuffer &buffer : buffers)
    buffer.data = nullptr;
  EXPECT_TRUE(call(buffers));
}

TEST_P(Call, RefusesWhatItCannotHave) {
  EXPECT_EQ(with(1, {"sums", sum.data(), ElementType::I64, shape.data(), 1}),
            "cannot call `halves`: buffer `sums` is of i32, and the tensor of i64");
  EXPECT_EQ(with(1, {"sums", sum.data(), ElementType::I32, other.data(), 1}),
            "cannot call `halves`: dim `n` is 3 by buffer `x`, and 2 by `sums`");
  EXPECT_EQ(with(1, {"total", sum.data(), ElementType::I32, shape.data(), 1}),
            "cannot call `halves`: the pipeline has no buffer `total`");
  EXPECT_EQ(with(1, buffers[0]), "cannot call `halves`: buffer `x` is given twice");
  EXPECT_EQ(with(1, {"sums", nullptr, ElementType::I32, shape.data(), 1}),
            "cannot call `halves`: buffer `sums` has elements and no address");
  EXPECT_EQ(with(1, {"sums", reinterpret_cast<char *>(sum.data()) + 1, ElementType::I32, shape.data(), 1}),
            "cannot call `halves`: the address of buffer `sums` is no multiple of 4, the bytes of an element");
  EXPECT_EQ(with(1, {"sums", x.data() + 5, ElementType::I32, shape.data(), 1}),
            "cannot call `halves`: buffer `sums`, which a stage writes, overlaps `x` in memory");
  EXPECT_EQ(refusal(call({buffers[0], buffers[1]})),
            "cannot call `halves`: buffer `half` is missing: a call makes no memory");
  EXPECT_EQ(refusal(call({})), "cannot call `halves`: buffer `x` is missing, which no stage writes");
}

TEST_P(Call, TellsAFault) {
  x[3] = int64_t(1) << 40;
  const Status status = call(buffers);
  EXPECT_EQ(refusal(status),
            "the call ended in a fault, VALUE_RANGE: a stage read an element of a buffer of i64 that is "
            "no i32: its index in the whole buffer is 3");
  EXPECT_EQ(status.errors().begin()->line, 11u);
}

TEST_P(Call, HasNoRequests) {
  auto results = kernel->run({});
  ASSERT_FALSE(results);
  EXPECT_NE(results.errors().begin()->message.find("a pipeline of buffers has no requests, it is called"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Devices, Call, testing::Values(Device::Reference, Device::Cpu));

TEST(CallOfC, WritesBuffers) {
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  options.file = "halves.yaml";
  options.text = text;
  megalith_program *program = nullptr;
  megalith_kernel *kernel = nullptr;
  megalith_errors *errors = nullptr;
  ASSERT_EQ(megalith_program_compile(&options, &program, &errors), MEGALITH_OK);
  megalith_kernel_options how = MEGALITH_KERNEL_OPTIONS_INIT;
  how.device = MEGALITH_REFERENCE;
  ASSERT_EQ(megalith_kernel_load(program, &how, &kernel, &errors), MEGALITH_OK);
  int64_t x[] = {1, 2, 3, 4}, shape[] = {2, 2};
  int32_t sum[2];
  float half[2];
  megalith_buffer buffers[] = {
      {"x", x, MEGALITH_I64, shape, 2}, {"sums", sum, MEGALITH_I32, shape, 1}, {"half", half, MEGALITH_F32, shape, 1}};
  ASSERT_EQ(megalith_call(kernel, buffers, 3, nullptr, 0, &errors), MEGALITH_OK);
  EXPECT_EQ(sum[1], 7);
  EXPECT_EQ(half[1], 3.5f);
  EXPECT_EQ(megalith_check(kernel, nullptr, &errors), MEGALITH_OK);
  EXPECT_EQ(megalith_call(kernel, buffers, 2, nullptr, 0, &errors), MEGALITH_FAILED);
  EXPECT_NE(errors, nullptr);
  megalith_errors_free(errors);
  buffers[0].element = 9;
  EXPECT_EQ(megalith_call(kernel, buffers, 3, nullptr, 0, nullptr), MEGALITH_BAD_ARGUMENT);
  EXPECT_EQ(megalith_call(nullptr, buffers, 3, nullptr, 0, nullptr), MEGALITH_BAD_ARGUMENT);
  EXPECT_EQ(megalith_check(nullptr, nullptr, nullptr), MEGALITH_BAD_ARGUMENT);
  megalith_kernel_free(kernel);
  megalith_program_free(program);
}

} // namespace
