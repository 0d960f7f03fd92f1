#include "megalith/Os/MappedFile.h"
#include "megalith/Os/Ending.h"
#include "megalith/Text/Text.h"
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace megalith::os {

/// A place in a list that only grows: the handler of a signal reads it without a lock.
struct MappedFile::Entry {
  std::atomic<const MappedFile *> file = nullptr; ///< null: free
  Entry *next = nullptr;
};

static std::atomic<void *> newest = nullptr;
static std::mutex changing;

MappedFile::Entry *MappedFile::entries() { return static_cast<Entry *>(newest.load()); }

std::shared_ptr<const MappedFile> MappedFile::open(const std::string &path, std::string &reason) {
  // A pipe without a writer would be waited for.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat info;
  if (descriptor < 0 || fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    reason = descriptor < 0 ? std::strerror(errno) : "not a regular file";
    if (descriptor >= 0)
      close(descriptor);
    return nullptr;
  }
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->name = path;
  file->shown = text::printable(path);
  file->descriptor = descriptor;
  file->length = static_cast<uint64_t>(info.st_size);
  file->seconds = info.st_mtim.tv_sec;
  file->nanoseconds = info.st_mtim.tv_nsec;
  if (file->length == 0)
    return file;
  void *address = mmap(nullptr, file->length, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) {
    reason = std::strerror(errno);
    return nullptr;
  }
  file->bytes = static_cast<const uint8_t *>(address);
  std::lock_guard guard(changing);
  Entry *entry = entries();
  while (entry && entry->file.load())
    entry = entry->next;
  if (!entry) {
    entry = new Entry;
    entry->next = entries();
    newest = entry;
  }
  entry->file = file.get();
  file->entry = entry;
  return file;
}

MappedFile::~MappedFile() {
  if (entry)
    entry->file = nullptr;
  if (bytes)
    munmap(const_cast<uint8_t *>(bytes), length);
  if (descriptor >= 0)
    close(descriptor);
}

std::string MappedFile::read(uint64_t offset, uint64_t count, void *to) const {
  for (char *at = static_cast<char *>(to); count > 0;) {
    const ssize_t got = pread(descriptor, at, count, static_cast<off_t>(offset));
    if (got == 0)
      return "it changed while it was read";
    if (got < 0 && errno != EINTR)
      return std::strerror(errno);
    if (got > 0)
      at += got, offset += static_cast<uint64_t>(got), count -= static_cast<uint64_t>(got);
  }
  return "";
}

void MappedFile::willRead() const { posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL); }

std::string MappedFile::whyChanged() const {
  struct stat now;
  if (fstat(descriptor, &now) != 0)
    return std::strerror(errno);
  if (static_cast<uint64_t>(now.st_size) == length && now.st_mtim.tv_sec == seconds &&
      now.st_mtim.tv_nsec == nanoseconds)
    return "";
  return "it changed while it was read";
}

bool MappedFile::explainFault(const void *address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Entry *entry = entries(); entry; entry = entry->next) {
    const MappedFile *file = entry->file;
    const auto begin = file ? reinterpret_cast<uintptr_t>(file->bytes) : 0;
    if (!file || at < begin || at - begin >= file->length)
      continue;
    struct stat now;
    const bool cut = fstat(file->descriptor, &now) == 0 && static_cast<uint64_t>(now.st_size) < file->length;
    say("error: ");
    say(file->shown.c_str());
    say(cut ? ": it changed while it was read: it is shorter now" : ": it cannot be read any more: Input/output error");
    say(" [input-changed]\n");
    return true;
  }
  return false;
}

} // namespace megalith::os
