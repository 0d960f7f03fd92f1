//===- Clocks.cpp - vector clocks that threads share ----------------------===//
#include "runtime/cpu/Clocks.h"
#include "runtime/cpu/FlatMap.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace megalith::cpu {

namespace {
constexpr size_t kMemo = 256;
using Four = uint32_t __attribute__((vector_size(16)));
} // namespace

void Clocks::start(size_t newSize, uint32_t floor) {
  first = ClockRef();
  memo.clear();
  newSize = (newSize + 3) & ~(size_t)3;
  spare.clear();
  if (newSize != size)
    blocks.clear();
  else // references on abandoned stacks are forgotten
    for (const auto &b : blocks)
      spare.push_back(reinterpret_cast<Clock *>(b.get()));
  size = newSize;
  memo.resize(kMemo);
  first = ClockRef(fresh());
  std::fill_n(first->at, size, floor);
}

Clock *Clocks::fresh() {
  static thread_local uint64_t serials = 0;
  if (spare.empty()) {
    blocks.push_back(std::make_unique<char[]>(sizeof(Clock) + size * sizeof(uint32_t)));
    spare.push_back(reinterpret_cast<Clock *>(blocks.back().get()));
  }
  Clock *c = spare.back();
  spare.pop_back();
  c->owner = this;
  c->serial = ++serials;
  c->refs = 0;
  return c;
}

ClockRef Clocks::copy(const Clock &of) {
  ClockRef c(fresh());
  std::memcpy(c->at, of.at, size * sizeof(uint32_t));
  return c;
}

void Clocks::raise(Clock &to, const Clock &by) const {
  auto *a = reinterpret_cast<Four *>(to.at);
  auto *b = reinterpret_cast<const Four *>(by.at);
  for (size_t i = 0; i < size / 4; ++i) {
    // Clocks stay below 2^28: the signed comparison that SSE2 has will do.
    using Signed = int32_t __attribute__((vector_size(16)));
    const Four more = (Four)((Signed)b[i] > (Signed)a[i]);
    a[i] = (b[i] & more) | (a[i] & ~more);
  }
}

ClockRef Clocks::join(const ClockRef &a, const ClockRef &b) {
  if (!b || a.get() == b.get() || b.get() == first.get())
    return a;
  if (!a)
    return b;
  Memo &m = memo[mixBits(a->serial * 31 + b->serial) % kMemo];
  if (m.a.get() == a.get() && m.b.get() == b.get())
    return m.result;
  ClockRef result = copy(*a.get());
  raise(*result.get(), *b.get());
  if (!std::memcmp(result->at, a->at, size * sizeof(uint32_t)))
    result = a;
  m = {a, b, result};
  return result;
}

const ClockRef &Clocks::whole(Release &release) {
  if (release.base && release.thread != ~0u) {
    if (release.base->at[release.thread] < release.own) {
      release.base = copy(*release.base.get());
      release.base->at[release.thread] = release.own;
    }
    release.thread = ~0u;
  }
  return release.base;
}

void Clocks::collect(Pending &to, const Release &release) {
  const Clock &base = *release.base.get();
  if (!to.sum) {
    to.sum = copy(base);
    to.held[0] = base.serial;
    to.next = 1;
  } else if (std::find(std::begin(to.held), std::end(to.held), base.serial) == std::end(to.held)) {
    raise(*to.sum.get(), base);
    to.held[to.next++ % std::size(to.held)] = base.serial;
  }
  if (release.thread != ~0u)
    to.sum->at[release.thread] = std::max(to.sum->at[release.thread], release.own);
}

void Clocks::join(Proxied &to, const Proxied &more) {
  for (int space = 0; space < 2; ++space)
    to.of[space] = join(to.of[space], more.of[space]);
}

Proxied Clocks::gatherProxied(const std::vector<Release> &all) {
  Proxied result;
  for (const Release &r : all)
    join(result, r.proxied);
  return result;
}

ClockRef Clocks::beside(const ClockRef &proxied, const ClockRef &base, size_t threads) {
  ClockRef result = copy(*base.get());
  std::memcpy(result->at, (proxied ? proxied : first)->at, threads * sizeof(uint32_t));
  return result;
}

ClockRef Clocks::gather(const std::vector<Release> &all, const std::vector<std::pair<uint32_t, uint32_t>> &more) {
  ClockRef result;
  std::vector<const Clock *> seen;
  for (const Release &r : all) {
    const Clock *base = r.base.get();
    if (!result)
      result = copy(*base);
    else if (std::find(seen.rbegin(), seen.rend(), base) == seen.rend())
      raise(*result.get(), *base);
    else
      continue;
    seen.push_back(base);
  }
  if (!result)
    result = copy(*first.get());
  for (const Release &r : all)
    if (r.thread != ~0u)
      result->at[r.thread] = std::max(result->at[r.thread], r.own);
  for (const auto &[thread, clock] : more)
    result->at[thread] = std::max(result->at[thread], clock);
  return result;
}

} // namespace megalith::cpu
