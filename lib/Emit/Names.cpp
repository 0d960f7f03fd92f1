#include "Names.h"
#include "Tensor.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::emit {

namespace attr = ir::attr;

std::string vectorAddress(const Names &names, const plan::Vector &v) {
  return fmt::format("packedVector({}, {}{})", names.params(), v.offset,
                     v.layers ? fmt::format(" + layer * {}ll", v.bytes) : "");
}

void emitModelFacts(CodeWriter &w, const ir::Module &module) {
  const auto list = [&](const char *name, auto value) {
    std::string all;
    for (const ir::Operation *model : ir::modelsByNumber(module))
      all += (all.empty() ? "" : ", ") + std::to_string(value(*model, module.find(ir::Op::Pool, model->name)));
    w.line("static constexpr int {}[] = {{{}}};", name, all);
  };
  list("vocab", [](const ir::Operation &model, const ir::Operation *) { return model.get<attr::vocab>(); });
  list("pages", [](const auto &, const ir::Operation *pool) { return pool ? pool->get<attr::pages>() : 0; });
  list("pageTokens", [](const auto &, const ir::Operation *pool) { return pool ? pool->get<attr::page_tokens>() : 1; });
}

int partsOf(const ir::Operation &weight) {
  const WeightScheme scheme = ir::schemeOf(weight);
  return !scheme.quantised() ? 1 : scheme.zeros ? 3 : 2;
}

std::map<std::string, int> weightIndices(const ir::Operation &model) {
  std::map<std::string, int> index, ofTensor;
  int next = 0;
  for (const ir::Operation &op : model.region().ops) {
    if (op.op != ir::Op::Weight || op.has<attr::alias>())
      continue;
    const auto [at, isNew] = ofTensor.try_emplace(op.get<attr::from>(), next);
    index[op.name] = at->second;
    if (isNew)
      next += ir::tensorsOf(op) * partsOf(op);
  }
  for (const ir::Operation &op : model.region().ops)
    if (op.op == ir::Op::Weight && op.has<attr::alias>())
      index[op.name] = index.at(op.get<attr::alias>());
  return index;
}

/// The keywords of C++20, and its other spellings of operators: all of them.
static bool isKeyword(llvm::StringRef word) {
  static const std::set<llvm::StringRef> words = {
      "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
      "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
      "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
      "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
      "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
      "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
      "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
      "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
      "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
      "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
      "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
      "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
      "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
      "xor_eq"};
  return words.count(word);
}

/// Letters, digits and `_`, first a letter. `w[:, 0]` becomes `w_0_`.
static std::string wordOf(llvm::StringRef name) {
  std::string out;
  const auto fits = [](char c) { return llvm::isAlnum(c) || c == '_'; };
  for (size_t i = 0; i < name.size(); ++i)
    if (fits(name[i]))
      out += name[i];
    else if (i == 0 || fits(name[i - 1]))
      out += '_';
  return !out.empty() && llvm::isAlpha(out[0]) ? out : "v" + out;
}

std::string cppName(llvm::StringRef name) {
  const std::string word = wordOf(name);
  return isKeyword(word) ? word + "_" : word;
}

static std::string camelCase(llvm::StringRef name, bool upper) {
  std::string out;
  for (char c : name) {
    if (!llvm::isAlnum(c)) {
      upper = upper || !out.empty();
      continue;
    }
    out += upper ? llvm::toUpper(c) : out.empty() ? llvm::toLower(c) : c;
    upper = false;
  }
  return cppName(out);
}

std::string typeName(llvm::StringRef name) { return camelCase(name, true); }
std::string functionName(llvm::StringRef name) { return camelCase(name, false); }
std::string localName(llvm::StringRef name) { return wordOf(name) + "_"; }

std::string NameSet::claim(const std::string &name) {
  std::string candidate = name;
  for (unsigned i = 2; !taken.insert(candidate).second; ++i)
    candidate = name + std::to_string(i);
  return candidate;
}

std::string Locals::variable(llvm::StringRef hint, llvm::StringRef otherwise, llvm::StringRef more) {
  return names.claim((hint.empty() ? otherwise.str() : word(hint)) + more.str());
}

