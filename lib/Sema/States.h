//===- States.h - the state graph -----------------------------------------===//
#ifndef MEGALITH_LIB_SEMA_STATES_H
#define MEGALITH_LIB_SEMA_STATES_H

#include "Context.h"

namespace megalith::sema {

class States {
public:
  explicit States(Context &ctx) : ctx(ctx), diags(ctx.diags) {}

  std::optional<StateGraph> stateGraph();
  void checkStates();
  void checkStageStates();
  void checkTransitions();
  void warnOfUnusedTransitions();
  void checkReachable();
  void checkProgress();
  void checkReadsAreSet();
  void warnOfUnused();
  void warnOfLostDrafts();
  void warnOfGoneKv();

private:
  std::set<std::string> reachableFrom(const std::string &start) const;
  Context &ctx;
  Diagnostics &diags;
};

} // namespace megalith::sema
#endif
