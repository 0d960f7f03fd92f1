#include "megalith/Os/Temporary.h"
#include "Registry.h"
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace megalith::os {

/// A folder on the way in which anybody could put another one in our folder's place; "" if
/// there is none. Where the sticky bit is set, as on /tmp, only its owner can rename a thing.
static std::string unsafeParent(fs::path path) {
  for (struct stat info;; path = path.parent_path()) {
    if (stat(path.c_str(), &info) == 0 && (info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX))
      return path.string();
    if (!path.has_relative_path())
      return "";
  }
}

TemporaryDirectory::TemporaryDirectory() : owner(getpid()) {
  std::error_code ignored;
  const fs::path asked = fs::temp_directory_path(ignored);
  fs::path parent;
  std::string open;
  for (const fs::path &candidate : {asked.empty() ? "/tmp" : asked, fs::path("/var/tmp")}) {
    // The real path: compilers ask the system where they run, and this is taken out of what
    // they write.
    parent = fs::canonical(candidate, ignored);
    const std::string found = unsafeParent(parent);
    if (!parent.empty() && found.empty()) {
      open.clear();
      break;
    }
    if (open.empty())
      open = found.empty() ? candidate.string() : found;
  }
  if (!open.empty()) {
    why = fmt::format("anybody can rename what is in `{}` (no sticky bit); set `TMPDIR` to a folder of your own", open);
    return;
  }
  std::string pattern = (parent / "megalith-XXXXXX").string();
  RegistryLock registry;
  if (!mkdtemp(pattern.data())) {
    why = fmt::format("cannot make a directory in `{}`: {}", parent.string(), std::strerror(errno));
    return;
  }
  where = pattern;
  registry->paths.insert(where);
}

TemporaryDirectory::~TemporaryDirectory() {
  // A child of a fork leaves it to its parent.
  if (where.empty() || getpid() != owner)
    return;
  RegistryLock registry;
  std::error_code ignored;
  fs::remove_all(where, ignored);
  registry->paths.erase(where);
}

TemporaryFile::TemporaryFile(int directory, const std::string &prefix, mode_t mode) : directory(directory) {
  // For the registry the name must mean the same wherever the process goes.
  std::error_code ignored;
  const std::string base =
      directory == AT_FDCWD ? fs::current_path(ignored).string() : fmt::format("/proc/self/fd/{}", directory);
  RegistryLock registry;
  static unsigned number = 0;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    name = fmt::format("{}{}-{}", prefix, getpid(), number++);
    file = openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (file >= 0) {
      registered = (fs::path(base) / name).string();
      registry->paths.insert(registered);
      return;
    }
    if (errno != EEXIST)
      return;
  }
}

TemporaryFile::~TemporaryFile() {
  const int error = errno;
  if (file >= 0)
    close(file);
  if (!registered.empty()) {
    RegistryLock registry;
    unlinkat(directory, name.c_str(), 0);
    registry->paths.erase(registered);
  }
  errno = error;
}

bool TemporaryFile::renameTo(const std::string &target) {
  const int closed = close(file);
  file = -1;
  if (closed != 0)
    return false;
  RegistryLock registry;
  if (renameat(directory, name.c_str(), directory, target.c_str()) != 0)
    return false;
  registry->paths.erase(registered);
  registered.clear();
  return true;
}

bool TemporaryFile::linkTo(const std::string &target) {
  return linkat(directory, name.c_str(), directory, target.c_str(), 0) == 0;
}

bool writeAll(int descriptor, const char *data, size_t size) {
  // SIGPIPE goes to the thread that writes: it is held back and taken away.
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  bool ok = true;
  while (ok && size > 0) {
    const ssize_t written = write(descriptor, data, size);
    if (written < 0 && errno == EINTR)
      continue;
    ok = written > 0;
    if (ok) {
      data += written;
      size -= static_cast<size_t>(written);
    }
  }
  const int error = errno;
  if (!ok && error == EPIPE && sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE)) {
    const timespec now = {};
    sigtimedwait(&pipe, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return ok;
}

} // namespace megalith::os
