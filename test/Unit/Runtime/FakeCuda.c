/* A libcuda.so.1 for tests, without a device after it. The environment says what
 * it pretends to be: FAKE_CUDA_INIT (result of cuInit), FAKE_CUDA_DEVICES,
 * FAKE_CUDA_CAPABILITY (major * 10 + minor), FAKE_CUDA_FREE (bytes). Device memory
 * is host memory. Copies and memsets work; launches do nothing. But with FAKE_CUDA_PACK
 * (tensors, bytes) `megalith_pack` puts what its table has of tensor i so many bytes after
 * that of i - 1, and that and copies of page-locked memory wait until their stream is
 * waited for; the hash of what was packed (FNV-1a) and the most bytes of device memory at a time
 * are printed, too. A linked cubin is its
 * parts one after the other, unless FAKE_CUDA_LINK (a result) fails. The facts of a
 * kernel's units are FAKE_CUDA_FACTS, numbers; those of its tensor unit
 * FAKE_CUDA_TENSOR_FACTS if that is there. The kernel of a cooperative launch, or of
 * a graph, is `launched`: here it says FAKE_CUDA_UNFINISHED times that it goes on, in
 * the word that FAKE_CUDA_WORD finds (offset of a pointer in the parameters, offset
 * after that). What is still held when the process ends is
 * printed to stderr as "fake: N held". */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Pointer;

static int held;
static size_t allocated, peak;
static unsigned packedHash;
static char *packed; /* where to */

static long setting(const char *name, long otherwise) {
  const char *value = getenv(name);
  return value ? strtol(value, NULL, 10) : otherwise;
}

__attribute__((destructor)) static void report(void) {
  fprintf(stderr, "fake: %d held\n", held);
  if (getenv("FAKE_CUDA_PACK"))
    fprintf(stderr, "fake: packed %08x, peak %zu\n", packedHash, peak);
}

/* What a stream has to do yet: a copy, or packing. */
struct work {
  struct work *next;
  char *to;
  const void *from; /* of packing: the table */
  size_t bytes;     /* 0: packing */
};
struct stream {
  struct work *first;
};
struct raw {
  const char *data;
  long long begin, end;
  int type;
};
static void finish(void *of) {
  struct stream *stream = (struct stream *)of;
  struct work *w = stream ? stream->first : NULL;
  if (stream)
    stream->first = NULL;
  while (w) {
    struct work *next = w->next;
    char *end;
    const long tensors = strtol(w->bytes ? "0" : getenv("FAKE_CUDA_PACK"), &end, 10), stride = strtol(end, NULL, 10);
    if (w->bytes)
      memcpy(w->to, w->from, w->bytes);
    for (long t = 0; t < tensors; ++t) {
      const struct raw *raw = (const struct raw *)w->from + t;
      memcpy(w->to + t * stride + raw->begin * 2, raw->data, (raw->end - raw->begin) * 2);
    }
    free(w);
    w = next;
  }
}
static void add(void *stream, void *to, const void *from, size_t bytes) {
  struct work **last = &((struct stream *)stream)->first, *w = (struct work *)malloc(sizeof *w);
  while (*last)
    last = &(*last)->next;
  w->next = NULL, w->to = (char *)to, w->from = from, w->bytes = bytes;
  *last = w;
}

/* Page-locked memory. */
static struct {
  char *at;
  size_t bytes;
} pinned[16];

int cuInit(unsigned flags) { return setting("FAKE_CUDA_INIT", 0); }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuGetErrorName(int error, const char **text) {
  if (error != 100 && error != 500)
    return 1;
  *text = error == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_NOT_FOUND";
  return 0;
}
int cuGetErrorString(int error, const char **text) {
  if (error != 100 && error != 500)
    return 1;
  *text = error == 100 ? "no CUDA-capable device is detected" : "named symbol not found";
  return 0;
}

