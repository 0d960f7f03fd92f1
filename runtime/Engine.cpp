#include "runtime/Engine.h"
#include "device/Abi.h"
#include "megalith/Checkpoint/PageOrder.h"
#include <chrono>
#include <algorithm>
#include <cstring>

namespace megalith::runtime {

static const char *faultName(int code) {
  switch (code) {
#define FAULT(Enum, Code, Name, Text)                                                              \
  case Code:                                                                                       \
    return Name;
#include "megalith/IR/Faults.def"
  }
  return "UNKNOWN";
}

/// `condition` fails the enclosing function with its error.
#define TRY(expression)                                                                            \
  if (Failure failure_ = (expression))                                                             \
  return *failure_

template <class T> static T *at(const DeviceBuffer &buffer) {
  return reinterpret_cast<T *>(buffer.address());
}

Outcome<std::unique_ptr<Engine>> Engine::load(Device &device, std::string_view cubin, const std::string &manifest,
                                              const SafetensorsFile &weights) {
  auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<Engine> engine(new Engine(device));
  auto info = Manifest::parse(manifest);
  if (!info)
    return info.error;
  engine->info = std::move(*info);
  const Manifest &m = engine->info;
  const DeviceInfo &gpu = device.info();
  if (gpu.smCount < m.ctas || gpu.sharedPerBlockOptin < static_cast<size_t>(m.sharedBytes) + 8192 || !gpu.cooperative)
    return RuntimeError{"plan-mismatch",
                        "the kernel was planned for " + std::to_string(m.ctas) + " CTAs with " +
                            std::to_string(m.sharedBytes) + " bytes of shared memory (`" + m.profile +
                            "`), but this device has " + std::to_string(gpu.smCount) + " SMs and " +
                            std::to_string(gpu.sharedPerBlockOptin) + " bytes; compile with `--plan ctas=" +
                            std::to_string(gpu.smCount) + "` or another `--device-profile`"};
  const Driver &driver = device.driver();
  auto stream = Stream::create(driver);
  if (!stream)
    return stream.error;
  engine->stream.emplace(std::move(*stream.value));
  auto module = Module::load(driver, cubin);
  if (!module)
    return module.error;
  engine->module.emplace(std::move(*module.value));
  auto run = engine->module->function("megalith_run"), pack = engine->module->function("megalith_pack");
  if (!run)
    return run.error;
  if (!pack)
    return pack.error;
  engine->runKernel = *run;
  engine->packKernel = *pack;
  TRY(driver.check("cuFuncSetAttribute",
                   driver.cuFuncSetAttribute(engine->runKernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             static_cast<int>(m.sharedBytes))));
  TRY(engine->upload(weights));
  engine->loadTime =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return engine;
}

/// Every tensor to the device, the table of their addresses, and one launch of
/// `megalith_pack`. Packing is followed by no synchronisation: run() uses the
/// same stream.
Failure Engine::upload(const SafetensorsFile &weights) {
  const Driver &driver = device.driver();
  struct Piece {
    const TensorView *tensor;
    size_t offset;
  };
  std::vector<Piece> pieces;
  size_t bytes = 0;
  for (const Manifest::Weight &w : info.weights)
    for (int64_t layer = 0; layer < std::max<int64_t>(1, w.layers); ++layer) {
      std::string name = Manifest::tensorName(w, layer);
      const TensorView *tensor = weights.find(name);
      if (!tensor || tensor->shape != w.shape || tensor->dtype != DType::BF16)
        return RuntimeError{"weight-missing", "tensor `" + name + "` of the manifest is not in " + weights.path()};
      pieces.push_back({tensor, bytes});
      bytes += (tensor->size + 255) / 256 * 256;
    }
  auto allocate = [&](DeviceBuffer &buffer, size_t size) -> Failure {
    auto result = DeviceBuffer::allocate(driver, size);
    if (!result)
      return result.error;
    buffer = std::move(*result.value);
    return std::nullopt;
  };
  TRY(allocate(raw, bytes));
  std::vector<unsigned long long> addresses;
  for (const Piece &piece : pieces) {
    TRY(raw.copyFrom(*stream, piece.tensor->data, piece.tensor->size, piece.offset));
    addresses.push_back(raw.address() + piece.offset);
  }
  TRY(allocate(pointers, addresses.size() * sizeof(addresses[0])));
  TRY(pointers.copyFrom(*stream, addresses.data(), addresses.size() * sizeof(addresses[0])));
  TRY(allocate(packed, info.streamBytes));
  TRY(allocate(workspace, info.workspaceBytes));
  TRY(workspace.fill(*stream, 0));
  size_t kvBytes = 2 * static_cast<size_t>(info.kvLayers * info.pages * info.kvHeads * info.pageTokens * info.headDim);
  TRY(allocate(keys, kvBytes));
  TRY(allocate(values, kvBytes));
  TRY(keys.fill(*stream, 0));
  TRY(values.fill(*stream, 0));

  abi::LaunchParams params = {};
  params.weights = at<const void *const>(pointers);
  char *target = at<char>(packed);
  void *arguments[] = {&params, &target};
  return driver.check("cuLaunchKernel",
                      driver.cuLaunchKernel(packKernel, device.info().smCount * 8, 1, 1, 256, 1, 1, 0, stream->get(),
                                            arguments, nullptr));
}

Outcome<RunOutcome> Engine::run(const std::vector<RunRequest> &requests, const RunOptions &options) {
  const Driver &driver = device.driver();
  const int64_t count = requests.size();

  // --- host images of what the kernel starts from
  std::vector<char> descriptors(std::max<int64_t>(1, count) * info.requestBytes, 0);
  std::vector<int> tokens, eos(1, -1);
  int64_t longest = 0, mostNew = 0;
  for (int64_t i = 0; i < count; ++i) {
    const RunRequest &request = requests[i];
    char *base = descriptors.data() + i * info.requestBytes;
    auto &header = *reinterpret_cast<abi::RequestHeader *>(base);
    header.state = static_cast<int>(info.initialState);
    header.slot = -1;
    header.priority = request.priority;
    header.promptLen = header.numTokens = static_cast<int>(request.tokens.size());
    header.maxNewTokens = static_cast<int>(request.maxNewTokens);
    header.eosBegin = static_cast<int>(eos.size());
    header.eosCount = static_cast<int>(request.eos.size());
    header.waitingSite = -1;
    header.tokenBegin = tokens.size();
    for (const Manifest::Field &field : info.fields) {
      if (field.capacity)
        continue; // sequences start empty: length 0
      if (field.type == "f32") {
        float v = static_cast<float>(field.init);
        std::memcpy(base + field.offset, &v, 4);
      } else if (field.type == "i64") {
        int64_t v = static_cast<int64_t>(field.init);
        std::memcpy(base + field.offset, &v, 8);
      } else {
        int v = static_cast<int>(field.init);
        std::memcpy(base + field.offset, &v, 4);
      }
    }
    eos.insert(eos.end(), request.eos.begin(), request.eos.end());
    tokens.insert(tokens.end(), request.tokens.begin(), request.tokens.end());
    tokens.resize(tokens.size() + request.maxNewTokens, -1);
    longest = std::max(longest, static_cast<int64_t>(request.tokens.size()) + request.maxNewTokens);
    mostNew = std::max(mostNew, request.maxNewTokens);
  }
  if (tokens.empty())
    tokens.push_back(0);
  const int64_t positions = longest + info.extraRows + 1;
  std::vector<float> rope;
  if (info.rope.headDim > 0) {
    auto frequencies = inverseFrequencies(info.rope);
    const int64_t half = info.rope.headDim / 2;
    std::vector<float> c(half), s(half);
    rope.resize(positions * half * 2);
    for (int64_t p = 0; p < positions; ++p) {
      ropeCosSin(frequencies, p, c.data(), s.data());
      for (int64_t i = 0; i < half; ++i) {
        rope[(p * half + i) * 2] = c[i];
        rope[(p * half + i) * 2 + 1] = s[i];
      }
    }
  }
  std::vector<int32_t> pages = pageOrder(info.pages, options.shufflePages);
  std::reverse(pages.begin(), pages.end()); // a stack: the first page on top
  const int freePages = static_cast<int>(info.pages);
  std::vector<abi::Slot> slots(info.slots, abi::Slot{-1, 0});
  int64_t oracleStride = 0;
  for (const auto &draft : options.oracleDrafts)
    oracleStride = std::max<int64_t>(oracleStride, draft.size());
  std::vector<int> oracle(oracleStride * count, -1);
  for (size_t i = 0; i < options.oracleDrafts.size() && i < requests.size(); ++i)
    std::copy(options.oracleDrafts[i].begin(), options.oracleDrafts[i].end(), oracle.begin() + i * oracleStride);
  std::vector<abi::Corruption> corruptions;
  for (const RunCorruption &c : options.corruptions) {
    int offset = -1;
    if (c.field == "state")
      offset = offsetof(abi::RequestHeader, state);
    for (const Manifest::Field &field : info.fields)
      if (field.name == c.field)
        offset = static_cast<int>(field.offset);
    if (offset < 0)
      return RuntimeError{"corrupt-field", "no field `" + c.field + "` to corrupt"};
    corruptions.push_back({static_cast<int>(std::min<int64_t>(c.tick, INT32_MAX)), c.request, offset, static_cast<int>(c.value)});
  }

  // --- device memory
  std::vector<DeviceBuffer> owned;
  Failure failed;
  auto make = [&](size_t size, const void *image = nullptr, size_t imageBytes = 0) -> CUdeviceptr {
    auto buffer = DeviceBuffer::allocate(driver, std::max<size_t>(size, 16));
    if (!buffer) {
      failed = failed ? failed : Failure(buffer.error);
      return 0;
    }
    Failure f = image ? buffer->copyFrom(*stream, image, imageBytes) : buffer->fill(*stream, 0);
    failed = failed ? failed : f;
    owned.push_back(std::move(*buffer.value));
    return owned.back().address();
  };
  auto put = [&](const auto &vector) { return make(vector.size() * sizeof(vector[0]), vector.data(), vector.size() * sizeof(vector[0])); };

  abi::LaunchParams p = {};
  p.stream = at<char>(packed);
  p.weights = at<const void *const>(pointers);
  p.workspace = at<char>(workspace);
  p.kCache = at<char>(keys);
  p.vCache = at<char>(values);
  p.ropeCosSin = rope.empty() ? nullptr : reinterpret_cast<const float *>(put(rope));
  p.maxPositions = static_cast<int>(positions);
  p.numRequests = static_cast<int>(count);
  const CUdeviceptr descriptorBase = put(descriptors);
  const size_t descriptorIndex = owned.size() - 1;
  p.requests = reinterpret_cast<char *>(descriptorBase);
  p.tokens = reinterpret_cast<int *>(put(tokens));
  const size_t tokenIndex = owned.size() - 1;
  p.eos = reinterpret_cast<const int *>(put(eos));
  p.slots = reinterpret_cast<abi::Slot *>(put(slots));
  p.callTokens = reinterpret_cast<int *>(make(info.slots * info.rowsPerPass * sizeof(int)));
  p.pageTableStride = static_cast<int>(std::min<int64_t>(info.pages, positions / info.pageTokens + 2));
  p.pageTable = reinterpret_cast<int *>(make(info.slots * p.pageTableStride * sizeof(int)));
  p.freeList = reinterpret_cast<int *>(put(pages));
  p.freeCount = reinterpret_cast<int *>(make(sizeof(int), &freePages, sizeof(int)));
  p.admitMaxPages = static_cast<int>(info.pages);
  p.pass = reinterpret_cast<abi::PassTable *>(make(sizeof(abi::PassTable)));
  p.rows = reinterpret_cast<abi::Row *>(make(info.rowsPerPass * sizeof(abi::Row)));
  p.sync = reinterpret_cast<unsigned *>(make(64 * sizeof(unsigned)));
  p.stop = reinterpret_cast<abi::StopRecord *>(make(sizeof(abi::StopRecord)));
  const size_t stopIndex = owned.size() - 1;
  p.metrics = reinterpret_cast<long long *>(make(std::max<size_t>(1, info.metrics.size()) * sizeof(long long)));
  const size_t metricIndex = owned.size() - 1;
  p.stats = reinterpret_cast<abi::Stats *>(make(sizeof(abi::Stats)));
  const size_t statsIndex = owned.size() - 1;
  size_t traceIndex = 0, logitsIndex = 0;
  if (options.trace) {
    p.trace = reinterpret_cast<unsigned *>(make(options.traceBytes));
    traceIndex = owned.size() - 1;
    p.traceCapacity = static_cast<long long>(options.traceBytes / 4);
    p.kvHash = options.kvHash;
  }
  if (options.logits) {
    p.logitsRows = mostNew;
    p.logits = reinterpret_cast<float *>(make(count * mostNew * info.vocab * sizeof(float)));
    logitsIndex = owned.size() - 1;
  }
  if (!oracle.empty()) {
    p.oracle = reinterpret_cast<const int *>(put(oracle));
    p.oracleStride = static_cast<int>(oracleStride);
  }
  if (!corruptions.empty()) {
    p.corruptions = reinterpret_cast<const abi::Corruption *>(put(corruptions));
    p.numCorruptions = static_cast<int>(corruptions.size());
  }
  p.maxTicks = static_cast<int>(std::clamp<int64_t>(options.maxTicks, 0, INT32_MAX));
  p.delaySeed = options.delaySeed;
  if (options.watchdogSeconds > 0) // off for what is no number, too
    p.watchdogNs = static_cast<long long>(std::min(options.watchdogSeconds, 1e9) * 1e9);
  if (failed)
    return *failed;

  // --- one launch, one synchronisation
  auto start = Event::create(driver), end = Event::create(driver);
  if (!start)
    return start.error;
  if (!end)
    return end.error;
  void *arguments[] = {&p};
  TRY(start->record(*stream));
  TRY(driver.check("cuLaunchCooperativeKernel",
                   driver.cuLaunchCooperativeKernel(runKernel, static_cast<unsigned>(info.ctas), 1, 1,
                                                    static_cast<unsigned>(info.threads), 1, 1,
                                                    static_cast<unsigned>(info.sharedBytes), stream->get(), arguments)));
  TRY(end->record(*stream));
  abi::StopRecord stop = {};
  abi::Stats stats = {};
  std::vector<long long> metrics(std::max<size_t>(1, info.metrics.size()));
  std::vector<unsigned> words(options.trace ? options.traceBytes / 4 : 0);
  std::vector<float> logits(options.logits ? count * mostNew * info.vocab : 0);
  auto fetch = [&](size_t index, auto &vector) -> Failure {
    return owned[index].copyTo(*stream, vector.data(), vector.size() * sizeof(vector[0]));
  };
  TRY(fetch(descriptorIndex, descriptors));
  TRY(fetch(tokenIndex, tokens));
  TRY(fetch(metricIndex, metrics));
  TRY(owned[stopIndex].copyTo(*stream, &stop, sizeof(stop)));
  TRY(owned[statsIndex].copyTo(*stream, &stats, sizeof(stats)));
  if (options.trace)
    TRY(fetch(traceIndex, words));
  if (options.logits)
    TRY(fetch(logitsIndex, logits));
  TRY(stream->synchronize());

  // --- results
  RunOutcome out;
  auto ms = end->millisecondsSince(*start);
  if (!ms)
    return ms.error;
  out.kernelMs = *ms;
  out.ticks = stats.ticks;
  out.passes = stats.passes;
  out.rows = stats.rows;
  out.traceDropped = stats.traceDropped;
  for (size_t i = 0; i < info.metrics.size(); ++i)
    out.metrics[info.metrics[i]] = metrics[i];
  if (stop.code) {
    const Manifest::Edge *edge =
        stop.edge >= 0 && stop.edge < static_cast<int>(info.edges.size()) ? &info.edges[stop.edge] : nullptr;
    out.stop = RunOutcome::Stop{stop.cta, stop.edge, stop.tick, edge ? edge->name : "", edge ? edge->place : ""};
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto &header = *reinterpret_cast<const abi::RequestHeader *>(descriptors.data() + i * info.requestBytes);
    TraceRequest r;
    r.id = requests[i].id;
    int generated = std::max(0, std::min<int>(header.generated, requests[i].maxNewTokens));
    size_t first = header.tokenBegin + requests[i].tokens.size();
    r.tokens.assign(tokens.begin() + first, tokens.begin() + first + generated);
    bool terminal = header.state >= 0 && header.state < static_cast<int>(info.states.size()) &&
                    info.states[header.state].terminal;
    if (header.fault) {
      r.finish = "fault";
      r.fault = faultName(header.fault);
    } else {
      r.finish = !terminal ? "limit" : header.eosSeen ? "stop" : "length";
    }
    out.requests.push_back(std::move(r));
    out.counts.push_back({header.passes, header.rows});
    if (options.logits)
      out.logits.emplace_back(logits.begin() + i * mostNew * info.vocab,
                              logits.begin() + (i * mostNew + generated) * info.vocab);
  }
  if (options.trace) {
    auto trace = decodeTrace(info, requests, words.data(), std::min<size_t>(words.size(), stats.traceWords));
    if (!trace)
      return trace.error;
    out.trace = std::move(*trace.value);
    out.trace.pipeline = info.pipeline;
    out.trace.requests = out.requests;
    out.trace.metrics = out.metrics;
  }
  return out;
}

} // namespace megalith::runtime
