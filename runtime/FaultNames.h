//===- FaultNames.h - names of the codes that a kernel writes -------------===//
#ifndef MEGALITH_RUNTIME_FAULTNAMES_H
#define MEGALITH_RUNTIME_FAULTNAMES_H

namespace megalith::runtime {

/// The name of a fault's code (IR/Faults.def).
inline const char *faultName(int code) {
  switch (code) {
#define FAULT(Enum, Code, Name, Text)                                                              \
  case Code:                                                                                       \
    return Name;
#include "megalith/IR/Faults.def"
  }
  return "UNKNOWN";
}

} // namespace megalith::runtime
#endif
