//===- law.cu - the law of `sample` on a GPU, and its bits ----------------===//
//
//   nvcc -std=c++20 -arch=native -I. -o law tools/acceptance/law.cu && ./law
//   c++ -std=c++20 -O2 -ffp-contract=off -I. -o law_values tools/acceptance/law_values.cpp && ./law_values
//
// Draws with the functions of device/Sampling.h, 200,000 times for each of 20 seeds, from a vocabulary of 64 and from one
// of 128 K, of which the 200 likeliest are counted one by one. chi squared against exact probabilities in f64; all
// p-values must be between 0.001 and 0.999. values.bin gets what the functions give for many numbers; law_values.cpp
// compares its bits with those of the host.
//===----------------------------------------------------------------------===//
#include "device/Exact.h"
#include "device/Sampling.h"
#include "law_values.h"
#include "Gamma.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

using namespace megalith::sampling;

static void check(cudaError_t e) {
  if (e != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(e));
    std::exit(1);
  }
}

/// A CTA makes one draw.
__global__ void draw(const float *y, int vocab, u32 seed, int *counts) {
  __shared__ u64 best[32];
  u64 key = 0;
  for (u32 quad = threadIdx.x; quad * 4 < (u32)vocab; quad += blockDim.x) {
    const Words w = words({0, seed}, (int)blockIdx.x, quad, purposeOfDraw(0));
    for (u32 i = 0; i < 4 && quad * 4 + i < (u32)vocab; ++i) {
      const u64 k = keyOf(score(y[quad * 4 + i], w.w[i]), quad * 4 + i);
      key = k > key ? k : key;
    }
  }
  for (int d = 16; d; d >>= 1) {
    const u64 other = __shfl_xor_sync(~0u, key, d);
    key = other > key ? other : key;
  }
  if (threadIdx.x % 32 == 0)
    best[threadIdx.x / 32] = key;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (u32 i = 1; i < blockDim.x / 32; ++i)
      key = best[i] > key ? best[i] : key;
    atomicAdd(counts + tokenOf(key), 1);
  }
}

__global__ void evaluate(Values *out) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = valuesOf(i);
}

int main() {
  constexpr int draws = 200000, seeds = 20;
  bool good = true;
  for (int vocab : {64, 128256}) {
    std::vector<double> ps;
    for (u32 seed = 0; seed < seeds; ++seed) {
      std::mt19937 random(seed + 1);
      std::normal_distribution<float> normal(0, 2);
      std::vector<float> y(vocab);
      for (float &v : y)
        v = normal(random) * (vocab > 64 ? 1.5f : 1.0f);
      float *dy;
      int *dc;
      check(cudaMalloc(&dy, vocab * 4));
      check(cudaMalloc(&dc, vocab * 4));
      check(cudaMemcpy(dy, y.data(), vocab * 4, cudaMemcpyHostToDevice));
      check(cudaMemset(dc, 0, vocab * 4));
      draw<<<draws, vocab > 64 ? 256 : 32>>>(dy, vocab, seed, dc);
      check(cudaDeviceSynchronize());
      std::vector<int> counts(vocab), order(vocab);
      check(cudaMemcpy(counts.data(), dc, vocab * 4, cudaMemcpyDeviceToHost));
      check(cudaFree(dy));
      check(cudaFree(dc));
      const double m = *std::max_element(y.begin(), y.end());
      double sum = 0, chi = 0, rest = draws, restP = 1;
      for (float v : y)
        sum += std::exp(v - m);
      for (int i = 0; i < vocab; ++i)
        order[i] = i;
      std::sort(order.begin(), order.end(), [&](int a, int b) { return y[a] > y[b]; });
      int cells = 0;
      for (int i = 0; i < std::min(vocab, 200); ++i) {
        const double p = std::exp(y[order[i]] - m) / sum;
        if (p * draws < 10)
          break;
        chi += std::pow(counts[order[i]] - p * draws, 2) / (p * draws);
        rest -= counts[order[i]];
        restP -= p;
        ++cells;
      }
      if (restP * draws > 1) {
        chi += std::pow(rest - restP * draws, 2) / (restP * draws);
        ++cells;
      }
      ps.push_back(upperGamma((cells - 1) / 2.0, chi / 2));
    }
    std::sort(ps.begin(), ps.end());
    std::printf("vocabulary %d: p", vocab);
    for (double p : ps) {
      std::printf(" %.4f", p);
      good = good && p > 0.001 && p < 0.999;
    }
    std::printf("\n");
  }
  constexpr int count = kLawValues;
  Values *d;
  check(cudaMalloc(&d, count * sizeof(Values)));
  evaluate<<<count / 256, 256>>>(d);
  std::vector<Values> values(count);
  check(cudaMemcpy(values.data(), d, count * sizeof(Values), cudaMemcpyDeviceToHost));
  FILE *out = std::fopen("values.bin", "wb");
  std::fwrite(values.data(), sizeof(Values), count, out);
  std::fclose(out);
  std::printf(good ? "ok\n" : "a p-value is not between 0.001 and 0.999\n");
  return good ? 0 : 1;
}
