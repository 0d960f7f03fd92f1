#include "megalith/IR/IR.h"
#include "megalith/Text/Text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include <fmt/format.h>

namespace megalith::ir {

namespace {
struct Infos : Trait { // whose words the lines have
  static constexpr OpInfo list[] = {
/// Letters of the Levels column become text by stringification.
#define OP(Enum, Mnemonic, Operands, Results, Regions, Levels, Traits)                                                 \
  {Mnemonic, Operands, Results, Regions, #Levels, Traits},
#include "megalith/IR/Ops.def"
  };
};

#define OP(Enum, Mnemonic, Operands, ...)                                                                              \
  static_assert(elementwiseOperands(Op::Enum) == 0 || elementwiseOperands(Op::Enum) == Operands,                       \
                "IR/Elementwise.def and IR/Ops.def give `" Mnemonic "` different numbers of operands");
#include "megalith/IR/Ops.def"
} // namespace

const OpInfo &opInfo(Op op) { return Infos::list[static_cast<unsigned>(op)]; }
llvm::StringRef mnemonic(Op op) { return opInfo(op).mnemonic; }

std::string Type::str() const {
  std::string name = word(elem);
  switch (kind) {
  case ScalarKind:
    return name;
  case Seq:
    return size ? fmt::format("{}<{}>", name, size) : name + "<>";
  case Table:
    return fmt::format("{}<{}, {}>", name, size, inner);
  case Rows:
    return fmt::format("[R, {}] {}", size, name);
  case Vector:
    return fmt::format("[{}] {}", size, name);
  case Kv:
    return "kv";
  }
  llvm_unreachable("unknown type kind");
}

std::vector<std::string> Operation::flags() const {
  std::vector<std::string> on;
  for (const AttrInfo &info : attributes(op))
    if (const Attr *value = info.kind == AttrKind::Flag ? attrs.find(info.name) : nullptr;
        value && Number(*value).truth())
      on.push_back(info.name);
  return on;
}

Value Module::newValue(Type type, llvm::StringRef hint) {
  values.push_back({type, hint.str()});
  return Value{static_cast<uint32_t>(values.size() - 1)};
}

const Operation *Module::find(Op op, llvm::StringRef name) const {
  if (!root.regions.empty())
    for (const Operation &o : ops())
      if (o.op == op && o.name == name)
        return &o;
  return nullptr;
}

Operation *Module::find(Op op, llvm::StringRef name) {
  return const_cast<Operation *>(std::as_const(*this).find(op, name));
}

std::vector<const Operation *> Module::all(Op op) const {
  std::vector<const Operation *> found;
  if (!root.regions.empty())
    for (const Operation &o : ops())
      if (o.op == op)
        found.push_back(&o);
  return found;
}

std::string Module::path(SourceLoc loc) const {
  if (loc)
    for (const Operation *file : all(Op::File))
      if (file->get<attr::index>() == loc.file)
        return file->get<attr::path>();
  return "";
}

std::string Module::place(SourceLoc loc) const {
  const std::string file = path(loc);
  return file.empty() ? "" : text::utf8(file) + ":" + std::to_string(loc.line);
}

int64_t Module::param(llvm::StringRef name) const {
  const Operation *p = find(Op::Param, name);
  assert(p && "no such param");
  return p->get<attr::value>().whole();
}

Operation &Builder::create(Op op, llvm::ArrayRef<Value> operands, llvm::ArrayRef<Type> results, llvm::StringRef hint) {
  Operation &o = region->ops.emplace_back();
  o.op = op;
  o.operands.assign(operands.begin(), operands.end());
  for (Type t : results)
    o.results.push_back(module.newValue(t, hint));
  o.regions.resize(opInfo(op).regions < 0 ? 1 : opInfo(op).regions);
  o.loc = loc;
  return o;
}

Value Builder::constant(int64_t v, Scalar type) {
  std::string hint = v < 0 ? fmt::format("cm{}", -static_cast<uint64_t>(v)) : fmt::format("c{}", v);
  Operation &o = create(Op::Const, {}, {Type::scalar(type)}, hint);
  o.set<attr::value>(v);
  return o.result();
}

Value Builder::constant(double v, Scalar type) {
  Operation &o = create(Op::Const, {}, {Type::scalar(type)}, "k");
  o.set<attr::value>(v);
  return o.result();
}

void walk(Region &region, llvm::function_ref<void(Operation &)> f) {
  for (Operation &op : region.ops) {
    f(op);
    for (Region &r : op.regions)
      walk(r, f);
  }
}

void walk(const Region &region, llvm::function_ref<void(const Operation &)> f) {
  for (const Operation &op : region.ops) {
    f(op);
    for (const Region &r : op.regions)
      walk(r, f);
  }
}

void replaceUses(Region &region, Value from, Value to) {
  walk(region, [&](Operation &op) {
    for (Value &v : op.operands)
      if (v == from)
        v = to;
  });
}

Operation clone(Module &module, const Operation &op, std::map<Value, Value> &map) {
  auto fresh = [&](Value v) {
    // Copied first: newValue may move the table that the hint lives in.
    ValueInfo info = module.values[v.id];
    return map[v] = module.newValue(info.type, info.hint);
  };
  Operation copy;
  copy.op = op.op;
  copy.name = op.name;
  copy.attrs = op.attrs;
  copy.loc = op.loc;
  copy.written = op.written;
  for (Value v : op.operands) {
    auto it = map.find(v);
    copy.operands.push_back(it == map.end() ? v : it->second);
  }
  for (const Region &r : op.regions) {
    Region &to = copy.regions.emplace_back();
    for (Value v : r.args)
      to.args.push_back(fresh(v));
    for (const Operation &inner : r.ops)
      to.ops.push_back(clone(module, inner, map));
  }
  for (Value v : op.results)
    copy.results.push_back(fresh(v));
  return copy;
}

int64_t tensorsOf(const Operation &weight) { return std::max<int64_t>(1, weight.get<attr::layers>()); }

const std::vector<int64_t> &storedShape(const Operation &weight) {
  return weight.has<attr::stored>() ? weight.get<attr::stored>() : weight.get<attr::shape>();
}

WeightView viewOf(const Operation &weight) {
  const std::vector<int64_t> &shape = weight.get<attr::shape>();
  if (!weight.has<attr::view>())
    return WeightView::whole(shape[0], shape.size() == 2 ? shape[1] : 1);
  const std::vector<int64_t> &view = weight.get<attr::view>();
  return {view[0], view[1], view[2], view[3], view[4]};
}

WeightScheme schemeOf(const Operation &weight) {
  return {weight.get<attr::format>(), weight.get<attr::scale_rows>(), weight.get<attr::scale_columns>(),
          weight.get<attr::zeros>(), weight.get<attr::ordered>()};
}

const Operation &storageOf(const Operation &model, llvm::StringRef name) {
  const auto named = [&](llvm::StringRef which) -> const Operation & {
    return *llvm::find_if(model.region().ops,
                          [&](const Operation &op) { return op.op == Op::Weight && op.name == which; });
  };
  const Operation &weight = named(name);
  return weight.has<attr::alias>() ? named(weight.get<attr::alias>()) : weight;
}

std::vector<unsigned> countUses(const Module &module, const Region &region) {
  std::vector<unsigned> uses(module.values.size());
  walk(region, [&](const Operation &op) {
    for (Value v : op.operands)
      ++uses[v.id];
  });
  return uses;
}

std::vector<const Operation *> modelsByNumber(const Module &module) {
  std::vector<const Operation *> models;
  for (const Operation *pool : module.all(Op::Pool))
    if (const Operation *model = module.find(Op::Model, pool->name))
      models.push_back(model);
  for (const Operation *model : module.all(Op::Model))
    if (!llvm::is_contained(models, model))
      models.push_back(model);
  return models;
}

std::vector<int64_t> windowsOf(const Operation &model) {
  std::vector<int64_t> windows = {0};
  walk(model.region(), [&](const Operation &op) {
    if (op.op == Op::Attention && op.has<attr::window>())
      windows = op.get<attr::window>();
  });
  if (windows.size() == 1)
    windows.resize(model.get<attr::kv_layers>(), windows[0]);
  return windows;
}

std::vector<WeightFormat> kvFormats(const Module &module, const Operation &model) {
  const Operation *pool = module.find(Op::Pool, model.name);
  std::vector<WeightFormat> formats(model.get<attr::kv_layers>(),
                                    pool ? pool->get<attr::format>() : WeightFormat::Bf16);
  if (pool && pool->get<attr::bf16_windows>())
    for (auto [format, window] : llvm::zip(formats, windowsOf(model)))
      if (window)
        format = WeightFormat::Bf16;
  return formats;
}

} // namespace megalith::ir