int cuDeviceGetCount(int *count) { return *count = setting("FAKE_CUDA_DEVICES", 1), 0; }
int cuDeviceGet(int *device, int ordinal) {
  return *device = ordinal, ordinal < setting("FAKE_CUDA_DEVICES", 1) ? 0 : 101;
}
int cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "Fake GPU %d", device), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  int capability = setting("FAKE_CUDA_CAPABILITY", 90);
  switch (attribute) {
  case 16:
    *value = 132;
    return 0;
  case 75:
    *value = capability / 10;
    return 0;
  case 76:
    *value = capability % 10;
    return 0;
  case 95:
    *value = 1;
    return 0;
  case 97:
    *value = 232448;
    return 0;
  }
  return 1;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return ++held, *context = &held, 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return --held, 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxSynchronize(void) { return 0; }

static const char *const kernelNames[] = {"megalith_pack", "megalith_tick", "megalith_run"};
int cuModuleLoadData(void **module, const void *image) { return ++held, *module = &held, 0; }
int cuModuleUnload(void *module) { return --held, 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  for (int i = 0; i < 3; ++i)
    if (strcmp(name, kernelNames[i]) == 0)
      return *function = (void *)&kernelNames[i], 0;
  return 500;
}
static int facts[2][64];
int cuModuleGetGlobal_v2(Pointer *address, size_t *bytes, void *module, const char *name) {
  const int tensors = strcmp(name, "megalith_tensor_facts") == 0;
  if (!tensors && strcmp(name, "megalith_control_facts") != 0)
    return 500;
  const char *text = getenv("FAKE_CUDA_TENSOR_FACTS");
  if (!tensors || !text)
    text = getenv("FAKE_CUDA_FACTS");
  int count = 0;
  for (char *end; text && *text && count < 64; text = *end ? end + 1 : end)
    facts[tensors][count++] = (int)strtol(text, &end, 10);
  return *address = (Pointer)facts[tensors], *bytes = count * sizeof(int), 0;
}

static char linked[4096], *errorLog;
int cuLinkCreate_v2(unsigned count, int *options, void **values, void **state) {
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == 5)
      errorLog = (char *)values[i];
  return ++held, linked[0] = 0, *state = &held, 0;
}
int cuLinkAddData_v2(void *state, int type, void *data, size_t bytes, const char *name, unsigned count, int *options,
                     void **values) {
  return strncat(linked, (const char *)data, bytes), 0;
}
int cuLinkComplete(void *state, void **cubin, size_t *bytes) {
  const long result = setting("FAKE_CUDA_LINK", 0);
  if (result)
    strcpy(errorLog, "undefined reference to `controlTicks`");
  return *cubin = linked, *bytes = strlen(linked), (int)result;
}
int cuLinkDestroy(void *state) { return --held, 0; }

int cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { return *value = 0, 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int size, size_t shared) {
  return *blocks = 1, 0;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
  if (getenv("FAKE_CUDA_PACK") && parameters && f == (void *)&kernelNames[0])
    add(stream, packed = *(char **)parameters[2], *(const void **)parameters[1], 0);
  return 0;
}
#ifndef FAKE_CUDA_LAUNCHED
static void launched(void **parameters) {
  static int launches;
  const char *text = getenv("FAKE_CUDA_WORD");
  char *end;
  if (!text)
    return;
  const long pointer = strtol(text, &end, 10), word = strtol(end, NULL, 10);
  *(long long *)(*(char **)((char *)parameters[0] + pointer) + word) = launches++ < setting("FAKE_CUDA_UNFINISHED", 0);
}
#else
static void launched(void **parameters);
#endif
int cuLaunchCooperativeKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, void *stream, void **parameters) {
  return launched(parameters), 0;
}

