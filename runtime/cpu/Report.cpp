//===- Report.cpp - findings and the wait graph ---------------------------===//
#include "runtime/cpu/Machine.h"

#include <cstdarg>
#include <cstring>
#include <map>
#include <tuple>

namespace megalith::cpu {

const char *findingName(FindingKind kind) {
  static const char *const names[] = {
#define FINDING(Enum, Name) Name,
#include "runtime/cpu/Findings.def"
  };
  return names[(int)kind];
}

Place Machine::placeOf(const Fiber *f) const {
  if (f == &outside)
    return {0, 0, true, nullptr, -1, 0};
  if (f->pub.cta == shape.ctas) // the thread outside of the grid
    return {0, 0, true, nullptr, -1, 0, true};
  const Cta &cta = ctas[f->pub.cta];
  return {f->pub.cta, f->pub.thread, false, f->pc, cta.edge, cta.edges};
}

Place Machine::placeOf(Word epoch) const {
  if (epoch == 0 || sets.old(epoch))
    return {0, 0, true, nullptr, -1, 0};
  uint32_t thread = threadOf(epoch);
  const bool agent = thread >= fibers.size();
  if (agent)
    thread = agentState[thread - fibers.size()].issuer;
  Place p = placeOf(&fibers[thread]);
  p.host = agent;
  p.pc = pcs[pcOf(epoch)];
  return p;
}

std::string Machine::where(const void *at) const {
  const size_t offset = static_cast<const char *>(at) - arena.base;
  if (offset < Arena::kSize)
    return arena.describe(offset);
  return (uintptr_t)at < Arena::kPage ? "a null pointer" : "memory that is not the device's";
}

void Machine::note(FindingKind kind, std::string what, Parties parties) {
  result.finding = Finding{kind, std::move(what), std::move(parties)};
}

void Machine::fail(FindingKind kind, const char *role, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  note(kind, text, {party(current, role)});
  stop(Ending::Found);
}

void Machine::describeRace(Finding::Party now, bool isWrite, bool atomic, size_t offset, unsigned bytes, Word other,
                           bool otherWrites) {
  const bool agent = threadOf(other) >= fibers.size();
  std::string did = agent ? "an asynchronous copy" : "another thread";
  did += otherWrites ? " wrote" : " read";
  did += isAtomic(other) ? " them atomically" : " them";
  std::string earlier = agent ? "asynchronous copy (" : "";
  earlier += std::string("earlier ") + (isAtomic(other) ? "atomic " : "") + (otherWrites ? "write" : "read");
  if (agent)
    earlier += ")";
  note(FindingKind::DataRace,
       std::to_string(bytes) + " bytes at " + where(arena.base + offset) + " are " + (isWrite ? "written" : "read") +
           (atomic ? " atomically" : "") + ", and " + did + " without an order between the two",
       {std::move(now), {std::move(earlier), placeOf(other), 1}});
}

void Machine::race(const Finding::Party &now, bool isWrite, bool atomic, size_t offset, unsigned bytes, Word other,
                   bool otherWrites) {
  describeRace(now, isWrite, atomic, offset, bytes, other, otherWrites);
  stop(Ending::Found);
}

namespace {
/// "3, 7, 9 and 4 more".
std::string listed(const std::vector<unsigned> &numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size() && i < 4; ++i)
    text += (i ? ", " : "") + std::to_string(numbers[i]);
  if (numbers.size() > 4)
    text += " and " + std::to_string(numbers.size() - 4) + " more";
  return text;
}
} // namespace

