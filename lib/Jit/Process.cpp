#include "Process.h"
#include "llvm/ADT/StringRef.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace megalith::jit {

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
    llvm::StringRef name = llvm::StringRef(*entry).split('=').first;
    if (name != "LC_ALL" && name != "LANGUAGE" && (name != "TMPDIR" || options.temporary.empty()))
      out.push_back(*entry);
  }
  out.push_back("LC_ALL=C");
  if (!options.temporary.empty())
    out.push_back("TMPDIR=" + options.temporary);
  return out;
}

Process::Process(const std::vector<std::string> &command, const ProcessOptions &options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    error = std::strerror(errno);
    return;
  }
  std::vector<std::string> variables = environment(options);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!options.directory.empty())
    posix_spawn_file_actions_addchdir_np(&actions, options.directory.c_str());
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  if (options.withErrors)
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  else
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  int rc = posix_spawn(&pid, command.front().c_str(), &actions, nullptr, pointers(command).data(),
                       pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  pipe = ends[0];
  if (rc != 0) {
    error = std::strerror(rc);
    pid = -1;
  }
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
    pid_t ended;
    while ((ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
      ;
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

} // namespace megalith::jit
