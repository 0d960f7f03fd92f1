//===- Fibers.cpp - stacks of the threads of a grid -----------------------===//
#include "runtime/cpu/Fibers.h"

#include <csignal>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace megalith::cpu {

Stacks::Stacks() : reserved(kMost * kBytes), memory(static_cast<char *>(reserved.at)) {}

void Stacks::prepare(size_t count) {
  for (; guarded < count && guarded < kGuarded; ++guarded)
    mprotect(memory + guarded * kBytes, kGuard, PROT_NONE);
  for (size_t i = kGuarded; i < count; ++i)
    *canary(i) = kCanary;
#ifdef __SANITIZE_ADDRESS__
  // Threads that were given up left their frames marked, also those of an executor that was here before.
  for (size_t i = 0; i < count; ++i)
    __asan_unpoison_memory_region(memory + i * kBytes + kGuard, kBytes - kGuard);
#endif
}

size_t Stacks::trapped(const void *at) const {
  const size_t offset = static_cast<const char *>(at) - memory;
  return offset < guarded * kBytes && offset % kBytes < kGuard ? offset / kBytes : kMost;
}

namespace {
thread_local void (*trap)(void *);
thread_local char signalStack[64 << 10];
thread_local stack_t oldStack;
thread_local struct sigaction oldAction;

void onSignal(int signal, siginfo_t *info, void *) {
  if (trap)
    trap(info->si_addr);
  sigaction(signal, &oldAction, nullptr); // comes again
}
} // namespace

FaultHandler::FaultHandler(void (*onTrap)(void *)) {
  trap = onTrap;
  stack_t stack{};
  stack.ss_sp = signalStack;
  stack.ss_size = sizeof signalStack;
  sigaltstack(&stack, &oldStack);
  struct sigaction action{};
  action.sa_sigaction = onSignal;
  // The handler may leave for good: the signal must not stay blocked.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &oldAction);
}

FaultHandler::~FaultHandler() {
  sigaction(SIGSEGV, &oldAction, nullptr);
  sigaltstack(&oldStack, nullptr);
  trap = nullptr;
}

} // namespace megalith::cpu
