#include "HostTestHelper.h"
#include <algorithm>
#include <cstring>
#include <sys/stat.h>
#include <tuple>

using namespace megalith;
using namespace megalith::jit;

namespace {

/// Bytes at an offset from what the test watches.
struct Access {
  long offset;
  unsigned bytes;
  bool write;
  bool operator==(const Access &) const = default;
  auto operator<=>(const Access &) const = default;
};
void PrintTo(const Access &a, std::ostream *out) {
  *out << (a.write ? "write " : "read ") << a.bytes << " at " << a.offset;
}

std::vector<Access> accesses;
const void *lastPc;
const char *watched;

void record(const void *at, unsigned bytes, int isWrite, const void *pc) {
  accesses.push_back({static_cast<const char *>(at) - watched, bytes, isWrite != 0});
  lastPc = pc;
}

const char *const kernel = R"(
struct alignas(16) Vector { float x, y, z, w; };
struct Block { int words[20]; };
struct Two { Vector a, b; };
extern "C" {
__global__ void copyWord(char *p) { *(int *)p = *(int *)(p + 64); }
__global__ void copyVector(char *p) { *(Vector *)p = *(Vector *)(p + 64); }
__global__ void increment(char *p) { *(int *)p += 1; }
__global__ void copyBlock(char *p) { *(Block *)p = *(Block *)(p + 128); }
__global__ void copyBytes(char *p) { memcpy(p, p + 128, 24); }
__global__ void fill(char *p) { memset(p, 7, 40); }
__global__ void unaligned(char *p) {
  struct __attribute__((packed)) Packed { char c; int i; };
  ((Packed *)p)->i = 5;
}
__global__ void changeVolatile(char *p) { *(volatile short *)p = *(volatile short *)(p + 64); }
__global__ void sumPairs(char *p) {
  float *f = (float *)p;
  for (int i = 0; i < 8; ++i)
    f[32 + i] = f[2 * i] + f[2 * i + 1];
}
__global__ int local(char *p, int n) {
  int table[8];
  for (int i = 0; i < 8; ++i)
    table[i] = i * n;
  int sum = 0;
  for (int i = 0; i < 8; ++i)
    sum += table[(i * n) & 7];
  return sum;
}
extern void (*escape)(void *);
__global__ void (*escape)(void *) = nullptr;
__global__ void escaping(char *p) {
  int table[4] = {1, 2, 3, 4};
  escape(table);
  *(int *)p = table[2];
}
__global__ int arch() { return __CUDA_ARCH__; }
__global__ void wordOfHost(char *p) { megalith_cpu_host->sleep(7); *p = 1; }
}
)";

struct HostCompilerTest : ::testing::Test {
  TemporaryDirectory tmp;
  SourceFiles files;
  Diagnostics diags{files};
  KernelCache cache{tmp / "cache", diags};
  megalith::cpu::Host host{};
  alignas(64) char memory[256] = {};

  HostCompilerTest() {
    accesses.clear();
    watched = memory;
    host.version = megalith::cpu::kHostVersion;
    host.access = record;
  }

  std::optional<HostCompiler> compiler(const std::string &name) {
    ScopedEnv env("MEGALITH_HOST_CXX", name);
    return HostCompiler::open(diags);
  }