/// What a thread waits for.
std::string Machine::situation(const Fiber *f) const {
  const Cta &cta = ctas[f->pub.cta];
  const Fiber *first = &fibers[(size_t)f->pub.cta * shape.threads];
  switch (f->state) {
  case Fiber::AtBarrier: {
    const NamedBarrier &b = cta.barriers[f->barrier];
    std::string text = "waits at barrier " + std::to_string(f->barrier) + ": " + std::to_string(b.came.size()) +
                       " of " + std::to_string(b.threads) + " threads have come";
    std::vector<unsigned> out, gone;
    for (unsigned t = 0; t < shape.threads; ++t)
      if (first[t].state == Fiber::Done)
        gone.push_back(t);
      else if (first[t].state != Fiber::AtBarrier || first[t].barrier != f->barrier)
        out.push_back(t);
    if (!out.empty())
      text += "; elsewhere: " + listed(out);
    if (!gone.empty())
      text += "; returned: " + listed(gone);
    return text;
  }
  case Fiber::AtWarp:
    for (const Meeting &m : warps[f->warp].meetings)
      if (m.came >> f->lane & 1) {
        static const char *const names[] = {"Sync", "Shuffle", "Vote", "Mma"};
        std::vector<unsigned> missing;
        for (unsigned left = m.mask & warps[f->warp].lanes & ~m.came; left; left &= left - 1)
          missing.push_back(__builtin_ctz(left));
        return "waits for lanes " + listed(missing) + " of its warp at a " + names[(int)m.op];
      }
    return "waits in its warp";
  case Fiber::Stalled:
    return "is stalled by the test hook";
  default:
    break;
  }
  if (!f->lookedAt)
    return f->state == Fiber::Sleeping ? "sleeps" : "runs";
  if (f->lookedBytes == 0) {
    for (const uint32_t number : cta.mbarriers) {
      const Mbarrier &b = mbarriers[number];
      if (b.at != f->lookedAt)
        continue;
      std::string text = "polls the mbarrier at " + where(b.at) + ", phase " + std::to_string(b.phase) + ": " +
                         std::to_string(b.pending) + " of " + std::to_string(b.count) + " arrivals missing";
      if (b.bytes > 0)
        text += ", " + std::to_string(b.bytes) + " of " + std::to_string(b.expected) + " bytes missing";
      if (b.bytes < 0)
        text += ", " + std::to_string(-b.bytes) + " bytes more than expected have landed";
      return text;
    }
    return "polls an mbarrier";
  }
  std::string text = "polls " + std::to_string(f->lookedBytes) + " bytes at " + where(f->lookedAt) + ", which hold ";
  uint64_t low = 0, high = 0;
  std::memcpy(&low, f->lookedAt, std::min(8u, f->lookedBytes));
  if (f->lookedBytes == 16)
    std::memcpy(&high, static_cast<const char *>(f->lookedAt) + 8, 8);
  char value[40];
  if (f->lookedBytes == 16)
    std::snprintf(value, sizeof value, "0x%016llx%016llx", (unsigned long long)high, (unsigned long long)low);
  else
    std::snprintf(value, sizeof value, "%llu", (unsigned long long)low);
  text += value;
  const size_t offset = static_cast<const char *>(f->lookedAt) - arena.base;
  if (check && offset < Arena::kSize) {
    const uint32_t number = locationNumbers.find({offset << 5 | f->lookedBytes});
    Word by = 0;
    if (number != FlatMap<LocationKey>::kNone && locations[number].count)
      by = const_cast<Location &>(locations[number]).newest().by;
    if (by && threadOf(by) < fibers.size())
      text += ", last written by CTA " + std::to_string(fibers[threadOf(by)].pub.cta) + " thread " +
              std::to_string(fibers[threadOf(by)].pub.thread);
    else
      text += ", as at the start of the launch or written plainly";
  }
  return text;
}

/// Everybody that has not returned, and what for; those in the same situation together.
void Machine::waitGraph(FindingKind kind) {
  using Key = std::tuple<unsigned, uintptr_t, std::string>;
  std::map<Key, size_t> known;
  Parties parties;
  unsigned returned = 0;
  for (const Fiber &f : fibers) {
    if (f.state == Fiber::Done) {
      ++returned;
      continue;
    }
    std::string role = situation(&f);
    const auto [at, isNew] = known.try_emplace(Key{f.pub.cta, (uintptr_t)f.pc, role}, parties.size());
    if (isNew)
      parties.push_back(party(&f, std::move(role)));
    else
      ++parties[at->second].alike;
  }
  const std::string all = std::to_string(fibers.size());
  std::string what = kind == FindingKind::Deadlock
                         ? "no thread can go on: " + std::to_string(fibers.size() - returned) + " of " + all + " wait"
                         : "nothing got on for " + std::to_string(steps - lastProgressStep) + " steps";
  if (returned)
    what += ", " + std::to_string(returned) + " have returned";
  note(kind, std::move(what), std::move(parties));
}

} // namespace megalith::cpu
