//===- attention of a wide pass on a GPU: its bits, and how long it takes ----===//
//
//   build.sh FOLDER, then on a machine with an H100 or H200: FOLDER/attend FOLDER/attend64.cubin FOLDER/attend128.cubin
//
// First bits: `differ` counts values that differ from those of the law of docs/ir.md by mma.sync, in three runs: it
// must be 0. Then the time of a layer, of passes of a prompt from a position on.
//===----------------------------------------------------------------------===//
#include "AttendTestParams.h"
#include "Launch.h"
#include <algorithm>
#include <utility>
#include <vector>
using u16 = unsigned short;
using u64 = unsigned long long;
constexpr int kLayers = 4, kSlots = 8, kPagesOfSlot = 64, kMostRows = 2048 + 128;

int main(int argc, char **argv) {
  setbuf(stdout, nullptr);
  for (int i = 1; i < argc; ++i) {
    const Module m(argv[i]);
    const ResidentKernel kernel(m, "run");
    long long sizes[3], *sizesAt;
    CHECK(cudaMalloc(&sizesAt, sizeof(sizes)));
    m.launch("sizes", 1, 1, sizesAt);
    CHECK(cudaMemcpy(sizes, sizesAt, sizeof(sizes), cudaMemcpyDeviceToHost));
    const auto [columns, layerBytes, partBytes] = sizes;
    const size_t poolBytes = kLayers * layerBytes, imageBytes = (size_t)kMostRows * columns * 2;
    char *queries, *attended, *keys, *values, *parts;
    u16 *y;
    unsigned *done;
    u64 *different;
    int *pages;
    CHECK(cudaMalloc(&queries, imageBytes));
    CHECK(cudaMalloc(&attended, imageBytes));
    CHECK(cudaMalloc(&y, imageBytes));
    CHECK(cudaMalloc(&keys, poolBytes));
    CHECK(cudaMalloc(&values, poolBytes));
    CHECK(cudaMalloc(&parts, 132 * partBytes + 16));
    CHECK(cudaMalloc(&done, 4096));
    CHECK(cudaMalloc(&different, 8));
    std::vector<int> table(kSlots * kPagesOfSlot);
    for (int at = 0; at < kSlots * kPagesOfSlot; ++at)
      table[at] = (at * 197 + 31) % 512;
    CHECK(cudaMalloc(&pages, table.size() * 4));
    CHECK(cudaMemcpy(pages, table.data(), table.size() * 4, cudaMemcpyHostToDevice));
    const auto passOf = [&](const std::vector<std::pair<int, int>> &runs) { // rows, position
      AttendParams p = {};
      p.queries = queries, p.attended = attended, p.keys = keys, p.values = values, p.pageTable = pages;
      p.parts = parts, p.done = done, p.pageTableStride = kPagesOfSlot, p.layers = kLayers;
      for (const auto &[rows, position] : runs) {
        p.run[p.runs] = {(3 * p.runs + 1) % kSlots, p.rows, rows, position, 0};
        p.rows += rows, ++p.runs;
      }
      CHECK(cudaMemset(keys, 0xff, poolBytes));
      CHECK(cudaMemset(values, 0xff, poolBytes));
      for (int run = 0; run < p.runs; ++run)
        m.launch("fillPool", 1056, 256, p, run);
      m.launch("fillQueries", 1056, 256, queries, p.rows);
      return p;
    };
    const auto timeOf = [&](AttendParams &p) {
      CHECK(cudaMemset(done, 0, 4096));
      return kernel.time(&p);
    };
    const std::vector<std::vector<std::pair<int, int>>> loads = {
        {{1024, 0}}, {{300, 77}, {5, 2600}, {1, 0}, {341, 1000}}, {{61, 0}, {3, 8100}, {75, 250}, {700, 4000}}};
    for (const auto &load : loads) {
      AttendParams p = passOf(load);
      m.launch("law", (unsigned)((long long)p.rows * columns / 32 / 4), 128, p, kLayers - 1, y); // enough for any dim
      u64 differ = 0;
      for (int again = 0; again < 3; ++again) {
        CHECK(cudaMemset(attended, 0xff, imageBytes));
        timeOf(p);
        CHECK(cudaMemset(different, 0, 8));
        m.launch("countImage", 264, 256, (const char *)attended, (const u16 *)y, p.rows, different);
        u64 count;
        CHECK(cudaMemcpy(&count, different, 8, cudaMemcpyDeviceToHost));
        differ += count;
      }
      printf("%s, %d rows in %d runs: differ %llu\n", argv[i], p.rows, p.runs, differ);
    }
    for (const int rows : {256, 512, 1024, 2048})
      for (const int position : {0, 1024, 3072, 6144}) {
        AttendParams p = passOf({{rows, position}});
        std::vector<float> times;
        for (int again = 0; again < 7; ++again)
          times.push_back(timeOf(p));
        std::sort(times.begin(), times.end());
        const double us = times[3] / kLayers * 1e3, flop = 4. * columns * rows * (position + (rows + 1) / 2.);
        printf("%4d rows from %4d on: %.1f us a layer, %.0f TFLOP/s\n", rows, position, us, flop / us * 1e-6);
      }
    for (void *memory : {(void *)queries, (void *)attended, (void *)y, (void *)keys, (void *)values, (void *)parts,
                         (void *)done, (void *)different, (void *)pages, (void *)sizesAt})
      CHECK(cudaFree(memory));
  }
  return 0;
}
