#ifndef MEGALITH_TEST_UNIT_JIT_HOSTTESTHELPER_H
#define MEGALITH_TEST_UNIT_JIT_HOSTTESTHELPER_H

#include "../../../device/cpu/Host.h"
#include "JitTestHelper.h"
#include "megalith/Jit/HostCompiler.h"
#include "llvm/Support/Program.h"
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <memory>

namespace megalith::jit {

inline std::string readDeviceFile(const std::string &name) {
  std::ifstream in(std::string(MEGALITH_SOURCE_DIR) + "/device/" + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// A request with what every kernel needs; `__global__` exports.
inline HostCompileRequest hostRequest(std::string source, bool checked = true) {
  HostCompileRequest request;
  request.units = {{"#include \"megalith/Device.cuh\"\n#line 1 \"kernel.cu\"\n" + std::move(source), "kernel.cu", ""}};
  request.headers = {{"megalith/Device.cuh",
                      "#include \"megalith/Host.h\"\n"
                      "extern \"C\" __attribute__((visibility(\"hidden\"))) const megalith::cpu::Host "
                      "*megalith_cpu_host;\n"
                      "#define __global__ __attribute__((visibility(\"default\")))\n"
                      "#define __device__\n"
                      "extern \"C\" void *memcpy(void *, const void *, decltype(sizeof 0));\n"
                      "extern \"C\" void *memset(void *, int, decltype(sizeof 0));\n"
                      "template <class T> struct Box { typename T::Missing m; };\n"}};
  for (const char *name : {"Host.h", "HostCalls.def"})
    request.headers.push_back({std::string("megalith/") + name, readDeviceFile(std::string("cpu/") + name)});
  request.extraSources = {{"Hooks.cpp", readDeviceFile("cpu/Hooks.cpp")}};
  request.checked = checked;
  return request;
}

/// The names of compilers that are here.
inline std::vector<std::string> hostCompilers() {
  std::vector<std::string> found;
  for (const char *name : {"g++", "clang++", "clang++-19"})
    if (llvm::sys::findProgramByName(name))
      found.push_back(name);
  return found;
}

/// A loaded shared object.
class Library {
public:
  explicit Library(const std::string &path) : handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle)
      ADD_FAILURE() << dlerror();
  }
  ~Library() {
    if (handle)
      dlclose(handle);
  }
  Library(const Library &) = delete;
  explicit operator bool() const { return handle; }
  template <typename T> T *get(const char *name) const {
    void *at = dlsym(handle, name);
    if (!at)
      ADD_FAILURE() << "no " << name;
    return reinterpret_cast<T *>(at);
  }
  uint64_t base() const {
    Dl_info info;
    return dladdr(dlsym(handle, "megalith_cpu_bind"), &info) ? reinterpret_cast<uint64_t>(info.dli_fbase) : 0;
  }

private:
  void *handle;
};

} // namespace megalith::jit
#endif
