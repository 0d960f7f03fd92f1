#include "Machine.h"
#include "device/Exact.h"
#include "device/Sampling.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Reducers.h"
#include <algorithm>
#include <bit>
#include <fmt/format.h>

using namespace megalith;
using namespace megalith::reference;
using ir::Op;
using ir::Operation;
namespace attr = ir::attr;

namespace {

/// Interprets control operations for one request.
class Control {
public:
  Control(Machine &machine, Running &r, int64_t tick) : machine(machine), program(machine.program), r(r), tick(tick) {
    if (r.env.empty())
      r.env.resize(program.module.values.size());
  }

  /// Where the operations of a region ended.
  enum class Flow { End, Yield, Goto, Suspended };
  Flow runRegion(const ir::Region &region, size_t first);
  int target = -1; ///< of the `goto`

private:
  Flow runOp(const Operation &op);
  void arithmetic(const Operation &op);
  void sequence(const Operation &op);
  void requestValue(const Operation &op);
  void poolValue(const Operation &op);
  void keep(int pool, int64_t count);
  void keepPath(int pool, const Operation &op);
  void takeRows(const Operation &op);
  void append(const Operation &op);
  void setField(const Operation &op);
  int32_t countWhile(const Operation &op, bool stopAtFirst);
  std::pair<int32_t, int32_t> range(const Operation &op);
  const Val &body(const Operation &op, int32_t i, unsigned which = 0);
  void fold(const Operation &op);
  void stored(const Operation &op);
  void follow(const Operation &op);
  void tree(const Operation &op);
  void repeat(const Operation &op);
  Val item(const Operation &op, const Val &list, int64_t i) const;
  void observe(const Operation &op);
  void suspend(const Operation &op);
  ReducerInput inputOf(const Operation &reduce);
  void lookup(const Operation &op);

  Val &value(ir::Value v) { return r.env[v.id]; }
  Val &operand(const Operation &op, unsigned i) { return value(op.operands[i]); }
  Val &result(const Operation &op) { return value(op.result()); }
  void set(const Operation &op, int32_t i) { result(op).i = i; }
  bool isF32(ir::Value v) const { return program.module.type(v).is(ir::Scalar::F32); }
  const Operation &policy(const std::string &name) const;

  Machine &machine;
  const Program &program;
  Running &r;
  int64_t tick;
};

} // namespace

/// i32 arithmetic wraps.
static int32_t wrap(uint32_t bits) { return std::bit_cast<int32_t>(bits); }

static int32_t integer(Op op, int32_t a, int32_t b) {
  auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
  switch (op) {
  case Op::Add:
    return wrap(x + y);
  case Op::Sub:
    return wrap(x - y);
  case Op::Mul:
    return wrap(x * y);
  // In 64 bits, since the quotient of the least i32 and -1 needs 33.
  case Op::Div:
    return b == 0 ? 0 : wrap(static_cast<uint32_t>(int64_t(a) / b));
  case Op::Mod:
    return b == 0 ? 0 : static_cast<int32_t>(int64_t(a) % b);
  case Op::Min:
    return std::min(a, b);
  case Op::Max:
    return std::max(a, b);
  default:
    throw NotExecutable(fmt::format("`{}` has no integer form", ir::mnemonic(op).str()));
  }
}

static float real(Op op, float a, float b) {
  switch (op) {
  case Op::Add:
    return a + b;
  case Op::Sub:
    return a - b;
  case Op::Mul:
    return a * b;
  case Op::Div:
    return a / b;
  case Op::Min:
    return std::min(a, b);
  case Op::Max:
    return std::max(a, b);
  default:
    throw NotExecutable(fmt::format("`{}` has no f32 form", ir::mnemonic(op).str()));
  }
}

template <class T> static bool compare(Op op, T a, T b) {
  switch (op) {
  case Op::Eq:
    return a == b;
  case Op::Ne:
    return a != b;
  case Op::Lt:
    return a < b;
  case Op::Le:
    return a <= b;
  case Op::Gt:
    return a > b;
  default:
    return a >= b;
  }
}

