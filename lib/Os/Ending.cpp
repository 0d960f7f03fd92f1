#include "megalith/Os/Ending.h"
#include "Registry.h"
#include "megalith/Os/MappedFile.h"
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace megalith::os {

Registry &Registry::get() {
  static Registry *const registry = new Registry; // a destructor at exit would come too early
  return *registry;
}

void Registry::clear() {
  lock.lock();
  for (pid_t group : groups) {
    kill(-group, SIGKILL);
    waitpid(group, nullptr, 0); // perhaps its Process has it already
  }
  std::error_code ignored;
  // What the group's processes were about to make may come while a folder is emptied.
  for (int attempt = 0; attempt < 50 && !paths.empty(); ++attempt) {
    std::erase_if(paths, [&](const std::string &path) {
      std::filesystem::remove_all(path, ignored);
      return !std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
    });
    if (!paths.empty())
      usleep(10'000);
  }
}

void say(const char *text) {
  for (size_t left = std::strlen(text); left > 0;) {
    const ssize_t written = write(STDERR_FILENO, text, left);
    if (written <= 0 && errno != EINTR)
      return;
    if (written > 0) {
      text += written;
      left -= static_cast<size_t>(written);
    }
  }
}

namespace {

/// A thread of its own waits for the signals that end the process: what has to be done
/// then (removing folders) cannot be done in a handler. The others have them blocked.
std::atomic<bool> watching = false;
sigset_t watched;

/// What a handler, or endNow(), asks of that thread by the signal `wake`.
std::atomic<int> askedStatus = -1, askedSignal = 0;

/// deferInterrupt() was called, and no signal came since; which one came then.
std::atomic<bool> defers = false;
std::atomic<int> came = 0;

int wake() { return SIGRTMIN + 3; }

/// Ends the process as `signal` does by default.
[[noreturn]] void dieOf(int signal) {
  struct sigaction byDefault = {};
  byDefault.sa_handler = SIG_DFL;
  sigaction(signal, &byDefault, nullptr);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  kill(getpid(), signal);
  _exit(128 + signal); // the first process of a container is not ended by signals
}

void *watch(void *) {
  // Handlers run in the other threads: they wait for this one.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  int signal = 0;
  do {
    while (sigwait(&watched, &signal) != 0)
      ;
  } while ((signal == SIGINT || signal == SIGTERM) && defers.exchange(false) && (came = signal));
  Registry::get().clear();
  if (signal != wake()) {
    const char *terminal = std::getenv("TERM");
    if (isatty(STDERR_FILENO) && terminal && std::strcmp(terminal, "dumb") != 0)
      say("\r\x1b[2K"); // a line that shows progress
    dieOf(signal);
  }
  if (const int asked = askedSignal)
    dieOf(asked);
  _exit(askedStatus);
}

/// Hands over to the thread above. Comes back when it does not get done in time: the
/// fault may have happened while a lock was held that it needs.
void handOver() {
  if (!watching)
    return;
  kill(getpid(), wake());
  for (int i = 0; i < 500; ++i) {
    const timespec pause = {0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
}

void onPipe(int) {
  askedSignal = SIGPIPE;
  handOver();
  dieOf(SIGPIPE);
}

constexpr struct {
  int signal;
  const char *name;
} faults[] = {{SIGSEGV, "segmentation fault"},
              {SIGBUS, "bus error"},
              {SIGILL, "illegal instruction"},
              {SIGFPE, "arithmetic error"},
              {SIGABRT, "abort"}};

void onFault(int signal, siginfo_t *info, void *) {
  static std::atomic_flag already = ATOMIC_FLAG_INIT;
  if (already.test_and_set())
    _exit(1);
  if (signal != SIGBUS || info->si_code <= 0 || !MappedFile::explainFault(info->si_addr)) {
    say("error: internal error: ");
    for (const auto &fault : faults)
      if (fault.signal == signal)
        say(fault.name);
    say("; this is a fault of megalith: please report it with the command and its files [internal-error]\n");
  }
  askedStatus = 1;
  handOver();
  _exit(1);
}

void handle(int signal, struct sigaction action) { sigaction(signal, &action, nullptr); }

bool isIgnored(int signal) {
  struct sigaction now = {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

} // namespace

void deferInterrupt() { defers = true; }
int interrupted() { return came; }

void endNow(int status) {
  askedStatus = status;
  handOver();
  _exit(status);
}

/// A file that we open must not become standard output because that was closed. Reading and
/// writing stay as impossible as they were.
static void takeStandardDescriptors() {
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0)
      open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY); // takes the lowest number
}

void endCleanly() {
  if (watching)
    return;
  takeStandardDescriptors();
  Registry::get();
  sigset_t before;
  sigemptyset(&watched);
  sigaddset(&watched, wake());
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    if (!isIgnored(signal))
      sigaddset(&watched, signal);
  pthread_sigmask(SIG_BLOCK, &watched, &before);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 << 10);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  watching = pthread_create(&thread, &small, watch, nullptr) == 0;
  pthread_attr_destroy(&small);
  if (!watching) { // better that signals end us at once than never
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return;
  }
  struct sigaction action = {};
  action.sa_handler = onPipe;
  if (!isIgnored(SIGPIPE))
    handle(SIGPIPE, action);
#ifndef __SANITIZE_ADDRESS__ // which has better reports of its own
  static char room[64 << 10];
  stack_t stack = {};
  stack.ss_sp = room;
  stack.ss_size = sizeof room;
  sigaltstack(&stack, nullptr); // for a stack that is full
  action = {};
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const auto &fault : faults)
    handle(fault.signal, action);
#endif
}

} // namespace megalith::os
