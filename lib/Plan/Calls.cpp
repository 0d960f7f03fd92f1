#include "megalith/Plan/Calls.h"
#include "device/CallAbi.h"
#include "megalith/IR/Buffers.h"
#include "llvm/ADT/STLExtras.h"
#include <set>

namespace megalith::plan {

using ir::Op;
using ir::Operation;
using ir::Region;
namespace attr = ir::attr;

namespace {
/// How many numbers the ranges of a stage have, in dims.
class Spans {
public:
  explicit Spans(const Region &stage) {
    ir::walk(stage, [&](const Operation &op) {
      if (op.results.size() == 1)
        definitions[op.result().id] = &op;
    });
  }

  /// All of a region, one after the other; empty: there is no range.
  std::string of(const Region &region) const {
    std::string total;
    for (const Operation &op : region.ops) {
      std::string own;
      for (const Region &inner : op.regions) {
        const std::string more = of(inner);
        own = own.empty() ? more : more.empty() ? own : own + " " + more + " +";
      }
      if (ir::isOverRange(op.op)) {
        const std::string count = numbersOf(op);
        own = own.empty() ? count : count + " " + own + " *";
      }
      total = total.empty() ? own : own.empty() ? total : total + " " + own + " +";
    }
    return total;
  }

private:
  /// A range whose length is known to the items alone counts as so many numbers.
  static constexpr const char *unknown = "32";

  std::string numbersOf(const Operation &op) const {
    const size_t ends = op.operands.size() - (op.op == Op::SeqTop);
    const std::string high = text(op.operands[ends - 1]), low = ends == 2 ? text(op.operands[0]) : "0";
    return high.empty() || low.empty() ? unknown : low == "0" ? high : high + " " + low + " -";
  }
  /// Empty: it is no arithmetic on dims.
  std::string text(ir::Value v) const {
    const auto it = definitions.find(v.id);
    if (it == definitions.end())
      return "";
    const Operation &op = *it->second;
    if (op.op == Op::DimGet)
      return op.name;
    if (op.op == Op::Const && !op.get<attr::value>().isReal() && !op.get<attr::value>().isFlag())
      return std::to_string(op.get<attr::value>().whole());
    const char *symbol = op.op == Op::Add ? "+" : op.op == Op::Sub ? "-" : op.op == Op::Mul ? "*" : nullptr;
    if (!symbol)
      return "";
    const std::string a = text(op.operands[0]), b = text(op.operands[1]);
    return a.empty() || b.empty() ? "" : a + " " + b + " " + symbol;
  }

