//===- TraceDecoder.h - trace words of a kernel to a trace ----------------===//
#ifndef MEGALITH_RUNTIME_TRACEDECODER_H
#define MEGALITH_RUNTIME_TRACEDECODER_H

#include "megalith/Requests/Trace.h"
#include "runtime/Manifest.h"

namespace megalith::runtime {

/// Words that control wrote on the device (device/Abi.h, "Trace words") to the trace's
/// ticks. `trace-device` when they are not whole records.
Outcome<Trace> decodeTrace(const Manifest &manifest, const unsigned *words, size_t count);

} // namespace megalith::runtime
#endif
