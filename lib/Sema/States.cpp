//===- States.cpp - the state graph ---------------------------------------===//
#include "States.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace megalith::sema {

void States::checkStates() {
  const ast::StateDecl *initial = nullptr;
  for (const ast::StateDecl &decl : ctx.in.states) {
    CheckedState s;
    s.name = decl.name.text;
    s.loc = decl.name.loc;
    s.initial = decl.initial;
    s.terminal = decl.terminal;
    s.parked = decl.parked;
    s.slot = decl.slot;
    s.preemptible = decl.preemptible;
    for (const ast::Name &n : decl.next)
      if (!llvm::is_contained(s.next, n.text))
        s.next.push_back(n.text);
    auto wrong = [&](const char *why) { diags.report(Diag::BadStateFlags, decl.name.loc, s.name, why); };
    if (s.initial && initial)
      diags.report(Diag::SecondInitialState, decl.name.loc, s.name, initial->name.text);
    if (s.initial && !initial)
      initial = &decl;
    if (s.initial && s.terminal)
      wrong("cannot be both initial and terminal");
    if (s.initial && s.slot)
      wrong("is initial and cannot have `slot: true`: a request gains its slot by a `goto`");
    if (s.terminal && s.slot)
      wrong("is terminal and cannot have `slot: true`: a finished request holds no slot");
    if (s.parked && s.slot)
      wrong("is parked and cannot have `slot: true`: a parked request holds no slot");
    if (s.terminal && !s.next.empty())
      wrong("is terminal and cannot have `next`");
    ctx.out.states.push_back(std::move(s));
  }
  if (ctx.in.states.size() > limits::states) // a state is one bit of a mask in the kernel
    diags.report(Diag::TooManyStates, ctx.in.statesLoc, ctx.in.states.size());
  if (!initial)
    diags.report(Diag::NoInitialState, ctx.in.statesLoc);
  if (ctx.in.fault)
    ctx.out.fault = ctx.in.fault->text;
  for (const ast::StateDecl &decl : ctx.in.states)
    for (const ast::Name &n : decl.next)
      if (!ctx.state(n.text))
        ctx.reportUnknownState(n, [](const CheckedState &) { return true; });
  if (!ctx.in.fault) {
    diags.report(Diag::NoFaultState, ctx.in.statesLoc);
    return;
  }
  const auto isEnd = [&](const ast::Name &name, const std::string &what) {
    const CheckedState *end = ctx.state(name.text);
    if (!end)
      ctx.reportUnknownState(name, [](const CheckedState &s) { return s.terminal; });
    else if (!end->terminal)
      diags.report(Diag::BadStateFlags, end->loc, name.text, "is the " + what + " state and needs `terminal: true`");
  };
  isEnd(*ctx.in.fault, "fault");
  for (auto [name, what, into] :
       {std::tuple(&ctx.in.cancel, "cancel", &ctx.out.cancel), {&ctx.in.deadline, "deadline", &ctx.out.deadline}})
    if (*name) {
      *into = (*name)->text;
      isEnd(**name, what);
    }
}

void States::checkStageStates() {
  for (const ast::StageDecl &stage : ctx.in.stages)
    for (const ast::Name &on : stage.on) {
      const CheckedState *s = ctx.state(on.text);
      if (!s) {
        ctx.reportUnknownState(on, [](const CheckedState &each) { return !each.terminal; });
        ctx.oddStages = true;
        continue;
      }
      if (s->terminal)
        diags.report(Diag::StageOnTerminal, on.loc, on.text, stage.name.text);
      auto [it, fresh] = ctx.stageOn.emplace(on.text, &stage);
      if (!fresh) {
        diags.report(Diag::DuplicateStage, stage.name.loc, stage.name.text, on.text);
        diags.note(it->second->name.loc, "the first one is here");
        ctx.oddStages = true;
      }
    }
  for (const CheckedState &s : ctx.out.states)
    if (!ctx.oddStages && !s.terminal && s.name != ctx.out.fault && !ctx.stageOn.count(s.name))
      diags.report(Diag::DeadEndState, s.loc, s.name, s.name);
}

static void collectTargets(const ast::Expr &e, std::vector<ast::Name> &into) {
  if (e.kind == ast::Expr::Path)
    into.push_back({e.text, e.loc});
  if (e.kind != ast::Expr::Conditional)
    return;
  collectTargets(*e.args[0], into);
  if (e.args.size() > 2 && e.args[2])
    collectTargets(*e.args[2], into);
}