  std::map<uint32_t, const Operation *> definitions;
};
} // namespace

/// Bytes that a copy of an item has at most: the whole dimension that is read.
static std::string bytesOf(const ir::Module &module, const Operation &copy) {
  const Operation &from = *module.find(Op::Buffer, copy.get<attr::from>());
  std::string bytes = std::to_string(ir::bytesOf(from.get<attr::dtype>()));
  const size_t rank = from.region().ops.back().operands.size();
  const size_t lead = copy.operands.size() - static_cast<size_t>(copy.get<attr::lead>()) - 4;
  for (size_t d = lead; d < rank; ++d)
    bytes += " " + ir::polishOf(from.region(), d) + " *";
  return bytes;
}

/// The scan that is all that a stage without items does, if the next stage has items. Others than that one read what
/// it has written to memory.
static const Operation *scanOf(const ir::Module &module, const Operation &stage) {
  const auto all = module.all(Op::Items);
  const auto next = std::find(all.begin(), all.end(), &stage) + 1;
  if (next == all.end() || (*next)->region(0).ops.back().operands.empty())
    return nullptr;
  const Operation *scan = nullptr;
  bool alone = true;
  ir::walk(stage.region(1), [&](const Operation &op) {
    alone &= op.op != Op::BufferSet && op.op != Op::BufferCopy && op.op != Op::BufferSort && op.op != Op::If &&
             (op.op != Op::BufferScan || !scan);
    scan = op.op == Op::BufferScan ? &op : scan;
  });
  if (!alone || !scan)
    return nullptr;
  // What it reads stays as it is while the next one runs.
  std::set<std::string> reads = {scan->name};
  ir::walk(stage.region(1), [&](const Operation &op) {
    if (op.op == Op::BufferAt)
      reads.insert(op.name);
  });
  ir::walk((*next)->region(1), [&](const Operation &op) {
    alone &= (op.op != Op::BufferSet && op.op != Op::BufferCopy) || !reads.count(op.name);
  });
  return alone ? scan : nullptr;
}

int64_t callBytes(const ir::Module &module) {
  size_t bytes = sizeof(abi::CallHeader) + module.all(Op::Items).size() * sizeof(abi::StageWork);
  bytes += (module.all(Op::Dim).size() * 4 + 7) / 8 * 8;
  for (const Operation *buffer : module.all(Op::Buffer))
    bytes += 8 + (buffer->region().ops.back().operands.size() * 4 + 7) / 8 * 8;
  return static_cast<int64_t>(bytes);
}

std::optional<CallPlan> makeCallPlan(const ir::Module &module, const DeviceProfile &profile, Diagnostics &diags) {
  CallPlan plan;
  plan.profile = profile;
  for (const Operation *buffer : module.all(Op::Buffer))
    for (size_t d = 0; d < buffer->region().ops.back().operands.size(); ++d)
      if (ir::polishOf(buffer->region(), d).empty())
        diags.report(Diag::Unsupported, buffer->loc, "a kernel with a buffer whose size is such arithmetic on dims",
                     "+ - * / % min max in its shape, or `--device=reference`");
  if (const size_t stages = module.all(Op::Items).size(); stages > limits::callStages)
    diags.report(
        Diag::Unsupported, module.root.loc,
        fmt::format("a kernel of more than {} stages over buffers (there are {})", int(limits::callStages), stages),
        "fewer stages, or `--device=reference`");
  if (callBytes(module) > abi::kCallParamsBytes)
    diags.report(
        Diag::Unsupported, module.root.loc,
        fmt::format("a kernel with so many buffers and stages (its parameter would have {} bytes, and a kernel "
                    "takes {})",
                    callBytes(module), abi::kCallParamsBytes),
        "fewer of them, or `--device=reference`");
  if (diags.hasErrors())
    return std::nullopt;
  for (const Operation *op : module.all(Op::Items)) {
    CallStage stage;
    stage.op = op;
    stage.once = op->region(0).ops.back().operands.empty();
    stage.mapping = op->get<attr::mapping>();
    if (stage.once)
      stage.scan = scanOf(module, *op);
    if (!stage.once) {
      stage.low = ir::polishOf(op->region(0), 0);
      stage.high = ir::polishOf(op->region(0), 1);
      if (stage.low.empty() || stage.high.empty())
        diags.report(Diag::Unsupported, op->loc, "a kernel whose items go by such arithmetic on dims",
                     "+ - * / % min max in their range, or `--device=reference`");
    }
    stage.span = Spans(op->region(1)).of(op->region(1));
    if (const auto copies = ir::plainCopies(*op); stage.mapping == ir::Mapping::Auto && !copies.empty()) {
      stage.copies = static_cast<int64_t>(copies.size());
      for (const Operation *copy : copies)
        stage.copyBytes += bytesOf(module, *copy) + (stage.copyBytes.empty() ? "" : " +") + " ";
    }
    ir::walk(op->region(1), [&](const Operation &sort) {
      if (sort.op != Op::BufferSort)
        return;
      // Its number is all of a buffer's one size, whose dims say how much that may be.
      const int64_t most = ir::mostOf(module, *module.find(Op::Buffer, sort.name));
      if (most > limits::callSort)
        diags.report(Diag::Unsupported, sort.loc,
                     fmt::format("a kernel that sorts more than {} numbers (`{}` may have {})", int(limits::callSort),
                                 sort.name, most),
                     "a dim with a smaller range, or `--device=reference`");
      const auto keys = static_cast<int64_t>(sort.region().ops.back().operands.size());
      plan.sortWords = std::max(plan.sortWords, keys * std::min<int64_t>(most, limits::callSort));
    });
    plan.stages.push_back(std::move(stage));
  }
  return diags.hasErrors() ? std::nullopt : std::optional(std::move(plan));
}

static std::string costText(const CallPlan &plan, const ItemCosts &costs, const std::string &allItems,
                            const std::string &wholeSpan) {
  const auto word = [](const std::string &text) {
    return text.find(' ') == std::string::npos ? text : "(" + text + ")";
  };
  const std::string items = word(allItems), span = word(wholeSpan);
  const std::string steps = span.empty() ? ""
                            : costs.stepNumbers == 1
                                ? fmt::format(" + {} * {}", costs.step, span)
                                : fmt::format(" + {} * ceil({} / {})", costs.step, span, costs.stepNumbers);
  return fmt::format("ceil({} / {}) * ({}{}) ns", items, costs.itemsOfSm * plan.profile.smCount, costs.first, steps);
}

std::string print(const ir::Module &module, const CallPlan &plan) {
  std::string out = fmt::format("call {} on {}: {} SMs\n", module.root.name, plan.profile.name, plan.profile.smCount);
  for (const Operation *dim : module.all(Op::Dim))
    out += fmt::format("dim       {:<10} {} to {}\n", dim->name, dim->get<attr::least>(), dim->get<attr::most>());
  for (const Operation *buffer : module.all(Op::Buffer)) {
    std::string shape;
    for (size_t d = 0; d < buffer->region().ops.back().operands.size(); ++d)
      shape += (d ? ", " : "") + ir::infixOf(ir::polishOf(buffer->region(), d));
    out += fmt::format("buffer    {:<10} {} [{}]{}\n", buffer->name, ir::word(buffer->get<attr::dtype>()), shape,
                       buffer->get<attr::written>() ? ", written" : "");
  }
  for (const auto &[number, stage] : llvm::enumerate(plan.stages)) {
    const std::string low = ir::infixOf(stage.low), high = ir::infixOf(stage.high);
    const std::string items = low == "0" ? high : fmt::format("{} - ({})", high, low);
    out += fmt::format("stage {:<3} {:<10} ", number, stage.op->name);
    if (stage.once) {
      out += stage.scan ? fmt::format("a scan: each CTA of the next stage for itself, or beyond {} numbers one CTA\n",
                                      abi::kCallScanNumbers)
             : number == 0 ? "one CTA\n"
                           : "the CTA that ends the stage before\n";
    } else if (stage.copies) {
      out += fmt::format("{} items, copies of {} bytes at most, dealt by bytes: parts of 4 KB, a warp each\n", items,
                         ir::infixOf(stage.copyBytes));
    } else if (stage.mapping == ir::Mapping::Auto) {
      const std::string span = ir::infixOf(stage.span);
      out += fmt::format("{} items, a lane or a warp each, what costs less:\n", items);
      out += fmt::format("{:21}lane  {}\n", "", costText(plan, laneCosts, items, stage.span.empty() ? "" : span));
      out += fmt::format("{:21}warp  {}\n", "", costText(plan, warpCosts, items, stage.span.empty() ? "" : span));
    } else {
      out += fmt::format("{} items, {}\n", items,
                         stage.mapping == ir::Mapping::Serial ? "one lane, one after the other"
                         : stage.mapping == ir::Mapping::Lane ? "a lane each"
                                                              : "a warp each");
    }
  }
  return out;
}

} // namespace megalith::plan
