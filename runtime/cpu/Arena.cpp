//===- Arena.cpp - the memory of the device -------------------------------===//
#include "runtime/cpu/Arena.h"
#include "runtime/Memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <link.h>
#include <sys/mman.h>

namespace megalith::cpu {

Reserved::Reserved(size_t bytes)
    : at(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
      bytes(bytes) {
  if (at == MAP_FAILED)
    throw runtime::NoRoom("the CPU executor cannot reserve " + runtime::bytesText(bytes) +
                          " of address space: " + std::strerror(errno) +
                          "; raise the limit (`ulimit -v`, `vm.overcommit_memory`), or take `--device=reference`");
}

Reserved::~Reserved() {
  if (at)
    munmap(at, bytes);
}

Arena::Arena()
    : memory(kSize), pageNumbers(kSize / kPage * sizeof(uint16_t)), base(static_cast<char *>(memory.at)), regions(1),
      pages(static_cast<uint16_t *>(pageNumbers.at)) {
  regions[0] = {"", 0, 0, Initial::Image};
}

size_t Arena::allocate(const std::string &name, size_t bytes, Initial initial, bool bytewise) {
  const size_t after = std::max<size_t>(256, bytewise ? bytes : std::min<size_t>(64 << 10, bytes / 8));
  const size_t begin = next;
  if (bytes > kSize || begin + bytes + after + kPage > kSize || regions.size() == 65535)
    throw runtime::NoRoom("the CPU executor has no room for " + runtime::bytesText(bytes) + " of `" + name +
                          "`: all buffers may have " + runtime::bytesText(kGlobal) +
                          "; make the KV pool (`pages`, `page_tokens`), the slots or the model smaller");
  next = (begin + bytes + after + kPage - 1) / kPage * kPage;
  std::fill(pages + begin / kPage, pages + next / kPage, (uint16_t)regions.size());
  regions.push_back({name, begin, begin + bytes, initial, 0, bytewise});
  return begin;
}

std::string Arena::describe(size_t offset) const {
  if (offset < kShared)
    return "shared memory of CTA " + std::to_string(offset / kSharedSlot) + " + " +
           std::to_string(offset % kSharedSlot);
  const Region &r = nearest(offset);
  if (r.name.empty())
    return "no memory of the device";
  return "`" + r.name + "` " +
         (offset >= r.begin ? "+ " + std::to_string(offset - r.begin) : "- " + std::to_string(r.begin - offset));
}

const Region &Arena::nearest(size_t offset) const {
  size_t i = pages[offset / kPage];
  if (i == 0 && regions.size() > 1)
    i = offset < regions[1].begin ? 1 : regions.size() - 1;
  return regions[i];
}

bool Arena::inModule(const void *at) {
  const auto a = reinterpret_cast<uintptr_t>(at);
  for (int attempt = 0;; ++attempt) {
    for (auto &m : modules)
      if (a >= m.first && a < m.second) {
        std::swap(m, modules.front()); // likely next time
        return true;
      }
    if (attempt)
      return false;
    modules.clear(); // a library may have come since
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *out) {
          for (int i = 0; i < info->dlpi_phnum; ++i)
            if (info->dlpi_phdr[i].p_type == PT_LOAD) {
              const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
              static_cast<Arena *>(out)->modules.push_back({begin, begin + info->dlpi_phdr[i].p_memsz});
            }
          return 0;
        },
        this);
  }
}

} // namespace megalith::cpu
