//===- Faults.h - what a kernel tells of a fault --------------------------===//
#ifndef MEGALITH_RUNTIME_FAULTS_H
#define MEGALITH_RUNTIME_FAULTS_H

#include "device/Abi.h"
#include "megalith/Requests/Trace.h"
#include "runtime/Manifest.h"
#include <string>

namespace megalith::runtime {

/// The name of the code in `word`, a RequestHeader::fault; empty when that is 0.
std::string faultName(unsigned word);

/// Sets the members of `end` that tell of the fault.
void setFault(RequestEnd &end, const abi::RequestHeader &header, const Manifest &manifest);

} // namespace megalith::runtime
#endif
