//===- Pages.cpp - who holds the pages of a pool, and its index ------------===//
//
// A page is on the stack of free ones, or requests in slots hold it, or the index alone has it: then it is cached. The
// index finds a page by the page in front of it and the tokens that it has K and V of. So what is found is what the
// request itself would compute. docs/ir.md, "The index of a pool".
//===----------------------------------------------------------------------===//
#include "Machine.h"
#include <algorithm>
#include <fmt/format.h>

using namespace megalith;
using namespace megalith::reference;

/// Leading positions that were fed the request's own tokens, each as plain decoding would.
int64_t Running::known(int pool) const {
  const KvShare &share = kv[pool];
  int64_t own = 0;
  const auto isOwn = [&](const FedRow &row) {
    return row.token == tokens[own] && row.parent == own - 1 && row.position == own && row.visible == own + 1;
  };
  while (own < std::min<int64_t>(share.len, std::ssize(tokens)) && isOwn(share.fed[own]))
    ++own;
  return own;
}

/// In front of a request's first page: no page has such a serial number.
static int64_t rootOf(const Running &r) { return -1 - int64_t(r.input->cache); }

/// The tokens of a request's page number `number`, all of which it has.
static std::vector<int32_t> tokensOfPage(const Running &r, const PoolInfo &info, int64_t number) {
  const auto begin = r.tokens.begin() + number * info.pageTokens;
  return {begin, begin + info.pageTokens};
}

/// The leading pages of the request that the index has. One token is left to be fed: its row gives the next one.
std::vector<int32_t> Machine::findPages(const Running &r, int pool) const {
  const PoolInfo &info = program.pools[pool];
  std::vector<int32_t> found;
  if (!info.index || r.keepPrompt) // rows of the prompt that the host wants are fed
    return found;
  int64_t parent = rootOf(r);
  for (int64_t number = 0; (number + 1) * info.pageTokens < std::ssize(r.tokens); ++number) {
    const auto entry = pools[pool].index.find({parent, tokensOfPage(r, info, number)});
    if (entry == pools[pool].index.end())
      break;
    found.push_back(entry->second);
    parent = pools[pool].indexed.at(entry->second).serial;
  }
  return found;
}

/// Whole pages that both will have, unless the other one's prompt ends before.
static int64_t pagesInCommon(const Running &a, const Running &b, const PoolInfo &info) {
  const auto end = std::min(a.tokens.size() - 1, b.input->tokens.size());
  const auto [first, other] = std::mismatch(a.tokens.begin(), a.tokens.begin() + int64_t(end), b.tokens.begin());
  return (first - a.tokens.begin()) / info.pageTokens;
}

/// Whether the pages that the request waits for still come: its feeder has its slot, and has not fed all of them.
bool Machine::stillFeeds(const Running &r) const {
  if (r.feeder.number < 0)
    return false;
  const Running *feeder = slots[r.feeder.slot];
  if (!feeder || feeder->number != r.feeder.number || !program.states[feeder->state].slot)
    return false;
  const KvShare &kv = feeder->kv[r.feeder.pool];
  return !kv.ownOnly && kv.sealed < r.feeder.pages;
}

/// Whether another request in a slot is feeding what this one could find afterwards. Then it waits for that one, and is
/// not visited meanwhile. It looks for one once. `found`: by pool.
bool Machine::waitsForFeeder(Running &r, const std::vector<std::vector<int32_t>> &found) const {
  const bool looks = !r.keepPrompt && r.feeder.number == -1;
  r.feeder.number = -2;
  for (const Running *other : slots) {
    if (!looks || !other || other->input->cache != r.input->cache || !program.states[other->state].slot)
      continue;
    for (size_t i = 0; i < program.pools.size(); ++i)
      if (program.pools[i].index && !other->kv[i].ownOnly)
        if (const int64_t pages = pagesInCommon(r, *other, program.pools[i]); pages > std::ssize(found[i])) {
          r.feeder = {other->number, other->slot, i, pages};
          return true;
        }
  }
  return false;
}

/// Free pages, and those that would be if the index let all of its go that nobody holds.
int64_t Machine::available(int pool) const { return std::ssize(pools[pool].free) + std::ssize(pools[pool].cached); }

