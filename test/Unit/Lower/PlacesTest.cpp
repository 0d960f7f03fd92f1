// Every operation on numbers, in every place where an expression may stand.
#include "../Sema/PipelineBase.h"
#include "megalith/IR/Text.h"
#include "megalith/Lower/Pipeline.h"
#include "megalith/Transforms/Passes.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

using namespace megalith;
using namespace megalith::test;

namespace {

struct Form {
  ir::Op op;
  const char *text; ///< an i32 of V, which is one
};
constexpr Form forms[] = {
    {ir::Op::Const, "7"},
    {ir::Op::Add, "V + 3"},
    {ir::Op::Sub, "V - 3"},
    {ir::Op::Mul, "V * 3"},
    {ir::Op::Div, "V / 3"},
    {ir::Op::Mod, "V % 3"},
    {ir::Op::Min, "min(V, 3)"},
    {ir::Op::Max, "max(V, 1)"},
    {ir::Op::Neg, "-V"},
    {ir::Op::Abs, "abs(V)"},
    {ir::Op::Eq, "(1 if V == 3 else 2)"},
    {ir::Op::Ne, "(1 if V != 3 else 2)"},
    {ir::Op::Lt, "(1 if V < 3 else 2)"},
    {ir::Op::Le, "(1 if V <= 3 else 2)"},
    {ir::Op::Gt, "(1 if V > 3 else 2)"},
    {ir::Op::Ge, "(1 if V >= 3 else 2)"},
    {ir::Op::And, "(1 if V > 3 and V < 8 else 2)"},
    {ir::Op::Or, "(1 if V < 3 or V > 8 else 2)"},
    {ir::Op::Not, "(1 if not (V < 3) else 2)"},
    {ir::Op::Select, "(V if V < 3 else 2)"},
    {ir::Op::Cast, "i32(f32(V))"},
    {ir::Op::Ratio, "i32(ratio(V, 3))"},
    {ir::Op::Log, "i32(log(f32(V)))"},
    {ir::Op::Exp, "i32(exp(f32(V)))"},
    {ir::Op::Pow, "i32(pow(f32(V), 2.0))"},
    {ir::Op::Sqrt, "i32(sqrt(f32(V)))"},
};

/// @ is the expression.
struct Where {
  const char *name, *variable;
  Edit edit;
  bool constant = false;
};
const char *const afterAppend = "      - kv.target.keep: len(tokens) - 1\n";
const std::string keep = afterAppend;
const Where places[] = {
    {"order", "prompt_len", {"    do: []\n", "    order:\n      - @\n    do: []\n"}},
    {"param", "block", {"  rate: 0.5\n", "  rate: 0.5\n  w: @\n"}, true},
    {"field", "accepted", {afterAppend, "      - accepted: @\n" + keep}},
    {"local", "prompt_len", {afterAppend, "      - x: @\n      - accepted: x\n" + keep}},
    {"count", "prompt_len", {afterAppend, "      - count: c += @\n" + keep}},
    {"trace", "prompt_len", {afterAppend, "      - trace: @\n" + keep}},
    {"keep", "len(tokens)", {afterAppend, "      - kv.target.keep: @\n"}},
    {"goto", "prompt_len", {"goto: DONE if finished else VERIFY", "goto: DONE if @ == 1 else VERIFY"}},
    {"if", "prompt_len", {afterAppend, "      - if: @ == 1\n        do:\n          - accepted: 1\n" + keep}},
    {"for",
     "prompt_len",
     {afterAppend, "      - for: i in 0..min(4, @)\n        do:\n          - accepted: i\n" + keep}},
    {"while",
     "accepted",
     {afterAppend, "      - while: @ == 1\n        bound: 4\n        do:\n          - accepted: 1\n" + keep}},
    {"body", "i", {afterAppend, "      - accepted: sum(i in 0..4, @)\n" + keep}},
    {"keys", "i", {afterAppend, "      - k: sort(i in 0..4, [@])\n      - accepted: k[0]\n" + keep}},
    {"range", "prompt_len", {afterAppend, "      - accepted: count(i in 0..min(9, @), i > 1)\n" + keep}},
    {"index", "accepted", {"append(draft[:accepted] + [best[accepted]])", "append(draft[:accepted] + [best[@]])"}},
    {"slice", "accepted", {"append(draft[:accepted]", "append(draft[:@]"}},
    {"width", "budget", {"width=min(size.width, budget - 1)", "width=min(4, @)"}},
    {"fed", "budget", {"target([last] + draft, kv=draft)", "target([last] + draft[:@], kv=draft)"}},
    {"reducer",
     "budget",
     {"argmax(target([last] + draft, kv=draft))",
      "sample(target([last] + draft, kv=draft), noise=@, temperature=0.5)"}},
    {"policy", "good", {"ratio(good, ran)", "ratio(@, ran)"}},
    {"output", "i32(ema)", {"width: tiers(ema, [[0.5, block], [0.0, 1]])", "width: min(4, @)"}},
    {"tiers", "i32(ema)", {"tiers(ema, [[0.5, block], [0.0, 1]])", "tiers(@, [[2, block], [0, 1]])"}},
};

/// Empty: the pipeline compiles to the end of the passes, and, where it says so, with this operation.
std::string problem(const Where &where, const Form &form) {
  std::string expression = "(" + std::string(form.text) + ")";
  for (size_t at; (at = expression.find('V')) != std::string::npos;)
    expression.replace(at, 1, where.variable);
  Edit edit = where.edit;
  edit.to.replace(edit.to.find('@'), 1, expression);
  SourceFiles files;
  Diagnostics diags(files);
  const uint32_t file = files.add("p.yaml", edited({edit}));
  const auto parsed = ast::parsePipeline(diags, file);
  const auto checked = parsed ? checkPipeline(*parsed, {}, {}, diags) : std::nullopt;
  if (!checked)
    return diags.render();
  const ir::Module lowered = lowerPipeline(*checked, files);
  bool found = where.constant;
  ir::walk(lowered.root.region(), [&](const ir::Operation &op) { found |= op.op == form.op; });
  if (!found)
    return "it has no such operation";
  return transforms::runPasses(lowered, {}, diags) ? "" : diags.render();
}

class Places : public testing::TestWithParam<Where> {};

} // namespace

TEST_P(Places, TakeEveryOperation) {
  for (const Form &form : forms)
    EXPECT_EQ(problem(GetParam(), form), "") << form.text;
}

INSTANTIATE_TEST_SUITE_P(All, Places, testing::ValuesIn(places),
                         [](const auto &info) { return std::string(info.param.name); });

// A new operation gets a line above.
TEST(PlacesList, HasEveryOperation) {
  std::set<ir::Op> listed;
  for (const Form &form : forms)
    listed.insert(form.op);
  for (unsigned i = 0; i < ir::numOps; ++i)
    if (const auto op = static_cast<ir::Op>(i); ir::hasTrait(op, ir::Trait::Arithmetic))
      EXPECT_TRUE(listed.count(op)) << ir::mnemonic(op).str();
}
