//===- Pipeline.cpp - the order of a pipeline check -----------------------===//
#include "Declarations.h"
#include "Statements.h"
#include "States.h"

namespace megalith {

using namespace sema;

std::optional<StateGraph> checkStateGraph(const ast::PipelineFile &pipeline, Diagnostics &diags) {
  Context ctx(pipeline, {}, {}, diags);
  return States(ctx).stateGraph();
}

std::optional<CheckedPipeline> checkPipeline(const ast::PipelineFile &pipeline, const std::vector<ModelFacts> &facts,
                                             const std::vector<std::pair<std::string, std::string>> &sets,
                                             Diagnostics &diags) {
  Context ctx(pipeline, facts, sets, diags);
  Declarations declarations(ctx);
  States states(ctx);
  Statements statements(ctx);
  ctx.out.name = pipeline.name.text;
  ctx.out.file = pipeline.file;
  ctx.out.loc = pipeline.name.loc;
  declarations.checkNames();
  declarations.checkParams();
  declarations.checkFields();
  declarations.checkPools();
  states.checkStates();
  states.checkStageStates();
  declarations.checkPolicies();
  statements.inferFields();
  statements.checkStages();
  states.checkTransitions();
  if (diags.hasErrors())
    return std::nullopt;
  states.checkReachable();
  states.checkReadsAreSet();
  states.checkProgress();
  if (diags.hasErrors())
    return std::nullopt;
  states.warnOfUnusedTransitions();
  states.warnOfUnused();
  states.warnOfLostDrafts();
  states.warnOfGoneKv();
  return std::move(ctx.out);
}

} // namespace megalith
