//===- Admission.cpp - who gets a slot first, and how many are looked at ----===//
#include "Statements.h"
#include "llvm/ADT/STLExtras.h"

namespace megalith::sema {

/// Keys of an order, and requests that a stage looks at in a tick, at most.
static constexpr size_t mostKeys = limits::orderKeys;
static constexpr int64_t mostLooked = limits::looked;

/// What a key reads must stay while the request waits: the key is compared with those of others at any time.
bool Statements::checkOrderKey(const Expr &key, const ast::StageDecl &decl) {
  const auto wrong = [&](const std::string &what) {
    diags.report(Diag::OrderKey, key.loc, what, decl.name.text);
    diags.note(
        "it may use params, inputs, `priority`, `prompt_len`, `arrived`, `arrived_ms`, `deadline_ms`, and fields "
        "that the stage does not set");
    return false;
  };
  switch (key.kind) {
  case Expr::Request:
    switch (key.as<Predefined>()) {
    case Predefined::PromptLen:
    case Predefined::Priority:
    case Predefined::Budget:
    case Predefined::Finished:
    case Predefined::Arrived:
    case Predefined::ArrivedMs:
    case Predefined::DeadlineMs:
      return true;
    default:
      return wrong("what changes while the request waits");
    }
  case Expr::FieldRead:
    if (ctx.uses[&decl].assigned.count(key.name()))
      return wrong("field `" + key.name() + "`, which the stage sets");
    return key.type.isScalar() || wrong("a sequence");
  case Expr::InputRead:
    return key.type.isScalar() || wrong("a sequence");
  case Expr::Const:
  case Expr::Neg:
  case Expr::Not:
  case Expr::Binary:
  case Expr::Select:
  case Expr::Math:
  case Expr::Cast:
  case Expr::Tiers:
    if (key.is(Function::Uniform))
      return wrong("this");
    return llvm::all_of(key.args, [&](const ExprRef &arg) { return checkOrderKey(*arg, decl); });
  default:
    return wrong("this");
  }
}

void Statements::checkAdmission(const ast::StageDecl &decl, CheckedStage &stage, Scope &scope) {
  const auto seated = llvm::find_if(decl.on, [&](const ast::Name &on) {
    const CheckedState *s = ctx.state(on.text);
    return s && s->slot;
  });
  const bool inSlot = seated != decl.on.end();
  if (inSlot && !decl.order.empty())
    diags.report(Diag::AdmissionOnly, decl.orderLoc, "order", decl.name.text, seated->text);
  if (inSlot && decl.limit)
    diags.report(Diag::AdmissionOnly, decl.limit->loc, "limit", decl.name.text, seated->text);
  if (inSlot)
    return;
  if (decl.order.size() > mostKeys)
    diags.report(Diag::AdmissionRange, decl.order[mostKeys]->loc, "the number of keys of `order`", mostKeys,
                 decl.order.size());
  scope.noCalls = scope.noEffects = "`order`";
  for (const ast::ExprPtr &written : decl.order) {
    ExprRef key = with(scope).value(*written);
    if (key && !key->type.is(Elem::F32))
      key = as(ctx, key, Type::scalar(Elem::I32), "a key of `order`", "i32 or f32");
    if (key && checkOrderKey(*key, decl))
      stage.order.push_back(key);
  }
  scope.noCalls = scope.noEffects = nullptr;
  if (!decl.limit)
    return;
  stage.limit = constantInt(ctx, *decl.limit, "`limit`");
  if (stage.limit && (*stage.limit < 1 || *stage.limit > mostLooked))
    diags.report(Diag::AdmissionRange, decl.limit->loc, "`limit`", mostLooked, *stage.limit);
}

} // namespace megalith::sema
