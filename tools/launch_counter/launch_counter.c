/* Counts what a process asks of the CUDA driver, from outside of it:
 *
 *   LD_PRELOAD=.../launch_counter.so megalith run ...
 *
 * The functions below take the place of libcuda's, count, and forward. When the
 * process ends, one line of JSON goes to stderr:
 *
 *   {"launch_counter": {"load": {...}, "run": {...}}}
 *
 * `load` is everything before the first cooperative launch or launch of a graph, `run`
 * everything from that launch on. Each holds
 *
 *   launches          number per kernel name
 *   launch_count      their sum
 *   cooperative_count those that were cooperative
 *   graph_count       launches of CUDA graphs, which are none of those
 *   synchronizations  waits of the host for a stream, an event or the context
 *   copies, bytes     of cuMemcpy*; memsets of cuMemset*
 *
 * A copy that blocks counts as a copy and as a synchronisation. Only calls through
 * the library's symbols are seen: a process that gets its functions from
 * cuGetProcAddress passes by. A process that never calls cuInit prints nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef int CUresult;
typedef void *CUfunction;
typedef void *CUmodule;
typedef void *CUstream;
typedef void *CUevent;
typedef unsigned long long CUdeviceptr;

enum { LOAD, RUN, PHASES, MAX_KERNELS = 512, MAX_NAME = 256, ERROR_NOT_FOUND = 500 };

struct kernel {
  CUfunction function;
  char name[MAX_NAME];
  unsigned long long launches[PHASES];
};

struct counts {
  unsigned long long launches, cooperative, graphs, synchronizations, copies, bytes, memsets;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel kernels[MAX_KERNELS];
static int kernelCount;
static struct counts counts[PHASES];
static int phase = LOAD;
static int initialised;

/* The driver's own function: the next one in the search order, or, where the
 * driver was opened for one library only, the one in libcuda. */
static void *realFunction(const char *name) {
  void *function = dlsym(RTLD_NEXT, name);
  if (!function) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    function = library ? dlsym(library, name) : NULL;
  }
  if (!function)
    fprintf(stderr, "launch_counter: the driver has no %s\n", name);
  return function;
}

/* The entry of a kernel; the last one collects what has no room. */
static struct kernel *kernelOf(CUfunction function, const char *name) {
  for (int i = 0; i < kernelCount; ++i)
    if (kernels[i].function == function)
      return &kernels[i];
  if (kernelCount == MAX_KERNELS)
    return &kernels[MAX_KERNELS - 1];
  struct kernel *kernel = &kernels[kernelCount++];
  kernel->function = function;
  snprintf(kernel->name, MAX_NAME, "%s", kernelCount == MAX_KERNELS ? "others" : name);
  return kernel;
}

static void countLaunch(CUfunction function, int cooperative) {
  pthread_mutex_lock(&lock);
  if (cooperative)
    phase = RUN;
  ++kernelOf(function, "unknown")->launches[phase];
  ++counts[phase].launches;
  counts[phase].cooperative += cooperative;
  pthread_mutex_unlock(&lock);
}

static void countGraph(void) {
  pthread_mutex_lock(&lock);
  phase = RUN;
  ++counts[phase].graphs;
  pthread_mutex_unlock(&lock);
}

static void countSynchronization(void) {
  pthread_mutex_lock(&lock);
  ++counts[phase].synchronizations;
  pthread_mutex_unlock(&lock);
}

static void countCopy(size_t bytes, int blocks) {
  pthread_mutex_lock(&lock);
  ++counts[phase].copies;
  counts[phase].bytes += bytes;
  counts[phase].synchronizations += blocks;
  pthread_mutex_unlock(&lock);
}

static void countMemset(void) {
  pthread_mutex_lock(&lock);
  ++counts[phase].memsets;
  pthread_mutex_unlock(&lock);
}

