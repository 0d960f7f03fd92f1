#include "megalith/Os/Process.h"
#include "Registry.h"
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace megalith::os {

static std::vector<char *> pointers(const std::vector<std::string> &strings) {
  std::vector<char *> out;
  for (const std::string &string : strings)
    out.push_back(const_cast<char *>(string.c_str()));
  out.push_back(nullptr);
  return out;
}

static std::vector<std::string> environment(const ProcessOptions &options) {
  std::vector<std::string> out;
  for (char **entry = environ; *entry; ++entry) {
    std::string_view name = *entry;
    name = name.substr(0, name.find('='));
    if (name != "LC_ALL" && name != "LANGUAGE" && (name != "TMPDIR" || options.temporary.empty()))
      out.push_back(*entry);
  }
  out.push_back("LC_ALL=C");
  if (!options.temporary.empty())
    out.push_back("TMPDIR=" + options.temporary);
  return out;
}

namespace {
/// What the child needs between its birth and the tool's first instruction.
struct Birth {
  char *const *command, *const *variables;
  const char *directory; ///< null: here
  int output;
  bool withErrors;
  pid_t parent;
  int error = 0; ///< errno of what failed
};
} // namespace

/// In the child, whose memory is the parent's: system calls only.
[[noreturn]] static void become(Birth &birth) {
  sigset_t none;
  sigemptyset(&none);
  const int null = open("/dev/null", O_RDWR);
  // SIGPIPE may be ignored here, and the others are blocked: a tool expects neither.
  struct sigaction byDefault = {};
  byDefault.sa_handler = SIG_DFL;
  const bool ready = null >= 0 && dup2(null, 0) >= 0 && dup2(birth.output, 1) >= 0 &&
                     dup2(birth.withErrors ? birth.output : null, 2) >= 0 && setpgid(0, 0) == 0 &&
                     // For SIGKILL, which we cannot do anything about. (It is the thread that counts: ours waits.)
                     prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && (!birth.directory || chdir(birth.directory) == 0) &&
                     sigaction(SIGPIPE, &byDefault, nullptr) == 0 && sigprocmask(SIG_SETMASK, &none, nullptr) == 0;
  if (getppid() != birth.parent)
    _exit(127);
  if (ready)
    execve(birth.command[0], birth.command, birth.variables);
  birth.error = errno;
  _exit(127);
}

/// Not fork(): copying the page tables of tens of GB takes long, and may not be allowed.
[[gnu::noinline]] static pid_t start(Birth &birth) {
  const pid_t child = vfork();
  if (child == 0)
    become(birth);
  return child;
}

Process::Process(const std::vector<std::string> &command, const ProcessOptions &options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    error = std::strerror(errno);
    return;
  }
  const std::vector<std::string> variables = environment(options);
  const std::vector<char *> words = pointers(command), settings = pointers(variables);
  Birth birth{words.data(), settings.data(),    options.directory.empty() ? nullptr : options.directory.c_str(),
              ends[1],      options.withErrors, getpid()};
  {
    // Nor may a signal come to the child before it is a tool: our handlers would run in it.
    RegistryLock registry;
    pid = start(birth);
    if (pid < 0)
      error = std::strerror(errno);
    else if (birth.error) {
      waitpid(pid, nullptr, 0);
      error = std::strerror(birth.error);
      pid = -1;
    } else
      registry->groups.insert(pid);
  }
  close(ends[1]);
  pipe = ends[0];
}

ProcessResult Process::finish() {
  ProcessResult result;
  result.error = error;
  if (pipe >= 0) {
    char buffer[16384];
    for (ssize_t count; (count = read(pipe, buffer, sizeof buffer)) != 0;) {
      if (count > 0)
        result.output.append(buffer, count);
      else if (errno != EINTR)
        break;
    }
    close(pipe);
    pipe = -1;
  }
  if (pid > 0) {
    int status = 0;
    siginfo_t info;
    // Its number stays taken until it is off the list of what is to be ended.
    while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
      ;
    RegistryLock registry;
    pid_t ended;
    while ((ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
      ;
    registry->groups.erase(pid);
    if (ended < 0)
      result.error = std::strerror(errno);
    else if (WIFSIGNALED(status)) {
      result.status = 128 + WTERMSIG(status);
      result.error = strsignal(WTERMSIG(status));
    } else
      result.status = WEXITSTATUS(status);
    pid = -1;
  }
  return result;
}

} // namespace megalith::os
