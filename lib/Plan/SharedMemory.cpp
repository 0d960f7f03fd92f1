//===- SharedMemory.cpp - what control and a CTA's words need -------------===//
//
// The sizes are those of the structs in device/SharedMemory.h, which this file compiles as they are.
//===----------------------------------------------------------------------===//
#include "Layout.h"
#include "device/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/IR/Calls.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <array>
#include <bit>
#include <utility>

// After what it needs.
#include "device/SharedMemory.h"

namespace megalith::plan {

using ir::Op;
using ir::Operation;
namespace attr = ir::attr;

namespace {

/// What depends on the number of models.
struct SizesOfModels {
  int64_t params, pass, tree, ring, numbers;
};
template <int... Before> constexpr auto sizesOfModels(std::integer_sequence<int, Before...>) {
  return std::array{SizesOfModels{sizeof(abi::LaunchParamsOf<Before + 1>), sizeof(device::PassSharedOf<Before + 1>),
                                  sizeof(device::TreePassOf<Before + 1>), sizeof(device::RingSharedOf<Before + 1>),
                                  sizeof(device::ControlNumbersOf<Before + 1>)}...};
}
/// By the number of models, less one.
constexpr auto sizesOf = sizesOfModels(std::make_integer_sequence<int, limits::models>());

/// Bytes of Words<slots>. They grow with the number of slots, which is a multiple of 8; more than 64 slots have fewer
/// words at hand.
template <template <int> class Words> int64_t bytesOf(int64_t slots) {
  return slots <= 64 ? sizeof(Words<8>) + (slots / 8 - 1) * (sizeof(Words<16>) - sizeof(Words<8>))
                     : sizeof(Words<72>) + (slots / 8 - 9) * (sizeof(Words<80>) - sizeof(Words<72>));
}

/// What each further model adds to control's numbers, beside PoolTables, and to a CTA's other words, at most.
constexpr int64_t numbersOfModel = 16, wordsOfModel = 32, wordsOfSeveral = 128;
constexpr bool suffice() {
  for (int64_t models = 2; models <= int64_t(sizesOf.size()); ++models) {
    const SizesOfModels &one = sizesOf[0], &all = sizesOf[models - 1];
    if (all.numbers + (models - 1) * int64_t(sizeof(device::Reservations<1>)) >
            one.numbers + (models - 1) * numbersOfModel ||
        all.pass + all.ring - one.pass - one.ring > wordsOfSeveral + wordsOfModel * models ||
        all.tree - all.pass != one.tree - one.pass)
      return false;
  }
  return true;
}
static_assert(suffice(), "the plan has to reserve more for several models");

} // namespace

const Operation *firstReducer(const ir::Module &module, llvm::StringRef model) {
  for (const Operation &part : module.all(Op::Tick).front()->region().ops)
    if (part.op == Op::Part && part.has<attr::before_site>() && part.region().ops.back().name == model)
      for (const Operation &reduce : ir::reducersOf(part.region().ops.back()))
        if (!ir::isBestOfRows(part.region().ops.back(), reduce))
          return &reduce;
  return nullptr;
}

bool asksMore(const ir::Module &module) {
  return llvm::any_of(module.all(Op::Model), [&](const Operation *model) {
    return ir::mayBeTrees(module, model->name) || firstReducer(module, model->name);
  });
}

int64_t sparePages(const ir::Module &module, const Operation &pool) {
  const int64_t rows = std::min<int64_t>(module.param("rows_per_pass"), kMaxRows); // larger passes run in pieces
  return pool.get<attr::index_pages>() || asksMore(module) ? llvm::divideCeil(rows, pool.get<attr::page_tokens>()) : 0;
}

int64_t pathPlaces(const ir::Module &module, llvm::StringRef model) {
  return std::bit_ceil(uint64_t(std::max<int64_t>(64, ir::earlierRows(module, model))));
}

/// The emitted source asserts that the room suffices.
int64_t controlRoom(const ir::Module &module) {
  const std::vector<const Operation *> pools = module.all(Op::Pool);
  const int64_t models = std::max<size_t>(1, pools.size()), slots = roundUp(module.param("slots"), 8);
  const int64_t gauges = std::max<int64_t>(1, module.all(Op::Gauge).size());
  const auto count = [&](auto test) {
    return llvm::count_if(pools, [&](const Operation *op) { return test(op->name); });
  };
  const auto windowed = [&](llvm::StringRef name) {
    const Operation *model = module.find(Op::Model, name);
    return model && model->get<attr::kv_window>() > 0;
  };
  const int64_t trees = count([&](llvm::StringRef name) { return ir::mayBeTrees(module, name); });
  const int64_t indexed = llvm::count_if(pools, [](const Operation *op) { return op->get<attr::index_pages>(); });
  // Where a kernel does not need these tables, one number of each is there.
  const int64_t numbers = sizesOf[0].numbers + sizeof(device::Reservations<1>) + sizeof(device::CallModels<1>) +
                          (models - 1) * numbersOfModel + (trees + indexed > 0 ? sizeof(device::MovedRows) : 0);
  const int64_t tables =
      bytesOf<device::SlotTables>(slots) + slots * gauges * 4 +
      models * (bytesOf<device::PoolTables>(slots) + bytesOf<device::Reservations>(slots)) +
      count(windowed) * bytesOf<device::FirstPages>(slots) +
      count([&](llvm::StringRef name) { return ir::draftsContinue(module, name); }) * bytesOf<device::RunRows>(slots) +
      trees * bytesOf<device::FreeRows>(slots) + indexed * bytesOf<device::IndexTables>(slots) +
      (models > 1 || ir::hasLoops(module)) * bytesOf<device::CallModels>(slots) +
      (count([&](llvm::StringRef name) { return firstReducer(module, name); }) > 0) *
          bytesOf<device::PlainCalls>(slots);
  const int64_t pieces = module.param("rows_per_pass") > kMaxRows ? bytesOf<device::PassPieces>(slots) : 0;
  return roundUp(numbers + seatBytes(models, indexed > 0) + tables + pieces, 16);
}

int64_t drawsBytes(const Plan &plan) {
  const int64_t bytes = sizeof(device::PassDraws<1>) + (plan.rowsAtOnce * plan.results() - 1) * sizeof(abi::RowDraw);
  return plan.reduces() ? roundUp(bytes, 128) : 0;
}

int64_t otherSharedBytes(const Plan &plan) {
  const SizesOfModels &one = sizesOf[0];
  const int64_t models = plan.models.size(), trees = plan.asksMore ? roundUp(one.tree - one.pass, 128) : 0;
  const int64_t words = one.pass + one.ring + sizeof(device::GridWords) + kConsumerWarps * sizeof(device::StreamPlace);
  return roundUp(sizesOf[models - 1].params, 128) + roundUp(words, 128) + trees +
         (models > 1 ? wordsOfSeveral + wordsOfModel * models : 0) + drawsBytes(plan) +
         (plan.wide() ? kWideWordsBytes : 0);
}

} // namespace megalith::plan
