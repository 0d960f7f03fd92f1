//===- rejection_law.cu - the law of rejection with residual --------------===//
//
//   nvcc -std=c++20 -arch=native -cudart static -I. -o rejection_law tools/acceptance/rejection_law.cu && ./rejection_law
//   c++ -std=c++20 -O2 -ffp-contract=off -x c++ -I. -o rejection_law tools/acceptance/rejection_law.cu && ./rejection_law 20000
//
// The rule of pipelines/stochastic_speculative.yaml by the functions of device/Sampling.h: a draft model that disagrees
// draws a token from q, a coin accepts it with probability min(1, p / q), else the token comes from max(0, p - q). A
// vocabulary of 64, 20 seeds with other rows and settings, 200,000 tokens each (or as many as the argument says). chi
// squared against the exact probabilities of p in f64: all p-values must be between 0.001 and 0.999. Then the same with a
// mistake, which must be seen: the residual is drawn with the noise of the draft.
//===----------------------------------------------------------------------===//
#include "device/Exact.h"
#include "device/Sampling.h"
#include "Gamma.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

using namespace megalith::sampling;

constexpr int vocab = 64;
constexpr int drafting = 1, residual = 2, coin = 3; // noises, as in the pipeline

#ifdef __CUDACC__
#define LAW_DEVICE __device__
#else
#define LAW_DEVICE
#endif

/// A row under settings.
struct Distribution {
  float y[vocab];
  float p[vocab]; ///< 0 outside S
};

/// S and the probabilities, as docs/ir.md says.
LAW_DEVICE inline void distribute(const float *logits, Settings s, Distribution &out) {
  u64 keys[vocab];
  for (int i = 0; i < vocab; ++i) {
    keys[i] = keyOf(logits[i], i);
    out.y[i] = scaled(logits[i], s.temperature);
  }
  for (int i = 1; i < vocab; ++i) // descending
    for (int k = i; k > 0 && keys[k] > keys[k - 1]; --k) {
      const u64 other = keys[k];
      keys[k] = keys[k - 1];
      keys[k - 1] = other;
    }
  const float m = out.y[tokenOf(keys[0])];
  TokenSet set;
  if (s.topK > 0 && s.topK < vocab)
    set.border = keys[s.topK - 1] >> 32 << 32;
  u64 total = 0;
  for (int i = 0; i < vocab && keys[i] >= set.border; ++i)
    total += massOf(weight(out.y[tokenOf(keys[i])], m));
  if (s.topP < 1.0f) {
    const double cut = cutOfTopP(s.topP, total);
    u64 before = 0, border = keys[0];
    for (int i = 0; i < vocab && keys[i] >= set.border && staysInTopP(before, cut); ++i) {
      border = keys[i];
      before += massOf(weight(out.y[tokenOf(keys[i])], m));
    }
    set.border = border;
  }
  if (s.minP > 0.0f)
    set.least = leastOfMinP(s.minP, m);
  total = 0;
  for (int i = 0; i < vocab; ++i)
    if (set.has(keyOf(logits[i], i), out.y[i]))
      total += massOf(weight(out.y[i], m));
  for (int i = 0; i < vocab; ++i)
    out.p[i] = set.has(keyOf(logits[i], i), out.y[i]) ? probability(weight(out.y[i], m), total) : 0.0f;
}

/// A draw from `of`, or from what `minus` leaves of it.
LAW_DEVICE inline int draw(const Distribution &of, const Distribution *minus, Key key, int position, int noise) {
  for (bool rest : {true, false}) {
    u64 best = 0;
    for (int quad = 0; quad < vocab / 4; ++quad) {
      const Words w = words(key, position, quad, purposeOfDraw(noise));
      for (int i = 0; i < 4; ++i) {
        const int token = quad * 4 + i;
        const float left = minus && rest ? megalith::sampling::rest(of.p[token], minus->p[token]) : of.p[token];
        if (left <= 0.0f)
          continue;
        const u64 k = keyOf(minus && rest ? scoreOfRest(left, w.w[i]) : score(of.y[token], w.w[i]), token);
        best = k > best ? k : best;
      }
    }
    if (best)
      return int(tokenOf(best));
  }
  return 0;
}

LAW_DEVICE inline int tokenAt(const Distribution &p, const Distribution &q, Key key, int position, bool reuse) {
  const int draft = draw(q, nullptr, key, position, drafting);
  if (megalith::exact::mul(uniform(key, position, 0, coin), q.p[draft]) < p.p[draft])
    return draft;
  return draw(p, &q, key, position, reuse ? drafting : residual);
}

