//===- ControlLayout.h - names and places of the control plane ------------===//
#ifndef MEGALITH_LIB_EMIT_CONTROLLAYOUT_H
#define MEGALITH_LIB_EMIT_CONTROLLAYOUT_H

#include "megalith/IR/IR.h"
#include <map>
#include <string>
#include <vector>

namespace megalith::emit {

/// A field of the request in its descriptor.
struct RequestField {
  std::string irName, name; ///< of the declaration, and in `struct Fields`
  ir::Type type;
  int64_t offset;           ///< bytes from the start of the descriptor
  const ir::Operation *op;
};

/// A place where a stage calls the model.
struct CallSite {
  int64_t site;
  std::string name;         ///< of its struct in `calls`
  std::string stage;
  SourceLoc loc;
  int64_t chunk = 0;        ///< 0: the call is indivisible
  bool draft = false, wantsLogits = false;
};

/// Everything of the control plane that has a name or a place, made once.
struct ControlLayout {
  explicit ControlLayout(const ir::Module &module);

  std::vector<RequestField> fields;
  int64_t requestBytes = 0;
  std::vector<const ir::Operation *> states, metrics, gauges;
  std::vector<std::string> stateNames;           ///< in `enum class State`
  std::map<std::string, std::string> metricNames, gaugeNames; ///< in their enumerations, by IR name
  std::map<std::string, std::string> gaugeTypes; ///< by IR name: "i32" or "f32"
  std::vector<CallSite> sites;                   ///< by site number
  /// Function of each part in `stages`, by its position in the tick.
  std::vector<std::string> partNames;
  int64_t callsPerStage = 1; ///< most calls of one stage

  const RequestField &field(llvm::StringRef irName) const;
  int64_t stateIndex(llvm::StringRef name) const;
  std::string stateName(llvm::StringRef name) const { return "State::" + stateNames[stateIndex(name)]; }
};

} // namespace megalith::emit
#endif