/// Element by element, as their type compares them: a NaN is equal to nothing.
static bool equal(const std::vector<int32_t> &a, const std::vector<int32_t> &b, ir::Scalar elem) {
  if (elem != ir::Scalar::F32)
    return a == b;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](int32_t x, int32_t y) { return std::bit_cast<float>(x) == std::bit_cast<float>(y); });
}

Control::Flow Control::runRegion(const ir::Region &region, size_t first) {
  for (size_t i = first; i < region.ops.size(); ++i)
    if (Flow flow = runOp(region.ops[i]); flow != Flow::End)
      return flow;
  return Flow::End;
}

Control::Flow Control::runOp(const Operation &op) {
  switch (op.op) {
  case Op::If: {
    if (operand(op, 0).i)
      return runRegion(op.region(0), 0);
    return op.regions.size() > 1 ? runRegion(op.region(1), 0) : Flow::End;
  }
  case Op::For:
  case Op::While:
    repeat(op);
    break;
  case Op::Choose: {
    const ir::Region &taken = op.region(operand(op, 0).i ? 0 : 1);
    runRegion(taken, 0);
    Val chosen = value(taken.ops.back().operands[0]);
    result(op) = std::move(chosen);
    break;
  }
  case Op::Fold:
    fold(op);
    break;
  case Op::SeqMap:
  case Op::SeqScan:
  case Op::SeqTop:
  case Op::SeqSort:
    stored(op);
    break;
  case Op::Follow:
    follow(op);
    break;
  case Op::Tree:
    tree(op);
    break;
  case Op::Goto: {
    const auto &names = op.get<attr::to>();
    size_t taken = 0;
    while (taken < op.operands.size() && !operand(op, taken).i)
      ++taken;
    target = program.state(names.at(taken));
    r.leftAt = op.loc;
    return Flow::Goto;
  }
  case Op::Yield:
    return Flow::Yield;
  case Op::Call:
  case Op::Issue:
    suspend(op);
    return Flow::Suspended;
  case Op::Enter: // as if a call had been served
    r.call = {};
    r.call.op = &op;
    r.call.site = operand(op, 0).i ? op.get<attr::inside>() : op.get<attr::behind>();
    r.call.since = tick;
    r.call.served = true;
    return Flow::Suspended;
  case Op::Results: {
    const auto index = static_cast<size_t>(op.get<attr::index>());
    if (index >= r.call.results.size() || r.call.site != op.get<attr::site>())
      throw NotExecutable(fmt::format("no results of site {}", op.get<attr::site>()));
    result(op) = r.call.results[index];
    break;
  }
  case Op::Tokens:
  case Op::Budget:
  case Op::Finished:
  case Op::PromptLen:
  case Op::Priority:
  case Op::Seated:
  case Op::Sampling:
  case Op::Uniform:
  case Op::FieldGet:
  case Op::InputGet:
    requestValue(op);
    break;
  case Op::SeqLen:
  case Op::SeqAt:
  case Op::SeqSlice:
  case Op::SeqConcat:
  case Op::SeqMake:
  case Op::SeqConst:
    sequence(op);
    break;
  case Op::NgramLookup:
    lookup(op);
    break;
  case Op::KvLen:
  case Op::KvLag:
  case Op::KvDrafts:
  case Op::KvLive:
  case Op::KvPages:
  case Op::KvPressure:
  case Op::KvKeep:
    poolValue(op);
    break;
  case Op::PrefixWhile:
    set(op, countWhile(op, true));
    break;
  case Op::Count:
    set(op, countWhile(op, false));
    break;
  case Op::FieldSet:
    setField(op);
    break;
  case Op::Append:
    append(op);
    break;
  case Op::PolicyGet:
    result(op) = r.policyState[op.name + "." + op.get<attr::state>()];
    break;
  case Op::PolicySet:
    r.policyState[op.name + "." + op.get<attr::state>()] = operand(op, 0);
    break;
  case Op::PolicyRead:
    for (const Operation &output : policy(op.name).region().ops)
      if (output.op == Op::PolicyOutput && output.name == op.get<attr::output>()) {
        runRegion(output.region(), 0);
        result(op) = value(output.region().ops.back().operands[0]);
      }
    break;
  case Op::Observe:
    observe(op);
    break;
  case Op::CountAdd:
    machine.metrics[op.name] += operand(op, 0).i;
    break;
  case Op::Trace:
    r.gauges[op.name] = isF32(op.operands[0]) ? double(operand(op, 0).f) : double(operand(op, 0).i);
    break;
  default:
    arithmetic(op);
  }
  return Flow::End;
}

