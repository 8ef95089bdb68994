#include "backends/xla/child_process.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/pipe.h"
#include "base/text.h"

namespace tessera::xla {
namespace {

using std::chrono::steady_clock;

// What the child's result begins with.
enum class Kind : char { kResult = 'R', kUserError = 'U', kError = 'E' };

constexpr size_t kKeptLog = 16 << 10;
constexpr size_t kLinesSaid = 8;

class Pipe {
 public:
  Pipe() = default;
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int read_end() const { return ends_.read; }
  int write_end() const { return ends_.write; }
  void close_read() { shut(ends_.read); }
  void close_write() { shut(ends_.write); }

 private:
  static void shut(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  PipeEnds ends_ = open_pipe();
};

// With the parent's end this one ends, too; signals as a program starts with them; no core file,
// which would be of the parent's size.
[[noreturn]] void be_the_child(pid_t parent, int log, int result,
                               const std::function<std::string()>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  for (int signal : {SIGINT, SIGTERM, SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPIPE})
    ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(log, 1);
  ::dup2(log, 2);
  std::string text;
  try {
    text = work();
    text.insert(0, 1, static_cast<char>(Kind::kResult));
  } catch (const UserError& error) {
    text = cat(static_cast<char>(Kind::kUserError), error.what());
  } catch (const std::exception& error) {
    text = cat(static_cast<char>(Kind::kError), error.what());
  }
  // Without destructors: libraries that were loaded end with the process.
  ::_exit(write_fully(result, text) == text.size() ? 0 : 1);
}

// Whether the stream goes on.
bool read_some(int fd, std::string& text) {
  char buffer[64 << 10];
  const ssize_t got = ::read(fd, buffer, sizeof buffer);
  if (got < 0) return errno == EINTR;
  text.append(buffer, static_cast<size_t>(got));
  return got > 0;
}

std::string last_lines(const std::string& log) {
  std::vector<std::string_view> lines;
  for (std::string_view line : split(log, '\n')) {
    if (!trim(line).empty()) lines.push_back(trim(line));
  }
  if (lines.empty()) return "it printed nothing";
  const size_t first = lines.size() - std::min(lines.size(), kLinesSaid);
  return cat("the last it printed:\n  ",
             join(std::vector(lines.begin() + static_cast<ptrdiff_t>(first), lines.end()), "\n  "));
}

struct Streams {
  std::string result, log;
  bool in_time = true;
};

// Until both are closed: the child has ended then.
Streams read_all(const Pipe& result, const Pipe& log, steady_clock::time_point deadline) {
  Streams streams;
  pollfd polls[2] = {{result.read_end(), POLLIN, 0}, {log.read_end(), POLLIN, 0}};
  while (polls[0].fd >= 0 || polls[1].fd >= 0) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) {
      streams.in_time = false;
      break;
    }
    if (::poll(polls, 2, static_cast<int>(std::min<int64_t>(left, 1000))) <= 0) continue;
    if (polls[0].revents && !read_some(polls[0].fd, streams.result)) polls[0].fd = -1;
    if (polls[1].revents && !read_some(polls[1].fd, streams.log)) polls[1].fd = -1;
    if (streams.log.size() > 2 * kKeptLog) streams.log.erase(0, streams.log.size() - kKeptLog);
  }
  return streams;
}

std::string end_of(int status) {
  if (!WIFSIGNALED(status)) return cat("ended with status ", WEXITSTATUS(status));
  return cat("was ended by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
}

}  // namespace

std::string in_child_process(const std::string& doing, std::chrono::seconds timeout,
                             const std::function<std::string()>& work) {
  Pipe result, log;
  std::fflush(nullptr);  // or the child would have it, too
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw DeviceError(cat(doing, ": no process: ", std::strerror(errno)));
  if (child == 0) {
    result.close_read();
    log.close_read();
    be_the_child(parent, log.write_end(), result.write_end(), work);
  }
  result.close_write();
  log.close_write();
  const Streams streams = read_all(result, log, steady_clock::now() + timeout);
  if (!streams.in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!streams.in_time) {
    throw DeviceError(cat(doing, ": not done after ", timeout.count(), " s, and was ended; ",
                          last_lines(streams.log)));
  }
  if (status != 0 || streams.result.empty()) {
    throw DeviceError(
        cat(doing, ": the process with XLA ", end_of(status), "; ", last_lines(streams.log)));
  }
  const std::string text = streams.result.substr(1);
  if (streams.result[0] == static_cast<char>(Kind::kUserError)) throw UserError(text);
  if (streams.result[0] == static_cast<char>(Kind::kError))
    throw DeviceError(cat(doing, ": ", text));
  return text;
}

}  // namespace tessera::xla
