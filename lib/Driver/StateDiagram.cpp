//===- StateDiagram.cpp - the states of a pipeline, for Graphviz -----------===//
#include "megalith/Driver/Compilation.h"
#include "megalith/Sema/Pipeline.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/StringExtras.h"
#include <fmt/format.h>

namespace megalith::driver {

/// A string of the DOT language. Lines end with `\n`, which is centred.
static std::string dotString(llvm::StringRef text) {
  std::string out = "\"";
  for (char c : text)
    out += c == '\n' ? std::string("\\n") : (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
  return out + "\"";
}

static std::string stateLine(const CheckedState &state, const StateGraph &graph) {
  const bool isFault = state.name == graph.fault, isCancel = state.name == graph.cancel,
             isDeadline = state.name == graph.deadline;
  std::vector<std::string> flags;
  for (const auto &[on, name] : {std::pair(state.initial, "initial"),
                                 {state.slot, "slot"},
                                 {state.parked, "parked"},
                                 {state.preemptible, "preemptible"},
                                 {state.terminal, "terminal"},
                                 {isFault, "fault"},
                                 {isCancel, "cancel"},
                                 {isDeadline, "deadline"}})
    if (on)
      flags.push_back(name);
  const std::string label = state.name + (flags.empty() ? "" : "\n" + llvm::join(flags, ", "));
  return fmt::format("  {} [label={}{}{}{}];\n", dotString(state.name), dotString(label),
                     state.initial ? ", penwidth=2" : "",
                     state.slot                          ? ", style=\"rounded,filled\", fillcolor=\"#e6eefa\""
                     : isFault || isCancel || isDeadline ? ", style=\"rounded,dashed\""
                                                         : "",
                     state.terminal ? ", peripheries=2" : "");
}

/// The models that a stage calls, in the order of their first calls.
static void collectCalls(const ast::Expr &e, const ast::PipelineFile &file, std::vector<std::string> &into) {
  for (const ast::ExprPtr &arg : e.args)
    if (arg)
      collectCalls(*arg, file, into);
  for (const auto &[name, arg] : e.named)
    collectCalls(*arg, file, into);
  if (e.kind == ast::Expr::Call)
    for (const ast::ModelRef &model : file.models)
      if (model.name.text == e.text && std::find(into.begin(), into.end(), e.text) == into.end())
        into.push_back(e.text);
}

static void collectCalls(const std::vector<ast::Stmt> &body, const ast::PipelineFile &file,
                         std::vector<std::string> &into) {
  for (const ast::Stmt &statement : body) {
    for (const ast::ExprPtr &value : statement.values)
      collectCalls(*value, file, into);
    collectCalls(statement.body, file, into);
    collectCalls(statement.otherwise, file, into);
  }
}

std::optional<std::string> stateDiagram(const std::string &path, Diagnostics &diags) {
  const auto source = openSource(diags, path);
  const auto file = source ? ast::parsePipeline(diags, *source) : std::nullopt;
  if (file && file->ofBuffers) {
    diags.report(Diag::MissingKey, file->name.loc, "a diagram of states", "states");
    return std::nullopt;
  }
  const auto graph = file ? checkStateGraph(*file, diags) : std::nullopt;
  if (!graph)
    return std::nullopt;
  std::string out = fmt::format("digraph {} {{\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n"
                                "  edge [fontname=\"sans-serif\", fontsize=10];\n",
                                dotString(file->name.text));
  for (const CheckedState &state : graph->states)
    out += stateLine(state, *graph);
  for (const Transition &way : graph->transitions) {
    std::vector<std::string> calls;
    for (const ast::StageDecl &stage : file->stages)
      if (stage.name.text == way.stage)
        collectCalls(stage.body, *file, calls);
    out += fmt::format("  {} -> {} [label={}];\n", dotString(way.from), dotString(way.to),
                       dotString(way.stage + (calls.empty() ? "" : "\ncalls " + llvm::join(calls, ", ")) +
                                 (way.condition.empty() ? "" : "\n" + way.condition)));
  }
  return out + "}\n";
}

} // namespace megalith::driver
