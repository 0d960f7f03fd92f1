//===- products of a wide pass on a GPU: their bits, and how long they take ===//
//
//   build.sh FOLDER, then on a machine with an H100 or H200: FOLDER/wide FOLDER/wide.cubin 512 1024 2048
//
// For each number of rows, 16 layers of the 1B shape without attention. `differ` counts values that differ
// from those of mma.sync in the same order of sums, of all buffers and of the pool, in three runs: it must be 0.
//===----------------------------------------------------------------------===//
#include "Launch.h"
#include "WideTestParams.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
constexpr int kLayers = 16;
struct Shape {
  const char *name;
  int N, K;
  float scale;
} shapes[4] = {
    {"qkv", 3072, 2048, 1.f}, {"o", 2048, 2048, .1f}, {"gate_up", 16384, 2048, 1.f}, {"down", 2048, 8192, .1f}};
int main(int argc, char **argv) {
  setbuf(stdout, nullptr);
  std::vector<int> rowsList;
  for (int i = 2; i < argc; ++i)
    rowsList.push_back(atoi(argv[i]));
  const Module m(argv[1]);
  u16 *w[kLayers][4];
  char *stream;
  CHECK(cudaMalloc(&stream, 1946157056));
  for (int l = 0; l < kLayers; ++l)
    for (int i = 0; i < 4; ++i) {
      const Shape &s = shapes[i];
      CHECK(cudaMalloc(&w[l][i], (size_t)s.N * s.K * 2));
      m.launch("fillRandom", 1056, 256, w[l][i], (long long)s.N * s.K, s.scale * sqrtf(3.f / s.K),
               (u32)(l * 4 + i + 1));
      m.launch("packWeights", 1056, 256, stream, (const u16 *)w[l][i], i, l);
    }
  CHECK(cudaDeviceSynchronize());
  const int most = 2048 + 128, positions = 8192;
  u16 *input, *rx, *rn, *rq, *rh, *norm;
  char *x, *n, *q, *h;
  float *y, *rope;
  u16 *kv[4];
  u32 *words;
  int *pages;
  u64 *different;
  const size_t poolBytes = 16ll * 512 * 8 * 128 * 64 * 2;
  CHECK(cudaMalloc(&input, most * 4096));
  CHECK(cudaMalloc(&rx, most * 4096));
  CHECK(cudaMalloc(&rn, most * 4096));
  CHECK(cudaMalloc(&n, most * 4096));
  CHECK(cudaMalloc(&norm, 4096));
  CHECK(cudaMalloc(&rq, most * 4096));
  CHECK(cudaMalloc(&rh, most * 16384));
  CHECK(cudaMalloc(&x, most * 4096));
  CHECK(cudaMalloc(&q, most * 4096));
  CHECK(cudaMalloc(&h, most * 16384));
  CHECK(cudaMalloc(&y, most * 65536ll));
  CHECK(cudaMalloc(&rope, positions * 256));
  CHECK(cudaMalloc(&words, 1 << 16));
  CHECK(cudaMalloc(&different, 8));
  for (auto &p : kv)
    CHECK(cudaMalloc(&p, poolBytes));
  std::vector<int> table(8 * 64);
  for (int i = 0; i < 8 * 64; ++i)
    table[i] = (i * 197 + 31) % 512;
  CHECK(cudaMalloc(&pages, table.size() * 4));
  CHECK(cudaMemcpy(pages, table.data(), table.size() * 4, cudaMemcpyHostToDevice));
  m.launch("fillRandom", 8, 256, norm, 2048ll, 1.f, 78u);
  m.launch("fillRope", 256, 256, rope, positions);
  m.launch("fillRandom", 1056, 256, input, (long long)most * 2048, 1.f, 77u);
  CHECK(cudaDeviceSynchronize());
  const auto run = [&](TestParams p, int reps) {
    const ResidentKernel kernel(m, "run");
    std::vector<float> times;
    for (int r = 0; r < reps; ++r) {
      CHECK(cudaMemsetAsync(words, 0, 1 << 16));
      m.launch("packRows", 264, 256, x, (const u16 *)input, p.rows);
      const float ms = kernel.time(&p);
      times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  for (int rows : rowsList) {
    TestParams p = {};
    p.stream = stream, p.x = x, p.n = n, p.norm = norm, p.q = q, p.h = h, p.keys = kv[0], p.values = kv[1],
    p.ropeCosSin = rope, p.pageTable = pages, p.done = words, p.spoiled = words + 4096;
    p.pageTableStride = 64, p.rows = rows, p.layers = kLayers, p.first = 0, p.count = 6;
    int at = 0; // runs of many lengths
    for (int i = 0; i < 3 && at < rows; ++i) {
      const int length = i == 2 ? rows - at : std::min(rows - at, rows / 3 + 5 * i);
      p.run[p.runs++] = {2 * i + 1, at, length, 300 * i + 77};
      at += length;
    }
    // the reference
    CHECK(cudaMemcpy(rx, input, (size_t)rows * 4096, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemset(kv[2], 0xff, poolBytes));
    CHECK(cudaMemset(kv[3], 0xff, poolBytes));
    TestParams ref = p;
    ref.keys = kv[2], ref.values = kv[3];
    for (int l = 0; l < kLayers; ++l)
      for (int i = 0; i < 4; ++i) {
        const Shape &s = shapes[i];
        if (i % 2 == 0)
          m.launch("norms", 264, 256, (const u16 *)norm, (const u16 *)rx, rn, rows);
        const u16 *from = i == 1 ? rq : i == 3 ? rh : rn;
        u16 *to = i == 0 ? rq : i == 2 ? rh : rx;
        m.launch("product", dim3(s.N / 32, (rows + 63) / 64), 128, (const u16 *)w[l][i], from, y, s.N, s.K, rows);
        m.launch("after", 1056, 256, ref, (const float *)y, to, i, l);
      }
    CHECK(cudaDeviceSynchronize());
    u64 count, differ = 0;
    CHECK(cudaMemset(x, 0xff, most * 4096));
    CHECK(cudaMemset(q, 0xff, most * 4096));
    CHECK(cudaMemset(h, 0xff, most * 16384));
    CHECK(cudaMemset(kv[0], 0xff, poolBytes));
    CHECK(cudaMemset(kv[1], 0xff, poolBytes));
    for (int again = 0; again < 3; ++again) {
      run(p, 1);
      CHECK(cudaMemset(different, 0, 8));
      m.launch("countImage", 264, 256, (const char *)x, (const u16 *)rx, rows, 2048, different);
      m.launch("countImage", 264, 256, (const char *)q, (const u16 *)rq, rows, 2048, different);
      m.launch("countImage", 264, 256, (const char *)h, (const u16 *)rh, rows, 8192, different);
      for (int i = 0; i < 2; ++i)
        m.launch("countPlain", 264, 256, (const u32 *)kv[i], (const u32 *)kv[2 + i], (long long)poolBytes / 4,
                 different);
      CHECK(cudaMemcpy(&count, different, 8, cudaMemcpyDeviceToHost));
      differ += count;
    }
    u32 spoiled;
    const float ms = run(p, 9);
    CHECK(cudaMemcpy(&spoiled, p.spoiled, 4, cudaMemcpyDeviceToHost));
    double flop = 0;
    for (const Shape &s : shapes)
      flop += 2. * rows * s.N * s.K * kLayers;
    printf("rows %4d: differ %llu, spoiled %u | %.3f ms, %.0f TFLOP/s |", rows, differ, spoiled, ms, flop / ms * 1e-9);
    const auto only = [&](int first, int count) {
      TestParams one = p;
      one.first = first, one.count = count;
      return run(one, 5) / kLayers * 1e3;
    };
    for (int i = 0; i < 4; ++i) {
      const float us = only(i < 2 ? 1 + i : 2 + i, 1);
      printf(" %s %.1f us, %.0f", shapes[i].name, us, 2. * rows * shapes[i].N * shapes[i].K / us * 1e-6);
    }
    printf(" norm %.1f us", only(0, 1));
    printf("\n");
  }
  return 0;
}
