// How weights come onto the device: in batches, each of which is packed before the next one needs its memory.
#include "runtime/Engine.h"
#include "runtime/HostRange.h"
#include "runtime/Try.h"
#include <algorithm>
#include <thread>

namespace megalith::runtime {

/// The memory of a batch. Each has a stream of its own, so that one is copied while another is packed.
struct Engine::Staging {
  Stream stream;
  PinnedBuffer host;
  DeviceBuffer device;

  static Outcome<Staging> create(const Driver &driver, size_t bytes, bool pinned) {
    auto stream = Stream::create(driver);
    if (!stream)
      return stream.error;
    auto host = PinnedBuffer::allocate(driver, pinned ? bytes : 0);
    if (!host)
      return host.error;
    auto device = DeviceBuffer::allocate(driver, bytes);
    if (!device)
      return device.error;
    return Staging{std::move(*stream.value), std::move(*host.value), std::move(*device.value)};
  }
};

/// What stays on the device of all models, and the lasting buffers.
Failure Engine::makeRoom(const std::vector<WeightBatches> &batches) {
  models.resize(batches.size());
  for (size_t m = 0; m < batches.size(); ++m)
    TRY(makeRoom(m, batches[m].tensors()));
  abi::HostParams params = {};
  for (const LaunchBuffer &buffer : lastingBuffers(info)) {
    auto memory = place(buffer, 0, params);
    if (!memory)
      return memory.error;
    lasting.push_back(std::move(*memory.value));
  }
  return stream->synchronize(); // other streams write there now
}

/// Of one model: the packed stream, which starts as zeros and orders of columns, the weights of which single rows are
/// read, with the table of their addresses.
Failure Engine::makeRoom(size_t model, const std::vector<WeightTensor> &tensors) {
  auto &[packed, rows, pointers] = models[model];
  const Driver &driver = device.driver();
  const auto aligned = [](size_t size) { return (size + 255) / 256 * 256; };
  auto allocate = [&](DeviceBuffer &buffer, size_t size) -> Failure {
    auto result = DeviceBuffer::allocate(driver, size);
    if (!result)
      return result.error;
    buffer = std::move(*result.value);
    return std::nullopt;
  };
  std::vector<CUdeviceptr> addresses(tensors.size());
  size_t bytes = 0;
  for (const WeightTensor &tensor : tensors)
    bytes += tensor.byRow ? aligned(tensor.elements * 2) : 0;
  TRY(allocate(rows, bytes));
  size_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].byRow) {
      addresses[i] = rows.address() + offset;
      offset += aligned(tensors[i].elements * 2);
    }
  TRY(allocate(pointers, addresses.size() * sizeof(addresses[0])));
  TRY(pointers.copyFrom(*stream, addresses.data(), addresses.size() * sizeof(addresses[0])));
  TRY(allocate(packed, info.models[model].streamBytes));
  TRY(packed.fill(*stream, 0));
  auto orders = orderTables(info.models[model], tensors);
  if (!orders)
    return orders.error;
  for (const OrderTable &order : *orders.value)
    TRY(packed.copyFrom(*stream, order.halves.data(), order.halves.size() * sizeof(order.halves[0]), order.offset));
  return orders.value->empty() ? std::nullopt : stream->synchronize(); // what it copies from goes
}

/// One launch of `megalith_pack`.
Failure Engine::pack(size_t model, const Staging &staging) {
  const HostRange range(HostStep::Pack);
  abi::HostParams params = {};
  params.models[model].weights = reinterpret_cast<const void *const *>(models[model].pointers.address());
  auto *raw = reinterpret_cast<const abi::RawTensor *>(staging.device.address());
  char *target = reinterpret_cast<char *>(models[model].packed.address());
  int number = static_cast<int>(model); // a kernel for one model takes it not
  void *arguments[] = {&params, &raw, &target, &number};
  return launchPlain(staging.stream, packKernel, device.info().smCount * 8, 256, 0, arguments);
}

