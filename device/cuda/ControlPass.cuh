//===- ControlPass.cuh - from waiting calls to a row table and back -------===//
#pragma once

namespace megalith::device {

/// Notes what each slot waits for, and the first row that must not be fed: a token
/// outside the vocabulary, or another one than the request holds there. One warp
/// per slot, the one that ran the slot's parts.
template <class Control> __device__ void surveyCalls(Control &c) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = *c.params;
  for (int s = warpId(); s < Config::slots; s += kConsumerWarps) {
    int wanted = -1, badRow = Config::rowsPerPass, badCode = 0;
    if (c.request[s] >= 0 && c.requestAt(c.request[s]).waitingSite >= 0) {
      const auto &r = c.requestAt(c.request[s]);
      wanted = r.callCount;
      const int *fed = p.callTokens + s * Config::rowsPerPass, *tokens = p.tokens + r.tokenBegin;
      for (int base = 0; base < min(wanted, Config::rowsPerPass) && !badCode; base += 32) {
        const int i = base + laneId(), position = r.kvLen + i;
        int code = 0;
        if (i < min(wanted, Config::rowsPerPass)) {
          const int token = fed[i];
          if (token < 0 || token >= Config::vocab)
            code = kTokenRange;
          else if (position < r.numTokens && tokens[position] != token)
            code = kFeedMismatch;
        }
        if (const u32 bad = __ballot_sync(~0u, code != 0)) {
          badRow = base + __ffs(bad) - 1;
          badCode = __shfl_sync(~0u, code, __ffs(bad) - 1);
        }
      }
      if (laneId() == 0) {
        c.since[s] = r.waitingSince;
        c.priority[s] = r.priority;
        c.kvLen[s] = r.kvLen;
      }
    }
    if (laneId() == 0) {
      c.wanted[s] = wanted;
      c.badRow[s] = badRow;
      c.badCode[s] = badCode;
    }
  }
}

/// Whether slot `a` comes before slot `b`: longest waiting, priority, request number.
template <class Control> __device__ bool goesFirst(const Control &c, int a, int b) {
  if (c.since[a] != c.since[b])
    return c.since[a] < c.since[b];
  if (c.priority[a] != c.priority[b])
    return c.priority[a] > c.priority[b];
  return c.request[a] < c.request[b];
}

/// Decides which calls the pass serves, how many rows each gets, and their rows
/// and pages in ascending slot order. Warp 0.
template <class Control> __device__ void chooseCalls(Control &c) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = *c.params;
  int waiting = 0;
  for (int s = laneId(); s < Config::slots; s += 32) {
    c.taken[s] = -1;
    if (c.wanted[s] < 0)
      continue;
    int rank = 0;
    for (int other = 0; other < Config::slots; ++other)
      rank += c.wanted[other] >= 0 && goesFirst(c, other, s);
    c.order[rank] = s;
    ++waiting;
  }
#pragma unroll
  for (int distance = 16; distance; distance >>= 1)
    waiting += __shfl_xor_sync(~0u, waiting, distance);
  __syncwarp();
  if (laneId() == 0) {
    int left = Config::rowsPerPass;
    for (int k = 0; k < waiting; ++k) {
      const int s = c.order[k], wanted = c.wanted[s];
      const int takes = c.callChunk[s] > 0 ? min(wanted, left) : wanted;
      if (wanted == 0 || (takes > 0 && takes <= left)) {
        c.taken[s] = takes;
        left -= takes;
      }
    }

    int rows = 0, served = 0, wantLogits = 0, freePages = c.freePages;
    for (int s = 0; s < Config::slots; ++s) {
      const int takes = c.taken[s];
      if (takes < 0)
        continue;
      const int needs = max(0, Control::pagesFor(c.kvLen[s] + takes) - c.held[s]);
      if (c.badRow[s] < takes) {
        c.fail(c.requestAt(c.request[s]), c.badCode[s]);
        c.taken[s] = -1;
      } else if (needs > freePages) {
        if (Config::failWhenFull)
          c.fail(c.requestAt(c.request[s]), kPoolExhausted);
        c.taken[s] = -1;
      } else {
        c.rowBegin[s] = rows;
        c.newPages[s] = needs;
        c.pageTop[s] = freePages;
        freePages -= needs;
        rows += takes;
        ++served;
        if (takes > 0 && (c.callFlags[s] & kWantsLogits))
          wantLogits = 1;
      }
    }
    c.waiting = waiting;
    c.served = served;
    c.freePages = *p.freeCount = freePages;
    c.numRows = rows;
    c.wantLogits = wantLogits;
    *p.pass = {rows, wantLogits, 0, c.tick};
  }
}

/// Writes the row table and the page tables. One warp per slot.
template <class Control> __device__ void fillRows(Control &c) {
  using Config = typename Control::Config;
  const abi::LaunchParams &p = *c.params;
  for (int s = warpId(); s < Config::slots; s += kConsumerWarps) {
    const int count = c.taken[s];
    if (count < 0)
      continue;
    auto &r = c.requestAt(c.request[s]);
    const int begin = c.rowBegin[s], kvLen = c.kvLen[s], held = c.held[s], added = c.newPages[s];
    const u32 flags = c.callFlags[s];
    for (int i = laneId(); i < count; i += 32) {
      const int position = kvLen + i, parent = i > 0 ? begin + i - 1 : -1;
      const int token = p.callTokens[s * Config::rowsPerPass + i];
      p.rows[begin + i] = {s, token, position, position, position + 1, parent, flags, -1};
    }
    int *table = p.pageTable + (long long)s * p.pageTableStride + held;
    for (int i = laneId(); i < added; i += 32)
      table[i] = p.freeList[c.pageTop[s] - 1 - i];
    __syncwarp();
    if (laneId() == 0) {
      c.held[s] = held + added;
      p.slots[s].heldPages = held + added;
      r.served = 1;
      r.callRowBegin = begin;
      r.callRowCount = count;
      r.rows += count;
      r.passes += count > 0;
    }
    __syncwarp();
  }
}

/// Forms the pass of the waiting calls; `c.numRows` says whether the model runs.
/// A barrier of the CTA must follow before others read the row table.
template <class Control> __device__ void formPass(Control &c) {
  surveyCalls(c);
  consumerSync();
  if (warpId() == 0)
    chooseCalls(c);
  consumerSync();
  fillRows(c);
}

/// Takes note that the model has run on the call's rows; the stage's code behind
/// the call follows.
template <class Control> __device__ void completeCall(TurnOf<Control> &t) {
  auto &r = t.r;
  if (!r.served)
    return;
  bool nan = false;
  for (int i = laneId(); i < r.callRowCount; i += 32)
    nan = nan || t.p.rows[r.callRowBegin + i].result == -2;
  const int end = r.kvLen + r.callRowCount;
  __syncwarp();
  if (laneId() == 0) {
    r.kvEnd = end;
    if (!(t.c.callFlags[t.slot] & kDraft))
      r.kvLen = end;
  }
  __syncwarp();
  if (__any_sync(~0u, nan))
    t.fail(kNumeric);
}

} // namespace megalith::device
