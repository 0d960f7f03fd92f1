//===- Row.h - the contract between control and tensor code ---------------===//
//
// One row of a pass: one token of one request that is fed to a model. The same
// eight words are used by the reference executor, emitted code and the trace.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_IR_ROW_H
#define MEGALITH_IR_ROW_H

#include <cstdint>

namespace megalith {

struct Row {
  int32_t slot;     ///< slot whose page table this row uses
  int32_t token;    ///< token id fed
  int32_t position; ///< rope position
  int32_t kvSlot;   ///< index below the slot's page table where this row's K and V go
  int32_t visible;  ///< the row attends to keys [0, visible) on its own path
  int32_t parent;   ///< row of this pass before it on its path; -1: the committed prefix
  uint32_t flags;   ///< RowFlag bits
  int32_t result;   ///< argmax token after the pass; -1: not wanted, -2: NaN among the logits
};

enum RowFlag : uint32_t { RowWantsLogits = 1, RowIsDraft = 2 };

} // namespace megalith
#endif
