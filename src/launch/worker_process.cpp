#include "launch/worker_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/open_files.h"
#include "base/own_program.h"
#include "base/pipe.h"
#include "base/text.h"

extern char** environ;

namespace tessera {
namespace {

std::pair<FileDescriptor, FileDescriptor> make_pipe() {
  const PipeEnds ends = open_pipe();
  return {FileDescriptor(ends.read), FileDescriptor(ends.write)};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

struct ChildPlan {
  const char* program;
  char** words;
  char** environment;
  int out, err, failure;  // pipes to write to
  pid_t agent;
  bool is_own;  // this program again
};

// Between fork and exec: other threads of the agent may hold locks, so only system calls here.
[[noreturn]] void become_worker(const ChildPlan& plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.agent) ::_exit(127);  // it died before the line above
  int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, 0);
  ::dup2(plan.out, 1);
  ::dup2(plan.err, 2);
  for (int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  restore_open_files_limit();
  ::signal(SIGTERM, SIG_DFL);  // how the agent ends it, whatever its own parent ignores
  // The request for a report ends nothing: ranks that start find it when they wait for signals, and
  // programs that do not know it never see it.
  sigset_t blocked;
  ::sigemptyset(&blocked);
  if (plan.is_own)
    ::sigaddset(&blocked, SIGUSR2);
  else
    ::signal(SIGUSR2, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  ::execve(plan.program, plan.words, plan.environment);
  int error = errno;
  (void)!::write(plan.failure, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    std::string_view text = *entry, name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& variable : variables) replaced |= variable.first == name;
    if (!replaced) result.emplace_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(cat(name, "=", value));
  return result;
}

WorkerProcess start_worker(const WorkerCommand& command,
                           const std::vector<std::string>& environment) {
  auto [out, out_end] = make_pipe();
  auto [err, err_end] = make_pipe();
  auto [failure, failure_end] = make_pipe();
  std::vector<char*> words = pointers(command.words), variables = pointers(environment);
  ChildPlan plan{.program = command.program.c_str(),
                 .words = words.data(),
                 .environment = variables.data(),
                 .out = out_end.get(),
                 .err = err_end.get(),
                 .failure = failure_end.get(),
                 .agent = ::getpid(),
                 .is_own = command.is_own};
  pid_t pid = ::fork();
  if (pid < 0) throw DeviceError(cat("cannot start a worker: ", std::strerror(errno)));
  if (pid == 0) become_worker(plan);
  ::setpgid(pid, pid);  // here too: whoever comes first
  failure_end.reset();
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(failure.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    throw UserError(cat("cannot execute '", command.program, "': ", std::strerror(error)));
  }
  for (int fd : {out.get(), err.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return {pid, std::move(out), std::move(err)};
}

pid_t start_own_program(const std::vector<std::string>& words,
                        const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> environment = environment_with(variables);
  pid_t pid = 0;
  const std::string program = start_script().value_or("/proc/self/exe");
  int error = ::posix_spawn(&pid, program.c_str(), nullptr, nullptr, pointers(words).data(),
                            pointers(environment).data());
  if (error != 0) throw DeviceError(cat("cannot start a process: ", std::strerror(error)));
  return pid;
}

}  // namespace tessera
