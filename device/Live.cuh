//===- Live.cuh - requests that come while the kernel runs -----------------===//
//
// Control's half of the memory that it shares with the host of a live session: it brings what requests bring, and tells
// the host what is new. Abi.h, "A live session", has what both sides see. All of it is warp 0's.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/HostSide.cuh"

namespace megalith::device {

constexpr int kTicksAwake = 1024;      ///< in which nothing moves, before control sleeps between two ticks
constexpr u64 kStateEvery = 5'000'000; ///< ns between two writes of LiveState

__device__ __forceinline__ abi::HostRings &ringsOf(const abi::HostSide &h) {
  return *reinterpret_cast<abi::HostRings *>(h.rings);
}
__device__ __forceinline__ char *mailboxOf(const abi::HostSide &h, int entry) {
  return h.rings + h.mailboxes + (long long)entry * h.mailboxBytes;
}
/// Of the descriptor in a mailbox.
template <class Request> __device__ constexpr int descriptorBytes() { return int(sizeof(Request) + 15) / 16 * 16; }

/// Copies `bytes`, a multiple of 4, of a mailbox, from a multiple of 16 to one. The warp. Words of the host's memory
/// take a microsecond to come: several are on their way at a time.
__device__ __forceinline__ void copyOfHost(void *to, const char *from, int bytes) {
  constexpr int together = 4, step = 32 * 16;
#pragma unroll 1
  for (int at = laneId() * 16; at < bytes; at += together * step) {
    Words4 words[together];
#pragma unroll
    for (int k = 0; k < together; ++k)
      if (at + k * step < bytes)
        words[k] = loadWords(from + at + k * step);
#pragma unroll
    for (int k = 0; k < together; ++k) {
      u32 *const word = reinterpret_cast<u32 *>(static_cast<char *>(to) + at + k * step);
      const u32 all[4] = {words[k].x, words[k].y, words[k].z, words[k].w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (at + k * step + 4 * i < bytes)
          word[i] = all[i];
    }
  }
}

/// Brings what a request brings from its mailbox. The warp.
template <class Control> __device__ void bringRequest(Control &c, int entry) {
  using Request = typename Control::Request;
  const abi::LaunchParams &p = c.params();
  const abi::HostSide &h = *p.host;
  const char *from = mailboxOf(h, entry);
  Request &r = c.tableEntry(entry);
  copyOfHost(&r, from, sizeof(Request));
  from += descriptorBytes<Request>();
  if (p.settings)
    copyOfHost(const_cast<abi::Settings *>(p.settings) + entry, from, sizeof(abi::Settings));
  from += sizeof(abi::Settings);
  copyOfHost(const_cast<int *>(p.eos) + entry * h.endWords, from, 4 * h.endWords);
  from += 4 * h.endWords;
  copyOfHost(const_cast<int *>(p.inputs) + (long long)entry * h.inputWords, from, 4 * h.inputWords);
  from += 4 * h.inputWords;
  __syncwarp();
  copyOfHost(p.tokens + (long long)entry * h.tokenWords, from, 4 * min(max(r.promptLen, 0), h.tokenWords));
  __syncwarp();
}

/// Writes the state for those who look on. The warp.
template <class Control> __device__ void tellState(Control &c) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  abi::HostSide &h = *p.host;
  u32 *word = reinterpret_cast<u32 *>(h.rings + h.state);
  constexpr int header = sizeof(abi::LiveState) / 4;
  if (laneId() == 0) {
    tellWord(word, u32(c.tick));
    tellWord(word + 1, 1);
    tellWord(word + 2, u32(c.passesDone));
    tellWord(word + 3, u32(c.passesDone >> 32));
    tellWord(word + 4, u32(c.rowsDone));
    tellWord(word + 5, u32(c.rowsDone >> 32));
    c.pools.each([&](auto &pool) {
      tellWord(word + header + 2 * pool.model, u32(pool.available()));
      tellWord(word + header + 2 * pool.model + 1, u32(pool.available() - pool.freePages));
    });
    h.stateAt = nanoseconds();
  }
  word += header + 2 * abi::kModels;
#pragma unroll 1
  for (int s = laneId(); s < Config::slots; s += 32) {
    const bool seated = c.request[s] >= 0;
    u32 *const of = word + s * abi::kLiveSlotWords;
    tellWord(of, u32(c.request[s] + 1));
    if (seated) {
      const auto &r = c.seated(s);
      tellWord(of + 1, u32(r.state));
      tellWord(of + 2, u32(r.promptLen));
      tellWord(of + 3, u32(r.generated));
      tellWord(of + 4, u32(r.kv[0].len));
    }
  }
  word += Config::slots * abi::kLiveSlotWords;
#pragma unroll 1
  for (int m = laneId(); m < 2 * (1 + abi::kIncrements) * p.increments; m += 32)
    tellWord(word + m, loadWord(reinterpret_cast<const u32 *>(p.metrics) + m));
  __syncwarp();
}

/// Puts what is new of the requests of all lanes into the ring, as far as there is room. `entry`: the lane's request;
/// -1: it has none. The warp. Lines of logits, which other CTAs wrote, are there by then: control continues after a
/// pass when all have left it, and what it releases has all before that in it.
template <class Control> __device__ void tellNews(Control &c, int entry) {
  using Request = typename Control::Request;
  const abi::LaunchParams &p = c.params();
  abi::HostSide &h = *p.host;
  abi::Arrival *arrival = nullptr;
  const Request *r = nullptr;
  bool isNew = false;
  if (entry >= 0) {
    arrival = arrivalsOf(p) + entry;
    r = &c.anywhere(entry);
    isNew = Control::isState(r->state) && (r->state != arrival->toldState || r->generated != arrival->toldGenerated);
  }
  const u32 some = __ballot_sync(~0u, isNew);
  if (!some)
    return;
  const u32 size = u32(h.newsMask) + 1;
  if (size - (h.newsPut - h.newsRead) < u32(__popc(some))) {
    __syncwarp();
    if (laneId() == 0)
      h.newsRead = loadSystem(&ringsOf(h).newsRead);
    __syncwarp();
  }
  const u32 put = h.newsPut, room = size - (put - h.newsRead);
  const u32 rank = u32(__popc(some & ((1u << laneId()) - 1)));
  if (isNew && rank < room) {
    char *const mailbox = mailboxOf(h, entry);
    int *const tokens = reinterpret_cast<int *>(mailbox + descriptorBytes<Request>() + sizeof(abi::Settings)) +
                        h.endWords + h.inputWords + r->promptLen;
    const int *const from = p.tokens + r->tokenBegin + r->promptLen;
#pragma unroll 1
    for (int i = arrival->toldGenerated; i < r->generated; ++i)
      tokens[i] = from[i];
    const bool ended = Control::isTerminal(r->state);
    if (ended)
#pragma unroll 1
      for (int i = 0; i < int(sizeof(Request) / 4); ++i)
        reinterpret_cast<u32 *>(mailbox)[i] = reinterpret_cast<const u32 *>(r)[i];
    const u64 now = nanoseconds();
    abi::News &news = reinterpret_cast<abi::News *>(h.rings + h.news)[(put + rank) & h.newsMask];
    int found = 0;
    if constexpr (Control::indexed)
      found = r->foundFirst;
    news = {entry, r->generated, r->state, ended, u32(now), u32(now >> 32), r->kv[0].len, found};
    arrival->toldGenerated = r->generated;
    arrival->toldFed = max(arrival->toldFed, r->kv[0].len);
    arrival->toldState = r->state;
  }
  __syncwarp();
  if (laneId() == 0) {
    const u32 all = u32(__popc(some)), wrote = all < room ? all : room;
    h.newsPending = h.newsPending || wrote < all;
    h.newsPut = put + wrote;
    storeSystem(&ringsOf(h).newsPut, put + wrote);
  }
  __syncwarp();
}

/// Tells the host what the tick changed, and what there was no room for before. The warp.
template <class Control> __device__ __noinline__ void tellHost(Control &c) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = c.params();
  abi::HostSide &h = *p.host;
  const bool all = c.changes > 0 || h.newsPending;
  u32 heard = 0;
  __syncwarp();
  if (laneId() == 0) {
    h.newsPending = 0;
    heard = hearWord(&ringsOf(h).ordersPut); // comes while news are written
  }
  __syncwarp();
#pragma unroll 1
  for (int base = 0; base < Config::slots; base += 32)
    tellNews(c, base + laneId() < Config::slots ? c.request[base + laneId()] : -1);
#pragma unroll 1
  for (int base = 0; all && base < p.numRequests; base += 32) {
    const int entry = base + laneId();
    tellNews(c, entry < p.numRequests && c.tableEntry(entry).slot < 0 ? entry : -1);
  }
  if (__shfl_sync(~0u, laneId() == 0 && nanoseconds() - h.stateAt >= kStateEvery, 0))
    tellState(c);
  if (laneId() == 0)
    h.ordersHeard = heard;
}

/// Tells the host that the launch ends. One thread.
__device__ __forceinline__ void endLaunch(abi::HostSide &h) { storeSystem(&ringsOf(h).launchesEnded, ++h.launches); }

} // namespace megalith::device
