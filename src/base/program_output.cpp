#include "base/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/error.h"
#include "base/pipe.h"
#include "base/text.h"

extern char** environ;

namespace tessera {
namespace {

using std::chrono::steady_clock;

constexpr size_t kMostOfStream = 1 << 20;

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    const PipeEnds ends = open_pipe();
    read = ends.read;
    write = ends.write;
  }
  ~Pipe() {
    ::close(read);
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_write() {
    if (write >= 0) ::close(write);
    write = -1;
  }
};

// With the signals as a shell starts it: this process may have blocked those that ask for the end.
int start(const std::vector<std::string>& words, const Pipe& out, const Pipe& err, pid_t& pid) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, out.write, 1);
  ::posix_spawn_file_actions_adddup2(&files, err.write, 2);
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  int error = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  return error;
}

// Whether the stream goes on.
bool read_some(int fd, std::string& text) {
  char buffer[4096];
  ssize_t got = ::read(fd, buffer, sizeof buffer);
  if (got < 0) return errno == EINTR;
  text.append(buffer, std::min(static_cast<size_t>(got), kMostOfStream - text.size()));
  return got > 0;
}

}  // namespace

std::optional<ProgramOutput> program_output(const std::vector<std::string>& words,
                                            std::chrono::milliseconds timeout) {
  Pipe out, err;
  pid_t pid = 0;
  if (start(words, out, err, pid) != 0) return std::nullopt;
  out.close_write();
  err.close_write();
  auto deadline = steady_clock::now() + timeout;
  auto left = [&] {
    auto time = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    return static_cast<int>(std::clamp<int64_t>(time.count(), 0, 1'000'000'000));
  };
  ProgramOutput result;
  pollfd polls[2] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
  while ((polls[0].fd >= 0 || polls[1].fd >= 0) && left() > 0) {
    if (::poll(polls, 2, left()) <= 0) continue;
    if (polls[0].revents && !read_some(out.read, result.out)) polls[0].fd = -1;
    if (polls[1].revents && !read_some(err.read, result.err)) polls[1].fd = -1;
  }
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(pid, &status, WNOHANG)) == 0 && left() > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (ended == 0) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    throw DeviceError(cat("'", words[0], "' did not end within ",
                          std::chrono::duration_cast<std::chrono::seconds>(timeout).count(), " s"));
  }
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace tessera
