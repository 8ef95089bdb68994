#pragma once
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/exit_status.h"

namespace tessera {

// How a process is asked to end. No signal has a handler: a handler runs on the stack of whatever
// thread it meets, and code that is generated for matrix products keeps an address of its data in
// the stack register (docs/decisions/0018-signals-have-no-handlers.md). All threads block these
// signals, and one that does nothing else takes them.

// SIGINT, SIGTERM, SIGHUP and, as batch systems send it ahead of a job's end, SIGUSR1; without
// those that are ignored, and under a debugger without SIGINT.
sigset_t ending_signals();
// Whether the parent of this process has set a signal to be ignored, as nohup does. Linux keeps one
// that is blocked all the same.
bool is_ignored(int signal);

// timeout(1) sends its signal twice at once: what comes within this time of the first belongs to
// it.
constexpr std::chrono::milliseconds kSameSignal{50};

// Ends this process as the signal would, also as the first process of a container, which no signal
// ends by itself. SIGUSR1 always means "save and exit 143": where there is nothing to save yet,
// that is the status at once.
[[noreturn]] void end_by(int signal);

// What one who ends a process of this program may say beside the signal. kFailed: its job has
// failed, which is told elsewhere, and nothing can be saved: no answer promises that. kGoesOn: its
// job goes on by itself from what is saved.
enum class Ending { kAsked, kFailed, kGoesOn };
void send_ending(pid_t process, int signal, Ending ending);
// Of the first signal that has come; no value: none has.
std::optional<Ending> ending_heard();

// Blocks the ending signals in the calling thread, and so in all threads that are started later,
// and starts the thread that takes them. To be called before there is another thread; after the
// first time it does nothing. On return that thread does nothing but wait, and holds no lock that
// the child of a fork would find taken. From here on such a signal ends the process as ever,
// end_by(). SIGUSR2 is taken likewise and ends nothing: on_report_request().
void take_signals();
// What SIGUSR2 asks for from here on, on a thread of its own; null: a line says that there is
// nothing to report. Returns when one that runs is done.
void on_report_request(std::function<void()> report);

// From here on the first signal is answered by a line of the log, `answer`, and by a request that
// is to be noticed: see interrupted(). A second SIGINT ends the process at once. So does the first
// signal when it has not ended within `limit`: for as long as there is nothing to save.
void catch_interruptions(std::string answer, std::optional<std::chrono::seconds> limit = {});

// The work was given up because of a request.
struct Interrupted : Error {
  Interrupted() : Error("interrupted") {}
};

namespace detail {
extern std::atomic<bool> interruption_requested;
extern thread_local const std::atomic<bool>* interruption_of_thread;
}  // namespace detail

inline bool interrupted() {
  const std::atomic<bool>* own = detail::interruption_of_thread;
  return (own ? *own : detail::interruption_requested).load(std::memory_order_relaxed);
}
// The same of a process whose job another one has left, a moment later: it may have been asked to
// end as well, which its thread for signals has to hear first.
bool interrupted_soon();
// While it lives, the thread that made it is asked to end by `request` alone: it works for another
// thread, which answers the requests to the process and ends this one when it needs no more.
class InterruptedBy {
 public:
  explicit InterruptedBy(const std::atomic<bool>& request) : InterruptedBy(&request) {}
  // Null: by the requests to the process.
  explicit InterruptedBy(const std::atomic<bool>* request);
  ~InterruptedBy();
  InterruptedBy(const InterruptedBy&) = delete;
  InterruptedBy& operator=(const InterruptedBy&) = delete;

 private:
  const std::atomic<bool>* before_;
};
// For InterruptedBy: what has to be done to its end.
inline const std::atomic<bool> kNeverRequested = false;
// `work` for another thread, on which it is asked to end as on the one that calls this.
template <typename Work>
auto interrupted_as_here(Work work) {
  return [work = std::move(work), own = detail::interruption_of_thread]() mutable {
    InterruptedBy here(own);
    return work();
  };
}
// For work that nothing is lost of: throws Interrupted if there is a request.
inline void check_interruption() {
  if (interrupted()) throw Interrupted();
}
// A request without a signal: another rank was asked to end.
void request_interruption();
void clear_interruption();  // for tests

}  // namespace tessera
