//===- Uses.cpp - what stages read and set, before types are known --------===//
#include "Statements.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::sema {

namespace {
/// Collects what a stage reads before it assigns it, what it assigns, and whether
/// it makes progress. Works on names alone: types come later.
struct UseWalk {
  const Context &ctx;
  Uses uses = {};

  /// Whether what is fed begins where the KV of the model ends, wherever that is.
  static bool readsPool(const ast::Expr &e, const std::string &model) {
    return (e.kind == ast::Expr::Path && (e.text == "kv." + model + ".len" || e.text == "kv." + model + ".lag")) ||
           llvm::any_of(e.args, [&](const ast::ExprPtr &arg) { return arg && readsPool(*arg, model); });
  }

  /// Whether what is fed begins with the last token.
  static bool beginsWithLast(const ast::Expr &e) {
    if (e.kind == ast::Expr::Path)
      return e.text == "last";
    const bool first =
        e.kind == ast::Expr::List || e.kind == ast::Expr::Conditional || (e.kind == ast::Expr::Binary && e.text == "+");
    return first && !e.args.empty() && beginsWithLast(*e.args[0]);
  }

  void expr(const ast::Expr &e, std::set<std::string> known) {
    if (e.kind == ast::Expr::Path && e.text.find('.') == std::string::npos && !known.count(e.text))
      uses.freeReads.emplace(e.text, e.loc);
    bool model = e.kind == ast::Expr::Call && ctx.isModel(e.text);
    if (model) {
      if (uses.called.empty() && !e.args.empty() && beginsWithLast(*e.args[0]))
        uses.lastFed = e.loc;
      if (uses.called.empty())
        uses.called = e.text;
      bool draft = false;
      for (const auto &[name, arg] : e.named)
        draft |= name.text == "kv" && arg->text == "draft";
      uses.commits |= !draft;
      if (!draft)
        uses.keeps.insert(e.text);
      else if (e.args.empty() || !readsPool(*e.args[0], e.text))
        uses.drafts.emplace(e.text, e.loc);
    }
    uses.appends |= e.kind == ast::Expr::Call && e.text == "append";
    if (e.binder)
      known.insert(e.binder->text);
    for (const ast::ExprPtr &arg : e.args)
      if (arg)
        expr(*arg, known);
    for (const auto &[name, arg] : e.named)
      // `keep=none` and `kv=draft` are words, not names.
      if (!model || (name.text != "keep" && name.text != "kv"))
        expr(*arg, known);
  }

  void block(const std::vector<ast::Stmt> &body, std::set<std::string> known) {
    for (const ast::Stmt &s : body) {
      for (const ast::ExprPtr &v : s.values) {
        std::set<std::string> seen = known;
        if (s.kind == ast::Stmt::For && v != s.values.front()) // of `until`
          seen.insert(s.target.text);
        expr(*v, std::move(seen));
      }
      for (const auto &[name, v] : s.named)
        expr(*v, known);
      if (s.kind == ast::Stmt::Assign && s.target.text.find('.') == std::string::npos) {
        uses.assigned.insert(s.target.text);
        known.insert(s.target.text);
      }
      if (llvm::StringRef pool = s.target.text; pool.consume_front("kv.") && pool.consume_back(".keep"))
        uses.keeps.insert(pool.str());
      std::set<std::string> inside = known;
      if (s.kind == ast::Stmt::For)
        inside.insert(s.target.text);
      block(s.body, std::move(inside));
      block(s.otherwise, known);
    }
    last = known;
  }

  /// State names stand where values of a conditional would.
  void go(const ast::Expr &e, const std::set<std::string> &known) {
    if (e.kind != ast::Expr::Conditional)
      return;
    go(*e.args[0], known);
    expr(*e.args[1], known);
    if (e.args.size() > 2 && e.args[2])
      go(*e.args[2], known);
  }

  std::set<std::string> last = {}; ///< names assigned at the end of the last block
};
} // namespace

static Uses usesOf(const ast::StageDecl &stage, const Context &ctx) {
  UseWalk walk{ctx};
  for (const ast::ExprPtr &key : stage.order)
    walk.expr(*key, {});
  walk.block(stage.body, {});
  if (stage.go)
    walk.go(*stage.go, std::set<std::string>(walk.last));
  return walk.uses;
}

void Statements::inferFields() {
  for (const ast::StageDecl &stage : ctx.in.stages)
    ctx.uses[&stage] = usesOf(stage, ctx);
  for (const ast::StageDecl &reader : ctx.in.stages)
    for (const auto &[name, loc] : ctx.uses[&reader].freeReads) {
      if (ctx.declared.count(name) || ctx.inferred.count(name) || ctx.bad.count(name) || reservedWord(name))
        continue;
      Inferred candidate;
      bool elsewhere = false;
      for (const ast::StageDecl &writer : ctx.in.stages)
        if (ctx.uses[&writer].assigned.count(name)) {
          candidate.setBy.push_back(&writer);
          elsewhere |= &writer != &reader;
        }
      if (elsewhere)
        ctx.inferred.emplace(name, std::move(candidate));
    }
}

} // namespace megalith::sema
