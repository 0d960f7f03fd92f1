//===- MappedFile.h - a large file, read where it lies ----------*- C++ -*-===//
#ifndef MEGALITH_OS_MAPPEDFILE_H
#define MEGALITH_OS_MAPPEDFILE_H

#include <cstdint>
#include <memory>
#include <string>

namespace megalith::os {

/// A read-only mapping of a regular file. The file may change under it: one that became
/// shorter ends the process with the error `input-changed` where its end is read
/// (os::endCleanly), and whoever has read it asks `whyChanged` before using the results.
class MappedFile {
public:
  /// Null, and why in `reason`, when the file cannot be read or is none.
  static std::shared_ptr<const MappedFile> open(const std::string &path, std::string &reason);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;

  const uint8_t *data() const { return bytes; }
  uint64_t size() const { return length; }
  const std::string &path() const { return name; }
  /// Copies `count` bytes from `offset` on, past the mapping: that is faster where all is read once, and says what goes
  /// wrong instead of ending the process. "" or why not. Several threads may read.
  std::string read(uint64_t offset, uint64_t count, void *to) const;
  /// Tells the system that all of it will be read, from front to end.
  void willRead() const;
  /// "" while the file is as it was when it was opened.
  std::string whyChanged() const;

  /// For the handler of SIGBUS: whether `address` lies in a mapping. Then it has said so.
  static bool explainFault(const void *address);

private:
  MappedFile() = default;
  std::string name, shown;
  const uint8_t *bytes = nullptr;
  uint64_t length = 0;
  int descriptor = -1;
  int64_t seconds = 0, nanoseconds = 0; ///< when it was written last
  struct Entry;
  Entry *entry = nullptr; ///< for explainFault
  static Entry *entries();
};

} // namespace megalith::os
#endif