struct node {
  void *function;
  unsigned grid[3], block[3], shared;
  void **parameters;
};
static void *nodeParameter; /* a driver reads the list when the node is made */
static int nodeCooperative;
int cuGraphCreate(void **graph, unsigned flags) { return ++held, *graph = &held, 0; }
int cuGraphAddKernelNode_v2(void **node, void *graph, const void *dependencies, size_t count, const struct node *how) {
  return nodeParameter = how->parameters[0], *node = &nodeParameter, 0;
}
int cuGraphKernelNodeSetAttribute(void *node, int attribute, const int *value) {
  return nodeCooperative = attribute == 2 && *value, 0;
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  return ++held, *executable = &held, 0;
}
int cuGraphDestroy(void *graph) { return --held, 0; }
int cuGraphExecDestroy(void *executable) { return --held, 0; }
int cuGraphLaunch(void *executable, void *stream) {
  if (!nodeCooperative)
    return 1;
  return launched(&nodeParameter), 0;
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
  *total = setting("FAKE_CUDA_FREE", 1 << 20);
  *free = *total - allocated;
  return 0;
}
int cuMemAlloc_v2(Pointer *pointer, size_t bytes) {
  if (allocated + bytes > (size_t)setting("FAKE_CUDA_FREE", 1 << 20))
    return 2;
  allocated += bytes;
  if (allocated > peak)
    peak = allocated;
  size_t *memory = (size_t *)malloc(bytes + 64); /* its size is in front of it */
  *memory = bytes;
  return ++held, *pointer = (Pointer)((char *)memory + 64), 0;
}
int cuMemFree_v2(Pointer pointer) {
  size_t *memory = (size_t *)((char *)pointer - 64);
  if ((char *)pointer == packed)
    for (size_t i = packedHash = 0; i < *memory; ++i)
      packedHash = (packedHash ^ (unsigned char)packed[i]) * 16777619u;
  return --held, allocated -= *memory, free(memory), 0;
}
int cuMemsetD8Async(Pointer to, unsigned char value, size_t n, void *stream) { return memset((void *)to, value, n), 0; }
int cuMemsetD32Async(Pointer to, unsigned value, size_t n, void *stream) {
  for (size_t i = 0; i < n; ++i)
    ((unsigned *)to)[i] = value;
  return 0;
}
int cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t n, void *stream) {
  for (int i = 0; getenv("FAKE_CUDA_PACK") && i < 16; ++i)
    if (pinned[i].at && (const char *)from >= pinned[i].at && (const char *)from < pinned[i].at + pinned[i].bytes)
      return add(stream, (void *)to, from, n), 0;
  return memcpy((void *)to, from, n), 0;
}
int cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t n, void *stream) { return memcpy(to, (void *)from, n), 0; }
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  *pointer = malloc(bytes);
  for (int i = 0; i < 16; ++i)
    if (!pinned[i].at) {
      pinned[i].at = (char *)*pointer, pinned[i].bytes = bytes;
      break;
    }
  return ++held, 0;
}
int cuMemFreeHost(void *pointer) {
  for (int i = 0; i < 16; ++i)
    if (pinned[i].at == pointer)
      pinned[i].at = NULL;
  return --held, free(pointer), 0;
}
int cuMemHostGetDevicePointer_v2(Pointer *device, void *pointer, unsigned flags) {
  return *device = (Pointer)pointer, 0;
}

int cuStreamCreate(void **stream, unsigned flags) { return ++held, *stream = calloc(1, sizeof(struct stream)), 0; }
int cuStreamSynchronize(void *stream) { return finish(stream), 0; }
int cuStreamQuery(void *stream) { return setting("FAKE_CUDA_BUSY", 0) ? 600 : 0; }
int cuStreamIsCapturing(void *stream, int *status) { return *status = 0, 0; }
int cuStreamGetId(void *stream, unsigned long long *id) { return *id = (unsigned long long)stream, 0; }
int cuStreamDestroy_v2(void *stream) { return finish(stream), --held, free(stream), 0; }
int cuEventCreate(void **event, unsigned flags) { return ++held, *event = &held, 0; }
int cuEventRecord(void *event, void *stream) { return 0; }
int cuEventSynchronize(void *event) { return 0; }
int cuEventElapsedTime(float *milliseconds, void *start, void *end) { return *milliseconds = 1.5f, 0; }
int cuEventDestroy_v2(void *event) { return --held, 0; }
