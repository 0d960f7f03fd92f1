//===- LiveReference.cpp - live sessions on the reference executor --------===//
#include "Live.h"
#include "State.h"

namespace megalith::api {

std::unique_ptr<LiveExecutor> makeLiveReference(std::shared_ptr<Kernel::State>, const LiveOptions &) { return nullptr; }

} // namespace megalith::api