  /// What calling the kernel's function `name` touches, in order of place.
  std::vector<Access> touched(const Library &library, const char *name) {
    accesses.clear();
    library.get<void(char *)>(name)(memory);
    std::vector<Access> sorted = accesses;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

  /// Compiles what must fail and returns what is reported.
  std::string errorsOf(const HostCompileRequest &request, const std::string &name) {
    Diagnostics own(files);
    auto found = compiler(name);
    EXPECT_TRUE(found);
    EXPECT_FALSE(compileHostCached(*found, cache, request, own));
    EXPECT_TRUE(own.hasErrors());
    return own.render();
  }
};

/// Each compiler with each effort but the least.
static std::vector<std::pair<std::string, Effort>> efforts() {
  std::vector<std::pair<std::string, Effort>> all;
  for (const std::string &name : hostCompilers())
    for (Effort effort : {Effort::Full, Effort::Less})
      all.push_back({name, effort});
  return all;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(HostCompilerTest, aCheckedKernelTellsOfEveryPlainAccess) {
  for (const auto &[name, effort] : efforts()) {
    SCOPED_TRACE(name + (effort == Effort::Full ? "" : ", less optimised"));
    auto found = compiler(name);
    ASSERT_TRUE(found) << diags.render();
    HostCompileRequest request = hostRequest(kernel);
    request.effort = effort;
    auto result = compileHostCached(*found, cache, request, diags);
    ASSERT_TRUE(result) << diags.render();
    Library library(result->path);
    ASSERT_TRUE(library);
    EXPECT_EQ(*library.get<const int>("megalith_cpu_version"), megalith::cpu::kHostVersion);
    library.get<void(const megalith::cpu::Host *)>("megalith_cpu_bind")(&host);
    EXPECT_EQ(library.get<int()>("arch")(), 900);

    using List = std::vector<Access>;
    EXPECT_EQ(touched(library, "copyWord"), (List{{0, 4, true}, {64, 4, false}}));
    EXPECT_EQ(touched(library, "copyVector"), (List{{0, 16, true}, {64, 16, false}}));
    std::memset(memory, 0, sizeof memory);
    EXPECT_EQ(touched(library, "increment"), (List{{0, 4, false}, {0, 4, true}}));
    EXPECT_EQ(memory[0], 1);
    memory[128 + 79] = 9;
    EXPECT_EQ(touched(library, "copyBlock"), (List{{0, 80, true}, {128, 80, false}}));
    EXPECT_EQ(memory[79], 9);
    memory[128 + 23] = 8;
    EXPECT_EQ(touched(library, "copyBytes"), (List{{0, 24, true}, {128, 24, false}}));
    EXPECT_EQ(memory[23], 8);
    EXPECT_EQ(touched(library, "fill"), (List{{0, 40, true}}));
    EXPECT_EQ(memory[39], 7);
    EXPECT_EQ(memory[40], 0);
    EXPECT_EQ(touched(library, "unaligned"), (List{{1, 4, true}}));
    EXPECT_EQ(touched(library, "changeVolatile"), (List{{0, 2, true}, {64, 2, false}}));
    // A vectorized loop would read 32 bytes at once.
    List pairs;
    for (int i = 0; i < 16; ++i)
      pairs.push_back({4 * i, 4, false});
    for (int i = 0; i < 8; ++i)
      pairs.push_back({128 + 4 * i, 4, true});
    EXPECT_EQ(touched(library, "sumPairs"), pairs);

    // A local that nobody else can see is not reported.
    accesses.clear();
    library.get<int(char *, int)>("local")(memory, 3);
    EXPECT_EQ(accesses, List{});
    // One that escapes is, unless it lies on a fiber's stack.
    *library.get<void (*)(void *)>("escape") = +[](void *) {};
    auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    char *begin = reinterpret_cast<char *>(here - (1 << 20)), *end = reinterpret_cast<char *>(here + (1 << 12));
    std::unique_ptr<char[]> heap(new char[64]); // `memory` lies on the stack, too
    auto onStack = [&] {
      accesses.clear();
      library.get<void(char *)>("escaping")(heap.get());
      EXPECT_EQ(std::count(accesses.begin(), accesses.end(), Access{0, 4, true}), 1);
      return std::count_if(accesses.begin(), accesses.end(), [&](const Access &access) {
        return watched + access.offset >= begin && watched + access.offset < end;
      });
    };
    watched = heap.get();
    EXPECT_GE(onStack(), 1);
    host.stacksBegin = begin;
    host.stacksEnd = end;
    EXPECT_EQ(onStack(), 0);
    watched = memory;
    host.stacksBegin = host.stacksEnd = nullptr;

    // Nothing is asked of a host that does not listen.
    host.access = nullptr;
    library.get<void(char *)>("copyWord")(memory);
    host.access = record;
    // The place lies in the shared object.
    touched(library, "increment");
    Dl_info info;
    ASSERT_TRUE(dladdr(lastPc, &info));
    EXPECT_EQ(std::string(info.dli_fname), result->path);
  }
}

TEST_F(HostCompilerTest, anUncheckedKernelRunsByItself) {
  for (const std::string &name : hostCompilers()) {
    SCOPED_TRACE(name);
    auto found = compiler(name);
    ASSERT_TRUE(found) << diags.render();
    auto result = compileHostCached(*found, cache, hostRequest(kernel, /*checked=*/false), diags);
    ASSERT_TRUE(result) << diags.render();
    Library library(result->path);
    ASSERT_TRUE(library);
    static unsigned slept;
    host.sleep = [](unsigned nanoseconds) { slept = nanoseconds; };
    library.get<void(const megalith::cpu::Host *)>("megalith_cpu_bind")(&host);
    memory[64] = 42;
    EXPECT_EQ(touched(library, "copyWord"), std::vector<Access>{});
    EXPECT_EQ(memory[0], 42);
    library.get<void(char *)>("wordOfHost")(memory);
    EXPECT_EQ(slept, 7u);
  }
}

TEST_F(HostCompilerTest, cachesByEverythingItDependsOn) {
  auto found = compiler(hostCompilers().at(0));
  ASSERT_TRUE(found) << diags.render();
  HostCompileRequest request = hostRequest("extern \"C\" __global__ int one() { return 1; }\n");
  auto first = compileHostCached(*found, cache, request, diags);
  ASSERT_TRUE(first) << diags.render();
  EXPECT_FALSE(first->cacheHit);
  EXPECT_TRUE(std::filesystem::equivalent(std::filesystem::path(first->path).parent_path(), cache.directory()));
  std::string stem = first->path.substr(0, first->path.size() - 3);
  std::ifstream in(stem + ".cu");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), request.units[0].source);
  EXPECT_TRUE(std::filesystem::exists(stem + ".json"));

