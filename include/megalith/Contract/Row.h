//===- Row.h - one row of a pass ------------------------------------------===//
//
// A row is one token of one request that is fed to a model. The reference executor,
// the kernel and the trace use these eight words. The kernel's compiler has no
// system header, so this file includes none.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith {

struct Row {
  int slot;       ///< slot whose page table this row uses
  int token;      ///< token id fed
  int position;   ///< rope position; its parent's, plus 1
  int kvSlot;     ///< place below the slot's page table where this row's K and V go
  int visible;    ///< the row attends to the keys of positions [0, visible) on its own path
  int parent;     ///< place of the row before it on its path; -1: there is none
  unsigned flags; ///< RowFlag bits
  int result; ///< argmax token after the pass, or a RowResult. Results of other reducers will stand beside the rows.
};

enum RowFlag : unsigned { RowWantsLogits = 1, RowIsDraft = 2 };
constexpr int kRowFlagBits = 2;

/// What Row::result holds in place of a token.
enum RowResult : int {
  RowNotWanted = -1, ///< the row does not want logits
  RowIsNan = -2,     ///< a NaN is among its logits
};

} // namespace megalith
