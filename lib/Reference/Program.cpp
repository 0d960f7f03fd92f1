#include "Program.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Host.h"
#include "megalith/Requests/Inputs.h"
#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <functional>

using namespace megalith;
using namespace megalith::reference;
using ir::Op;
using ir::Operation;
namespace attr = ir::attr;

Val reference::constantValue(ir::Number number, ir::Type type) {
  Val val;
  if (type.is(ir::Scalar::F32))
    val.f = static_cast<float>(number.real());
  else
    val.i = static_cast<int32_t>(number.isReal() ? number.real() : number.whole());
  return val;
}

Val reference::valueOfInput(const Input &input, const Request &request) {
  Val val;
  if (input.rows) {
    val.rows = inputRows(input, request);
    return val;
  }
  std::vector<int32_t> words = inputWords(input, request);
  if (input.capacity)
    val.seq = std::move(words);
  else if (words.empty())
    throw NotExecutable(fmt::format("request `{}` has no input `{}`", request.id.text, input.name));
  else if (input.type == "f32")
    val.f = std::bit_cast<float>(words[0]);
  else
    val.i = words[0];
  return val;
}

int Program::lookup(const Index &index, const std::string &name) {
  auto it = index.find(name);
  if (it == index.end())
    throw NotExecutable(fmt::format("`{}` is not declared", name));
  return it->second;
}

Program::Program(const ir::Module &module) : module(module) {
  readDeclarations();
  auto ticks = module.all(Op::Tick);
  if (ticks.empty())
    derivePartsFromStages();
  else
    readTick(*ticks.front());
}

void Program::readDeclarations() {
  inputs = ir::inputsOf(module);
  for (size_t i = 0; i < inputs.size(); ++i)
    inputIndex[inputs[i].name] = static_cast<int>(i);
  for (const Operation *op : module.all(Op::Field)) {
    fieldIndex[op->name] = static_cast<int>(fields.size());
    const ir::Type type = ir::declaredType(*op);
    fields.push_back({op->name, type, constantValue(op->get<attr::init>(), type), op->get<attr::logits>()});
  }
  for (const Operation *op : module.all(Op::State)) {
    stateIndex[op->name] = static_cast<int>(states.size());
    states.push_back({op->name, op->loc, op->get<attr::initial>(), op->get<attr::terminal>(), op->get<attr::slot>()});
    if (op->get<attr::initial>())
      initialState = state(op->name);
  }
  faultState = state(module.root.get<attr::fault>());
  const auto ending = [&](const std::string &name) { return name.empty() ? faultState : state(name); };
  cancelState = ending(module.root.get<attr::cancel>());
  deadlineState = ending(module.root.get<attr::deadline>());
  readsHost = ir::readsHost(module);
  for (const Operation *op : module.all(Op::Pool)) {
    poolIndex[op->name] = static_cast<int>(pools.size());
    pools.push_back({op->name, op->loc, op->get<attr::pages>(), op->get<attr::page_tokens>(),
                     op->get<attr::watermark>(), op->get<attr::on_full>() == ir::OnFull::Wait,
                     op->get<attr::rows_beyond>(), op->get<attr::reserve>(), op->get<attr::index_pages>()});
    if (const Operation *model = module.find(Op::Model, op->name)) {
      pools.back().window = model->get<attr::kv_window>();
    }
  }
  if (const auto models = ir::modelsByNumber(module); !models.empty())
    vocab = models.front()->get<attr::vocab>();
  slots = module.param("slots");
  rowsPerPass = module.find(Op::Param, "rows_per_pass") ? module.param("rows_per_pass") : 0;
  rowsBeside = ir::rowsBeside(module);
}

