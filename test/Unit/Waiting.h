//===- Waiting.h - what a test waits for: something that happens -===//
//
// Other tests in C++ do not sleep, which scripts/check_layering.py sees to: how long a machine takes decides nothing.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_TEST_UNIT_WAITING_H
#define MEGALITH_TEST_UNIT_WAITING_H

#include <atomic>
#include <chrono>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>

namespace waiting {

/// So that what hangs ends; how long a machine takes is no matter.
constexpr auto hangs = std::chrono::minutes(10);

/// Looks until `is`.
template <class Is> void waitUntil(Is is) {
  for (const auto until = std::chrono::steady_clock::now() + hangs; !is();
       std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    ASSERT_LT(std::chrono::steady_clock::now(), until);
}

/// A thread that is to wait for something.
class Waiter {
public:
  template <class Work>
  explicit Waiter(Work work)
      : thread([this, work = std::move(work)] {
          id = gettid();
          work();
          over = true;
        }) {}
  /// Until it sleeps: it has come to what it waits for. Or until it is over.
  void waitUntilAsleep() {
    waitUntil([&] {
      if (over || id == 0)
        return over.load();
      std::ifstream stat("/proc/self/task/" + std::to_string(id) + "/stat");
      std::string text;
      std::getline(stat, text);
      const size_t name = text.rfind(") "); // the state stands after it
      return name != std::string::npos && text[name + 2] == 'S';
    });
  }
  void join() { thread.join(); }

private:
  std::atomic<pid_t> id = 0;
  std::atomic<bool> over = false;
  std::thread thread;
};

} // namespace waiting

#endif