void Control::arithmetic(const Operation &op) {
  switch (op.op) {
  case Op::Const:
    result(op) = constantValue(op.get<attr::value>(), program.module.type(op.result()));
    return;
  case Op::And:
    return set(op, operand(op, 0).i && operand(op, 1).i);
  case Op::Or:
    return set(op, operand(op, 0).i || operand(op, 1).i);
  case Op::Not:
    return set(op, !operand(op, 0).i);
  case Op::Select: {
    Val chosen = operand(op, operand(op, 0).i ? 1 : 2);
    result(op) = std::move(chosen);
    return;
  }
  case Op::Cast:
    if (isF32(op.result()))
      result(op).f = isF32(op.operands[0]) ? operand(op, 0).f : static_cast<float>(operand(op, 0).i);
    else
      set(op, isF32(op.operands[0]) ? exactInt(operand(op, 0).f) : operand(op, 0).i);
    return;
  case Op::Exp:
    result(op).f = exactExp(operand(op, 0).f);
    return;
  case Op::Log:
    result(op).f = exactLog(operand(op, 0).f);
    return;
  case Op::Pow:
    result(op).f = exactPow(operand(op, 0).f, operand(op, 1).f);
    return;
  case Op::Sqrt:
    result(op).f = exactSqrt(operand(op, 0).f);
    return;
  case Op::Abs:
    if (isF32(op.operands[0]))
      result(op).f = exactAbs(operand(op, 0).f);
    else
      set(op, operand(op, 0).i < 0 ? integer(Op::Sub, 0, operand(op, 0).i) : operand(op, 0).i);
    return;
  case Op::Ratio: {
    auto a = static_cast<float>(operand(op, 0).i);
    auto b = static_cast<float>(operand(op, 1).i);
    result(op).f = operand(op, 1).i == 0 ? 0.0f : a / b;
    return;
  }
  case Op::Neg:
    if (isF32(op.operands[0]))
      result(op).f = -operand(op, 0).f;
    else
      set(op, integer(Op::Sub, 0, operand(op, 0).i));
    return;
  case Op::Eq:
  case Op::Ne:
  case Op::Lt:
  case Op::Le:
  case Op::Gt:
  case Op::Ge:
    if (program.module.type(op.operands[0]).kind == ir::Type::Seq)
      return set(op, equal(operand(op, 0).seq, operand(op, 1).seq, program.module.type(op.operands[0]).elem) ==
                         (op.op == Op::Eq));
    return set(op, isF32(op.operands[0]) ? compare(op.op, operand(op, 0).f, operand(op, 1).f)
                                         : compare(op.op, operand(op, 0).i, operand(op, 1).i));
  default:
    if (op.operands.size() != 2)
      throw NotExecutable(fmt::format("`{}` is not a control operation", ir::mnemonic(op.op).str()));
    if (isF32(op.operands[0]))
      result(op).f = real(op.op, operand(op, 0).f, operand(op, 1).f);
    else
      set(op, integer(op.op, operand(op, 0).i, operand(op, 1).i));
  }
}

void Control::requestValue(const Operation &op) {
  switch (op.op) {
  case Op::Tokens:
    result(op).seq = r.tokens;
    break;
  case Op::Budget:
    set(op, static_cast<int32_t>(r.budget()));
    break;
  case Op::Finished:
    set(op, r.finished());
    break;
  case Op::PromptLen:
    set(op, static_cast<int32_t>(r.input->tokens.size()));
    break;
  case Op::Priority:
    set(op, r.input->priority);
    break;
  case Op::Seated:
    set(op, machine.seated);
    break;
  case Op::InputGet:
    result(op) = r.inputs[program.input(op.name)];
    break;
  case Op::Sampling: {
    const std::string &of = op.get<attr::of>();
    const Sampling &s = r.input->sampling;
    if (of == "top_k")
      return set(op, s.topK);
    result(op).f = of == "temperature" ? s.temperature : of == "top_p" ? s.topP : s.minP;
    break;
  }
  case Op::Uniform:
    result(op).f = sampling::uniform({machine.options.seed, r.input->seed()}, operand(op, 0).i, operand(op, 1).i,
                                     operand(op, 2).i);
    break;
  default:
    result(op) = r.fields[program.field(op.name)];
  }
}

