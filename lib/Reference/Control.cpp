#include "Control.h"
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

/// A clock as pipelines read it: after 24 days it stands still.
static int32_t milliseconds(int64_t clock) { return static_cast<int32_t>(std::min<int64_t>(clock, INT32_MAX)); }

Control::Flow Control::runRegion(const ir::Region &region, size_t first) {
  for (size_t i = first; i < region.ops.size(); ++i)
    if (Flow flow = runOp(region.ops[i]); flow != Flow::End)
      return flow;
  return Flow::End;
}

Control::Flow Control::runOp(const Operation &op) {
  if (isOverRange(op.op)) {
    over(op);
    return Flow::End;
  }
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
  case Op::Choose:
    choose(op);
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
  case Op::Order: // is evaluated where the request begins to wait
    return Flow::End;
  case Op::Call:
  case Op::Issue:
    suspend(op);
    return Flow::Suspended;
  case Op::Enter: // as if a call had been served
    r.call = {};
    r.call.op = &op;
    r.call.site = operand(op, 0).i ? op.get<attr::inside>() : op.get<attr::outside>();
    r.call.since = tick;
    r.call.served = true;
    return Flow::Suspended;
  default:
    compute(op);
  }
  return Flow::End;
}

void Control::compute(const Operation &op) {
  switch (op.op) {
  case Op::Results: {
    const auto index = static_cast<size_t>(op.get<attr::index>());
    if (index >= r.call.results.size() || r.call.site != op.get<attr::site>())
      throw NotExecutable(fmt::format("no results of site {}", op.get<attr::site>()));
    result(op) = r.call.results[index];
    break;
  }
  case Op::Tokens:
  case Op::Eos:
  case Op::IsEos:
  case Op::Budget:
  case Op::Finished:
  case Op::PromptLen:
  case Op::Priority:
  case Op::Seated:
  case Op::Host:
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
  case Op::Forced:
    forced(op);
    break;
  case Op::KvLen:
  case Op::KvLag:
  case Op::KvDrafts:
  case Op::KvFound:
  case Op::KvLive:
  case Op::KvPages:
  case Op::KvPressure:
  case Op::KvKeep:
    poolValue(op);
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
    if (machine.options.live) {
      std::vector<int64_t> &times = machine.increments.at(op.name);
      ++times[std::clamp<int64_t>(operand(op, 0).i, 0, std::ssize(times) - 1)];
    }
    break;
  case Op::Trace:
    r.gauges[op.name] = isF32(op.operands[0]) ? double(operand(op, 0).f) : double(operand(op, 0).i);
    break;
  default:
    arithmetic(op);
  }
}

int32_t Control::hostNumber(ir::HostNumber number) const {
  switch (number) {
  case ir::HostNumber::Tick:
    return static_cast<int32_t>(tick);
  case ir::HostNumber::NowMs:
    return milliseconds(machine.nowMs);
  case ir::HostNumber::Arrived:
    return static_cast<int32_t>(r.arrived);
  case ir::HostNumber::ArrivedMs:
    return milliseconds(r.arrivedMs);
  case ir::HostNumber::DeadlineMs:
    return r.input->deadlineMs;
  }
  return 0;
}

