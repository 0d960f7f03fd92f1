#include "megalith/Syntax/Parse.h"
#include <cmath>
#include <fmt/format.h>

namespace megalith::ast {

static std::string printOptional(const ExprPtr &expr) { return expr ? print(*expr) : "_"; }

static std::string joinArgs(const Expr &expr) {
  std::string out;
  for (const ExprPtr &arg : expr.args)
    out.append(" ").append(printOptional(arg));
  return out;
}

static std::string join(const std::vector<ExprPtr> &exprs) {
  std::string out;
  for (const ExprPtr &expr : exprs)
    out += (out.empty() ? "" : ", ") + printOptional(expr);
  return out;
}

static std::string join(const std::vector<Name> &names) {
  std::string out;
  for (const Name &name : names)
    out += (out.empty() ? "" : ", ") + name.text;
  return out;
}

std::string print(const Expr &expr) {
  switch (expr.kind) {
  case Expr::IntLiteral:
    return fmt::format("{}", expr.intValue);
  case Expr::FloatLiteral: {
    // The shortest text that reads back as the same value, always as a float.
    std::string text = fmt::format("{}", expr.floatValue);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  case Expr::BoolLiteral:
    return expr.intValue ? "true" : "false";
  case Expr::StringLiteral:
    return fmt::format("'{}'", expr.text);
  case Expr::Path:
    return expr.text;
  case Expr::Unary:
  case Expr::Binary:
    return fmt::format("({}{})", expr.text, joinArgs(expr));
  case Expr::Conditional:
    return fmt::format("(if {} {} {})", printOptional(expr.args[1]), printOptional(expr.args[0]),
                       printOptional(expr.args[2]));
  case Expr::Index:
    return "(index" + joinArgs(expr) + ")";
  case Expr::Slice:
    return "(slice" + joinArgs(expr) + ")";
  case Expr::Bounds:
    return "(bounds" + joinArgs(expr) + ")";
  case Expr::List:
    return "[" + join(expr.args) + "]";
  case Expr::Range:
    return "(range" + joinArgs(expr) + ")";
  case Expr::Call: {
    std::string out = "(call " + expr.text;
    if (expr.binder)
      out += " " + expr.binder->text + " in";
    out += joinArgs(expr);
    for (const auto &[name, value] : expr.named)
      out += " " + name.text + "=" + printOptional(value);
    return out + ")";
  }
  }
  return "";
}

namespace {
/// Lines of the form `<line>:<column>  <indentation><text>`.
class Printer {
public:
  std::string out;
  unsigned indent = 0;

  void line(SourceLoc loc, const std::string &text) {
    out += fmt::format("{:<7} {:{}}{}\n", fmt::format("{}:{}", loc.line, loc.column), "", 2 * indent, text);
  }

  void body(const std::vector<Stmt> &stmts) {
    ++indent;
    for (const Stmt &stmt : stmts)
      statement(stmt);
    --indent;
  }

  void statement(const Stmt &stmt) {
    std::string values = join(stmt.values);
    for (const auto &[name, value] : stmt.named)
      values += ", " + name.text + "=" + written(*value);
    switch (stmt.kind) {
    case Stmt::Assign:
      line(stmt.loc, (stmt.place ? written(*stmt.place) : stmt.target.text) + ": " + values);
      break;
    case Stmt::Effect:
      line(stmt.loc, values);
      break;
    case Stmt::Count:
      line(stmt.loc, "count " + stmt.target.text + " += " + values);
      break;
    case Stmt::Trace:
      line(stmt.loc, "trace " + values);
      break;
    case Stmt::If:
      line(stmt.loc, "if " + values);
      body(stmt.body);
      if (!stmt.otherwise.empty()) {
        line(stmt.loc, "else");
        body(stmt.otherwise);
      }
      break;
    case Stmt::For:
      line(stmt.loc,
           "for " + stmt.target.text + " in " +
               (stmt.values.size() > 1 ? printOptional(stmt.values[0]) + " until " + printOptional(stmt.values[1])
                                       : values));
      body(stmt.body);
      break;
    case Stmt::While:
      line(stmt.loc, "while " + values);
      body(stmt.body);
      break;
    case Stmt::Repeat:
      line(stmt.loc, "repeat " + stmt.target.text);
      body(stmt.body);
      break;
    }
  }

  void field(const char *kind, const FieldDecl &field) {
    std::string text = std::string(kind) + " " + field.name.text + ": " + field.type.text;
    if (!field.dims.empty())
      text += "[" + join(field.dims) + "]";
    if (field.range)
      text += " in " + print(*field.range);
    if (field.input)
      text += field.init ? " = input " + print(*field.init) : " = input";
    else if (field.init)
      text += " = " + print(*field.init);
    line(field.name.loc, text);
  }

  void config(const ConfigEntry &entry) {
    std::string text = (entry.perLayer ? "config layer." : "config ") + entry.name.text;
    if (!entry.key.text.empty())
      text += ": " + entry.key.text;
    if (entry.ifNull)
      text += " if null " + print(*entry.ifNull);
    for (const auto &[literal, value] : entry.values)
      text += fmt::format("{}{} = {}", &literal == &entry.values.front().first ? " values " : ", ", literal.text,
                          print(*value));
    if (entry.fallback)
      text += " default " + print(*entry.fallback);
    line(entry.name.loc, text);
    ++indent;
    for (const ConfigEntry &part : entry.parts)
      config(part);
    --indent;
  }
};
} // namespace

static std::string describeState(const StateDecl &state) {
  std::string text = "state " + state.name.text;
  for (auto [flag, name] : {std::pair(state.initial, " initial"),
                            {state.terminal, " terminal"},
                            {state.parked, " parked"},
                            {state.slot, " slot"},
                            {state.preemptible, " preemptible"}})
    if (flag)
      text += name;
  if (!state.next.empty())
    text += " -> " + join(state.next);
  return text;
}

static std::string describePool(const PoolDecl &pool) {
  std::string text = "pool " + pool.name.text + ":";
  for (auto [name, expr] :
       {std::pair(" pages=", &pool.pages), {" page_tokens=", &pool.pageTokens}, {" watermark=", &pool.watermark}})
    if (*expr)
      text += name + print(**expr);
  if (!pool.onFull.text.empty())
    text += " on_full=" + pool.onFull.text;
  if (pool.reserve)
    text += " reserve=" + print(*pool.reserve);
  if (pool.index)
    text += " index=" + print(*pool.index);
  if (!pool.dtype.text.empty())
    text += " dtype=" + pool.dtype.text;
  if (!pool.windows.text.empty())
    text += " windows=" + pool.windows.text;
  return text;
}

std::string print(const PipelineFile &pipeline) {
  Printer p;
  p.line(pipeline.name.loc, "pipeline " + pipeline.name.text);
  for (const ModelRef &model : pipeline.models)
    p.line(model.name.loc,
           "model " + model.name.text + ": " + (model.graph.loc ? model.graph.text : "of the checkpoint"));
  for (const Param &param : pipeline.params)
    p.line(param.name.loc, "param " + param.name.text + ": " + printOptional(param.value));
  for (const FieldDecl &field : pipeline.fields)
    p.field("field", field);
  if (pipeline.fault)
    p.line(pipeline.fault->loc, "fault " + pipeline.fault->text);
  if (pipeline.cancel)
    p.line(pipeline.cancel->loc, "cancel " + pipeline.cancel->text);
  if (pipeline.deadline)
    p.line(pipeline.deadline->loc, "deadline " + pipeline.deadline->text);
  for (const StateDecl &state : pipeline.states)
    p.line(state.name.loc, describeState(state));
  for (const PoolDecl &pool : pipeline.pools)
    p.line(pool.name.loc, describePool(pool));
  for (const PolicyDecl &policy : pipeline.policies) {
    p.line(policy.name.loc, "policy " + policy.name.text + (policy.per.text.empty() ? "" : " per " + policy.per.text));
    ++p.indent;
    for (const FieldDecl &field : policy.state)
      p.field("state", field);
    if (!policy.observe.empty() || !policy.observeArgs.empty()) {
      SourceLoc loc = policy.observeArgs.empty() ? policy.name.loc : policy.observeArgs[0].loc;
      p.line(loc, "observe(" + join(policy.observeArgs) + ")");
      p.body(policy.observe);
    }
    for (const PolicyOutput &output : policy.outputs)
      p.line(output.name.loc, "output " + output.name.text + ": " + printOptional(output.value));
    --p.indent;
  }
  for (const DimDecl &dim : pipeline.dims)
    p.line(dim.name.loc, "dim " + dim.name.text + ": " + printOptional(dim.range));
  for (const BufferDecl &buffer : pipeline.buffers)
    p.line(buffer.name.loc, fmt::format("buffer {}: {}[{}]", buffer.name.text, buffer.dtype.text, join(buffer.shape)));
  for (const StageDecl &stage : pipeline.stages) {
    std::string text = "stage " + stage.name.text;
    if (!stage.on.empty())
      text += " on " + join(stage.on);
    if (stage.over)
      text += " over " + stage.over->text + " in " + printOptional(stage.items);
    if (stage.mapping)
      text += " mapping " + stage.mapping->text;
    p.line(stage.name.loc, text);
    if (!stage.order.empty())
      p.line(stage.orderLoc, "  order " + join(stage.order));
    if (stage.limit)
      p.line(stage.limit->loc, "  limit " + print(*stage.limit));
    p.body(stage.body);
    ++p.indent;
    if (stage.go)
      p.line(stage.go->loc, "goto " + print(*stage.go));
    if (stage.progress)
      p.line(stage.progress->loc, "progress " + stage.progress->text);
    --p.indent;
  }
  return p.out;
}

std::string print(const ModelFile &model) {
  Printer p;
  p.line(model.name.loc, "model " + model.name.text);
  if (!model.numerics.text.empty())
    p.line(model.numerics.loc, "numerics " + model.numerics.text);
  for (const ConfigEntry &entry : model.config)
    p.config(entry);
  for (const WeightDecl &weight : model.weights) {
    std::string text =
        fmt::format("weight {}{}: [{}]", weight.perLayer ? "layer." : "", weight.name.text, join(weight.shape));
    if (!weight.stored.empty())
      text += " stored [" + join(weight.stored) + "]";
    if (weight.transposed)
      text += " transposed " + weight.transposed->text;
    for (const Name &from : weight.from)
      text += (&from == &weight.from.front() ? " from " : ", ") + from.text;
    if (weight.alias)
      text += " or " + print(*weight.alias);
    if (weight.condition)
      text += " if " + print(*weight.condition);
    p.line(weight.name.loc, text);
  }
  if (!model.graph.empty()) {
    p.line(model.graph.front().loc, "graph");
    p.body(model.graph);
  }
  const auto requirement = [&](const char *section, const Requirement &r) {
    std::string text;
    for (const Literal &value : r.values)
      text += (text.empty() ? "" : " or ") + value.text;
    for (const Name &key : r.same)
      text += (text.empty() ? "same as " : " or ") + key.text;
    p.line(r.key.loc, fmt::format("{} {}: {}{}{}", section, r.key.text, r.each ? "each " : "", text,
                                  r.fallback ? ", default " + r.fallback->text : ""));
  };
  for (const Requirement &r : model.audience)
    requirement("for", r);
  for (const Requirement &r : model.requirements)
    requirement("requires", r);
  for (const Name &key : model.harmless.keys)
    if (key.loc.file == model.file)
      p.line(key.loc, "harmless key " + key.text);
  for (const Name &tensor : model.harmless.tensors)
    if (tensor.loc.file == model.file)
      p.line(tensor.loc, "harmless tensor " + tensor.text);
  return p.out;
}

} // namespace megalith::ast