/// What a sequence keeps of a scalar.
static int32_t wordOf(const Val &v, bool isF32) { return isF32 ? std::bit_cast<int32_t>(v.f) : v.i; }

/// Element or row `i` of a list.
Val Control::item(const Operation &op, const Val &list, int64_t i) const {
  const ir::Type &type = program.module.type(op.operands[0]);
  Val v;
  if (type.kind == ir::Type::Table)
    v.seq = list.rows[i];
  else if (type.elem == ir::Scalar::F32)
    v.f = std::bit_cast<float>(list.seq[i]);
  else
    v.i = list.seq[i];
  return v;
}

template <class List> static List slice(const List &list, int32_t low, int32_t high) {
  const auto length = static_cast<int32_t>(list.size());
  low = std::clamp(low, 0, length);
  high = std::clamp(high, low, length);
  return List(list.begin() + low, list.begin() + high);
}

template <class List> static List joined(List a, const List &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void Control::sequence(const Operation &op) {
  const bool table =
      program.module.type(op.op == Op::SeqLen || op.op == Op::SeqAt ? op.operands[0] : op.result()).kind ==
      ir::Type::Table;
  switch (op.op) {
  case Op::SeqLen:
    return set(op, static_cast<int32_t>(table ? operand(op, 0).rows.size() : operand(op, 0).seq.size()));
  case Op::SeqAt: {
    const Val &list = operand(op, 0);
    const auto length = static_cast<int64_t>(table ? list.rows.size() : list.seq.size());
    int32_t i = operand(op, 1).i;
    if (i < 0 || i >= length)
      throw FaultSignal{Fault::IndexRange, op.loc};
    result(op) = item(op, list, i);
    return;
  }
  case Op::SeqSlice: {
    Val part;
    if (table)
      part.rows = slice(operand(op, 0).rows, operand(op, 1).i, operand(op, 2).i);
    else
      part.seq = slice(operand(op, 0).seq, operand(op, 1).i, operand(op, 2).i);
    result(op) = std::move(part);
    return;
  }
  case Op::SeqConcat: {
    Val both;
    if (table)
      both.rows = joined(operand(op, 0).rows, operand(op, 1).rows);
    else
      both.seq = joined(operand(op, 0).seq, operand(op, 1).seq);
    result(op) = std::move(both);
    return;
  }
  case Op::SeqConst: {
    Val made;
    for (int64_t item : op.get<attr::items>())
      made.seq.push_back(static_cast<int32_t>(item));
    for (double number : op.get<attr::numbers>())
      made.seq.push_back(std::bit_cast<int32_t>(static_cast<float>(number)));
    result(op) = std::move(made);
    return;
  }
  default: { // seq.make
    Val made;
    for (ir::Value v : op.operands)
      if (table)
        made.rows.push_back(value(v).seq);
      else
        made.seq.push_back(wordOf(value(v), isF32(v)));
    result(op) = std::move(made);
  }
  }
}

/// The longest suffix of n = ngram..1 tokens that occurred before, its most
/// recent earlier occurrence, up to `width` following tokens. Of a table: so many occurrences, with distinct
/// following tokens, in this order.
void Control::lookup(const Operation &op) {
  const std::vector<int32_t> s = operand(op, 0).seq;
  const std::vector<std::string> &with = op.get<attr::with>();
  const ir::Type &type = program.module.type(op.result());
  const bool table = type.kind == ir::Type::Table;
  const std::vector<int32_t> *from = nullptr;
  int64_t ngram = op.get<attr::ngram>();
  for (size_t i = 0; i < with.size(); ++i)
    if (with[i] == "from")
      from = &operand(op, 2 + i).seq;
    else
      ngram = std::min<int64_t>(ngram, operand(op, 2 + i).i);
  int64_t width = std::max(operand(op, 1).i, 0);
  if (int64_t capacity = table ? type.inner : type.size; capacity > 0)
    width = std::min(width, capacity);
  auto following = [&](const std::vector<int32_t> &text, int64_t first) {
    auto length = static_cast<int64_t>(text.size());
    first = std::min(first, length);
    return std::vector<int32_t>(text.begin() + first, text.begin() + std::min(first + width, length));
  };
  std::vector<std::vector<int32_t>> found;
  const size_t most = width == 0 ? 0 : table ? type.size : 1;
  const auto &oracle = machine.options.oracleDrafts;
  if (static_cast<size_t>(r.number) < oracle.size()) {
    std::vector<int32_t> proposed = following(oracle[r.number], r.generated());
    proposed.erase(std::find_if(proposed.begin(), proposed.end(), [](int32_t token) { return token < 0; }),
                   proposed.end());
    if (!proposed.empty())
      found.push_back(std::move(proposed));
  } else {
    const std::vector<int32_t> text = from ? *from : s;
    const auto length = static_cast<int64_t>(s.size());
    for (int64_t n = std::min(ngram, length); n > 0; --n)
      for (int64_t end = static_cast<int64_t>(text.size()) - 1; end >= n && found.size() < most; --end)
        if (std::equal(s.end() - n, s.end(), text.begin() + end - n) &&
            std::none_of(found.begin(), found.end(), [&](const auto &row) { return row[0] == text[end]; }))
          found.push_back(following(text, end));
  }
  Val all;
  if (table)
    all.rows = std::move(found);
  else if (!found.empty())
    all.seq = std::move(found[0]);
  result(op) = std::move(all);
}

/// The numbers that an operation goes through: from, to.
std::pair<int32_t, int32_t> Control::range(const Operation &op) {
  const size_t ends = op.operands.size() - (op.op == Op::SeqTop);
  return ends == 1 ? std::pair(0, operand(op, 0).i) : std::pair(operand(op, 0).i, operand(op, 1).i);
}

/// What the region yields for `i`.
const Val &Control::body(const Operation &op, int32_t i, unsigned which) {
  const ir::Region &region = op.region();
  if (which == 0) {
    value(region.args[0]).i = i;
    runRegion(region, 0);
  }
  return value(region.ops.back().operands[which]);
}

/// A place in the order of numbers: greater is later, a NaN behind all others in either direction.
static int64_t rankOf(const Val &v, bool isF32, bool descending) {
  if (!isF32)
    return descending ? -int64_t(v.i) : v.i;
  if (exact::isNan(v.f))
    return INT64_MAX;
  const uint32_t bits = exact::bitsOf(v.f == 0 ? 0.0f : v.f);
  const auto rank = int64_t(bits & exact::kSign ? ~bits : bits | exact::kSign);
  return descending ? -rank : rank;
}

void Control::fold(const Operation &op) {
  const std::string &by = op.get<attr::by>();
  const auto [low, high] = range(op);
  const bool real = isF32(op.region().ops.back().operands[0]);
  if (by == "all" || by == "any" || by == "find") {
    int32_t i = low;
    while (i < high && bool(body(op, i).i) == (by == "all"))
      ++i;
    const bool found = i < high;
    return set(op, by == "find" ? (found ? i : -1) : by == "all" ? !found : found);
  }
  const bool place = by == "argmin" || by == "argmax";
  Val total, best;
  int32_t at = -1;
  int64_t bestRank = 0;
  for (int32_t i = low; i < high; ++i) {
    const Val &v = body(op, i);
    if (by == "sum") {
      total.f = total.f + v.f;
      total.i = integer(Op::Add, total.i, v.i);
      continue;
    }
    const int64_t rank = rankOf(v, real, by == "max" || by == "argmax");
    if (i != low && rank >= bestRank)
      continue;
    best = v;
    bestRank = rank;
    at = i;
  }
  if (place)
    return set(op, at);
  const Val &taken = by == "sum" ? total : best;
  if (real)
    result(op).f = taken.f;
  else
    set(op, taken.i);
}

/// Operations whose result is a sequence or table with one entry for each number.
void Control::stored(const Operation &op) {
  const auto [low, high] = range(op);
  const ir::Type &type = program.module.type(op.result());
  const int64_t count = std::max<int64_t>(0, int64_t(high) - low);
  if (count > (op.op == Op::SeqTop ? op.get<attr::range>() : type.size))
    throw FaultSignal{Fault::CorruptField, op.loc};
  const std::vector<ir::Value> yields(op.region().ops.back().operands.begin(), op.region().ops.back().operands.end());
  const bool real = isF32(yields[0]);
  Val out, sum;
  std::vector<std::vector<int64_t>> keys;
  for (int32_t i = low; i < high; ++i) {
    const Val &v = body(op, i);
    switch (op.op) {
    case Op::SeqMap:
      if (type.kind == ir::Type::Table)
        out.rows.push_back(v.seq);
      else
        out.seq.push_back(wordOf(v, real));
      break;
    case Op::SeqScan:
      sum.f = sum.f + v.f;
      sum.i = integer(Op::Add, sum.i, v.i);
      out.seq.push_back(wordOf(sum, real));
      break;
    default: {
      std::vector<int64_t> &key = keys.emplace_back();
      for (unsigned k = 0; k < yields.size(); ++k)
        key.push_back(rankOf(body(op, i, k), isF32(yields[k]), op.op == Op::SeqTop));
    }
    }
  }
  if (op.op == Op::SeqTop || op.op == Op::SeqSort) {
    for (int32_t i = low; i < high; ++i)
      out.seq.push_back(i);
    const auto first = low; // a name that a lambda can have
    std::stable_sort(out.seq.begin(), out.seq.end(),
                     [&](int32_t a, int32_t b) { return keys[a - first] < keys[b - first]; });
  }
  if (op.op == Op::SeqTop)
    out.seq.resize(std::min<int64_t>({count, std::max(0, operand(op, op.operands.size() - 1).i), type.size}));
  result(op) = std::move(out);
}

/// The longest path from `root` on which each row's token is `best` at its parent.
void Control::follow(const Operation &op) {
  const std::vector<int32_t> &rows = operand(op, 0).seq, &parents = operand(op, 1).seq, &best = operand(op, 2).seq;
  const int32_t root = operand(op, 3).i;
  const auto count = static_cast<int32_t>(std::min({rows.size(), parents.size(), best.size()}));
  std::vector<int32_t> depth(count, -1);
  int32_t last = -1;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t parent = parents[i];
    if (i == root)
      depth[i] = 0;
    else if (parent >= 0 && parent < i && depth[parent] >= 0 && rows[i] == best[parent])
      depth[i] = depth[parent] + 1;
    if (depth[i] >= 0 && (last < 0 || depth[i] > depth[last]))
      last = i;
  }
  Val path;
  for (int32_t i = last; i >= 0; i = i == root ? -1 : parents[i])
    path.seq.insert(path.seq.begin(), i);
  result(op) = std::move(path);
}

