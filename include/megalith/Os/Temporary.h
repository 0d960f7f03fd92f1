//===- Temporary.h - what goes when the process goes ------------*- C++ -*-===//
#ifndef MEGALITH_OS_TEMPORARY_H
#define MEGALITH_OS_TEMPORARY_H

#include <string>
#include <sys/types.h>

namespace megalith::os {

/// A folder in $TMPDIR, else /tmp, that only we can read (mode 0700); in /var/tmp where
/// anybody could put another folder in its place. Removed with all that is in it, also when
/// a signal ends the process.
class TemporaryDirectory {
public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory &) = delete;

  /// The real path, without links; "" when it could not be made.
  const std::string &path() const { return where; }
  /// Why it could not be made.
  const std::string &error() const { return why; }
  std::string operator/(const std::string &name) const { return where + "/" + name; }

private:
  std::string where, why;
  pid_t owner;
};

/// A file that somebody makes and renames. Removed, also when a signal ends the process,
/// unless it was kept.
class TemporaryFile {
public:
  /// Makes an empty file below the open folder `directory`, or AT_FDCWD, with this mode
  /// less the umask. Its name begins with `prefix`, a path of that folder.
  TemporaryFile(int directory, const std::string &prefix, mode_t mode);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile &) = delete;

  /// -1: it could not be made, and errno says why.
  int descriptor() const { return file; }
  /// Puts it in the place of `target`, in the same folder. False: errno says why.
  bool renameTo(const std::string &target);
  /// Gives it the name `target` as well, if nothing has it. False: errno says why.
  bool linkTo(const std::string &target);

private:
  int directory, file = -1;
  std::string name, registered;
};

/// Writes all of it. False: errno says why. EPIPE is an error here, never a signal.
bool writeAll(int descriptor, const char *data, size_t size);

} // namespace megalith::os
#endif