static std::vector<ast::Name> targets(const ast::StageDecl &stage) {
  std::vector<ast::Name> result;
  if (stage.go)
    collectTargets(*stage.go, result);
  return result;
}

void States::checkTransitions() {
  if (ctx.oddStages)
    return;
  // A misspelt state is reported where it stands; what follows from it is not.
  auto known = [&](const std::vector<ast::Name> &names) {
    return llvm::all_of(names, [&](const ast::Name &n) { return ctx.state(n.text) != nullptr; });
  };
  auto mayGo = [&](const std::string &from, const std::string &to) {
    for (const ast::StateDecl &decl : ctx.in.states)
      if (decl.name.text == from)
        return decl.terminal || !known(decl.next) ||
               llvm::any_of(decl.next, [&](const ast::Name &n) { return n.text == to; });
    return true;
  };
  std::set<std::pair<std::string, std::string>> reported;
  for (const ast::StageDecl &stage : ctx.in.stages)
    for (const ast::Name &to : targets(stage)) {
      if (!ctx.state(to.text))
        continue;
      if (to.text == ctx.out.fault) {
        diags.report(Diag::GotoFault, to.loc, to.text);
        continue;
      }
      for (const ast::Name &on : stage.on)
        if (!mayGo(on.text, to.text) && reported.emplace(on.text, to.text).second)
          diags.report(Diag::UndeclaredTransition, to.loc, on.text, to.text, on.text);
    }
}

void States::warnOfUnusedTransitions() {
  for (const ast::StateDecl &decl : ctx.in.states) {
    auto it = ctx.stageOn.find(decl.name.text);
    if (it == ctx.stageOn.end())
      continue;
    std::vector<std::string> taken;
    for (const ast::Name &to : targets(*it->second))
      taken.push_back(to.text);
    for (const ast::Name &n : decl.next)
      if (!llvm::is_contained(taken, n.text))
        diags.report(Diag::UnusedTransition, n.loc, decl.name.text, n.text);
  }
}

/// What the file declares, and nothing reads: it was meant to do something.
void States::warnOfUnused() {
  const auto unread = [&](const std::string &name) { return !ctx.used.count(name); };
  const auto warn = [&](const char *verb, const char *what, const std::string &name, SourceLoc loc) {
    diags.report(Diag::Unused, loc, verb, what, name);
  };
  for (const ast::ModelRef &m : ctx.in.models)
    if (unread(m.name.text))
      warn("calls", "model", m.name.text, m.name.loc);
  for (const CheckedParam &p : ctx.out.params) {
    bool reserved = false;
#define RESERVED_PARAM(Id, Name, Default, Least, Most, Text) reserved |= p.name == Name;
#include "megalith/Sema/Builtins.def"
    const auto isIt = [&](const auto &other) { return llvm::StringRef(other) == p.name; };
    const auto set = llvm::find_if(ctx.sets, [&](const auto &s) { return isIt(s.first); });
    const bool given =
        set != ctx.sets.end() || llvm::any_of(ctx.in.params, [&](const ast::Param &in) { return isIt(in.name.text); });
    const bool bounds = p.name == "rows_beside" && given;
    if ((reserved && !bounds) || !unread(p.name))
      continue;
    warn(bounds ? "with `chunk=` is bounded by" : "reads", "param", p.name, p.loc);
    if (set != ctx.sets.end())
      diags.note(fmt::format("so `--set {}={}` changes nothing", set->first, set->second));
  }
  const auto progresses = [&](const std::string &name) {
    return llvm::any_of(ctx.in.stages, [&](const ast::StageDecl &s) { return s.progress && s.progress->text == name; });
  };
  for (const CheckedField &f : ctx.out.fields)
    if (!f.inferred && !f.local && unread(f.name) && !progresses(f.name))
      warn("reads", "field", f.name, f.loc);
  for (const CheckedInput &i : ctx.out.inputs)
    if (unread(i.name))
      warn("reads", "input", i.name, i.loc);
  for (const CheckedPolicy &p : ctx.out.policies) {
    if (unread(p.name)) {
      warn("reads", "policy", p.name, p.loc);
      continue;
    }
    for (const CheckedField &f : p.state)
      if (unread(p.name + "." + f.name))
        warn("reads", "state", p.name + "." + f.name, f.loc);
    for (const CheckedOutput &o : p.outputs)
      if (unread(p.name + "." + o.name))
        warn("reads", "output", p.name + "." + o.name, o.loc);
  }
}