/// A row for each token of the table's rows, unless its parent has one with that token already.
void Control::tree(const Operation &op) {
  Val rows, parents;
  rows.seq = {operand(op, 0).i};
  parents.seq = {-1};
  for (const std::vector<int32_t> &branch : operand(op, 1).rows) {
    int32_t at = 0;
    for (int32_t token : branch) {
      int32_t child = at + 1;
      const auto count = static_cast<int32_t>(rows.seq.size());
      while (child < count && (parents.seq[child] != at || rows.seq[child] != token))
        ++child;
      if (child == count) {
        rows.seq.push_back(token);
        parents.seq.push_back(at);
      }
      at = child;
    }
  }
  value(op.results[0]) = std::move(rows);
  value(op.results[1]) = std::move(parents);
}

void Control::repeat(const Operation &op) {
  if (op.op == Op::For) {
    const auto [low, high] = range(op);
    for (int32_t i = low; i < high; ++i) {
      value(op.region().args[0]).i = i;
      runRegion(op.region(), 0);
    }
    return;
  }
  for (int64_t round = 0; round < op.get<attr::bound>(); ++round) {
    runRegion(op.region(0), 0);
    if (!value(op.region(0).ops.back().operands[0]).i)
      return;
    runRegion(op.region(1), 0);
  }
}

