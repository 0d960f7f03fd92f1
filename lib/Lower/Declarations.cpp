#include "Declarations.h"
#include "StageBody.h"

namespace megalith {

using namespace ir;

Operation &declare(Module &module, Op op, const std::string &name, SourceLoc loc) {
  Builder builder(module, module.root.region());
  builder.loc = loc;
  Operation &o = builder.create(op);
  o.name = name;
  return o;
}

void beginModule(Module &module, const std::string &name, SourceLoc loc, const SourceFiles &files) {
  module.root.op = Op::Module;
  module.root.name = name;
  module.root.loc = loc;
  module.root.set<attr::after>("lower");
  module.root.regions.emplace_back();
  for (uint32_t i = 0; i < files.size(); ++i) {
    Operation &o = declare(module, Op::File, "", SourceLoc());
    o.set<attr::index>(static_cast<int64_t>(i));
    o.set<attr::path>(files.name(i).str());
  }
}

Number numberOf(const Constant &c) {
  if (c.elem == sema::Elem::F32)
    return c.floatValue;
  return c.intValue;
}

void setList(Operation &o, sema::Elem elem, const std::vector<Constant> &of) {
  std::vector<double> numbers;
  std::vector<int64_t> items;
  for (const Constant &item : of) {
    numbers.push_back(item.floatValue);
    items.push_back(item.intValue);
  }
  if (elem == sema::Elem::F32)
    o.set<attr::numbers>(numbers);
  else
    o.set<attr::items>(items);
}

void lowerParam(Module &module, const CheckedParam &p) {
  Operation &o = declare(module, Op::Param, p.name, p.loc);
  o.set<attr::type>(scalarOf(p.value.elem));
  if (p.value.seq)
    setList(o, p.value.elem, p.value.items);
  else
    o.set<attr::value>(numberOf(p.value));
}

} // namespace megalith
