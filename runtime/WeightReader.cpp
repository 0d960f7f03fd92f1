#include "runtime/Weights.h"
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace megalith::runtime {

/// What a thread reads at a time: long enough for a disk, short enough that all have something to do.
static constexpr uint64_t UnitBytes = 2 << 20;

namespace {
struct Unit {
  size_t batch;
  const WeightPiece *piece;
  uint64_t offset, bytes; ///< in the piece
};
} // namespace

struct WeightReader::State {
  const SafetensorsFile &file;
  const WeightBatches &batches;
  std::vector<char *> places;
  std::vector<Unit> units;  ///< in the order of the batches
  std::vector<size_t> left; ///< units of each batch that are not read
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0;      ///< the first unit that nobody has taken
  size_t allowed = 0;   ///< batches that have a place
  bool stopped = false; ///< nothing more is to be read
  Failure failure;
  std::vector<std::jthread> threads; ///< last, so that they end first

  State(const SafetensorsFile &file, const WeightBatches &batches, std::vector<char *> given)
      : file(file), batches(batches), places(std::move(given)), left(batches.list().size()), allowed(places.size()) {
    for (size_t b = 0; b < left.size(); ++b)
      for (const WeightPiece &piece : batches.list()[b].pieces) {
        const uint64_t bytes = (piece.end - piece.begin) * batches.tensors()[piece.tensor].elementBytes();
        for (uint64_t at = 0; at < bytes; at += UnitBytes) {
          units.push_back({b, &piece, at, std::min(UnitBytes, bytes - at)});
          ++left[b];
        }
      }
  }

  bool canTake() const { return !stopped && next < units.size() && units[next].batch < allowed; }

  /// Takes a unit and reads it. `lock` is held before and after.
  void readOne(std::unique_lock<std::mutex> &lock) {
    const Unit &unit = units[next++];
    lock.unlock();
    const WeightTensor &tensor = batches.tensors()[unit.piece->tensor];
    char *to = places[unit.batch % places.size()] + unit.piece->offset + unit.offset;
    auto error = file.read(*tensor.view, unit.piece->begin * tensor.elementBytes() + unit.offset, unit.bytes, to);
    Failure wrong = error ? Failure(asRuntimeError(*error)) : checkCodes(tensor, to, unit.bytes);
    lock.lock();
    if (wrong && !failure) {
      failure = std::move(wrong);
      stopped = true;
    }
    if (--left[unit.batch] == 0 || stopped)
      changed.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex);
    while (!stopped && next < units.size())
      if (canTake())
        readOne(lock);
      else
        changed.wait(lock);
  }
};

WeightReader::WeightReader(const SafetensorsFile &file, const WeightBatches &batches, std::vector<char *> places,
                           unsigned threads)
    : state(std::make_unique<State>(file, batches, std::move(places))) {
  file.willRead();
  try {
    for (unsigned i = 0; i < threads; ++i)
      state->threads.emplace_back([s = state.get()] { s->work(); });
  } catch (const std::system_error &) { // no more threads (`ulimit -u`): who awaits reads, too
  }
}

WeightReader::~WeightReader() {
  const std::lock_guard lock(state->mutex);
  state->stopped = true;
  state->changed.notify_all();
}

Failure WeightReader::await(size_t number) {
  std::unique_lock lock(state->mutex);
  while (!state->failure && state->left[number] > 0)
    if (state->canTake())
      state->readOne(lock);
    else
      state->changed.wait(lock);
  return state->failure;
}

void WeightReader::release() {
  const std::lock_guard lock(state->mutex);
  ++state->allowed;
  state->changed.notify_all();
}

} // namespace megalith::runtime