void Control::poolValue(const Operation &op) {
  int index = program.pool(op.name);
  KvShare &kv = r.kv[index];
  switch (op.op) {
  case Op::KvLen:
    return set(op, static_cast<int32_t>(kv.len));
  case Op::KvLag:
    return set(op, static_cast<int32_t>(static_cast<int64_t>(r.tokens.size()) - kv.len));
  case Op::KvDrafts:
    return set(op, static_cast<int32_t>(kv.drafts));
  case Op::KvLive:
    return set(op, static_cast<int32_t>(machine.pools[index].live));
  case Op::KvPages:
    return set(op, static_cast<int32_t>(program.pools[index].pages));
  case Op::KvPressure:
    return set(op, machine.pools[index].pressure);
  default:
    if (op.operands.size() > 1)
      keepPath(index, op);
    else
      keep(index, operand(op, 0).i);
  }
}

/// Of the rows that the run fed, those of a path are kept, and move together.
void Control::keepPath(int pool, const Operation &op) {
  const KvShare &kv = r.kv[pool];
  const std::vector<int32_t> &path = operand(op, 1).seq;
  const int64_t kept = std::min<int64_t>(kv.len + static_cast<int64_t>(path.size()), operand(op, 0).i);
  if (kept > kv.len && firstPageSeen(program.pools[pool], kept) >= kv.first) {
    const std::vector<int32_t> rows(path.begin(), path.begin() + (kept - kv.len));
    const int64_t fed = kv.end - kv.len;
    if (static_cast<int64_t>(rows.size()) > fed ||
        std::any_of(rows.begin(), rows.end(), [&](int32_t row) { return row < 0 || row >= fed; }))
      throw FaultSignal{Fault::IndexRange, op.loc};
    machine.moveRows(r, pool, rows);
  }
  keep(pool, kept);
}

