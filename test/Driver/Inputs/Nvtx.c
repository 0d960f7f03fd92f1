/* A profiler for tests: it prints the ranges of NVTX to stderr as they begin and end.
 * NVTX_INJECTION64_PATH names its shared object. */
#include <nvtx3/nvToolsExt.h>
#include <stdint.h>
#include <stdio.h>

static int created; /* its address is the handle of the only domain */
static int depth;

static nvtxDomainHandle_t NVTX_API create(const char *name) {
  fprintf(stderr, "domain %s\n", name);
  return (nvtxDomainHandle_t)&created;
}
static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *what) {
  if (domain != (nvtxDomainHandle_t)&created)
    fprintf(stderr, "another domain\n");
  fprintf(stderr, "%*s%s\n", 2 * depth, "", what->message.ascii);
  return depth++;
}
static int NVTX_API pop(nvtxDomainHandle_t domain) {
  (void)domain;
  --depth;
  fprintf(stderr, "%*send\n", 2 * depth, "");
  return depth;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getTable) {
  const NvtxExportTableCallbacks *callbacks = (const NvtxExportTableCallbacks *)getTable(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table;
  unsigned size;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