void Program::readTick(const Operation &tick) {
  for (const Operation &op : tick.region().ops) {
    PartInfo part;
    part.name = op.name;
    if (op.op == Op::Pass) {
      part.kind = PartInfo::Pass;
      part.pool = pool(op.name);
      part.loop = op.get<attr::loop>();
      part.callSite = part.loop < 0 || parts.empty() ? -1 : parts.back().beforeSite;
    } else if (op.op == Op::Part) {
      part.state = state(op.get<attr::state>());
      part.kind = op.get<attr::kind>() == ir::PartKind::Admit ? PartInfo::Admit : PartInfo::Slot;
      part.region = &op.region();
      part.limit = op.get<attr::limit>();
      part.order = ir::orderOf(op.region());
      part.afterSite = op.get<attr::after_site>();
      part.loop = op.get<attr::loop>();
      part.beforeSite = op.get<attr::before_site>();
      if (part.loop >= 0 && op.has<attr::before_site>())
        inLoops.insert(part.beforeSite);
    } else {
      continue;
    }
    parts.push_back(part);
  }
}

/// Cuts each stage after its calls. A model's pass stands at its last call; a
/// part after a call moves after that pass; all else keeps file order.
void Program::derivePartsFromStages() {
  struct Item {
    PartInfo part;
    int callPool = -1;  ///< pool of the call that ends the part
    int afterPool = -1; ///< pool of the call that it comes after
  };
  std::vector<Item> items;
  for (const Operation *stage : module.all(Op::Stage)) {
    int on = state(stage->get<attr::on>());
    const std::vector<Operation> &ops = stage->region().ops;
    Item item;
    unsigned number = 0;
    auto begin = [&](size_t first) {
      item.part = {};
      item.part.name = fmt::format("{}.{}", stage->name, number++);
      item.part.state = on;
      item.part.kind = states[on].slot ? PartInfo::Slot : PartInfo::Admit;
      item.part.region = &stage->region();
      item.part.limit = stage->get<attr::limit>();
      item.part.order = ir::orderOf(stage->region());
      item.part.first = first;
      item.callPool = -1;
    };
    begin(0);
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].op == Op::For && ops[i].has<attr::rounds>())
        throw NotExecutable("a loop with calls runs after `form-ticks`");
      if (ops[i].op != Op::Call)
        continue;
      if (!states[on].slot)
        throw NotExecutable(fmt::format("stage `{}` calls a model in a state without slot", stage->name));
      item.callPool = pool(ops[i].name);
      items.push_back(item);
      int called = item.callPool;
      begin(i + 1);
      item.part.afterSite = ops[i].get<attr::site>();
      item.afterPool = called;
    }
    items.push_back(item);
  }

  // A pass follows the part that ends in its model's last call; of several calls of it in a row the first one's.
  std::vector<size_t> trigger(pools.size(), SIZE_MAX);
  for (size_t i = 0; i < items.size(); ++i)
    if (items[i].callPool >= 0)
      trigger[items[i].callPool] = i;
  std::vector<int> inFileOrder, follows(pools.size(), -1);
  for (size_t i = 0; i < items.size(); ++i) {
    const int pool = items[i].callPool;
    if (pool < 0 || trigger[pool] != i)
      continue;
    while (items[trigger[pool]].afterPool == pool)
      --trigger[pool];
    follows[pool] = items[trigger[pool]].afterPool;
    inFileOrder.push_back(pool);
  }
  // Two passes that would follow each other: the first in the file does not wait, but comes after its stage's first
  // part.
  for (int pool : inFileOrder) {
    int next = follows[pool];
    for (size_t steps = 0; next >= 0 && next != pool && steps < pools.size(); ++steps)
      next = follows[next];
    if (next != pool)
      continue;
    follows[pool] = -1;
    while (items[trigger[pool]].afterPool >= 0)
      --trigger[pool];
  }
  // All that continues after a pass comes before another one.
  const auto passesAfter = [&](size_t item) {
    std::vector<int> passes;
    for (int pool : inFileOrder)
      if (trigger[pool] == item)
        passes.push_back(pool);
    return passes;
  };
  const std::function<void(int)> place = [&](int pool) {
    PartInfo pass;
    pass.kind = PartInfo::Pass;
    pass.name = pools[pool].name;
    pass.pool = pool;
    parts.push_back(pass);
    std::vector<int> due;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].afterPool != pool)
        continue;
      parts.push_back(items[i].part);
      for (int next : passesAfter(i))
        due.push_back(next);
    }
    for (int next : due)
      place(next);
  };
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].afterPool >= 0)
      continue;
    parts.push_back(items[i].part);
    for (int pool : passesAfter(i))
      place(pool);
  }
}