/// Warns of a stage that runs again and again and feeds drafts after a model's KV, where nothing ever keeps any.
void States::warnOfLostDrafts() {
  std::set<std::string> told;
  for (const ast::StageDecl &stage : ctx.in.stages)
    for (const auto &[model, loc] : ctx.uses[&stage].drafts)
      for (const ast::Name &on : stage.on) {
        std::set<std::string> after;
        for (const ast::Name &to : targets(stage))
          after.merge(reachableFrom(to.text));
        if (!after.count(on.text) || told.count(model))
          continue;
        after.insert(on.text);
        const bool kept = llvm::any_of(after, [&](const std::string &name) {
          auto it = ctx.stageOn.find(name);
          return it != ctx.stageOn.end() && ctx.uses[it->second].keeps.count(model);
        });
        if (kept)
          continue;
        told.insert(model);
        diags.report(Diag::DraftsLost, loc, model, on.text);
        diags.note(fmt::format("`kv.{0}.len` stays where it is, and the next `{0}([last])` does not stand there any "
                               "more; after the `append` write `- kv.{0}.keep: len(tokens) - 1`",
                               model));
      }
}

/// Warns of a way out of a state without slot on which the first call takes the KV for granted.
void States::warnOfGoneKv() {
  for (const CheckedState &from : ctx.out.states) {
    auto leaves = ctx.stageOn.find(from.name);
    if (from.slot || leaves == ctx.stageOn.end())
      continue;
    for (const ast::Name &first : targets(*leaves->second)) {
      std::vector<std::string> work = {first.text};
      std::set<std::string> seen = {first.text};
      for (size_t next = 0; next < work.size(); ++next) {
        const CheckedState *s = ctx.state(work[next]);
        auto it = ctx.stageOn.find(work[next]);
        if (!s || !s->slot || it == ctx.stageOn.end())
          continue;
        const Uses &uses = ctx.uses[it->second];
        if (uses.lastFed) {
          diags.report(Diag::KvGone, first.loc, from.name, s->name, uses.called);
          diags.note(uses.lastFed,
                     fmt::format("this call; go to a state that feeds `tokens[kv.{}.len:-1]` first", uses.called));
          break;
        }
        if (uses.called.empty())
          for (const ast::Name &to : targets(*it->second))
            if (seen.insert(to.text).second)
              work.push_back(to.text);
      }
    }
  }
}

/// The states that a request in `start` can come to, `start` among them.
std::set<std::string> States::reachableFrom(const std::string &start) const {
  std::vector<std::string> work = {start};
  std::set<std::string> seen = {start};
  while (!work.empty()) {
    std::string name = work.back();
    work.pop_back();
    if (auto it = ctx.stageOn.find(name); it != ctx.stageOn.end())
      for (const ast::Name &to : targets(*it->second))
        if (seen.insert(to.text).second)
          work.push_back(to.text);
  }
  return seen;
}

/// Where a way is missing, all after it are out of reach: the state that the others are after is reported.
void States::checkReachable() {
  std::string start;
  for (const CheckedState &s : ctx.out.states)
    if (s.initial)
      start = s.name;
  std::set<std::string> seen = reachableFrom(start);
  for (const std::string &end : {ctx.out.fault, ctx.out.cancel, ctx.out.deadline})
    if (!end.empty())
      seen.insert(end);
  for (;;) {
    const CheckedState *first = nullptr;
    std::set<std::string> after;
    for (const CheckedState &s : ctx.out.states)
      if (!seen.count(s.name))
        if (std::set<std::string> found = reachableFrom(s.name); found.size() > after.size()) {
          first = &s;
          after = std::move(found);
        }
    if (!first)
      return;
    diags.report(Diag::UnreachableState, first->loc, start, first->name);
    seen.merge(after);
  }
}

/// A name that is set in one stage must be set on some path before it is read.
void States::checkReadsAreSet() {
  std::map<std::string, std::set<std::string>> before;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto &[name, stage] : ctx.stageOn) {
      std::set<std::string> after = before[name];
      after.insert(ctx.uses[stage].assigned.begin(), ctx.uses[stage].assigned.end());
      for (const ast::Name &to : targets(*stage))
        for (const std::string &field : after)
          changed |= before[to.text].insert(field).second;
    }
  }
  std::set<std::string> reported;
  for (const ast::StageDecl &stage : ctx.in.stages)
    for (const auto &[name, loc] : ctx.uses[&stage].freeReads)
      for (const ast::Name &on : stage.on)
        if (ctx.inferred.count(name) && !before[on.text].count(name) && reported.insert(name).second) {
          diags.report(Diag::NeverSetBefore, loc, name, on.text);
          diags.note(ctx.inferred[name].setBy[0]->name.loc, "it is set by this stage");
        }
}

