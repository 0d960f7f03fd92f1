//===- ListTable.h - numbers for lists of numbers ---------------*- C++ -*-===//
#ifndef MEGALITH_LIB_AUTOMATA_LISTTABLE_H
#define MEGALITH_LIB_AUTOMATA_LISTTABLE_H

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace megalith::automata {

/// Mixes `value` into `hash`: splitmix64's end.
constexpr uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) + 0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
  return hash ^ hash >> 31;
}

/// Numbers lists from 0 in the order in which they come; equal lists have one number.
class ListTable {
public:
  uint32_t numberOf(std::span<const uint32_t> list) {
    if (size() * 2 >= slots.size())
      grow();
    uint64_t hash = list.size();
    for (const uint32_t value : list)
      hash = mixed(hash, value);
    const size_t mask = slots.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      if (slots[at] == 0) {
        slots[at] = static_cast<uint32_t>(size() + 1);
        hashes.push_back(hash);
        values.insert(values.end(), list.begin(), list.end());
        firsts.push_back(values.size());
        return static_cast<uint32_t>(size() - 1);
      }
      const uint32_t number = slots[at] - 1;
      const std::span<const uint32_t> other = (*this)[number];
      if (hashes[number] == hash && std::equal(other.begin(), other.end(), list.begin(), list.end()))
        return number;
    }
  }
  std::span<const uint32_t> operator[](uint32_t number) const {
    return std::span(values).subspan(firsts[number], firsts[number + 1] - firsts[number]);
  }
  size_t size() const { return hashes.size(); }

private:
  void grow() {
    slots.assign(std::max<size_t>(64, slots.size() * 2), 0);
    const size_t mask = slots.size() - 1;
    for (size_t number = 0; number < hashes.size(); ++number) {
      size_t at = hashes[number] & mask;
      while (slots[at] != 0)
        at = (at + 1) & mask;
      slots[at] = static_cast<uint32_t>(number + 1);
    }
  }

  std::vector<uint32_t> slots; ///< a number and 1; 0: free
  std::vector<uint64_t> hashes;
  std::vector<uint32_t> values;
  std::vector<uint64_t> firsts{0};
};

} // namespace megalith::automata

#endif