void Control::requestValue(const Operation &op) {
  switch (op.op) {
  case Op::Tokens:
    result(op).seq = r.tokens;
    break;
  case Op::Eos:
    result(op).seq = r.input->eos.value_or(std::vector<int32_t>());
    break;
  case Op::IsEos:
    set(op, r.input->eos && llvm::is_contained(*r.input->eos, operand(op, 0).i));
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
  case Op::Host:
    set(op, hostNumber(op.get<attr::number>()));
    break;
  case Op::InputGet:
    result(op) = r.inputs[program.input(op.name)];
    break;
  case Op::Sampling: {
    const ir::Operand setting = op.get<attr::setting>();
    const Sampling &s = r.input->sampling;
    if (setting == ir::Operand::TopK)
      return set(op, s.topK);
    result(op).f = setting == ir::Operand::Temperature ? s.temperature : setting == ir::Operand::TopP ? s.topP : s.minP;
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
  case Op::KvFound:
    return set(op, static_cast<int32_t>(kv.found));
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
    const auto outside = [&](int64_t index) {
      return FaultSignal{Fault::IndexRange, op.loc, {static_cast<int32_t>(index), static_cast<int32_t>(fed)}};
    };
    if (static_cast<int64_t>(rows.size()) > fed)
      throw outside(static_cast<int64_t>(rows.size()));
    for (const int32_t row : rows)
      if (row < 0 || row >= fed)
        throw outside(row);
    machine.moveRows(r, pool, rows, op.loc);
  }
  keep(pool, kept);
}

void Control::keep(int index, int64_t count) {
  KvShare &kv = r.kv[index];
  kv.drafts = 0;
  kv.len = kv.end = std::max<int64_t>(0, std::min(kv.end, count));
  if (firstPageSeen(program.pools[index], kv.len) >= kv.first)
    return;
  // The rows after would see a page that was given back: all of them are to be fed again, into the pages that are
  // left.
  kv.len = kv.end = kv.first = 0;
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
  std::optional<int32_t> stranger, refused; // what is no token; what the format does not have there
  const std::vector<int32_t> given = operand(op, 0).seq;
  const std::vector<int32_t> stop = op.operands.size() > 1 ? operand(op, 1).seq : std::vector<int32_t>();
  for (int32_t token : given) {
    if (r.finished())
      break;
    if (token < 0 || token >= program.vocab) {
      stranger = token;
      break;
    }
    const bool ends = r.format() && r.input->eos && llvm::is_contained(*r.input->eos, token);
    const uint16_t state = r.format() && !ends ? r.format()->step(r.formatState, token) : r.formatState;
    if (r.format() && !(ends ? r.format()->isComplete(state) : state != automata::Automaton::Dead)) {
      refused = token;
      break;
    }
    if (machine.options.keepLogits || r.keepLogits) {
      const std::vector<float> *line = r.nextLogits();
      r.result.logits.push_back(line ? *line : std::vector<float>());
    }
    r.tokens.push_back(token);
    r.formatState = state;
    r.sawEos = r.input->endsIn(r.tokens) || (r.format() && r.format()->isFinal(state));
    ++count;
    if (!stop.empty() && stop.size() <= r.tokens.size() && std::equal(stop.rbegin(), stop.rend(), r.tokens.rbegin()))
      break;
  }
  if (count > 0)
    r.result.appends.push_back({tick, count});
  if (refused)
    throw FaultSignal{Fault::Format, op.loc, {*refused, static_cast<int32_t>(r.generated())}};
  if (stranger == -1 && r.input->sampling.edits())
    throw FaultSignal{Fault::NoToken, op.loc};
  if (stranger)
    throw FaultSignal{Fault::TokenRange, op.loc, {*stranger, static_cast<int32_t>(program.vocab)}};
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
  r.call.ownPass = program.inLoops.count(r.call.site) ? r.call.site : -1;
  takeRows(op);
  for (const Operation &reduce : ir::reducersOf(op))
    r.call.reducers.push_back(inputOf(reduce));
}

/// What the call feeds, and how its rows hang together.
void Control::takeRows(const Operation &op) {
  const KvShare &kv = r.kv[r.call.pool];
  r.call.begin = kv.len + (op.get<attr::kv>() == ir::KvUse::Draft ? kv.drafts : 0);
  const std::vector<int32_t> &tokens = operand(op, 0).seq;
  const auto count = static_cast<int64_t>(tokens.size());
  const auto fault = [&](Fault code, int64_t first, int64_t second) {
    return FaultSignal{code, op.loc, {static_cast<int32_t>(first), static_cast<int32_t>(second)}};
  };
  if (const int64_t most = op.get<attr::most>(); most > 0 && count > most)
    throw fault(Fault::TooManyRows, count, most);
  const ir::Value parents = ir::operandNamed(op, ir::Operand::Parents),
                  visible = ir::operandNamed(op, ir::Operand::Visible);
  const bool ofEach = visible && program.module.type(visible).kind == ir::Type::Seq;
  for (ir::Value v : {parents, ofEach ? visible : ir::Value()})
    if (v && static_cast<int64_t>(value(v).seq.size()) != count)
      throw fault(Fault::IndexRange, static_cast<int64_t>(value(v).seq.size()), count);
  const int64_t earlier = r.call.begin - kv.len; // rows of the run
  for (int64_t i = 0; parents && i < count; ++i)
    if (const int64_t parent = value(parents).seq[i]; parent < -1 || parent >= earlier + i)
      throw fault(Fault::IndexRange, parent, earlier + i);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t parent = parents ? value(parents).seq[i] : earlier + i - 1;
    const int64_t place = kv.len + parent;
    const int64_t position = parent < 0             ? kv.len
                             : place < r.call.begin ? kv.fed[place].position + 1
                                                    : r.call.feed[place - r.call.begin].position + 1;
    const int64_t seen = !visible ? position + 1 : ofEach ? value(visible).seq[i] : value(visible).i;
    // No row sees one after those of its call.
    if (seen < 1 || seen > position - i + count)
      throw fault(Fault::IndexRange, seen, position - i + count);
    r.call.feed.push_back(
        {tokens[i], static_cast<int32_t>(place), static_cast<int32_t>(position), static_cast<int32_t>(seen)});
  }
}