/// Every cycle must pass a stage that appends, commits KV or names its measure:
/// what is left after removing those stages must have no cycle.
void States::checkProgress() {
  auto progresses = [&](const ast::StageDecl *stage) {
    const Uses &u = ctx.uses[stage];
    return u.appends || u.commits || stage->progress;
  };
  for (const ast::StageDecl &stage : ctx.in.stages) {
    if (!stage.progress)
      continue;
    const CheckedField *f = ctx.field(stage.progress->text);
    if (!f || !f->type.is(Elem::I32) || !ctx.uses[&stage].assigned.count(f->name))
      diags.report(Diag::BadProgress, stage.progress->loc, stage.progress->text);
  }

  const auto noteProgress = [&](const ast::StageDecl &stage) {
    for (const auto &[name, loc] : ctx.uses[&stage].freeReads) // such as `x: x + 1`
      if (const CheckedField *f = ctx.field(name); f && f->type.is(Elem::I32) && ctx.uses[&stage].assigned.count(name))
        return diags.note(stage.name.loc, fmt::format("stage `{0}` changes `{1}`: if that ends the circle, write "
                                                      "`progress: {1}` beside its `on:`",
                                                      stage.name.text, name));
  };
  std::map<std::string, int> colour; // 1 = on the path, 2 = done
  std::vector<std::string> path;
  bool reported = false;
  auto visit = [&](auto &self, const std::string &name) -> void {
    auto it = ctx.stageOn.find(name);
    if (it == ctx.stageOn.end() || progresses(it->second))
      return;
    colour[name] = 1;
    path.push_back(name);
    for (const ast::Name &to : targets(*it->second)) {
      if (reported)
        break;
      if (colour[to.text] == 0) {
        self(self, to.text);
      } else if (colour[to.text] == 1) {
        std::string cycle;
        for (auto p = std::find(path.begin(), path.end(), to.text); p != path.end(); ++p)
          cycle += *p + " -> ";
        diags.report(Diag::CycleWithoutProgress, to.loc, cycle + to.text);
        for (auto p = std::find(path.begin(), path.end(), to.text); p != path.end(); ++p)
          noteProgress(*ctx.stageOn.at(*p));
        reported = true;
      }
    }
    path.pop_back();
    colour[name] = 2;
  };
  for (const CheckedState &s : ctx.out.states)
    if (!reported && colour[s.name] == 0)
      visit(visit, s.name);
}

/// The ways that a `goto` has, each under the condition that those before it do not hold.
static void collectTransitions(const ast::Expr &e, bool first, std::vector<Transition> &into) {
  if (e.kind == ast::Expr::Path) {
    into.push_back({"", e.text, "", first ? "" : "else"});
    return;
  }
  if (e.kind != ast::Expr::Conditional)
    return;
  const size_t begin = into.size();
  collectTransitions(*e.args[0], true, into);
  const std::string condition = (first ? "if " : "else if ") + ast::written(*e.args[1]);
  for (size_t i = begin; i < into.size(); ++i) // a choice may stand in front of the `if`, too
    into[i].condition = condition + (into[i].condition.empty() ? "" : ", " + into[i].condition);
  collectTransitions(*e.args[2], false, into);
}

std::optional<StateGraph> States::stateGraph() {
  checkStates();
  checkStageStates();
  checkTransitions();
  for (const ast::StageDecl &stage : ctx.in.stages)
    for (const ast::Name &to : targets(stage))
      if (!ctx.state(to.text))
        ctx.reportUnknownState(to, [](const CheckedState &) { return true; });
  if (diags.hasErrors())
    return std::nullopt;
  StateGraph graph{ctx.out.states, ctx.out.fault, ctx.out.cancel, ctx.out.deadline, {}};
  for (const ast::StageDecl &stage : ctx.in.stages) {
    std::vector<Transition> ways;
    collectTransitions(*stage.go, true, ways);
    for (const ast::Name &on : stage.on)
      for (Transition way : ways) {
        way.from = on.text;
        way.stage = stage.name.text;
        graph.transitions.push_back(std::move(way));
      }
  }
  return graph;
}

} // namespace megalith::sema
