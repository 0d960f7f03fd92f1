//===- FlatMap.h - hash table of numbers with open addressing -------------===//
#ifndef MEGALITH_RUNTIME_CPU_FLATMAP_H
#define MEGALITH_RUNTIME_CPU_FLATMAP_H

#include <cstdint>
#include <vector>

namespace megalith::cpu {

/// Key: trivially copyable, with == and `uint64_t hash() const`; values are never ~0u.
template <class Key> class FlatMap {
  struct Entry {
    Key key;
    uint32_t value;
  };
  static constexpr uint32_t kFree = ~0u;
  std::vector<Entry> entries = std::vector<Entry>(64, Entry{{}, kFree});
  size_t used = 0;

  size_t place(const Key &key) const {
    const size_t mask = entries.size() - 1;
    size_t i = key.hash() & mask;
    while (entries[i].value != kFree && !(entries[i].key == key))
      i = (i + 1) & mask;
    return i;
  }

public:
  static constexpr uint32_t kNone = ~0u;
  uint32_t find(const Key &key) const { return entries[place(key)].value; }
  void insert(const Key &key, uint32_t value) {
    if (2 * (used + 1) > entries.size()) {
      std::vector<Entry> old(2 * entries.size(), Entry{{}, kFree});
      old.swap(entries);
      for (const Entry &e : old)
        if (e.value != kFree)
          entries[place(e.key)] = e;
    }
    Entry &e = entries[place(key)];
    used += e.value == kFree;
    e = {key, value};
  }
  void clear() {
    if (used)
      entries.assign(entries.size() > 4096 ? 4096 : entries.size(), Entry{{}, kFree});
    used = 0;
  }
};

inline uint64_t mixBits(uint64_t x) {
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93ull;
  return x ^ x >> 32;
}

} // namespace megalith::cpu
#endif