Failure Engine::upload(const Checkpoints &weights, const LoadOptions &how) {
  auto tensors = findAllWeights(info, weights);
  if (!tensors)
    return tensors.error;
  const auto batches = batchesOf(std::move(*tensors.value), how.batchBytes);
  TRY(makeRoom(batches));
  for (size_t m = 0; m < batches.size(); ++m)
    TRY(upload(m, weights[m], batches[m], totalBytes(batches), how));
  return std::nullopt;
}

Failure Engine::upload(size_t model, const SafetensorsFile &weights, const WeightBatches &batches, uint64_t total,
                       const LoadOptions &how) {
  const size_t count = batches.list().size();
  std::vector<Staging> staging;
  std::vector<char *> places;
  while (staging.size() < std::min<size_t>(std::max(how.batches, 1u), count)) {
    auto made = Staging::create(device.driver(), batches.mostBytes(), true);
    if (!made)
      return made.error;
    places.push_back(static_cast<char *>(made->host.data()));
    staging.push_back(std::move(*made.value));
  }
  // An error, too, ends after the copies that are under way: they read this memory.
  struct Drain {
    std::vector<Staging> &staging;
    bool drained = false;
    ~Drain() {
      for (size_t i = 0; !drained && i < staging.size(); ++i)
        (void)staging[i].stream.synchronize();
    }
  } drain{staging};
  // Half of the batches are read ahead, half are under way on the device.
  const size_t slots = staging.size(), onDevice = slots / 2;
  uint64_t done = loadedBytes;
  // After what it writes to, so that it ends first.
  WeightReader reader(weights, batches, places, std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  for (size_t b = 0; b < count; ++b) {
    TRY(reader.await(b));
    const WeightBatch &batch = batches.list()[b];
    const Staging &slot = staging[b % slots];
    batches.writeTable(batch, slot.device.address(), slot.host.data());
    TRY(slot.device.copyFrom(slot.stream, slot.host.data(), batch.bytes));
    TRY(pack(model, slot));
    done += batch.read;
    if (how.progress)
      how.progress(done, total);
    if (b >= onDevice) {
      TRY(staging[(b - onDevice) % slots].stream.synchronize());
      reader.release();
    }
  }
  for (const Staging &slot : staging)
    TRY(slot.stream.synchronize());
  drain.drained = true;
  loadedBytes = done;
  return whyChanged(weights);
}

Failure Engine::makeRandom(const LoadOptions &how) {
  TRY(findBench());
  const auto all = batchesOf(randomWeightsOfAll(info), how.batchBytes);
  TRY(makeRoom(all));
  auto staging = Staging::create(device.driver(), mostBytes(all), false);
  if (!staging)
    return staging.error;
  for (size_t m = 0; m < all.size(); ++m) {
    const WeightBatches &batches = all[m];
    std::vector<abi::RawTensor> table(batches.tensors().size());
    for (const WeightBatch &batch : batches.list()) {
      const CUdeviceptr address = staging->device.address();
      batches.writeTable(batch, address, table.data());
      TRY(staging->device.copyFrom(staging->stream, table.data(), table.size() * sizeof(table[0])));
      for (const WeightPiece &piece : batch.pieces)
        TRY(fill(staging->stream, address + piece.offset, batches.tensors()[piece.tensor].inHalves(piece.begin),
                 batches.tensors()[piece.tensor].inHalves(piece.end - piece.begin),
                 batches.tensors()[piece.tensor].fill));
      TRY(pack(m, *staging));
      TRY(staging->stream.synchronize()); // the table is written again
    }
  }
  const auto kept = lastingBuffers(info);
  for (size_t i = 0; i < kept.size(); ++i)
    if (auto of = fillOfKv(kept[i].name))
      TRY(fill(*stream, lasting[i].address(), 0, kept[i].bytes / 2, *of));
  return stream->synchronize();
}

} // namespace megalith::runtime
