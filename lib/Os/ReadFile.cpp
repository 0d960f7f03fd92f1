#include "megalith/Os/ReadFile.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <new>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>

namespace megalith::os {

/// "16 MiB", "4 GiB".
static std::string sizeText(uint64_t bytes) {
  return bytes % (1ull << 30) == 0 ? fmt::format("{} GiB", bytes >> 30) : fmt::format("{} MiB", bytes >> 20);
}

static std::string tooMuch(uint64_t most, const char *of) {
  return fmt::format("it has more than {}, the most that is read of {}", sizeText(most), of);
}

static bool sameFile(const struct stat &a, const struct stat &b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

/// Reads to the end, or to one byte more than `most`. False: `errno` says why.
static bool readAll(int descriptor, uint64_t most, std::string &text) {
  char buffer[1 << 16];
  while (text.size() <= most) {
    const ssize_t count = read(descriptor, buffer, std::min<uint64_t>(sizeof buffer, most + 1 - text.size()));
    if (count == 0)
      return true;
    if (count > 0)
      text.append(buffer, static_cast<size_t>(count));
    else if (errno != EINTR)
      return false;
  }
  return true;
}

std::optional<std::string> readDescriptor(int descriptor, uint64_t most, std::string &reason) {
  struct stat before, after;
  if (fstat(descriptor, &before) != 0) {
    reason = std::strerror(errno);
    return std::nullopt;
  }
  if (S_ISDIR(before.st_mode)) {
    reason = std::strerror(EISDIR);
    return std::nullopt;
  }
  if (S_ISBLK(before.st_mode)) {
    reason = "it is a block device";
    return std::nullopt;
  }
  // What /proc makes up has no size beforehand either.
  const bool sized = S_ISREG(before.st_mode) && before.st_size > 0;
  const char *of = sized ? "such a file" : "a stream";
  if (!sized)
    most = std::min(most, streamBytes);
  if (sized && static_cast<uint64_t>(before.st_size) > most) {
    reason = tooMuch(most, of);
    return std::nullopt;
  }
  try {
    std::string text;
    if (sized)
      text.reserve(static_cast<size_t>(before.st_size));
    if (!readAll(descriptor, most, text)) {
      reason = std::strerror(errno);
      return std::nullopt;
    }
    if (text.size() > most) {
      reason = tooMuch(most, of);
      return std::nullopt;
    }
    // Half of the old text and half of the new one is neither.
    if (sized && (fstat(descriptor, &after) != 0 || !sameFile(before, after))) {
      reason = "it changed while it was read";
      return std::nullopt;
    }
    return text;
  } catch (const std::bad_alloc &) {
  } catch (const std::length_error &) {
  }
  reason = "it does not fit into memory";
  return std::nullopt;
}

static std::optional<std::string> readPath(const std::string &path, uint64_t most, bool regular, std::string &reason) {
  // The system would open what the name says up to there.
  if (path.find('\0') != std::string::npos) {
    reason = "a NUL byte in the path";
    return std::nullopt;
  }
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (regular ? O_NONBLOCK : 0));
  if (descriptor < 0) {
    reason = std::strerror(errno);
    return std::nullopt;
  }
  struct stat info;
  std::optional<std::string> text;
  if (regular && fstat(descriptor, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
    reason = "not a regular file";
  else
    text = readDescriptor(descriptor, most, reason);
  close(descriptor);
  return text;
}

std::optional<std::string> readFile(const std::string &path, uint64_t most, std::string &reason) {
  return readPath(path, most, false, reason);
}

std::optional<std::string> readRegularFile(const std::string &path, uint64_t most, std::string &reason) {
  return readPath(path, most, true, reason);
}

} // namespace megalith::os