/* WRAP(name, parameters, arguments, what to count) */
#define WRAP(name, parameters, arguments, count)                                                                       \
  CUresult name parameters {                                                                                           \
    static CUresult(*real) parameters;                                                                                 \
    if (!real)                                                                                                         \
      *(void **)&real = realFunction(#name);                                                                           \
    if (!real)                                                                                                         \
      return ERROR_NOT_FOUND;                                                                                          \
    count;                                                                                                             \
    return real arguments;                                                                                             \
  }

WRAP(cuInit, (unsigned flags), (flags), initialised = 1)

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  static CUresult (*real)(CUfunction *, CUmodule, const char *);
  if (!real)
    *(void **)&real = realFunction("cuModuleGetFunction");
  if (!real)
    return ERROR_NOT_FOUND;
  CUresult result = real(function, module, name);
  if (result == 0) {
    pthread_mutex_lock(&lock);
    /* A handle that is used again belongs to a module that was unloaded. */
    struct kernel *kernel = kernelOf(*function, name);
    if (strcmp(kernel->name, name) != 0 && kernel != &kernels[MAX_KERNELS - 1]) {
      kernel->function = NULL;
      kernelOf(*function, name);
    }
    pthread_mutex_unlock(&lock);
  }
  return result;
}

WRAP(cuLaunchKernel,
     (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
      CUstream stream, void **parameters, void **extra),
     (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra), countLaunch(f, 0))
WRAP(cuLaunchCooperativeKernel,
     (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
      CUstream stream, void **parameters),
     (f, gx, gy, gz, bx, by, bz, shared, stream, parameters), countLaunch(f, 1))

WRAP(cuGraphLaunch, (void *executable, CUstream stream), (executable, stream), countGraph())

WRAP(cuStreamSynchronize, (CUstream stream), (stream), countSynchronization())
WRAP(cuEventSynchronize, (CUevent event), (event), countSynchronization())
WRAP(cuCtxSynchronize, (void), (), countSynchronization())

WRAP(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t n), (to, from, n), countCopy(n, 1))
WRAP(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t n), (to, from, n), countCopy(n, 1))
WRAP(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t n), (to, from, n), countCopy(n, 1))
WRAP(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t n), (to, from, n), countCopy(n, 0))
WRAP(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream), (to, from, n, stream),
     countCopy(n, 0))
WRAP(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t n, CUstream stream), (to, from, n, stream),
     countCopy(n, 0))
WRAP(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t n, CUstream stream), (to, from, n, stream),
     countCopy(n, 0))
WRAP(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream), (to, from, n, stream),
     countCopy(n, 0))

WRAP(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t n, CUstream stream), (to, value, n, stream),
     countMemset())
WRAP(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t n, CUstream stream), (to, value, n, stream),
     countMemset())
WRAP(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t n), (to, value, n), countMemset())
WRAP(cuMemsetD32_v2, (CUdeviceptr to, unsigned value, size_t n), (to, value, n), countMemset())

/* A name as a string of JSON: identifiers are what they are, anything else is not trusted. */
static void printName(FILE *out, const char *name) {
  fputc('"', out);
  for (; *name; ++name)
    fputc(*name < ' ' || *name == '"' || *name == '\\' || *name == 127 ? '?' : *name, out);
  fputc('"', out);
}

static void printPhase(FILE *out, const char *name, int which) {
  const struct counts *c = &counts[which];
  fprintf(out, "\"%s\": {\"launches\": {", name);
  const char *separator = "";
  for (int i = 0; i < kernelCount; ++i) {
    if (kernels[i].launches[which] == 0)
      continue;
    fputs(separator, out);
    printName(out, kernels[i].name);
    fprintf(out, ": %llu", kernels[i].launches[which]);
    separator = ", ";
  }
  fprintf(out,
          "}, \"launch_count\": %llu, \"cooperative_count\": %llu, \"graph_count\": %llu, \"synchronizations\": %llu, "
          "\"copies\": %llu, \"bytes\": %llu, \"memsets\": %llu}",
          c->launches, c->cooperative, c->graphs, c->synchronizations, c->copies, c->bytes, c->memsets);
}

__attribute__((destructor)) static void report(void) {
  if (!initialised)
    return;
  fprintf(stderr, "{\"launch_counter\": {");
  printPhase(stderr, "load", LOAD);
  fprintf(stderr, ", ");
  printPhase(stderr, "run", RUN);
  fprintf(stderr, "}}\n");
}
