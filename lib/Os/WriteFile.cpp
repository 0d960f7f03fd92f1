#include "megalith/Os/WriteFile.h"
#include "megalith/Os/Temporary.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace megalith::os {

/// Writes over what is there, or makes it. `how`: O_TRUNC or O_APPEND.
static std::string writeThrough(const std::string &path, std::string_view data, int how = O_TRUNC) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | how | O_CLOEXEC | O_NOCTTY, 0666);
  bool ok = descriptor >= 0 && writeAll(descriptor, data.data(), data.size());
  const int error = errno;
  if (descriptor >= 0 && close(descriptor) != 0 && ok)
    return std::strerror(errno);
  return ok ? "" : std::strerror(error);
}

std::string appendFile(const std::string &path, std::string_view data) { return writeThrough(path, data, O_APPEND); }

std::string writeFile(const std::string &path, std::string_view data) {
  if (path.find('\0') != std::string::npos)
    return "a NUL byte in the path";
  struct stat before;
  const bool exists = lstat(path.c_str(), &before) == 0;
  std::string target = path;
  if (exists && S_ISLNK(before.st_mode)) { // what it leads to is written, the link stays
    char *real = realpath(path.c_str(), nullptr);
    if (!real || stat(real, &before) != 0) {
      std::free(real);
      return writeThrough(path, data);
    }
    target = real;
    std::free(real);
  }
  // A pipe and the like cannot be replaced, and a second name should not lose its file.
  if (exists && (!S_ISREG(before.st_mode) || before.st_nlink > 1))
    return writeThrough(path, data);
  if (exists && access(target.c_str(), W_OK) != 0)
    return std::strerror(errno);
  const size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : target.substr(0, slash + 1);
  TemporaryFile file(AT_FDCWD, folder + ".megalith-", 0666);
  if (file.descriptor() < 0) {
    const int error = errno;
    return exists ? writeThrough(path, data) : std::strerror(error);
  }
  // Mode and owner stay, too.
  if (exists && (fchown(file.descriptor(), before.st_uid, before.st_gid) != 0 ||
                 fchmod(file.descriptor(), before.st_mode & 07777) != 0))
    return writeThrough(path, data);
  if (!writeAll(file.descriptor(), data.data(), data.size()) || !file.renameTo(target))
    return std::strerror(errno);
  return "";
}

} // namespace megalith::os