/// The pages of `found` that nobody holds: to take them leaves fewer for others.
int64_t Machine::cachedOf(int pool, const std::vector<int32_t> &found) const {
  return std::count_if(found.begin(), found.end(), [&](int32_t page) { return !pools[pool].holders.contains(page); });
}

/// Puts found pages into the table of a request that takes a slot. What they have counts as fed.
void Machine::graft(Running &r, int pool, const std::vector<int32_t> &found) {
  KvShare &kv = r.kv[pool];
  Pool &of = pools[pool];
  for (int32_t page : found)
    if (of.holders[page]++ == 0)
      std::erase(of.cached, page);
  kv.pages = found;
  kv.sealed = std::ssize(found);
  kv.ownOnly = false;
  kv.len = kv.end = kv.sealed * program.pools[pool].pageTokens;
  kv.fed.clear();
  for (int32_t i = 0; i < kv.len; ++i)
    kv.fed.push_back({r.tokens[i], i - 1, i, i + 1});
}

/// Enters the request's full pages into the index up to position `end`, as long as each stands behind one that the
/// index has. They are sealed from then on.
void Machine::enterPages(Running &r, int pool, int64_t end) {
  const PoolInfo &info = program.pools[pool];
  KvShare &kv = r.kv[pool];
  Pool &of = pools[pool];
  end = std::min({end, kv.len, std::ssize(r.tokens) - 1});
  if (!info.index || kv.ownOnly || (kv.sealed + 1) * info.pageTokens > end)
    return;
  end = std::min(end, r.known(pool));
  for (; (kv.sealed + 1) * info.pageTokens <= end; ++kv.sealed) {
    const int64_t parent = kv.sealed == 0 ? rootOf(r) : of.indexed.at(kv.pages[kv.sealed - 1]).serial;
    const int32_t page = kv.pages[kv.sealed];
    PageKey key{parent, tokensOfPage(r, info, kv.sealed)};
    if (!of.index.try_emplace(key, page).second) {
      kv.ownOnly = true; // another request fed the same
      return;
    }
    of.indexed[page] = {std::move(key), of.nextSerial++};
  }
}

/// A request no longer holds a page.
void Machine::letGo(int pool, int32_t page) {
  Pool &of = pools[pool];
  if (--of.holders.at(page) > 0)
    return;
  of.holders.erase(page);
  if (of.indexed.contains(page))
    of.cached.push_back(page);
  else
    of.free.push_back(page);
}

/// Drops cached pages from the index, those that nobody has held for longest first, until `count` pages are free.
void Machine::freePages(int pool, int64_t count) {
  Pool &of = pools[pool];
  while (std::ssize(of.free) < count && !of.cached.empty()) {
    const int32_t page = of.cached.front();
    of.cached.pop_front();
    const auto entry = of.indexed.find(page);
    of.index.erase(entry->second.key);
    of.indexed.erase(entry);
    of.free.push_back(page);
  }
}

/// A tick ends: every page is free, cached, or held by as many as have it in their tables; and what is reserved is
/// there.
void Machine::checkPages() const {
  const auto broken = [](const PoolInfo &info, const std::string &what) {
    throw NotExecutable(fmt::format("the pages of pool `{}` do not add up: {}", info.name, what));
  };
  for (size_t i = 0; i < pools.size(); ++i) {
    const PoolInfo &info = program.pools[i];
    std::map<int32_t, int32_t> holders;
    for (const Running *r : slots)
      for (int32_t page : r ? r->kv[i].pages : std::vector<int32_t>())
        ++holders[page];
    if (holders != pools[i].holders)
      broken(info, "a count of holders is wrong");
    if (std::ssize(holders) + available(int(i)) != info.pages)
      broken(info, fmt::format("{} held, {} free, {} cached, of {}", holders.size(), pools[i].free.size(),
                               pools[i].cached.size(), info.pages));
    if (info.wait && unreserved(int(i)) < 0)
      broken(info, fmt::format("{} are reserved that are not there", -unreserved(int(i))));
  }
}
