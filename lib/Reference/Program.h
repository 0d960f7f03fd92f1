//===- Program.h - a module, laid out for interpretation --------*- C++ -*-===//
#ifndef MEGALITH_LIB_REFERENCE_PROGRAM_H
#define MEGALITH_LIB_REFERENCE_PROGRAM_H

#include "megalith/IR/Inputs.h"
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace megalith::reference {

/// The module cannot be executed; becomes RunResult::error.
struct NotExecutable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A control value; its type says which member holds it. i32, bool and token use
/// `i`. Elements of a sequence of f32 are their bits.
struct Val {
  int32_t i = 0;
  float f = 0;
  std::vector<int32_t> seq;
  std::vector<std::vector<int32_t>> rows = {}; ///< of a table
};

struct FieldInfo {
  std::string name;
  ir::Type type;
  Val init;
  bool keepsLogits = false;
};

struct StateInfo {
  std::string name;
  SourceLoc loc;
  bool initial = false, terminal = false, slot = false;
};

struct PoolInfo {
  std::string name; ///< of the model, too
  SourceLoc loc;
  int64_t pages = 0, pageTokens = 1, watermark = 100;
  bool wait = false;      ///< `on_full: wait`
  int64_t rowsBeyond = 0; ///< that calls of a stage can write after all of a request's tokens
  int64_t reserve = -1;   ///< tokens to reserve pages for, beyond those there are; -1: the budget
  bool index = false;     ///< its pages are found again by their tokens
  int64_t window = 0;     ///< positions that a row sees, itself among them; 0: all
};

/// An entry of the tick's list: a pass, or operations of a region from `first` on.
struct PartInfo {
  enum Kind { Admit, Slot, Pass } kind = Slot;
  std::string name;
  int state = -1;
  int pool = -1; ///< of a pass
  const ir::Region *region = nullptr;
  size_t first = 0;
  int64_t loop = -1;                    ///< of the tick, that it stands in
  int64_t limit = 0;                    ///< of an admission: requests that it looks at in a tick
  const ir::Operation *order = nullptr; ///< of an admission: null for that of priorities
  int64_t callSite = -1;                ///< of a pass in a loop: the one whose calls it serves
  int64_t beforeSite = -1;              ///< of the call that ends it
  int64_t afterSite = -1;               ///< runs for slots whose call of this site was served
};

struct Program {
  explicit Program(const ir::Module &module);

  const ir::Module &module;
  std::vector<FieldInfo> fields;
  std::vector<Input> inputs;
  std::vector<StateInfo> states;
  std::vector<PoolInfo> pools;
  std::vector<PartInfo> parts;
  int initialState = 0, faultState = 0;
  int cancelState = 0, deadlineState = 0; ///< of requests that the host takes back, and whose time is over
  bool readsHost = false;                 ///< something goes by the host's clock, or by when requests arrived
  int64_t slots = 0, rowsPerPass = 0, rowsBeside = 0;
  int64_t vocab = 0;         ///< of the first model: tokens that requests may have
  std::set<int64_t> inLoops; ///< call sites that stand in loops

  int field(const std::string &name) const { return lookup(fieldIndex, name); }
  int input(const std::string &name) const { return lookup(inputIndex, name); }
  int state(const std::string &name) const { return lookup(stateIndex, name); }
  int pool(const std::string &name) const { return lookup(poolIndex, name); }

private:
  using Index = std::map<std::string, int>;
  static int lookup(const Index &index, const std::string &name);
  void readDeclarations();
  void readTick(const ir::Operation &tick);
  void derivePartsFromStages();

  Index fieldIndex, inputIndex, stateIndex, poolIndex;
};

/// What an input of a request is.
Val valueOfInput(const Input &input, const Request &request);

/// A value of an `init` or `value` attribute.
Val constantValue(ir::Number number, ir::Type type);

} // namespace megalith::reference
#endif
