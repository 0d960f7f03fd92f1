//===- Registry.h - what must not stay behind -------------------*- C++ -*-===//
#ifndef MEGALITH_LIB_OS_REGISTRY_H
#define MEGALITH_LIB_OS_REGISTRY_H

#include <csignal>
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

/// Holds the lock. No signal comes meanwhile: a handler that ends the process would wait
/// for who waits for the lock.
class RegistryLock {
public:
  RegistryLock() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    registry.lock.lock();
  }
  ~RegistryLock() {
    registry.lock.unlock();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  RegistryLock(const RegistryLock &) = delete;
  Registry *operator->() const { return &registry; }

private:
  Registry &registry = Registry::get();
  sigset_t before;
};

} // namespace megalith::os
#endif
