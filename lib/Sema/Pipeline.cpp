//===- Pipeline.cpp - the order of a pipeline check -----------------------===//
#include "Checker.h"

namespace megalith {

namespace sema {

std::optional<CheckedPipeline> Checker::run() {
  out.name = in.name.text;
  out.file = in.file;
  out.loc = in.name.loc;
  checkNames();
  checkParams();
  checkFields();
  checkPools();
  checkStates();
  checkStageStates();
  checkPolicies();
  inferFields();
  checkStages();
  checkTransitions();
  if (diags.hasErrors())
    return std::nullopt;
  checkReachable();
  checkReadsAreSet();
  checkProgress();
  if (diags.hasErrors())
    return std::nullopt;
  warnOfUnusedTransitions();
  warnOfUnused();
  warnOfLostDrafts();
  return std::move(out);
}

} // namespace sema

std::optional<StateGraph> checkStateGraph(const ast::PipelineFile &pipeline, Diagnostics &diags) {
  return sema::Checker(pipeline, {}, {}, diags).stateGraph();
}

std::optional<CheckedPipeline> checkPipeline(const ast::PipelineFile &pipeline, const std::vector<ModelFacts> &facts,
                                             const std::vector<std::pair<std::string, std::string>> &sets,
                                             Diagnostics &diags) {
  return sema::Checker(pipeline, facts, sets, diags).run();
}

} // namespace megalith
