#include "megalith/Lower/Buffers.h"
#include "Declarations.h"
#include "StageBody.h"

namespace megalith {

using namespace ir;

namespace {
class BuffersLowering {
public:
  BuffersLowering(const CheckedBuffers &pipeline, Module &module) : pipeline(pipeline), module(module) {}

  void run(const SourceFiles &files) {
    beginModule(module, pipeline.name, pipeline.loc, files);
    for (const CheckedParam &p : pipeline.params)
      lowerParam(module, p);
    for (const CheckedDim &d : pipeline.dims) {
      Operation &o = declare(module, Op::Dim, d.name, d.loc);
      o.set<attr::least>(d.least);
      o.set<attr::most>(d.most);
    }
    for (const CheckedBuffer &b : pipeline.buffers) {
      Region sizes = values(b.shape, b.loc);
      Operation &o = declare(module, Op::Buffer, b.name, b.loc);
      o.setWord<attr::dtype>(b.dtype);
      if (b.written)
        o.set<attr::written>(true);
      o.regions[0] = std::move(sizes);
    }
    for (const CheckedItems &s : pipeline.stages)
      stage(s);
  }

private:
  /// A region that yields these.
  Region values(const std::vector<sema::ExprRef> &list, SourceLoc loc) {
    Region code;
    StageBody body(none, module, code, "", site);
    body.yield(list, loc);
    return code;
  }

  void stage(const CheckedItems &s) {
    Region range = s.low ? values({s.low, s.high}, s.low->loc) : values({}, s.loc), code;
    StageBody body(none, module, code, "", site);
    if (s.low)
      body.bind(code, s.binder, 0);
    body.statements(s.body);
    Operation &o = declare(module, Op::Items, s.name, s.loc);
    o.setWord<attr::mapping>(s.mapping);
    o.regions[0] = std::move(range);
    o.regions[1] = std::move(code);
  }

  const CheckedBuffers &pipeline;
  const CheckedPipeline none; ///< there are no fields
  Module &module;
  int64_t site = 0;
};
} // namespace

/// Of a buffer: the number of a binder becomes an argument of `r`.
void StageBody::bind(Region &r, const std::string &name, int depth) {
  r.args.push_back(module.newValue(i32, name));
  binders.resize(depth);
  binders.push_back(r.args[0]);
}

void StageBody::statements(const std::vector<BufferStmt> &body) {
  for (const BufferStmt &s : body)
    statement(s);
}

void StageBody::statement(const BufferStmt &s) {
  std::vector<Value> operands;
  const auto create = [&](Op op) -> Operation & {
    builder.loc = s.loc;
    Operation &o = builder.create(op, operands);
    o.name = s.name;
    return o;
  };
  switch (s.kind) {
  case BufferStmt::SetLocal: {
    const Value v = expression(*s.values[0]);
    if (module.values[v.id].hint.empty())
      module.values[v.id].hint = s.name;
    locals[s.index] = v;
    return;
  }
  case BufferStmt::SetElement:
  case BufferStmt::Copy: {
    for (const sema::ExprRef &v : s.values)
      operands.push_back(expression(*v));
    Operation &o = create(s.kind == BufferStmt::Copy ? Op::BufferCopy : Op::BufferSet);
    if (s.kind == BufferStmt::Copy) {
      o.set<attr::from>(s.from);
      o.set<attr::lead>(s.lead);
    }
    return;
  }
  case BufferStmt::Scan:
  case BufferStmt::Sort: {
    operands.push_back(expression(*s.values[0]));
    Region code = inRegion([&](Region &r) {
      bind(r, s.binder, static_cast<int>(binders.size()));
      yield({s.values.begin() + 1, s.values.end()}, s.loc);
      binders.pop_back();
    });
    create(s.kind == BufferStmt::Scan ? Op::BufferScan : Op::BufferSort).regions[0] = std::move(code);
    return;
  }
  case BufferStmt::If: {
    operands.push_back(expression(*s.values[0]));
    std::vector<Region> regions;
    regions.push_back(inRegion([&](Region &) { statements(s.body); }));
    if (!s.otherwise.empty())
      regions.push_back(inRegion([&](Region &) { statements(s.otherwise); }));
    create(Op::If).regions = std::move(regions);
    return;
  }
  }
}

void StageBody::yield(const std::vector<sema::ExprRef> &list, SourceLoc loc) {
  std::vector<Value> values;
  for (const sema::ExprRef &v : list)
    values.push_back(expression(*v));
  builder.loc = loc;
  builder.create(Op::Yield, values);
}

ir::Module lowerBuffers(const CheckedBuffers &pipeline, const SourceFiles &files) {
  Module module;
  BuffersLowering(pipeline, module).run(files);
  return module;
}

} // namespace megalith