ReducerInput Control::inputOf(const Operation &reduce) {
  ReducerInput input;
  input.with.reducer = ir::reducerOf(reduce).id;
  input.with.probs = reduce.get<attr::part>() == ir::ReducerPart::Prob;
  input.table = reduce.has<attr::n>();
  input.result = reduce.get<attr::result>();
  input.kept = reduce.get<attr::kept>();
  input.minus = reduce.get<attr::minus>();
  input.keep = reduce.get<attr::keep>();
  input.edited = reduce.has<attr::edited>() && r.input->sampling.edits();
  input.with.n = static_cast<int32_t>(reduce.get<attr::n>());
  input.with.runSeed = machine.options.seed;
  input.with.requestSeed = r.input->seed();
  const std::vector<ir::Operand> names = reduce.get<attr::with>();
  const auto numbersOf = [](const Val &v) {
    std::vector<float> numbers;
    for (const int32_t word : v.seq)
      numbers.push_back(std::bit_cast<float>(word));
    return numbers;
  };
  for (size_t i = 0; i < names.size(); ++i) {
    const Val &v = operand(reduce, i);
    const bool ofEach = program.module.type(reduce.operands[i]).isList();
    using enum ir::Operand;
    switch (names[i]) {
    case First:
      input.first = v.i;
      break;
    case Last:
      input.last = v.i;
      break;
    case Tokens:
      input.tokens = v.seq;
      break;
    case Temperature:
      if (ofEach)
        input.temperatures = numbersOf(v);
      else
        input.with.temperature = v.f;
      break;
    case TopK:
      input.with.topK = v.i;
      break;
    case TopP:
      input.with.topP = v.f;
      break;
    case MinP:
      input.with.minP = v.f;
      break;
    case Noise:
      if (ofEach)
        input.noises = v.seq;
      else
        input.with.noise = v.i;
      break;
    case Ahead:
      input.ahead = v.i;
      break;
    case Minus:
      input.minusRows = static_cast<int64_t>(v.seq.size());
      break;
    case Kept:
      input.keptRows = static_cast<int64_t>(v.seq.size());
      break;
    case At:
      input.at = v.i;
      break;
    case Only:
    case Without: {
      const bool table = program.module.type(reduce.operands[i]).kind == ir::Type::Table;
      (names[i] == Only ? input.only : input.without) =
          table ? ReducerInput::Tokens{v.rows, true} : ReducerInput::Tokens{{v.seq}, false};
      break;
    }
    case Bias:
      input.bias = v.seq;
      break;
    case By:
      input.by = numbersOf(v);
      break;
    case From:
    case Ngram:
    case Parents:
    case Visible: // of no reducer
      break;
    }
  }
  return input;
}

/// The longest suffix of n = ngram..1 tokens that occurred before, its most
/// recent earlier occurrence, up to `width` following tokens. Of a table: so many occurrences, with distinct
/// following tokens, in this order.
void Control::lookup(const Operation &op) {
  const std::vector<int32_t> s = operand(op, 0).seq;
  const ir::Type &type = program.module.type(op.result());
  const bool table = type.kind == ir::Type::Table;
  const ir::Value of = ir::operandNamed(op, ir::Operand::From), bound = ir::operandNamed(op, ir::Operand::Ngram);
  const std::vector<int32_t> *from = of ? &value(of).seq : nullptr;
  const int64_t ngram = bound ? std::min<int64_t>(op.get<attr::ngram>(), value(bound).i) : op.get<attr::ngram>();
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

/// Drafts along the text about which the request's format leaves no choice, up to one that may not come.
void Control::forced(const Operation &op) {
  Val all;
  const Sampling &s = r.input->sampling;
  const int64_t width = std::min<int64_t>(
      {operand(op, 0).i, program.module.type(op.result()).size, static_cast<int64_t>(r.budget()) - 1});
  if (const automata::TokenFormat *format = r.format())
    for (uint16_t state = r.formatState; state != automata::Automaton::Dead && std::ssize(all.seq) < width;) {
      const int32_t token = format->likely[state];
      if (token < 0 || llvm::is_contained(s.banned, token) || (s.allowed && !llvm::is_contained(*s.allowed, token)) ||
          (r.input->eos && llvm::is_contained(*r.input->eos, token)))
        break;
      all.seq.push_back(token);
      state = format->step(state, token);
    }
  result(op) = std::move(all);
}

std::vector<int64_t> Control::keysOf(const Operation &order) {
  runRegion(order.region(), 0);
  std::vector<int64_t> keys;
  for (ir::Value v : order.region().ops.back().operands) {
    if (!isF32(v)) {
      keys.push_back(value(v).i);
      continue;
    }
    // The bits of an f32 order as it does where its sign is taken apart; -0 is 0.
    const float f = value(v).f + 0.0f;
    const auto bits = static_cast<int64_t>(std::bit_cast<uint32_t>(f));
    keys.push_back(f != f ? INT64_MAX : bits >> 31 ? -(bits & 0x7fffffff) : bits);
  }
  return keys;
}

std::vector<int64_t> reference::orderKeys(Machine &machine, Running &r, const Operation &order, int64_t tick) {
  const bool hadNone = r.env.empty();
  std::vector<int64_t> keys = Control(machine, r, tick).keysOf(order);
  if (hadNone)
    r.env = {};
  return keys;
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
