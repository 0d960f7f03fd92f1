//===- Sampling.h - random numbers, and what is made of a row's logits ----===//
//
// The reference executor and device code compile this file. Its functions are pure, and have the same bits everywhere
// (Exact.h). What they give depends on the logits of one row, on settings and on the request's seed, on nothing else:
// no batch, no slot, no order of work. Sums of masses are sums of integers, so a row may be cut in any way.
//
// How a row is reduced (docs/ir.md, "Reducers"): z is a logit, T the temperature, m the greatest z / T.
//   mass     u64(exp(z / T - m) * 2^40)
//   S        the tokens that top_k, top_p and min_p leave, in this order: see `TokenSet`
//   a draw   the token of S with the greatest z / T + gumbel
// A temperature that is not at least `kLeastTemperature` is 0: then the best token has all the probability, and the
// other settings say nothing.
// Exact.h stands before it. It has no system header.
//===----------------------------------------------------------------------===//
#pragma once

#ifdef __CUDACC__
#define MEGALITH_SAMPLING __device__ __forceinline__
#else
#define MEGALITH_SAMPLING inline
#endif

namespace megalith::sampling {

using u32 = unsigned;
using u64 = unsigned long long;

// --- Random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").

struct Words {
  u32 w[4];
};

/// The key of a request's random numbers.
struct Key {
  u32 run = 0;     ///< the run's seed
  u32 request = 0; ///< the request's seed, else `hashOfId`
};

/// FNV-1a of the bytes of an id.
MEGALITH_SAMPLING u32 hashOfId(const char *id, u64 length) {
  u32 h = 2166136261u;
  for (u64 i = 0; i < length; ++i)
    h = (h ^ (unsigned char)id[i]) * 16777619u;
  return h;
}

MEGALITH_SAMPLING Words philox(Words c, u32 k0, u32 k1) {
  for (int round = 0; round < 10; ++round) {
    const u64 a = u64(0xD2511F53u) * c.w[0], b = u64(0xCD9E8D57u) * c.w[2];
    c = Words{{u32(b >> 32) ^ c.w[1] ^ k0, u32(b), u32(a >> 32) ^ c.w[3] ^ k1, u32(a)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// Of a noise: draws and coins share no words.
MEGALITH_SAMPLING u32 purposeOfDraw(int noise) { return 2u * u32(noise); }
MEGALITH_SAMPLING u32 purposeOfCoin(int noise) { return 2u * u32(noise) + 1u; }

/// The words of lanes 4 * quad to 4 * quad + 3. A lane is a token of the vocabulary, for draws.
MEGALITH_SAMPLING Words words(Key key, int position, u32 quad, u32 purpose) {
  return philox(Words{{u32(position), quad, purpose, 0u}}, key.run, key.request);
}

/// A number between 0 and 1 that is neither: (2k + 1) / 2^24, of the upper 23 bits of the word.
MEGALITH_SAMPLING float unit(u32 word) { return exact::mul(float(2u * (word >> 9) + 1u), 5.9604644775390625e-8f); }

MEGALITH_SAMPLING float gumbel(u32 word) { return -exactLog(-exactLog(unit(word))); }

/// The function `uniform` of the language.
MEGALITH_SAMPLING float uniform(Key key, int position, int lane, int noise) {
  return unit(words(key, position, u32(lane) / 4u, purposeOfCoin(noise)).w[u32(lane) % 4u]);
}

// --- Order

/// Greater for a greater number. -0 is as 0.
MEGALITH_SAMPLING u32 ordered(float v) {
  const u32 bits = exact::bitsOf(exact::add(v, 0.0f));
  return bits ^ (u32(int(bits) >> 31) | 0x80000000u);
}

/// Greater for a greater number, and for a lower token where numbers are equal; device/Results.cuh has the same. Not
/// for a NaN.
MEGALITH_SAMPLING u64 keyOf(float v, u32 token) { return u64(ordered(v)) << 32 | u64(~token); }
MEGALITH_SAMPLING u32 tokenOf(u64 key) { return ~u32(key); }
/// The number of a key.
MEGALITH_SAMPLING float numberOf(u64 key) {
  const u32 o = u32(key >> 32);
  return exact::ofBits(o & 0x80000000u ? o ^ 0x80000000u : ~o);
}

// --- Settings

struct Settings {
  float temperature = 1.0f;
  int topK = 0; ///< not above 0: all
  float topP = 1.0f;
  float minP = 0.0f;
};

constexpr float kLeastTemperature = 9.5367431640625e-7f; // 2^-20

MEGALITH_SAMPLING bool isGreedy(const Settings &s) { return !(s.temperature >= kLeastTemperature); }

/// z / T, rounded once.
MEGALITH_SAMPLING float scaled(float z, float temperature) {
#ifdef __CUDACC__
  return __fdiv_rn(z, temperature);
#else
  return z / temperature;
#endif
}

// --- Masses. `y` is a z / T, `m` the greatest of the row.

/// m - y; 0 for the greatest, whatever it is.
MEGALITH_SAMPLING float below(float y, float m) { return y == m ? 0.0f : exact::add(m, -y); }
/// exp(y - m), from 0 to 1.
MEGALITH_SAMPLING float weight(float y, float m) { return exactExp(-below(y, m)); }

constexpr float kUnitMass = 1099511627776.0f; // 2^40

MEGALITH_SAMPLING u64 massOf(float weight) { return u64(exact::mul(weight, kUnitMass)); }
/// What a token adds to the sum for its row's entropy.
MEGALITH_SAMPLING u64 massTimesDepth(float weight, float below) {
  return weight == 0.0f ? 0ull : u64(exact::mul(exact::mul(weight, below), kUnitMass));
}

// --- S, the tokens that may be drawn

/// S is found so:
///   1. top_k, where it is from 1 to vocab - 1: `border` = u64(ordered(the k-th greatest logit)) << 32, else 0.
///   2. `total` = the masses of what that leaves. top_p, where it is below 1: in descending order of keys a token stays
///      while the mass before it is below `cutOfTopP`. `border` = the key of the last one that stays.
///   3. min_p, where it is above 0: `least` = `leastOfMinP`, else minus infinity.
/// The best token always stays.
struct TokenSet {
  u64 border = 0;
  float least = exact::ofBits(exact::kSign | exact::kInfinity);

  /// `key` is that of the logit, not of `y`.
  MEGALITH_SAMPLING bool has(u64 key, float y) const { return key >= border && y >= least; }
};

/// A token stays while the mass before it is below.
MEGALITH_SAMPLING double cutOfTopP(float topP, u64 total) { return exact::mul(double(topP), double(total)); }
MEGALITH_SAMPLING bool staysInTopP(u64 before, double cut) { return before == 0 || double(before) < cut; }
/// As high as the best token, where min_p is above 1.
MEGALITH_SAMPLING float leastOfMinP(float minP, float m) { return minP >= 1.0f ? m : exact::add(m, exactLog(minP)); }

// --- Results. `total` is the sum of the masses of S.

MEGALITH_SAMPLING float probability(float weight, u64 total) {
  return exact::toFloat(exact::div(exact::mul(double(weight), double(kUnitMass)), double(total)));
}
/// `total` in units of the best token's mass.
MEGALITH_SAMPLING float sumOf(u64 total) { return exact::toFloat(exact::mul(double(total), 1.0 / kUnitMass)); }
MEGALITH_SAMPLING float logSumExp(float m, u64 total) { return exact::add(m, exactLog(sumOf(total))); }
/// `depths` is the sum of `massTimesDepth` over S.
MEGALITH_SAMPLING float entropy(u64 total, u64 depths) {
  return exact::add(exactLog(sumOf(total)), exact::toFloat(exact::div(double(depths), double(total))));
}

/// By which a draw orders the tokens of S.
MEGALITH_SAMPLING float score(float y, u32 word) { return exact::add(y, gumbel(word)); }
/// The same of a draw from max(0, p - q); it takes the tokens for which `rest` is above 0.
MEGALITH_SAMPLING float rest(float p, float q) { return exact::add(p, -q); }
MEGALITH_SAMPLING float scoreOfRest(float rest, u32 word) { return exact::add(exactLog(rest), gumbel(word)); }

} // namespace megalith::sampling

#undef MEGALITH_SAMPLING // a name of a pipeline