#ifdef __CUDACC__
static void check(cudaError_t e) {
  if (e == cudaSuccess)
    return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(e));
  std::exit(1);
}
__global__ void distributeBoth(const float *logits, Settings s, Distribution *out) {
  distribute(logits + threadIdx.x * vocab, s, out[threadIdx.x]);
}
__global__ void drawAll(const Distribution *of, u32 seed, int draws, bool reuse, int *counts) {
  const int position = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (position < draws)
    atomicAdd(counts + tokenAt(of[0], of[1], {0, seed}, position, reuse), 1);
}
static std::vector<int> countsOf(const std::vector<float> &logits, Settings s, u32 seed, int draws, bool reuse) {
  float *dl;
  Distribution *dd;
  int *dc;
  check(cudaMalloc(&dl, logits.size() * 4));
  check(cudaMalloc(&dd, 2 * sizeof(Distribution)));
  check(cudaMalloc(&dc, vocab * 4));
  check(cudaMemcpy(dl, logits.data(), logits.size() * 4, cudaMemcpyHostToDevice));
  check(cudaMemset(dc, 0, vocab * 4));
  distributeBoth<<<1, 2>>>(dl, s, dd);
  drawAll<<<(draws + 127) / 128, 128>>>(dd, seed, draws, reuse, dc);
  check(cudaDeviceSynchronize());
  std::vector<int> counts(vocab);
  check(cudaMemcpy(counts.data(), dc, vocab * 4, cudaMemcpyDeviceToHost));
  for (void *memory : {(void *)dl, (void *)dd, (void *)dc})
    check(cudaFree(memory));
  return counts;
}
#else
static std::vector<int> countsOf(const std::vector<float> &logits, Settings s, u32 seed, int draws, bool reuse) {
  Distribution of[2];
  for (int i = 0; i < 2; ++i)
    distribute(logits.data() + i * vocab, s, of[i]);
  std::vector<int> counts(vocab);
  for (int position = 0; position < draws; ++position)
    ++counts[tokenAt(of[0], of[1], {0, seed}, position, reuse)];
  return counts;
}
#endif

/// In f64, on its own.
static std::vector<double> exactly(const float *logits, const Settings &s) {
  std::vector<int> order(vocab);
  for (int i = 0; i < vocab; ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  std::vector<double> p(vocab, 0.0);
  const double m = logits[order[0]];
  double sum = 0;
  std::vector<int> left;
  for (int i : order)
    if (s.topK <= 0 || s.topK >= vocab || logits[i] >= logits[order[s.topK - 1]]) {
      left.push_back(i);
      sum += std::exp((logits[i] - m) / s.temperature);
    }
  double before = 0, total = 0;
  for (int i : left) {
    const double w = std::exp((logits[i] - m) / s.temperature);
    if (before >= s.topP * sum && before > 0)
      break;
    before += w;
    if (w >= s.minP)
      total += p[i] = w;
  }
  for (double &v : p)
    v /= total;
  return p;
}

static double pValue(const std::vector<int> &counts, const std::vector<double> &p, int draws) {
  double chi = 0, rest = draws, restP = 1;
  int cells = 0;
  for (int i = 0; i < vocab; ++i) {
    if (p[i] * draws < 10)
      continue;
    chi += std::pow(counts[i] - p[i] * draws, 2) / (p[i] * draws);
    rest -= counts[i];
    restP -= p[i];
    ++cells;
  }
  if (restP * draws > 1) {
    chi += std::pow(rest - restP * draws, 2) / (restP * draws);
    ++cells;
  }
  return upperGamma((cells - 1) / 2.0, chi / 2);
}

int main(int argc, char **argv) {
  const int draws = argc > 1 ? std::atoi(argv[1]) : 200000, seeds = 20;
  const Settings settings[] = {{1.0f, 0, 1.0f, 0.0f}, {0.8f, 0, 0.9f, 0.0f}, {1.3f, 20, 1.0f, 0.0f}, {0.9f, 30, 0.95f, 0.05f}};
  bool good = true;
  for (bool reuse : {false, true}) {
    std::vector<double> ps;
    for (u32 seed = 0; seed < seeds; ++seed) {
      std::mt19937 random(seed + 1);
      std::normal_distribution<float> normal(0, 1.5f);
      std::vector<float> logits(2 * vocab);
      for (float &z : logits) // half of what the small model says is the large one's
        z = std::round(normal(random) * 32) / 32;
      for (int i = 0; i < vocab; ++i)
        logits[vocab + i] = std::round((logits[i] + logits[vocab + i]) * 16) / 32;
      const Settings &s = settings[seed % 4];
      ps.push_back(pValue(countsOf(logits, s, seed, draws, reuse), exactly(logits.data(), s), draws));
    }
    std::sort(ps.begin(), ps.end());
    std::printf("%s: p", reuse ? "the residual with the noise of the draft" : "rejection with residual");
    for (double p : ps)
      std::printf(" %.4f", p);
    std::printf("\n");
    good = good && (reuse ? ps[seeds / 2] < 1e-6 : ps.front() > 0.001 && ps.back() < 0.999);
  }
  std::printf(good ? "ok\n" : "a p-value is not what it should be\n");
  return good ? 0 : 1;
}
