//===- Schedule.h - schedules of the CPU executor as text -----------------===//
#ifndef MEGALITH_LIB_API_SCHEDULE_H
#define MEGALITH_LIB_API_SCHEDULE_H

#include "runtime/cpu/Executor.h"
#include "llvm/ADT/StringRef.h"

namespace megalith::api {

/// `random:7@1000`: the first 1000 decisions that seed 7 makes. nullopt when it is none.
std::optional<cpu::Schedule> parseSchedule(llvm::StringRef text);

} // namespace megalith::api
#endif
