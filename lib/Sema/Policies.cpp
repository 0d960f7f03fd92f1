//===- Policies.cpp - state, code and outputs of policies -----------------===//
#include "Declarations.h"
#include "Statements.h"

namespace megalith::sema {

void Declarations::checkPolicies() {
  for (const ast::PolicyDecl &decl : ctx.in.policies)
    if (declare(decl.name, "a policy"))
      checkPolicy(decl);
}

void Declarations::checkPolicy(const ast::PolicyDecl &decl) {
  CheckedPolicy policy;
  policy.name = decl.name.text;
  policy.loc = decl.name.loc;
  policy.observeLoc = decl.name.loc;
  if (!decl.per.text.empty() && decl.per.text != "request") {
    diags.report(Diag::Unsupported, decl.per.loc, fmt::format("`per: {}`", decl.per.text), "`per: request`");
    diags.note("a policy has one state for each request. What differs from group to group is an input, which each "
               "request brings: `group: i32 in 0..4 = input(0)`, and `level[group]` of a param that is a list");
  }

  // Names of one policy are its own. They may hide a field of the request, which the
  // policy gets as an argument, and no other name of the pipeline.
  std::map<std::string, std::string> own;
  auto fresh = [&](const ast::Name &name, const char *what) {
    if (reservedWord(name.text)) {
      diags.report(Diag::ReservedName, name.loc, name.text, what);
      return false;
    }
    auto outer = ctx.declared.find(name.text);
    auto [it, isNew] = own.emplace(name.text, what);
    if (isNew && (outer == ctx.declared.end() || outer->second == "a field" || ctx.input(name.text)))
      return true;
    if (!ctx.bad.count(name.text))
      diags.report(Diag::DuplicateName, name.loc, name.text, isNew ? outer->second : it->second);
    return false;
  };
  for (const ast::FieldDecl &f : decl.state) {
    if (!fresh(f.name, "a policy's state"))
      continue;
    if (f.input) {
      diags.report(Diag::Unsupported, f.input->loc, "an input in a policy's state", "an input below `request:`");
      ctx.bad.insert(f.name.text);
      continue;
    }
    auto field = checkField(f);
    if (field && !field->type.isScalar()) {
      diags.report(Diag::Unsupported, f.name.loc, "a sequence in a policy's state", "a field of the request");
      field.reset();
    }
    if (field)
      policy.state.push_back(std::move(*field));
    else
      ctx.bad.insert(f.name.text);
  }
  for (const ast::Name &arg : decl.observeArgs) {
    fresh(arg, "an argument of `observe`");
    policy.observeArgs.push_back(arg.text);
  }

  Locals locals;
  Scope scope;
  scope.kind = Scope::Policy;
  scope.policy = &policy;
  scope.observing = true;
  scope.locally = &locals;
  scope.noCalls = scope.noEffects = "a policy";
  ctx.here = &locals;
  Statements statements(ctx);
  statements.checkBlock(decl.observe, policy.observe, scope);
  statements.reportUnused(locals, &policy);
  if (!decl.observe.empty() && decl.observe[0].loc)
    policy.observeLoc = decl.observe[0].loc;

  Scope outputs;
  outputs.kind = Scope::Policy;
  outputs.policy = &policy;
  outputs.locally = &locals;
  outputs.noCalls = outputs.noEffects = "a policy";
  for (const ast::PolicyOutput &o : decl.outputs) {
    if (!fresh(o.name, "an output of a policy"))
      continue;
    ExprRef v = with(outputs).value(*o.value);
    if (v && !v->type.isScalar()) {
      diags.report(Diag::TypeMismatch, v->loc, "an output of a policy", "a number or bool", v->type.str());
      v = nullptr;
    }
    if (v)
      policy.outputs.push_back({o.name.text, v, o.name.loc});
    else
      ctx.bad.insert(o.name.text);
  }
  ctx.here = nullptr;
  ctx.out.policies.push_back(std::move(policy));
}

} // namespace megalith::sema
