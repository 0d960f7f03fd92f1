#include "megalith/Os/CodePath.h"
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <memory>

std::string megalith::os::codePath() {
  Dl_info info = {};
  link_map *map = nullptr;
  if (!dladdr1(reinterpret_cast<void *>(&codePath), &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP) || !map)
    return "";
  // Of the program itself the loader has no name, and `info` has what it was called.
  const bool isProgram = !map->l_name || !*map->l_name;
  const std::unique_ptr<char, decltype(&std::free)> path(realpath(isProgram ? "/proc/self/exe" : map->l_name, nullptr),
                                                         std::free);
  return path ? path.get() : "";
}