void Control::keep(int index, int64_t count) {
  KvShare &kv = r.kv[index];
  kv.drafts = 0;
  kv.len = kv.end = std::max<int64_t>(0, std::min(kv.end, count));
  if (firstPageSeen(program.pools[index], kv.len) >= kv.first)
    return;
  // The rows behind would see a page that was given back: all of them are to be fed again, into the pages that are
  // left.
  kv.len = kv.end = kv.first = 0;
}

int32_t Control::countWhile(const Operation &op, bool stopAtFirst) {
  const auto [low, high] = range(op);
  int32_t count = 0;
  for (int32_t i = low; i < high; ++i) {
    const bool holds = body(op, i).i;
    if (stopAtFirst && !holds)
      break;
    count += holds;
  }
  return count;
}

void Control::setField(const Operation &op) {
  int index = program.field(op.name);
  const ir::Type &type = program.fields[index].type;
  const Val &v = operand(op, 0);
  const auto length = static_cast<int64_t>(type.kind == ir::Type::Table ? v.rows.size() : v.seq.size());
  const bool longRow = std::any_of(v.rows.begin(), v.rows.end(),
                                   [&](const auto &row) { return static_cast<int64_t>(row.size()) > type.inner; });
  if (type.isList() && ((type.size > 0 && length > type.size) || longRow))
    throw FaultSignal{Fault::CorruptField, op.loc};
  r.fields[index] = operand(op, 0);
}

void Control::append(const Operation &op) {
  int32_t count = 0;
  const std::vector<int32_t> given = operand(op, 0).seq;
  const std::vector<int32_t> stop = op.operands.size() > 1 ? operand(op, 1).seq : std::vector<int32_t>();
  for (int32_t token : given) {
    if (r.finished())
      break;
    if (machine.options.keepLogits) {
      const std::vector<float> *line = r.nextLogits();
      r.result.logits.push_back(line ? *line : std::vector<float>());
    }
    r.tokens.push_back(token);
    r.sawEos = r.input->endsWith(token);
    ++count;
    if (!stop.empty() && stop.size() <= r.tokens.size() && std::equal(stop.rbegin(), stop.rend(), r.tokens.rbegin()))
      break;
  }
  if (count > 0)
    r.result.appends.push_back({tick, count});
  set(op, count);
}

const Operation &Control::policy(const std::string &name) const {
  const Operation *op = program.module.find(Op::Policy, name);
  if (!op)
    throw NotExecutable(fmt::format("`{}` is not declared", name));
  return *op;
}

