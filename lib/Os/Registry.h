//===- Registry.h - what must not stay behind -------------------*- C++ -*-===//
#ifndef MEGALITH_LIB_OS_REGISTRY_H
#define MEGALITH_LIB_OS_REGISTRY_H

#include <mutex>
#include <set>
#include <string>
#include <sys/types.h>

namespace megalith::os {

/// Who makes something temporary or starts a process holds the lock until it is
/// registered. The end of the process takes it and never gives it back, so that nothing
/// more is made.
struct Registry {
  static Registry &get(); ///< lives for ever
  std::mutex lock;
  std::set<std::string> paths; ///< files and folders
  std::set<pid_t> groups;      ///< of processes; the number is that of the one we started

  /// Ends and removes everything. Once.
  void clear();
};

} // namespace megalith::os
#endif
