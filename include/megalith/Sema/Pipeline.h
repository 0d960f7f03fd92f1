//===- Pipeline.h - checking a pipeline file ------------------------------===//
#ifndef MEGALITH_SEMA_PIPELINE_H
#define MEGALITH_SEMA_PIPELINE_H

#include "megalith/Sema/Typed.h"
#include "megalith/Support/Diagnostics.h"
#include "megalith/Syntax/Ast.h"
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace megalith {

/// What a pipeline may know of one of its models.
struct ModelFacts {
  std::string name; ///< as in the pipeline's `models:`
  int64_t vocab = 0;
  /// A number of the checkpoint's config.json by dotted path; nullopt when absent
  /// or no number.
  std::function<std::optional<double>(std::string dottedPath)> config;
  std::vector<int32_t> eos;
  std::vector<std::string> results = {}; ///< beside the logits
  int64_t kvWindow = 0;                  ///< positions that a row sees in any layer, at most; 0: all
  bool hasWindow = false;                ///< of attention, in some layer
};

/// A compile-time constant; f32 values are already rounded to f32.
struct Constant {
  sema::Elem elem = sema::Elem::I32;
  int64_t intValue = 0;
  double floatValue = 0;
  std::vector<Constant> items = {}; ///< of a sequence
  bool seq = false;
};

struct CheckedParam {
  std::string name;
  Constant value;
  SourceLoc loc;
};

struct CheckedField {
  std::string name;
  sema::Type type;
  Constant init; ///< of a scalar; sequences start empty
  bool inferred = false;
  bool local = false; ///< a local of a stage that changes in an `if` or a loop; its name has a point
  SourceLoc loc;
};

/// A value that the request brings.
struct CheckedInput {
  std::string name;
  sema::Type type;
  sema::Range range;     ///< of an i32
  bool required = false; ///< else a request may lack it, and one of these stands for it
  Constant init;         ///< of a scalar
  std::vector<Constant> items;
  SourceLoc loc;
};

struct CheckedState {
  std::string name;
  bool initial = false, terminal = false, parked = false, slot = false, preemptible = false;
  std::vector<std::string> next;
  SourceLoc loc;
};

struct CheckedPool {
  std::string name; ///< the model's name
  int64_t pages = 0, pageTokens = 0;
  int64_t watermark = 100; ///< percent
  std::string onFull = "fail";
  /// With `on_full: wait`: admission reserves pages for so many tokens beyond those that a
  /// request has; absent: for all of its budget.
  std::optional<int64_t> reserve;
  bool index = false;       ///< pages are found again by the tokens that they have K and V of
  bool fp8 = false;         ///< it has e4m3 with a scale for each token and head
  bool bf16Windows = false; ///< but for layers with a window
  SourceLoc loc;
};

struct CheckedOutput {
  std::string name;
  sema::ExprRef value;
  SourceLoc loc;
};

struct CheckedPolicy {
  std::string name;
  std::vector<CheckedField> state;
  std::vector<std::string> observeArgs; ///< all i32
  std::vector<sema::Stmt> observe;
  std::vector<CheckedOutput> outputs;
  SourceLoc loc, observeLoc;
};

/// `target` is taken when `condition` is the first that holds; null = otherwise.
struct CheckedGoto {
  sema::ExprRef condition;
  std::string target;
  SourceLoc loc;
};

struct CheckedStage {
  std::string name;
  std::vector<std::string> on;
  std::vector<sema::ExprRef> order; ///< of a state without slot: who comes first; empty: the greatest priority
  std::optional<int64_t> limit;     ///< requests that it looks at in a tick
  std::vector<sema::Stmt> body;
  std::vector<CheckedGoto> go; ///< the last one has no condition
  SourceLoc loc, goLoc;
};

struct CheckedGauge {
  std::string name;
  sema::Elem elem = sema::Elem::I32;
  SourceLoc loc;
};

/// A pipeline without errors, ready to be lowered.
struct CheckedPipeline {
  std::string name, fault;
  std::string cancel, deadline; ///< states; empty: `fault`
  uint32_t file = 0;
  SourceLoc loc;
  std::vector<std::string> models;
  std::vector<CheckedParam> params;
  std::vector<CheckedField> fields;
  std::vector<CheckedInput> inputs;
  std::vector<CheckedState> states;
  std::vector<CheckedPool> pools;
  std::vector<CheckedPolicy> policies;
  std::vector<CheckedStage> stages;
  std::vector<std::pair<std::string, SourceLoc>> metrics;
  std::vector<CheckedGauge> gauges;
};

/// Resolves params (`sets` are the `--set name=value` pairs), names and types,
/// and checks states, progress and capacities. `facts` may lack models: then
/// their `M.config.key` names are unknown. Reports everything it finds; nullopt
/// when something was an error.
std::optional<CheckedPipeline> checkPipeline(const ast::PipelineFile &pipeline, const std::vector<ModelFacts> &facts,
                                             const std::vector<std::pair<std::string, std::string>> &sets,
                                             Diagnostics &diags);

/// A way from one state to another one: of a stage on the first.
struct Transition {
  std::string from, to, stage;
  std::string condition; ///< "if finished", "else", "else if budget > 3"; empty: always
};

/// The states of a pipeline and the ways between them.
struct StateGraph {
  std::vector<CheckedState> states;
  std::string fault, cancel, deadline; ///< as CheckedPipeline has them
  std::vector<Transition> transitions; ///< in the order of the stages
};

/// Checks states, stages and where these go, and nothing else of the file. nullopt after an error.
std::optional<StateGraph> checkStateGraph(const ast::PipelineFile &pipeline, Diagnostics &diags);

} // namespace megalith
#endif
