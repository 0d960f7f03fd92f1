//===- CallCopies.cuh - copies between the buffers of a call ---------------===//
#pragma once

#include "megalith/CallAbi.h"
#include "megalith/Types.cuh"
#include "megalith/Values.cuh"

namespace megalith::device {

/// Bytes, in steps of T, by thread `rank` of `ranks`. Both sides are aligned to T.
template <class T> __device__ void copyBy(char *to, const char *from, long long bytes, int rank, int ranks) {
  constexpr int inFlight = 4;
  T *out = reinterpret_cast<T *>(to);
  const T *in = reinterpret_cast<const T *>(from);
  const long long count = bytes / (long long)sizeof(T);
  long long i = rank;
  for (; i + (inFlight - 1) * (long long)ranks < count; i += inFlight * (long long)ranks) {
    T held[inFlight];
#pragma unroll
    for (int k = 0; k < inFlight; ++k)
      held[k] = in[i + k * (long long)ranks];
#pragma unroll
    for (int k = 0; k < inFlight; ++k)
      out[i + k * (long long)ranks] = held[k];
  }
  for (; i < count; i += ranks)
    out[i] = in[i];
}

/// The same from the first byte on which both sides stand alike; bytes before and behind are copied one by one.
template <class T> __device__ void copyAligned(char *to, const char *from, long long bytes, int rank, int ranks) {
  const long long head = min(bytes, (long long)(-(u64)to & (sizeof(T) - 1)));
  const long long body = (bytes - head) / (long long)sizeof(T) * (long long)sizeof(T);
  copyBy<char>(to, from, head, rank, ranks);
  copyBy<T>(to + head, from + head, body, rank, ranks);
  copyBy<char>(to + head + body, from + head + body, bytes - head - body, rank, ranks);
}

/// A part of a copy, of at most kCallPartBytes, by a warp. All loads are under way at once. Both sides are aligned.
__device__ __forceinline__ void copyPart(char *to, const char *from, int bytes) {
  constexpr int each = abi::kCallPartBytes / 16 / 32;
  const int lane = threadIdx.x & 31, count = bytes >> 4;
  Words4 *out = reinterpret_cast<Words4 *>(to) + lane;
  const Words4 *in = reinterpret_cast<const Words4 *>(from) + lane;
  Words4 held[each];
#pragma unroll
  for (int k = 0; k < each; ++k)
    if (lane + k * 32 < count)
      held[k] = in[k * 32];
#pragma unroll
  for (int k = 0; k < each; ++k)
    if (lane + k * 32 < count)
      out[k * 32] = held[k];
  if (lane < (bytes & 15))
    to[(count << 4) + lane] = from[(count << 4) + lane];
}

/// 16 bytes a thread where both sides stand alike, else as many as they do.
__device__ __noinline__ void copyBytes(char *to, const char *from, long long bytes, int rank, int ranks) {
  const u32 apart = u32((u64)to ^ (u64)from);
  if (!(apart & 15))
    copyAligned<Words4>(to, from, bytes, rank, ranks);
  else if (!(apart & 7))
    copyAligned<Words2>(to, from, bytes, rank, ranks);
  else if (!(apart & 3))
    copyAligned<u32>(to, from, bytes, rank, ranks);
  else if (!(apart & 1))
    copyAligned<u16>(to, from, bytes, rank, ranks);
  else
    copyBy<char>(to, from, bytes, rank, ranks);
}

} // namespace megalith::device