ControlNames::ControlNames(const ir::Module &module) {
  const auto nameAll = [&](ir::Op op, std::map<std::string, std::string> &of) {
    NameSet place;
    for (const ir::Operation *declaration : module.all(op))
      of[declaration->name] = place.claim(cppName(declaration->name));
  };
  nameAll(ir::Op::Field, fields);
  nameAll(ir::Op::Input, inputs);
  nameAll(ir::Op::State, states);
  nameAll(ir::Op::Metric, metrics);
  nameAll(ir::Op::Gauge, gauges);
  NameSet ofPools;
  for (const ir::Operation *pool : module.all(ir::Op::Pool))
    pools[pool->name] = ofPools.claim(typeName(pool->name));
  const auto ticks = module.all(ir::Op::Tick);
  assert(ticks.size() == 1 && "control is emitted from the tick level");
  const std::vector<ir::Operation> &tick = ticks.front()->region().ops;
  std::map<std::string, unsigned> calls, resumes, callNumber; // of a stage
  for (const ir::Operation &part : tick)
    if (part.op == ir::Op::Part && part.has<attr::before_site>())
      ++calls[part.get<attr::stage>()];
  NameSet ofStages, ofCalls;
  for (const ir::Operation &part : tick) {
    std::string &name = parts.emplace_back();
    if (part.op != ir::Op::Part)
      continue;
    const std::string &stage = part.get<attr::stage>();
    name = functionName(stage);
    if (calls[stage] > 0)
      name += part.has<attr::after_site>() ? "Resume" : "Issue";
    if (part.has<attr::after_site>() && calls[stage] > 1)
      name += std::to_string(++resumes[stage]);
    name = ofStages.claim(name);
    if (part.has<attr::before_site>())
      sites[part.get<attr::before_site>()] =
          ofCalls.claim(typeName(stage) + (calls[stage] > 1 ? std::to_string(++callNumber[stage]) : ""));
    const ir::Operation &end = part.region().ops.back();
    if (end.op == ir::Op::Enter && !sites.count(end.get<attr::inside>())) {
      sites[end.get<attr::inside>()] = ofCalls.claim(typeName(stage) + "Round");
      sites[end.get<attr::outside>()] = ofCalls.claim(typeName(stage) + "After");
    }
  }
}

Names::Names(const ir::Operation &model, const plan::Plan &plan, int number)
    : number(number), pool(typeName(plan.models[number].name)) {
  const plan::ModelPlan &planned = plan.models[number];
  if (plan.models.size() > 1)
    space = "models::" + localName(planned.name);
  NameSet ofMatrices, ofBuffers{"Buffers", "Images", "Counters"}, ofPhases;
  for (const ir::Operation &op : model.region().ops)
    if (op.op == ir::Op::Weight)
      weights[op.name] = locals.variable(op.name);
  for (const plan::Matrix &m : planned.matrices)
    matrices.push_back(ofMatrices.claim(typeName(m.name)));
  for (const plan::Buffer &b : planned.buffers) // a member cannot have its struct's name
    buffers.push_back(ofBuffers.claim(cppName(b.name)));
  for (size_t i = 0; i < planned.segments.size(); ++i) {
    const std::string role = i == 0 ? "Body" : i == 1 ? "Head" : fmt::format("Head{}", i);
    const std::string base = cppName(planned.name) + role;
    segments.push_back({role, ofPhases.claim(base), ofPhases.claim(base + "Windows")});
  }
  for (size_t i = 0; i < planned.segments.size(); ++i)
    planned.segments[i].forEach([&](const plan::Phase &phase, bool) {
      phases[&phase] = ofPhases.claim(segments[i].function + typeName(phase.name));
      if (phase.makes)
        makers[&phase] = ofPhases.claim(phases[&phase] + "Made");
    });
}

std::string Names::rows(const plan::ModelPlan &planned, const plan::Place &place) const {
  const std::string instance = place.instance == plan::Place::First   ? "0"
                               : place.instance == plan::Place::Layer ? "layer"
                               : place.instance == plan::Place::Next
                                   ? "layer + 1"
                                   : std::to_string(planned.buffers[place.buffer].instances - 1);
  return fmt::format("{}({})", buffers[place.buffer], instance);
}

} // namespace megalith::emit
