//===- main.cpp - megalith-fuzz -------------------------------------------===//
//
//   megalith-fuzz --target=NAME [libFuzzer's options] CORPUS...
//   megalith-fuzz --list
//===----------------------------------------------------------------------===//
#include "Fuzz.h"
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

namespace {

struct Target {
  const char *name;
  void (*run)(std::string_view);
  int mostBytes;
  const char *text;
};
constexpr Target targets[] = {
#define TARGET(Function, Name, MostBytes, Text) {Name, megalith::fuzz::Function, MostBytes, Text},
#include "Targets.def"
};
const Target *chosen = nullptr;

/// libFuzzer starts itself again for some of its modes, without our option.
constexpr const char *variable = "MEGALITH_FUZZ_TARGET";

void list() {
  for (const Target &target : targets)
    fmt::print("{:<12} {:>6}  {}\n", target.name, target.mostBytes, target.text);
}

} // namespace

extern "C" int LLVMFuzzerInitialize(int *argc, char ***argv) {
  int kept = 0;
  for (int i = 0; i < *argc; ++i) {
    const char *arg = (*argv)[i];
    if (std::strcmp(arg, "--list") == 0) {
      list();
      std::exit(0);
    }
    if (std::strncmp(arg, "--target=", 9) == 0)
      setenv(variable, arg + 9, 1);
    else
      (*argv)[kept++] = (*argv)[i];
  }
  *argc = kept;
  (*argv)[kept] = nullptr;
  const char *name = std::getenv(variable);
  for (const Target &target : targets)
    if (name && std::strcmp(name, target.name) == 0)
      chosen = &target;
  if (!chosen) {
    fmt::print(stderr, "{}; give `--target=NAME`:\n", name ? fmt::format("no target `{}`", name) : "which target?");
    list();
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  chosen->run({reinterpret_cast<const char *>(data), size});
  return 0;
}
