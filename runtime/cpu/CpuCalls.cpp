#include "runtime/cpu/CpuCalls.h"
#include "runtime/Memory.h"
#include <cstring>
#include <dlfcn.h>
#include <filesystem>

namespace megalith::cpu {

using runtime::CallBuffer;
using runtime::Failure;
using runtime::Outcome;
using runtime::RuntimeError;

namespace {
/// A kernel's parameter with room behind it: the kernel looks at its own bytes alone, wherever a large struct that is
/// passed by value begins.
struct Parameter {
  uint64_t words[abi::kCallParamsBytes / 8];
};
} // namespace

CpuCalls::~CpuCalls() {
  if (library)
    dlclose(library);
}

Outcome<std::unique_ptr<CpuCalls>> CpuCalls::load(const std::string &sharedObject, const std::string &manifest) {
  return runtime::withinMemory([&]() -> Outcome<std::unique_ptr<CpuCalls>> {
    std::unique_ptr<CpuCalls> loaded(new CpuCalls());
    auto info = runtime::CallManifest::parse(manifest);
    if (!info)
      return info.error;
    loaded->info = std::move(*info);
    loaded->calls.emplace(loaded->info, kMostCtas);
    if (Failure failure = loaded->open(sharedObject))
      return *failure;
    return loaded;
  });
}

Failure CpuCalls::open(const std::string &sharedObject) {
  library = dlopen(std::filesystem::absolute(sharedObject).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return RuntimeError{"cpu-kernel", std::string("the kernel cannot be loaded: ") + dlerror()};
  const auto find = [&](auto *&target, const char *name) {
    target = reinterpret_cast<std::remove_reference_t<decltype(target)>>(dlsym(library, name));
    return target != nullptr;
  };
  const int *version = nullptr;
  if (!find(version, "megalith_cpu_version") || !find(bind, "megalith_cpu_bind") || !find(kernel, "megalith_call"))
    return RuntimeError{"cpu-kernel", "`" + sharedObject + "` is no kernel of a pipeline of buffers for the CPU"};
  if (*version != kHostVersion)
    return RuntimeError{"cpu-kernel", "`" + sharedObject + "` was compiled for version " + std::to_string(*version) +
                                          " of the CPU executor, this is version " + std::to_string(kHostVersion) +
                                          "; compile the pipeline again"};
  return std::nullopt;
}

char *CpuCalls::place(const std::string &name, size_t bytes, Initial initial, const void *image) {
  auto [entry, isNew] = memories.try_emplace({name, bytes});
  if (isNew)
    entry->second = executor.allocate(name, bytes, initial, image, image != nullptr);
  else
    executor.reset(entry->second, initial, image);
  return entry->second;
}

Outcome<CallOutcome> CpuCalls::run(std::span<const CallBuffer> buffers, bool perStage, const LaunchOptions &how) {
  return runtime::withinMemory([&]() -> Outcome<CallOutcome> {
    std::vector<CallBuffer> inside(buffers.begin(), buffers.end());
    for (size_t b = 0; b < buffers.size(); ++b)
      if (const auto bytes = static_cast<size_t>(calls->bytesOf(b)); bytes > 0)
        inside[b].data = place(info.buffers[b].name, bytes, info.buffers[b].written ? Initial::Image : Initial::Const,
                               buffers[b].data);
    char *counters = memories.count({"counters", sizeof(last)})
                         ? memories.at({"counters", sizeof(last)})
                         : place("counters", sizeof(last), Initial::Zero, nullptr);
    executor.reset(counters, Initial::Image, &last);
    char *status = place("status of the call", sizeof(abi::CallStatus), Initial::Zero, nullptr);
    if (calls->prepare(inside, perStage))
      return RuntimeError{"cpu-kernel", "the call's buffers are not those that it was prepared for"};
    ++serial;
    bind(executor.host());
    CallOutcome outcome;
    for (const runtime::CallImage::Launch &launch : calls->launches()) {
      Parameter parameter = {};
      std::memcpy(&parameter,
                  calls->paramsOf(launch, reinterpret_cast<abi::CallCounters *>(counters),
                                  reinterpret_cast<abi::CallStatus *>(status), serial),
                  static_cast<size_t>(info.paramsBytes));
      const LaunchShape shape = {launch.ctas, abi::kCallThreads, calls->sharedBytes()};
      LaunchResult result = executor.launch(
          shape, how, [&parameter, entry = reinterpret_cast<void (*)(Parameter)>(kernel)] { entry(parameter); });
      outcome.launch.steps += result.steps;
      outcome.launch.decisions += result.decisions;
      outcome.launch.finding = std::move(result.finding);
      if (outcome.launch.finding)
        return outcome;
    }
    std::memcpy(&last, counters, sizeof(last));
    const unsigned ticket = last.ticket & ((1u << abi::kCallTicketBits) - 1);
    const unsigned done = last.done[last.ticket >> abi::kCallTicketBits & 1];
    if (ticket || done) {
      outcome.launch.finding = Finding{FindingKind::CallCounters,
                                       "the next call would begin with ticket " + std::to_string(ticket) + " and " +
                                           std::to_string(done) + " tickets that are through, and not with 0",
                                       {}};
      return outcome;
    }
    abi::CallStatus said;
    std::memcpy(&said, status, sizeof(said));
    if (said.fault)
      outcome.fault = {static_cast<unsigned>(said.fault), {said.numbers[0], said.numbers[1], said.numbers[2]}};
    for (size_t b = 0; b < buffers.size(); ++b)
      if (info.buffers[b].written && calls->bytesOf(b) > 0)
        std::memcpy(buffers[b].data, inside[b].data, static_cast<size_t>(calls->bytesOf(b)));
    return outcome;
  });
}

} // namespace megalith::cpu
