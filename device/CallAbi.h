//===- CallAbi.h - what a call and its kernel share -----------------------===//
//
// Plain structs, included by runtime/ and by the kernels of pipelines of buffers. A kernel's parameter is
//
//   struct Call { CallHeader header; StageWork work[stages]; Dims dims; Buffers buffers; };
//
// Dims are ints. Each buffer is a pointer and a size (an int) for each dimension, both in multiples of 8 bytes. Change
// kCallAbiVersion with any change here.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Contract/Limits.h"

namespace megalith::abi {

constexpr int kCallAbiVersion = 1;

constexpr int kCallThreads = 256;      ///< of a CTA
constexpr int kCallParamsBytes = 4096; ///< of a kernel's parameter, at most: as CUDA has it
constexpr int kCallSharedBytes = 512;  ///< of a CTA; keys that are sorted, and a scan of each CTA, stand behind it
constexpr int kCallPartBytes = 4096;   ///< of a part of a copy
constexpr int kCallScanNumbers = 2048; ///< that each CTA scans for itself, at most

/// Who takes what there is to do in a stage.
enum class Taken : int {
  Serial, ///< items: one lane, one after the other
  Lane,   ///< items: a lane each
  Warp,   ///< items: a warp each
  Bytes,  ///< copies: parts of about as many bytes, a warp each
  Once,   ///< no items: a CTA
  Each    ///< no items, and one scan: each CTA of the next stage, for itself
};

/// Of the calls of one stream, which run one after the other.
struct CallCounters {
  /// The ticket that the next CTA takes; above kCallTicketBits, how many calls there were. The CTA that takes the last
  /// ticket begins the next call here.
  unsigned ticket;
  /// Tickets, and stages without one, that are through: of calls with an even number, and of the others. Each call
  /// leaves the other one at 0.
  unsigned done[2];
};
constexpr int kCallTicketBits = 16;

/// The first fault since the host looked, of the earliest call. It is written under a lock.
struct CallStatus {
  unsigned lock;
  int fault;              ///< 0: none; else faultAt(code, line)
  unsigned long long key; ///< of the fault: the earlier, the less
  int numbers[4];         ///< of Contract/Faults.def
};

/// A stage of this launch.
struct StageWork {
  int low, high; ///< items
  int taken;     ///< Taken
  int tickets;   ///< CTAs that share it; 0: the one that ends the stage before goes on with it
  int begin;     ///< its first ticket
  int need;      ///< of `done` before it starts
  int parts;     ///< Bytes: of an item, at most
  int unused;
};

struct CallHeader {
  CallCounters *counters; ///< of the stream; not used by a launch of one stage
  CallStatus *status;
  int first, last; ///< stages [first, last) of this launch
  unsigned serial; ///< of the call
  int unused;
};

} // namespace megalith::abi