void Control::observe(const Operation &op) {
  for (const Operation &child : policy(op.name).region().ops) {
    if (child.op != Op::PolicyObserve)
      continue;
    for (size_t i = 0; i < op.operands.size(); ++i)
      value(child.region().args.at(i)) = operand(op, i);
    runRegion(child.region(), 0);
  }
}

void Control::suspend(const Operation &op) {
  r.call = {};
  r.call.op = &op;
  r.call.site = op.get<attr::site>();
  r.call.pool = program.pool(op.name);
  r.call.since = tick;
  if (const auto loop = program.loopOf.find(r.call.site); loop != program.loopOf.end())
    r.call.loop = loop->second;
  takeRows(op);
  for (const Operation &reduce : ir::reducersOf(op))
    r.call.reducers.push_back(inputOf(reduce));
}

/// What the call feeds, and how its rows hang together.
void Control::takeRows(const Operation &op) {
  const KvShare &kv = r.kv[r.call.pool];
  r.call.begin = kv.len + (op.get<attr::kv>() == "draft" ? kv.drafts : 0);
  const std::vector<int32_t> &tokens = operand(op, 0).seq;
  const auto count = static_cast<int64_t>(tokens.size());
  if (const int64_t most = op.get<attr::most>(); most > 0 && count > most)
    throw FaultSignal{Fault::TooManyRows, op.loc};
  const ir::Value parents = ir::operandNamed(op, "parents"), visible = ir::operandNamed(op, "visible");
  const bool ofEach = visible && program.module.type(visible).kind == ir::Type::Seq;
  for (ir::Value v : {parents, ofEach ? visible : ir::Value()})
    if (v && static_cast<int64_t>(value(v).seq.size()) != count)
      throw FaultSignal{Fault::IndexRange, op.loc};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = r.call.begin - kv.len + i; // of the run
    const int64_t parent = parents ? value(parents).seq[i] : row - 1;
    if (parent < -1 || parent >= row)
      throw FaultSignal{Fault::IndexRange, op.loc};
    const int64_t place = kv.len + parent;
    const int64_t position = parent < 0             ? kv.len
                             : place < r.call.begin ? kv.fed[place].position + 1
                                                    : r.call.feed[place - r.call.begin].position + 1;
    const int64_t seen = !visible ? position + 1 : ofEach ? value(visible).seq[i] : value(visible).i;
    // No row sees one behind those of its call.
    if (seen < 1 || seen > position - i + count)
      throw FaultSignal{Fault::IndexRange, op.loc};
    r.call.feed.push_back(
        {tokens[i], static_cast<int32_t>(place), static_cast<int32_t>(position), static_cast<int32_t>(seen)});
  }
}

ReducerInput Control::inputOf(const Operation &reduce) {
  ReducerInput input;
  const ir::ReducerInfo &info = ir::reducerOf(reduce);
  input.with.reducer = reduce.name + (reduce.get<attr::part>() == "prob" ? ".prob" : "");
  input.table = reduce.has<attr::n>();
  input.result = reduce.get<attr::of>();
  input.with.n = static_cast<int32_t>(reduce.get<attr::n>());
  input.with.runSeed = machine.options.seed;
  input.with.requestSeed = r.input->seed();
  const std::vector<std::string> &names = reduce.get<attr::with>();
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string &name = names[i];
    const Val &v = operand(reduce, i);
    if (name == "first")
      input.first = v.i;
    else if (name == "last")
      input.last = v.i;
    else if (name == "tokens")
      input.tokens = v.seq;
    else if (name == "temperature")
      input.with.temperature = v.f;
    else if (name == "top_k")
      input.with.topK = v.i;
    else if (name == "top_p")
      input.with.topP = v.f;
    else if (name == "min_p")
      input.with.minP = v.f;
    else if (name == "noise")
      input.with.noise = v.i;
    else if (name == "ahead")
      input.ahead = v.i;
    else
      throw NotExecutable(fmt::format("`{}` of `{}`", name, info.name.str()));
  }
  return input;
}

int reference::runControl(Machine &machine, Running &r, const ir::Region &region, size_t first, int64_t tick) {
  Control control(machine, r, tick);
  switch (control.runRegion(region, first)) {
  case Control::Flow::Goto:
    return control.target;
  case Control::Flow::Suspended:
    return -1;
  default:
    throw NotExecutable("a stage ends without `goto`");
  }
}
