#ifndef MEGALITH_TEST_UNIT_JIT_JITTESTHELPER_H
#define MEGALITH_TEST_UNIT_JIT_JITTESTHELPER_H

#include "megalith/Jit/Compile.h"
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace megalith::jit {

/// A fresh directory, removed at the end.
class TemporaryDirectory {
public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "megalith-XXXXXX").string();
    if (!mkdtemp(pattern.data()))
      std::abort();
    path = pattern;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string &name) const { return path + "/" + name; }
  std::string path;
};

/// Sets an environment variable, and puts the old value back at the end.
class ScopedEnv {
public:
  ScopedEnv(const char *name, const std::string &value) : name(name) {
    if (const char *old = std::getenv(name))
      previous = old;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedEnv() {
    if (previous)
      setenv(name, previous->c_str(), 1);
    else
      unsetenv(name);
  }

private:
  const char *name;
  std::optional<std::string> previous;
};

/// Leaves the test, saying so, where NVRTC is not installed.
#define MEGALITH_NVRTC_OR_SKIP(nvrtc, diags)                                                                           \
  std::optional<Nvrtc> nvrtc = Nvrtc::open(diags);                                                                     \
  if (!nvrtc)                                                                                                          \
  GTEST_SKIP() << "NVRTC is not here: " << diags.render()

} // namespace megalith::jit
#endif
