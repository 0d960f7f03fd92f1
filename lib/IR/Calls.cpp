#include "megalith/IR/Calls.h"
#include "megalith/Contract/Limits.h"
#include "megalith/IR/Reducers.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

namespace megalith::ir {

int64_t mostRows(const Module &module, const Operation &call) {
  int64_t pass = module.find(Op::Param, "rows_per_pass") ? module.param("rows_per_pass") : INT64_MAX;
  if (call.get<attr::chunk>() == 0 && !call.has<attr::last_row>() &&
      (call.operands.size() > 1 || !reducersOf(call).empty()))
    pass = std::min<int64_t>(pass, limits::readRows);
  const int64_t rows = mostRows(module.type(call.operands[0]), call.get<attr::chunk>(), call.get<attr::most>());
  return rows > 0 ? std::min(rows, pass) : pass;
}

int64_t rowsBeside(const Module &module) {
  for (const char *name : {"rows_beside", "rows_per_pass"})
    if (module.find(Op::Param, name))
      return module.param(name);
  return 0;
}

int64_t mostRows(const Type &fed, int64_t chunk, int64_t most) {
  int64_t rows = fed.size;
  for (const int64_t bound : {chunk, most})
    if (bound > 0)
      rows = rows > 0 ? std::min(rows, bound) : bound;
  return rows;
}

llvm::ArrayRef<Operation> reducersOf(const Operation &call) {
  return call.regions.empty() ? llvm::ArrayRef<Operation>() : llvm::ArrayRef<Operation>(call.region().ops);
}

bool isBestOfRows(const Operation &call, const Operation &reduce) {
  return reducerOf(reduce).id == Reducer::ArgMax && (reduce.operands.empty() || call.has<attr::last_row>()) &&
         readsLogits(reduce) && reduce.get<attr::kept>().empty() && reduce.get<attr::keep>().empty();
}

/// What a `reduce` reads that names no result of its model.
static constexpr llvm::StringRef logits = "logits";

bool readsLogits(const Operation &reduce) { return reduce.get<attr::result>() == logits; }

Value operandNamed(const Operation &op, Operand name) {
  const std::vector<Operand> names = op.get<attr::with>();
  const auto it = llvm::find(names, name);
  return it == names.end() ? Value() : op.operands[op.operands.size() - (names.end() - it)];
}

bool choosesRows(Operand operand) {
  return operand == Operand::First || operand == Operand::Last || operand == Operand::Tokens ||
         operand == Operand::Kept;
}

const Operation *enterOf(const Operation &op) {
  const bool enters = op.op == Op::Part && !op.region().ops.empty() && op.region().ops.back().op == Op::Enter;
  return enters ? &op.region().ops.back() : nullptr;
}

std::vector<int64_t> roundsOfEntries(const Operation &tick) {
  std::vector<int64_t> rounds;
  std::map<int64_t, const Operation *> outer; // enters outside of loops, by `inside`: others may follow them
  std::vector<std::pair<const Operation *, int64_t>> around; // loops: an `enter`, and the rounds with all around it
  for (const Operation &op : tick.region().ops) {
    const int64_t after = op.op == Op::Part ? op.get<attr::after_site>() : -1;
    while (after >= 0 && !around.empty() && around.back().first->get<attr::outside>() == after)
      around.pop_back();
    if (const auto entry = outer.find(after); after >= 0 && entry != outer.end() && op.has<attr::loop>())
      around.emplace_back(entry->second, entry->second->get<attr::rounds>());
    rounds.push_back(around.empty() ? 1 : around.back().second);
    const Operation *enter = enterOf(op);
    if (enter && !op.has<attr::loop>())
      outer[enter->get<attr::inside>()] = enter;
    else if (enter && !around.empty() && around.back().first->get<attr::inside>() != enter->get<attr::inside>())
      around.emplace_back(enter, rounds.back() * enter->get<attr::rounds>());
  }
  return rounds;
}

bool hasLoops(const Module &module) {
  return llvm::any_of(module.all(Op::Tick), [](const Operation *tick) {
    return llvm::any_of(tick->region().ops, [](const Operation &op) { return enterOf(op); });
  });
}

bool loopsNest(const Module &module) {
  std::set<int64_t> loops, entries;
  for (const Operation *tick : module.all(Op::Tick))
    for (const Operation &op : tick->region().ops)
      if (const Operation *enter = enterOf(op); enter && op.has<attr::loop>()) {
        loops.insert(op.get<attr::loop>());
        entries.insert(enter->get<attr::inside>());
      }
  return entries.size() > loops.size();
}

/// The calls of a module: fn(call or issue, what stage it stands in, how often a run of the stage makes it at most).
template <class Fn> static void forEachCall(const Module &module, Fn fn) {
  for (const Operation *stage : module.all(Op::Stage))
    forEachInRounds(stage->region(), [&](const Operation &op, int64_t rounds) {
      if (op.op == Op::Call)
        fn(op, stage->name, rounds);
    });
  for (const Operation *tick : module.all(Op::Tick)) {
    const std::vector<int64_t> rounds = roundsOfEntries(*tick);
    size_t index = 0;
    for (const Operation &part : tick->region().ops) {
      const int64_t often = rounds[index++];
      if (part.op == Op::Part)
        for (const Operation &op : part.region().ops)
          if (isCall(op.op))
            fn(op, part.get<attr::stage>(), often);
    }
  }
}

int64_t callTokens(const Module &module, llvm::StringRef model) {
  std::map<std::string, int64_t> calls; // of a stage
  int64_t most = 1;
  forEachCall(module, [&](const Operation &call, const std::string &stage, int64_t rounds) {
    if (model.empty() || call.name == model)
      most = std::max(most, calls[stage] += rounds);
  });
  return most * (module.find(Op::Param, "rows_per_pass") ? module.param("rows_per_pass") : 0);
}

bool mayBeTrees(const Module &module, llvm::StringRef model) {
  bool some = false;
  const auto keepsPath = [&](const Operation &op) {
    some |= op.op == Op::KvKeep && op.name == model && op.operands.size() > 1;
  };
  for (Op kind : {Op::Stage, Op::Tick})
    for (const Operation *code : module.all(kind))
      walk(code->region(), keepsPath);
  forEachCall(module, [&](const Operation &call, const std::string &, int64_t) {
    some |= call.name == model && !call.get<attr::with>().empty();
  });
  return some;
}

bool draftsContinue(const Module &module, llvm::StringRef model) {
  std::map<std::string, int64_t> calls; // of a stage
  bool some = mayBeTrees(module, model);
  forEachCall(module, [&](const Operation &call, const std::string &stage, int64_t rounds) {
    if (call.name == model && call.get<attr::kv>() == KvUse::Draft)
      some |= (calls[stage] += rounds) > 1;
  });
  walk(module.root.region(), [&](const Operation &op) { some |= op.op == Op::KvDrafts && op.name == model; });
  return some;
}

/// Whether a sequence begins with `tokens[len(tokens) - 1]`, the request's last token. `made`: what makes each value.
static bool beginsWithLast(const std::map<Value, const Operation *> &made, Value sequence) {
  const auto by = [&](Value value, Op op) { // the operation, if it is such
    const auto it = made.find(value);
    return it != made.end() && it->second->op == op ? it->second : nullptr;
  };
  while (const Operation *both = by(sequence, Op::SeqConcat))
    sequence = both->operands[0];
  const Operation *list = by(sequence, Op::SeqMake);
  const Operation *first = list && !list->operands.empty() ? by(list->operands[0], Op::SeqAt) : nullptr;
  const Operation *index = first && by(first->operands[0], Op::Tokens) ? by(first->operands[1], Op::Sub) : nullptr;
  const Operation *length = index ? by(index->operands[0], Op::SeqLen) : nullptr;
  const Operation *one = index ? by(index->operands[1], Op::Const) : nullptr;
  return length && by(length->operands[0], Op::Tokens) && one && one->get<attr::value>().whole() == 1;
}

std::string whyNoPromptRows(const Module &module, llvm::StringRef model) {
  std::map<Value, const Operation *> made;
  walk(module.root.region(), [&](const Operation &op) {
    for (Value result : op.results)
      made[result] = &op;
  });
  bool feeds = false;
  const Operation *drafts = nullptr, *large = nullptr;
  forEachCall(module, [&](const Operation &call, const std::string &, int64_t) {
    if (call.name != model || beginsWithLast(made, call.operands[0]))
      return;
    if (call.get<attr::kv>() != KvUse::Draft && call.get<attr::chunk>() == 0 && !call.has<attr::last_row>() &&
        mostRows(module, call) > limits::readRows)
      large = large ? large : &call;
    else if (call.get<attr::kv>() != KvUse::Draft)
      feeds = true;
    else
      drafts = drafts ? drafts : &call;
  });
  if (large)
    return fmt::format("it feeds `{}` more than {} rows at once ({}); `chunk=` cuts them", model.str(),
                       limits::readRows, module.place(large->loc));
  if (feeds)
    return "";
  if (drafts)
    return fmt::format("it feeds prompts to `{}` by calls with `kv=draft` ({})", model.str(),
                       module.place(drafts->loc));
  return fmt::format("it feeds `{}` no prompt", model.str());
}

std::vector<const Operation *> keptFields(const Module &module) {
  std::vector<const Operation *> fields;
  for (const Operation *field : module.all(Op::Field))
    if (field->get<attr::logits>())
      fields.push_back(field);
  return fields;
}

int64_t mostVocab(const Module &module) {
  int64_t most = 0;
  for (const Operation *model : module.all(Op::Model))
    most = std::max(most, model->get<attr::vocab>());
  return most;
}

int64_t keptVocab(const Module &module, const Operation *&other) {
  int64_t vocab = 0;
  forEachCall(module, [&](const Operation &call, const std::string &, int64_t) {
    const Operation *model = module.find(Op::Model, call.name);
    for (const Operation &reduce : reducersOf(call)) {
      if (!model || reduce.get<attr::keep>().empty())
        continue;
      if (vocab != 0 && vocab != model->get<attr::vocab>())
        other = other ? other : &reduce;
      vocab = vocab ? vocab : model->get<attr::vocab>();
    }
  });
  return vocab;
}

int64_t earlierRows(const Module &module, llvm::StringRef model) {
  if (!mayBeTrees(module, model))
    return 0;
  std::map<std::string, int64_t> rows; // of drafts
  int64_t most = 0;
  forEachCall(module, [&](const Operation &call, const std::string &stage, int64_t rounds) {
    if (call.name != model || call.get<attr::kv>() != KvUse::Draft)
      return;
    const int64_t each = mostRows(module, call);
    rows[stage] += rounds * each;
    most = std::max(most, rows[stage] - each); // after the last call
  });
  return most;
}

/// fn(call, reduce) for all reducers of the module's calls.
template <class Fn> static void everyReducer(const Module &module, Fn fn) {
  walk(module.root.region(), [&](const Operation &call) {
    if (call.op == Op::Call || call.op == Op::Issue)
      for (const Operation &reduce : reducersOf(call))
        fn(call, reduce);
  });
}

std::string whyNoEdits(const Module &module, bool byText) {
  std::map<uint32_t, int64_t> constants;
  walk(module.root.region(), [&](const Operation &op) {
    if (op.op == Op::Const)
      constants[op.result().id] = op.get<attr::value>().whole();
  });
  const std::string first = modelsByNumber(module)[0]->name;
  std::string why;
  bool some = false;
  everyReducer(module, [&](const Operation &call, const Operation &reduce) {
    some |= reduce.has<attr::edited>();
    const Value ahead = operandNamed(reduce, Operand::Ahead);
    const auto known = ahead ? constants.find(ahead.id) : constants.end();
    const bool givesTokens = reducerOf(reduce).result == Scalar::Token && reduce.get<attr::keep>().empty() &&
                             reduce.get<attr::part>() == ReducerPart::Token;
    if (!why.empty())
      return;
    if (call.name == first && givesTokens && !reduce.has<attr::edited>())
      why = fmt::format("`{}` in {} takes tokens of `{}` without `sampling`", reduce.name, module.place(reduce.loc),
                        first);
    else if (reduce.has<attr::edited>() && ahead && byText && known == constants.end())
      why = fmt::format("the `ahead` of `{}` in {} is no constant, so it may be below 0, where no text is known",
                        reduce.name, module.place(reduce.loc));
    else if (reduce.has<attr::edited>() && ahead && byText && known->second < 0)
      why = fmt::format("`{}` in {} draws from rows whose text is not known yet (`ahead`)", reduce.name,
                        module.place(reduce.loc));
  });
  return some ? why : "the pipeline draws nothing by the settings of requests; take a file that draws with `sampling`";
}

} // namespace megalith::ir
