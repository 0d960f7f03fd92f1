//===- ControlLayout.h - where the control plane's fields and calls stand --===//
#ifndef MEGALITH_LIB_EMIT_CONTROLLAYOUT_H
#define MEGALITH_LIB_EMIT_CONTROLLAYOUT_H

#include "Code.h"
#include "Names.h"
#include "llvm/ADT/STLExtras.h"
#include <map>
#include <set>
#include <string>
#include <vector>

namespace megalith::emit {

/// A field of the request in its descriptor, or an input.
struct RequestField {
  std::string irName; ///< of the declaration
  ir::Type type;
  int64_t offset; ///< bytes from the start of the descriptor
  const ir::Operation *op;
};

/// A reducer of a call, where the pipeline has more than argmax.
struct CallQuery {
  const ir::Operation *op;
  std::string name;         ///< of its struct
  int64_t index;            ///< among the call's
  int64_t place;            ///< of its words in those of a row
  int64_t words;            ///< of a row
  int64_t result;           ///< of the model; 0: the logits
  std::string hand = {};    ///< arguments of HandPlaces: words of what the stage gives by hand; empty: nothing
  bool editsByHand = false; ///< some of it changes logits

  /// What it gives is the result of the row (Row::result).
  bool isBest() const { return op->name == "argmax" && result == 0; }
};

/// A place where a stage calls a model.
struct CallSite {
  int64_t site;
  std::string stage, model;
  SourceLoc loc;
  int64_t chunk = 0; ///< 0: the call is indivisible
  bool draft = false, wantsLogits = false, lastRow = false;
  bool best = true;     ///< its reducers are the best tokens of the rows that are read
  bool ownPass = false; ///< it stands in a loop of the tick: the pass behind it serves no other call
  bool atLoop = false;  ///< no call: where a slot stands in front of a round, or after the last one
  std::vector<CallQuery> queries = {};
};

/// A pool, with the model that writes it.
struct PoolLayout {
  const ir::Operation *op, *model; ///< null: there is none
  std::string name;                ///< in the source, where there are several
  int64_t callTokens = 0;          ///< room for what its calls of one stage feed
  int64_t draftRows = 0;           ///< rows of all its calls in a run of a stage that feeds drafts, at most
  bool continues = false;          ///< drafts of a run of a stage stand one after the other
  bool trees = false;              ///< rows need not be a chain

  /// In LaunchParams::callTokens, of a slot.
  int64_t callWords() const { return callTokens * (trees ? 4 : 1); }
};

/// Everything of the control plane that has a name or a place, made once.
struct ControlLayout {
  explicit ControlLayout(const ir::Module &module);

  const ControlNames names;
  std::vector<RequestField> fields, inputs;
  int64_t requestBytes = 0;
  int64_t indexBegin = 0; ///< of abi::IndexedRequest in the descriptor; 0: no pool has an index
  std::vector<const ir::Operation *> states, metrics, gauges;
  std::map<std::string, std::string> gaugeTypes; ///< by IR name: "i32" or "f32"
  std::vector<CallSite> sites;                   ///< by site number
  std::vector<PoolLayout> pools;                 ///< by number of their model; at least one
  int64_t callWords = 0;                         ///< of all pools

  /// The namespace of the pools, as control sees them. With one model the tensor unit has its own pool in `pools`, and
  /// both units may stand in one text.
  static std::string poolSpace(size_t models);
  /// Whether a tick's list has several passes: of several models, or because calls stand in loops.
  bool several() const { return pools.size() > 1 || loops(); }
  bool loops() const {
    return llvm::any_of(sites, [](const CallSite &site) { return site.atLoop; });
  }
  int64_t continuing() const; ///< pools in which drafts of a run continue
  int64_t trees() const;      ///< pools of which rows need not be a chain
  /// Of `kv.len @pool` and the like, as a template argument: nothing where there is one pool.
  std::string poolArgument(const std::string &pool) const;
  const PoolLayout &pool(llvm::StringRef name) const;
  std::vector<std::vector<Statement>> bodies; ///< of the tick's parts, by position; none of a pass
  int64_t scratchWords = 0;                   ///< that a warp keeps in a part, at most

  int64_t queries = 0, queryWords = 0; ///< reducers of a call, and words of a row, at most; 0: there is argmax alone
  int64_t results = 1;                 ///< of a model, that calls read, at most
  bool edits = false;                  ///< settings of requests may change rows that calls read
  int64_t textPath = 0;                ///< then: tokens on the path of a row of a tree, or of a kept one, at most
  int64_t handWords = 0;               ///< of a slot for what stages change by hand
  int64_t keptTexts = 0;               ///< and rows that requests keep, at most

  const CallSite &site(int64_t number) const;
  int64_t stateIndex(llvm::StringRef name) const;
  std::string stateName(llvm::StringRef name) const { return "State::" + names.states.at(name.str()); }

private:
  void layOutQueries(const ir::Module &module);
  void layOutHand(const ir::Module &module, CallQuery &query);
};

} // namespace megalith::emit
#endif