  // Who takes it uses its objects, too.
  const auto longUnused = [&] {
    size_t count = 0;
    for (const CacheEntry &entry : cache.contents().contents(false).entries)
      count += entry.used < std::chrono::system_clock::now() - std::chrono::hours(1);
    return count;
  };
  for (const auto &file : std::filesystem::directory_iterator(cache.directory()))
    std::filesystem::last_write_time(file, file.last_write_time() - std::chrono::hours(2));
  EXPECT_EQ(longUnused(), 3u);
  auto second = compileHostCached(*found, cache, request, diags);
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->cacheHit);
  EXPECT_EQ(longUnused(), 0u);
  EXPECT_EQ(second->path, first->path);
  EXPECT_NE(second->milliseconds, first->milliseconds); // those of this call

  // One that was changed is compiled again, to the same bytes.
  auto bytes = [&] {
    std::ifstream in(first->path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  std::string before = bytes();
  std::filesystem::resize_file(first->path, 100);
  EXPECT_FALSE(compileHostCached(*found, cache, request, diags)->cacheHit);
  EXPECT_TRUE(bytes() == before);
  EXPECT_TRUE(compileHostCached(*found, cache, request, diags)->cacheHit);

  // One that is ours and cannot be loaded, as on a system that it was not made for.
  ASSERT_TRUE(cache.storeEntry(std::filesystem::path(first->path).stem().string(), ".so", {"no code", {}}, "", diags));
  auto again = compileHostCached(*found, cache, request, diags);
  ASSERT_TRUE(again) << diags.render();
  EXPECT_FALSE(again->cacheHit);
  EXPECT_TRUE(bytes() == before);

  for (auto change : {+[](HostCompileRequest &r) { r.units[0].source += " "; },
                      +[](HostCompileRequest &r) { r.arch = 800; }, +[](HostCompileRequest &r) { r.checked = false; },
                      +[](HostCompileRequest &r) { r.units[0].fileName = "other.cu"; },
                      +[](HostCompileRequest &r) { r.headers[0].text += "\n"; },
                      +[](HostCompileRequest &r) { r.extraSources[0].text += "\n"; }}) {
    HostCompileRequest other = request;
    change(other);
    auto result = compileHostCached(*found, cache, other, diags);
    ASSERT_TRUE(result) << diags.render();
    EXPECT_FALSE(result->cacheHit);
    EXPECT_NE(result->path, first->path);
  }
}

TEST_F(HostCompilerTest, worksWithoutACacheAndLeavesNothing) {
  auto found = compiler(hostCompilers().at(0));
  ASSERT_TRUE(found);
  std::ofstream(tmp / "file") << "x";
  std::filesystem::create_directory(tmp / "temporary");
  ScopedEnv env("TMPDIR", tmp / "temporary");
  Diagnostics own(files);
  KernelCache broken(tmp / "file", own);
  EXPECT_FALSE(broken.enabled());
  HostCompileRequest request = hostRequest("extern \"C\" __global__ int one() { return 1; }\n");
  auto result = compileHostCached(*found, broken, request, own);
  ASSERT_TRUE(result) << own.render();
  EXPECT_FALSE(own.hasErrors());
  EXPECT_EQ(result->path.rfind(std::filesystem::canonical(tmp / "temporary").string(), 0), 0u) << result->path;
  struct stat info;
  ASSERT_EQ(stat(std::filesystem::path(result->path).parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  Library library(result->path);
  ASSERT_TRUE(library);
  EXPECT_EQ(library.get<int()>("one")(), 1);

  // A folder in the place of the shared object: made, and run from where it was made.
  const std::string key = std::filesystem::path(compileHostCached(*found, cache, request, diags)->path).stem().string();
  std::filesystem::remove(cache.path(key, ".so"));
  std::filesystem::create_directory(cache.path(key, ".so"));
  Diagnostics warned(files);
  auto blocked = compileHostCached(*found, cache, request, warned);
  ASSERT_TRUE(blocked) << warned.render();
  EXPECT_EQ(Library(blocked->path).get<int()>("one")(), 1);
  EXPECT_EQ(warned.render(), "warning: the kernel cache `" + cache.directory() +
                                 "` is not used: cannot write to it: Is a directory [cache-unsafe]\n");
  std::filesystem::remove(cache.path(key, ".so"));

  // With a cache, and after an error, no directory stays.
  auto entries = [&] {
    return std::distance(std::filesystem::directory_iterator(tmp / "temporary"), std::filesystem::directory_iterator());
  };
  long before = entries();
  ASSERT_TRUE(compileHostCached(*found, cache, request, diags));
  request.units[0].source = "error";
  EXPECT_FALSE(compileHostCached(*found, cache, request, own));
  EXPECT_EQ(entries(), before);
}

TEST_F(HostCompilerTest, removesItsDirectoryAtExit) {
  auto found = compiler(hostCompilers().at(0));
  ASSERT_TRUE(found);
  std::filesystem::create_directory(tmp / "temporary");
  ScopedEnv env("TMPDIR", tmp / "temporary");
  EXPECT_EXIT(
      {
        std::ofstream(tmp / "file") << "x";
        KernelCache broken(tmp / "file", diags);
        auto result = compileHostCached(*found, broken, hostRequest(""), diags);
        std::exit(result && std::filesystem::exists(result->path) ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
  EXPECT_TRUE(std::filesystem::is_empty(tmp / "temporary"));
}

TEST_F(HostCompilerTest, aCheckedKernelRefusesAtomicsOfTheLanguage) {
  for (const std::string &name : hostCompilers()) {
    auto found = compiler(name);
    ASSERT_TRUE(found);
    auto result = compileHostCached(
        *found, cache,
        hostRequest("extern \"C\" __global__ void k(int *p) { __atomic_fetch_add(p, 1, __ATOMIC_RELAXED); }\n"), diags);
    ASSERT_TRUE(result) << diags.render();
    Library library(result->path);
    ASSERT_TRUE(library);
    EXPECT_DEATH(library.get<void(char *)>("k")(memory),
                 "this kernel uses a C\\+\\+ atomic.*__tsan_atomic32_fetch_add");
  }
}

TEST_F(HostCompilerTest, namesWhatTheExecutorDoesNotKnow) {
  files.add("foo.yaml", "state:\n  next: __foo_sync(1)\n");
  for (const std::string &name : hostCompilers()) {
    SCOPED_TRACE(name);
    std::string text = errorsOf(hostRequest("extern \"C\" __global__ void k(int *p) {\n"
                                            "#line 2 \"foo.yaml\"\n"
                                            "  *p = __foo_sync(1);\n"
                                            "}\n"),
                                name);
    EXPECT_HAS(text, "foo.yaml:2:3: error: cannot compile the code for the CPU: the CPU executor does not know "
                     "`__foo_sync` [cpu-compile]\n    2 |   next: __foo_sync(1)\n");
    EXPECT_HAS(text, "note: the compiler says: ");

    text = errorsOf(hostRequest("int defined();\nextern \"C\" __global__ int k() { return defined(); }\n"), name);
    EXPECT_HAS(text, "the CPU executor does not know `defined()`: it is declared, but nothing defines it");
    EXPECT_HAS(text, "kernel.cu:2: ");
    text = errorsOf(hostRequest("#include <no_such_cuda.h>\n"), name);
    EXPECT_HAS(text, "kernel.cu:1: the CPU executor does not know the header `no_such_cuda.h`");
    text = errorsOf(hostRequest("namespace cuda {}\nauto x = cuda::ptr(1);\n"), name);
    EXPECT_HAS(text, "kernel.cu:2: the CPU executor does not know `cuda::ptr`");
    text = errorsOf(hostRequest("template <class T> void f(T t) { __undone(3); __alsoUndone(t); }\n"
                                "void g() { f(1); }\n"),
                    name);
    const std::string undone = "kernel.cu:1: the CPU executor does not know `__undone`";
    EXPECT_HAS(text, undone);
    EXPECT_EQ(text.find(undone), text.rfind(undone)) << text;
    text = errorsOf(hostRequest("void f() {\n  asm volatile(\"bar.sync 0;\");\n}\n"), name);
    EXPECT_HAS(text, "kernel.cu:2: ");
  }
}

TEST_F(HostCompilerTest, placesSyntaxErrorsAndDoesNotFlood) {
  files.add("foo.yaml", "state:\n  next: seen +\n");
  for (const std::string &name : hostCompilers()) {
    SCOPED_TRACE(name);
    std::string text = errorsOf(hostRequest("extern \"C\" __global__ void k(int *p) {\n"
                                            "#line 2 \"foo.yaml\"\n"
                                            "  *p = 1 +;\n"
                                            "}\n"),
                                name);
    EXPECT_EQ(text.rfind("foo.yaml:2:3: error: cannot compile the code for the CPU: expected ", 0), 0u) << text;

    // Only the error of a long backtrace.
    text = errorsOf(hostRequest("template <int n> struct Deep { typename Deep<n - 1>::T t; using T = int; };\n"
                                "template <> struct Deep<0> { Box<int> b; };\n"
                                "Deep<30> d;\n"),
                    name);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 2 * 21) << text;
    std::string many;
    for (int i = 0; i < 30; ++i)
      many += fmt::format("int a{0} = b{0};\n", i);
    text = errorsOf(hostRequest(many), name);
    EXPECT_HAS(text, "`b19`");
    EXPECT_EQ(text.find("`b20`"), std::string::npos) << text;
    EXPECT_HAS(text, "10 more errors like this follow");
  }
}

TEST_F(HostCompilerTest, aNameWithADirectoryIsKept) {
  files.add("/some/edited.cu", "one\n  two = 1;\n");
  for (const std::string &name : hostCompilers()) {
    HostCompileRequest request = hostRequest("");
    request.units[0].fileName = "/some/edited.cu";
    request.units[0].source = "int one;\n  two = 1;\n";
    EXPECT_HAS(errorsOf(request, name), "/some/edited.cu:2:3: error: ");
  }
}

TEST(HostCompileLog, readsTheOtherForms) {
  SourceFiles files;
  Diagnostics diags(files);
  EXPECT_EQ(reportHostErrors("kernel.cu: In function 'void f()':\n"
                             "./megalith/A.cuh:7:3: warning: no error: really\n"
                             "kernel.cu:3:   required from here\n"
                             "./megalith/A.cuh:7:3: error: static assertion failed: too big\n"
                             "    7 |   static_assert(n < 3, \"too big\");\n"
                             "      |                 ~~^~~\n"
                             "./megalith/A.cuh:7:3: error: static assertion failed: too big\n"
                             "{standard input}:12: Error: no such instruction: `bar.sync 0'\n"
                             "g++: error: unrecognized command-line option '-y'\n"
                             "ld.lld: error: undefined symbol: f(int)\n"
                             "collect2: error: ld returned 1 exit status\n"
                             "clang: error: linker command failed with exit code 1 (use -v to see invocation)\n",
                             diags),
            4u);
  EXPECT_EQ(diags.render(),
            "error: cannot compile the code for the CPU: megalith/A.cuh:7: static assertion failed: too big "
            "[cpu-compile]\n"
            "note: in the generated code: `static_assert(n < 3, \"too big\");`\n"
            "error: cannot compile the code for the CPU: the assembler says: no such instruction: `bar.sync 0' "
            "[cpu-compile]\n"
            "error: cannot compile the code for the CPU: g++: error: unrecognized command-line option '-y' "
            "[cpu-compile]\n"
            "error: cannot compile the code for the CPU: the CPU executor does not know `f(int)`: it is declared, "
            "but nothing defines it [cpu-compile]\n");
}

TEST_F(HostCompilerTest, saysThatThereIsNoCompiler) {
  {
    ScopedEnv env("MEGALITH_HOST_CXX", "/nonexistent");
    EXPECT_FALSE(HostCompiler::open(diags));
    EXPECT_EQ(diags.render(), "error: cannot compile for the CPU: no C++20 compiler was found "
                              "[host-compiler-not-found]\n"
                              "note: `/nonexistent`: it cannot be run: No such file or directory\n"
                              "note: `MEGALITH_HOST_CXX` is set, so that nothing else was tried\n");
  }
  ScopedEnv none("MEGALITH_HOST_CXX", ""), path("PATH", tmp.path);
  Diagnostics own(files);
  EXPECT_FALSE(HostCompiler::open(own));
  EXPECT_HAS(own.render(), "note: install g++");
  // One that does not know C++20, then a text that is no compiler.
  for (const char *script : {"#!/bin/sh\necho \"error: bad value 'c++20'\" >&2; exit 1\n", "#!/bin/sh\necho hi\n"}) {
    std::ofstream(tmp / "g++") << script;
    std::filesystem::permissions(tmp / "g++", std::filesystem::perms::owner_all);
    EXPECT_FALSE(HostCompiler::open(own));
  }
  EXPECT_HAS(own.render(), "g++`: it does not compile C++20: error: bad value 'c++20'");
  EXPECT_HAS(own.render(), "g++`: it is neither g++ nor clang++");
}

TEST_F(HostCompilerTest, saysThatTheCompilerDied) {
  auto found = compiler(hostCompilers().at(0));
  ASSERT_TRUE(found);
  // Answers the questions, and dies at work.
  std::ofstream(tmp / "dies") << "#!/bin/sh\n"
                                 "case \"$*\" in *-c*) kill -9 $$;; *) exec "
                              << found->path() << " \"$@\";; esac\n";
  std::filesystem::permissions(tmp / "dies", std::filesystem::perms::owner_all);
  EXPECT_HAS(errorsOf(hostRequest(""), tmp / "dies"), "dies` was killed: Killed [cpu-compile]");
}

} // namespace
