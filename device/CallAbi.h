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
constexpr int kCallSharedBytes = 512;  ///< of a CTA; keys that are sorted stand behind it

/// Who takes what there is to do in a stage.
enum class Taken : int {
  Serial, ///< items: one lane, one after the other
  Lane,   ///< items: a lane each
  Warp,   ///< items: a warp each
  Bytes,  ///< copies: parts of about as many bytes, a warp each
  Once    ///< no items: a CTA
};

/// Tickets are counted here, from 0 to 0: the last one that a launch counts brings the counter back.
struct CallCounters {
  unsigned ticket; ///< that the next CTA takes
  unsigned done;   ///< tickets, and stages without one, that are through
};

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
  int partBytes; ///< Bytes: of a part, a multiple of 16
};

struct CallHeader {
  CallCounters *counters; ///< of the stream; not used by a launch of one stage
  CallStatus *status;
  int first, last; ///< stages [first, last) of this launch
  unsigned serial; ///< of the call
  unsigned ends;   ///< of `done` when the launch ends
};

} // namespace megalith::abi
