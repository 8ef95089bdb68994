#include "base/interruption.h"

#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <latch>
#include <mutex>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/save_request.h"
#include "base/text.h"

namespace tessera {
namespace {

using std::chrono::steady_clock;

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
// In the value that comes with a signal, above an Ending: other programs may send values, too.
constexpr int kEndingMark = 0x7e55e7a0, kSaveMark = 0x7e55e7b0;

bool is_debugged() {
  return read_file("/proc/self/status").find("\nTracerPid:\t0\n") == std::string::npos;
}

// Never destroyed: its thread goes on until the process has ended.
struct Requests {
  std::mutex mutex;
  bool caught = false;  // see catch_interruptions()
  std::string answer;
  std::optional<std::chrono::seconds> limit;
  int first = 0;  // signal, 0: none has come
  Ending ending = Ending::kAsked;
  steady_clock::time_point at;
};

Requests& requests() {
  static Requests& all = *new Requests;
  return all;
}

int value_of(const siginfo_t& info) {
  return info.si_code == SI_QUEUE ? info.si_value.sival_int : 0;
}

void send_with(int value, pid_t process, int signal) {
  sigval word{};
  word.sival_int = value;
  ::sigqueue(process, signal, word);
}

Ending ending_of(const siginfo_t& info) {
  const int value = value_of(info) - kEndingMark;
  return value == 1 || value == 2 ? static_cast<Ending>(value) : Ending::kAsked;
}

void answer(int signal, Ending ending) {
  Requests& all = requests();
  std::lock_guard lock(all.mutex);
  if (!all.caught) end_by(signal);
  if (all.first != 0) {
    if (signal == SIGINT) end_by(signal);
    return;
  }
  all.first = signal;
  all.ending = ending;
  all.at = steady_clock::now();
  request_interruption();
  if (ending == Ending::kFailed) return;
  // By another thread: the log may wait for its reader, but a second signal must not.
  std::thread([line = cat(::strsignal(signal), ": ", all.answer, ". Ctrl-C (SIGINT) ",
                          signal == SIGINT ? "once more " : "", "ends the process at once")] {
    TESSERA_INFO(line);
  }).detach();
}

struct Report {
  std::mutex mutex;
  std::function<void()> write;
};

Report& report() {
  static Report& one = *new Report;
  return one;
}

std::atomic<bool> save_requested{false};
// Of requests that come while one is answered all but the first are dropped.
std::atomic<int> requested{0};

void write_report() {
  struct Done {
    ~Done() { --requested; }
  } done;
  Report& wanted = report();
  std::lock_guard lock(wanted.mutex);
  if (wanted.write)
    wanted.write();
  else
    TESSERA_INFO("SIGUSR2 asks for a report, and this process keeps no record of what it does");
}

void end_when_due() {
  Requests& all = requests();
  std::lock_guard lock(all.mutex);
  if (all.first != 0 && all.limit && steady_clock::now() - all.at >= *all.limit) end_by(all.first);
}

void drop_what_follows(const sigset_t& set) {
  std::this_thread::sleep_for(kSameSignal);
  const timespec now{};
  while (::sigtimedwait(&set, nullptr, &now) > 0) {
  }
}

void take(sigset_t set) {
  const timespec tick{0, 200'000'000};
  for (bool any = false;;) {
    siginfo_t info{};
    int signal = any ? ::sigtimedwait(&set, &info, &tick) : ::sigwaitinfo(&set, &info);
    if (signal == SIGUSR2 && value_of(info) == kSaveMark) {
      request_save();
      continue;
    }
    if (signal == SIGUSR2) {
      if (++requested <= 2)
        std::thread(write_report).detach();
      else
        --requested;
      continue;
    }
    if (signal > 0) answer(signal, ending_of(info));
    if (signal > 0 && !any) drop_what_follows(set);
    any |= signal > 0;
    end_when_due();
  }
}

}  // namespace

std::atomic<bool> detail::interruption_requested = false;
thread_local const std::atomic<bool>* detail::interruption_of_thread = nullptr;

void end_by(int signal) {
  if (signal == SIGUSR1) ::_exit(kInterruptedStatus);
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);  // the first process of a container does not die of it
}

void send_ending(pid_t process, int signal, Ending ending) {
  send_with(kEndingMark + static_cast<int>(ending), process, signal);
}

void send_save_request(pid_t process) { send_with(kSaveMark, process, SIGUSR2); }
bool take_save_request() { return save_requested.exchange(false); }
void request_save() { save_requested = true; }

std::optional<Ending> ending_heard() {
  Requests& all = requests();
  std::lock_guard lock(all.mutex);
  if (all.first == 0) return std::nullopt;
  return all.ending;
}

sigset_t ending_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : kEnding) {
    if (!is_ignored(signal)) ::sigaddset(&set, signal);
  }
  if (is_debugged()) ::sigdelset(&set, SIGINT);  // its own Ctrl-C
  return set;
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void take_signals() {
  static const bool once = [] {
    sigset_t set = ending_signals();
    if (!is_ignored(SIGUSR2)) ::sigaddset(&set, SIGUSR2);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    static std::latch waits(1);
    std::thread([set] {
      waits.count_down();
      take(set);
    }).detach();
    waits.wait();
    return true;
  }();
  (void)once;
}

void on_report_request(std::function<void()> write) {
  Report& wanted = report();
  std::lock_guard lock(wanted.mutex);
  wanted.write = std::move(write);
}

void catch_interruptions(std::string answer, std::optional<std::chrono::seconds> limit) {
  Requests& all = requests();
  std::lock_guard lock(all.mutex);
  all.caught = true;
  all.answer = std::move(answer);
  all.limit = limit;
}

bool interrupted_soon() {
  for (int i = 0; i < 40 && !interrupted(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return interrupted();
}

InterruptedBy::InterruptedBy(const std::atomic<bool>* request)
    : before_(std::exchange(detail::interruption_of_thread, request)) {}

InterruptedBy::~InterruptedBy() { detail::interruption_of_thread = before_; }

void request_interruption() { detail::interruption_requested = true; }

void clear_interruption() {
  Requests& all = requests();
  std::lock_guard lock(all.mutex);
  detail::interruption_requested = false;
  all.first = 0;
}

}  // namespace tessera
