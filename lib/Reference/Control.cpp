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
  void observe(const Operation &op);
  void suspend(const Operation &op);
  ReducerInput inputOf(const Operation &reduce);
  std::vector<int32_t> lookup(const Operation &op);

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
  case Op::NgramLookup:
    sequence(op);
    break;
  case Op::KvLen:
  case Op::KvLag:
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
    r.gauges[op.name] = isF32(op.operands[0]) ? operand(op, 0).f : operand(op, 0).i;
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
    else if (isF32(op.operands[0]))
      throw NotExecutable("`cast` from f32 is not defined");
    else
      set(op, operand(op, 0).i);
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

void Control::sequence(const Operation &op) {
  switch (op.op) {
  case Op::SeqLen:
    return set(op, static_cast<int32_t>(operand(op, 0).seq.size()));
  case Op::SeqAt: {
    const std::vector<int32_t> &seq = operand(op, 0).seq;
    int32_t i = operand(op, 1).i;
    if (i < 0 || i >= static_cast<int64_t>(seq.size()))
      throw FaultSignal{Fault::IndexRange, op.loc};
    if (isF32(op.result())) {
      result(op).f = std::bit_cast<float>(seq[i]);
      return;
    }
    return set(op, seq[i]);
  }
  case Op::SeqSlice: {
    const std::vector<int32_t> &seq = operand(op, 0).seq;
    auto length = static_cast<int32_t>(seq.size());
    int32_t lo = std::clamp(operand(op, 1).i, 0, length);
    int32_t hi = std::clamp(operand(op, 2).i, 0, length);
    std::vector<int32_t> part;
    if (lo < hi)
      part.assign(seq.begin() + lo, seq.begin() + hi);
    result(op).seq = std::move(part);
    return;
  }
  case Op::SeqConcat: {
    std::vector<int32_t> joined = operand(op, 0).seq;
    const std::vector<int32_t> &tail = operand(op, 1).seq;
    joined.insert(joined.end(), tail.begin(), tail.end());
    result(op).seq = std::move(joined);
    return;
  }
  case Op::SeqMake: {
    std::vector<int32_t> made;
    for (ir::Value v : op.operands)
      made.push_back(value(v).i);
    result(op).seq = std::move(made);
    return;
  }
  default:
    result(op).seq = lookup(op);
  }
}

/// The longest suffix of n = ngram..1 tokens that occurred before, its most
/// recent earlier occurrence, up to `width` following tokens.
std::vector<int32_t> Control::lookup(const Operation &op) {
  std::vector<int32_t> s = operand(op, 0).seq;
  int64_t width = std::max(operand(op, 1).i, 0);
  if (int64_t capacity = program.module.type(op.result()).size; capacity > 0)
    width = std::min(width, capacity);
  auto following = [&](const std::vector<int32_t> &from, int64_t first) {
    auto length = static_cast<int64_t>(from.size());
    first = std::min(first, length);
    return std::vector<int32_t>(from.begin() + first, from.begin() + std::min(first + width, length));
  };
  const auto &oracle = machine.options.oracleDrafts;
  if (static_cast<size_t>(r.number) < oracle.size()) {
    std::vector<int32_t> proposed = following(oracle[r.number], r.generated());
    proposed.erase(std::find_if(proposed.begin(), proposed.end(), [](int32_t token) { return token < 0; }),
                   proposed.end());
    return proposed;
  }
  auto length = static_cast<int64_t>(s.size());
  for (int64_t n = std::min(op.get<attr::ngram>(), length - 1); n > 0; --n)
    for (int64_t start = length - n - 1; start >= 0; --start)
      if (std::equal(s.end() - n, s.end(), s.begin() + start))
        return following(s, start + n);
  return {};
}

void Control::poolValue(const Operation &op) {
  int index = program.pool(op.name);
  KvShare &kv = r.kv[index];
  switch (op.op) {
  case Op::KvLen:
    return set(op, static_cast<int32_t>(kv.len));
  case Op::KvLag:
    return set(op, static_cast<int32_t>(static_cast<int64_t>(r.tokens.size()) - kv.len));
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
  int32_t n = operand(op, 0).i, count = 0;
  const ir::Region &region = op.region();
  for (int32_t i = 0; i < n; ++i) {
    value(region.args[0]).i = i;
    runRegion(region, 0);
    bool holds = value(region.ops.back().operands[0]).i;
    if (stopAtFirst && !holds)
      break;
    count += holds;
  }
  return count;
}

void Control::setField(const Operation &op) {
  int index = program.field(op.name);
  const ir::Type &type = program.fields[index].type;
  if (type.kind == ir::Type::Seq && type.size > 0 && static_cast<int64_t>(operand(op, 0).seq.size()) > type.size)
    throw FaultSignal{Fault::CorruptField, op.loc};
  r.fields[index] = operand(op, 0);
}

void Control::append(const Operation &op) {
  int32_t count = 0;
  for (int32_t token : operand(op, 0).seq) {
    if (r.finished())
      break;
    if (machine.options.keepLogits) {
      const std::vector<float> *line = r.nextLogits();
      r.result.logits.push_back(line ? *line : std::vector<float>());
    }
    r.tokens.push_back(token);
    r.sawEos = r.input->endsWith(token);
    ++count;
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
