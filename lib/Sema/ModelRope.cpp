// `rope` of a model's graph.
#include "GraphChecker.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <fmt/format.h>

namespace megalith {

using namespace graph;

MaybeNode GraphChecker::evalRope(const ast::Expr &e) {
  MaybeNode x = evalRows(*e.args[0], "rope");
  if (e.args[1]->kind != ast::Expr::Path || e.args[1]->text != "position") {
    diags.report(Diag::GraphArguments, e.args[1]->loc, "rope", "x, position",
                 fmt::format("`{}`", ast::written(*e.args[1])));
    diags.note("the second argument is the word `position`");
    return std::nullopt;
  }
  if (!checkHeadDim(e) || !checkRopeConfig(e) || !x)
    return std::nullopt;
  Shape shape = g.nodes[*x].shape;
  if (!checkHeadColumns(e, "the operand", shape))
    return std::nullopt;
  return add({.kind = Node::Rope, .inputs = {*x}, .shape = shape, .loc = e.loc});
}

bool GraphChecker::checkRopeConfig(const ast::Expr &e) {
  if (ropeReported)
    return false;
  ropeReported = true; // unless all is right
  auto theta = model.config.find("rope.theta");
  std::optional<double> value;
  if (theta != model.config.end())
    value = asNumber(theta->second);
  if (!value) {
    diags.report(Diag::RopeMissing, e.loc);
    return false;
  }
  std::optional<int> turned;
  if (const ast::Expr *dims = namedArgument(e, "dims"))
    if (turned = ropeDims(*dims); !turned)
      return false;
  CheckedModel now;
  if (const ast::Expr *interleaved = namedArgument(e, "interleaved")) {
    const std::optional<bool> adjacent = evalBool(*interleaved, "interleaved of `rope`");
    if (!adjacent)
      return false;
    now.adjacentRope = *adjacent;
  }
  if (!ropeByLayer(namedArgument(e, "base"), namedArgument(e, "where"), now))
    return false;
  // Theta may be a default of the model file or stand under a key of its own.
  const auto original = model.config.find(ropeOriginal);
  Result<RopeParams> rope =
      model.file.rope(model.headDim, *value, turned,
                      original == model.config.end() ? std::optional<double>() : asNumber(original->second));
  if (!rope) {
    diags.report(Diag::RopeConfig, e.loc, model.file.path(), rope.error.message);
    return false;
  }
  if (model.rope && (model.rope->headDim != rope->headDim || model.adjacentRope != now.adjacentRope ||
                     model.ropeBases != now.ropeBases || model.ropeTables != now.ropeTables)) {
    diags.report(Diag::RopeDiffers, e.loc);
    diags.note(ropeLoc, "the other one");
    return false;
  }
  if (!model.rope)
    ropeLoc = e.loc;
  model.rope = *rope;
  model.adjacentRope = now.adjacentRope;
  model.ropeBases = std::move(now.ropeBases);
  model.ropeTables = std::move(now.ropeTables);
  ropeReported = false;
  return true;
}

std::optional<int> GraphChecker::ropeDims(const ast::Expr &arg) {
  const std::optional<ConfigValue> value = evaluateConstant(arg, model.config, diags);
  if (!value)
    return std::nullopt;
  const std::optional<double> dims = asNumber(*value);
  if (dims && *dims >= 4 && *dims <= model.headDim && std::fmod(*dims, 4) == 0)
    return static_cast<int>(*dims);
  diags.report(Diag::RopeDims, arg.loc, dims ? fmt::format("{}", *dims) : describe(*value), model.headDim);
  return std::nullopt;
}

bool GraphChecker::ropeByLayer(const ast::Expr *base, const ast::Expr *where, CheckedModel &out) {
  std::vector<ConfigValue> bases = {NoValue()}, turns = {true};
  for (auto [arg, values] : {std::pair(base, &bases), {where, &turns}}) {
    std::optional<std::vector<ConfigValue>> found = arg ? evalByLayer(*arg) : std::nullopt;
    if (arg && !found)
      return false;
    if (found)
      *values = std::move(*found);
  }
  const size_t count = std::max(bases.size(), turns.size());
  for (size_t layer = 0; layer < count; ++layer) {
    const ConfigValue &own = bases[bases.size() == 1 ? 0 : layer], &turn = turns[turns.size() == 1 ? 0 : layer];
    const std::optional<double> number = asNumber(own);
    if (!std::holds_alternative<NoValue>(own) &&
        !(number && *number > 0 && std::isfinite(static_cast<float>(*number)))) {
      diags.report(Diag::ConstantType, base->loc, "base of `rope`", "a number above 0 or `none`", describe(own));
      return false;
    }
    if (!std::holds_alternative<bool>(turn)) {
      diags.report(Diag::ConstantType, where->loc, "where of `rope`", "true or false", describe(turn));
      return false;
    }
    if (std::get<bool>(turn) && !number) {
      out.ropeTables.push_back(0);
      continue;
    }
    const double wanted = std::get<bool>(turn) ? *number : 0;
    const auto known = llvm::find(out.ropeBases, wanted);
    out.ropeTables.push_back(1 + (known - out.ropeBases.begin()));
    if (known == out.ropeBases.end())
      out.ropeBases.push_back(wanted);
  }
  if (llvm::all_equal(out.ropeTables))
    out.ropeTables.resize(1);
  if (out.ropeBases.empty())
    out.ropeTables.clear();
  return true;
}

} // namespace megalith
