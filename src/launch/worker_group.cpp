#include "launch/worker_group.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/open_files.h"
#include "base/process_identity.h"
#include "base/save_request.h"
#include "base/terminal_text.h"
#include "base/text.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between SIGTERM and SIGKILL, after another rank failed: nothing can be saved without it.
constexpr milliseconds kFailureGrace = std::chrono::seconds(15);
// After an interruption, for the workers to finish their step and save.
constexpr milliseconds kSaveGrace = std::chrono::minutes(10);
// After a second Ctrl-C, at which `train` ends at once.
constexpr milliseconds kInsistedGrace = std::chrono::seconds(2);
// Until a request to save that was not answered is sent again: a signal that comes while another
// one of its number is pending is lost.
constexpr milliseconds kAskToSaveAgain = std::chrono::seconds(5);
// For one that a signal ends to be gone.
constexpr milliseconds kDying = std::chrono::seconds(5);

std::string describe(int code, int signal) {
  if (signal == 0) return cat("exit status ", code);
  std::string text = cat("killed by signal ", signal, " (", ::strsignal(signal), ")");
  if (signal == SIGKILL) text += ", by hand or because memory ran out";
  return text;
}

// Two pipes and the files of each worker; the last one's start takes the other ends of its own, and
// both of a third.
uint64_t descriptors_of(const RunOptions& options) {
  constexpr uint64_t kWhileStarting = 4;
  uint64_t needed = kWhileStarting;
  for (int local = 0; local < options.nproc_per_node; ++local) {
    const int files = options.redirects.of(local) | options.tee.of(local);
    needed += 2 + static_cast<uint64_t>(std::popcount(static_cast<unsigned>(files)));
  }
  return needed;
}

bool is_stopped(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

}  // namespace

AgentSignals::AgentSignals() {
  set_ = ending_signals();
  for (int signal : {SIGTSTP, SIGUSR2})
    if (!is_ignored(signal)) ::sigaddset(&set_, signal);
  ::sigaddset(&set_, SIGCHLD);
  ::signal(SIGCHLD, SIG_DFL);  // where the parent ignores it there would be none to wait for
  ::signal(SIGPIPE, SIG_IGN);  // nobody reads this output any more: the job goes on
  ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  fd_ = FileDescriptor(::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
}

void AgentSignals::let_through(bool yes) {
  ending_ = {};  // has ended then
  if (!yes) return;
  ending_ = std::jthread([](std::stop_token asked) {
    sigset_t set = ending_signals();
    if (!is_ignored(SIGTSTP)) ::sigaddset(&set, SIGTSTP);
    const timespec tick{0, 50'000'000};
    while (!asked.stop_requested()) {
      int signal = ::sigtimedwait(&set, nullptr, &tick);
      if (signal == SIGTSTP) ::raise(SIGSTOP);
      if (signal > 0 && signal != SIGTSTP) end_by(signal);
    }
  });
}

int AgentSignals::next() {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                              : 0;
}

void AgentSignals::drop_repetitions() {
  std::this_thread::sleep_for(kSameSignal);
  while (next() != 0) {
  }
}

WorkerGroup::~WorkerGroup() {
  send(SIGKILL);
  for (Worker& worker : workers_) {
    if (worker.pid == 0) continue;
    ::waitpid(worker.pid, nullptr, 0);
    guard_.forget(worker.pid);
  }
}

void WorkerGroup::start(const WorkerCommand& command,
                        std::vector<std::pair<std::string, std::string>> variables) {
  require_open_files(descriptors_of(options_), cat("start ", options_.nproc_per_node, " workers"));
  std::string folder = options_.log_dir;
  if (!folder.empty()) {
    std::string id = options_.rdzv_id;
    for (char& c : id) c = c == '/' ? '_' : c;
    folder +=
        cat(id.empty() ? "" : "/", id, "/attempt_", place_.attempt + options_.earlier_attempts());
    make_directories(folder);
  }
  is_own_ = command.is_own;
  saves_ = command.is_own && !command.saves_nothing;
  size_t shared = variables.size();
  for (int local = 0; local < options_.nproc_per_node; ++local) {
    int rank = place_.first_rank + local;
    variables.resize(shared);
    variables.insert(variables.end(), {{"RANK", cat(rank)}, {"LOCAL_RANK", cat(local)}});
    WorkerProcess process = start_worker(command, environment_with(variables));
    guard_.watch(process.pid);
    Worker& worker = workers_.emplace_back();
    worker.rank = rank;
    worker.pid = process.pid;
    int files = options_.redirects.of(local) | options_.tee.of(local);
    int hidden = options_.redirects.of(local) & ~options_.tee.of(local);
    auto relay = [&](FileDescriptor pipe, int stream, const char* name) {
      std::string file = files & stream ? cat(folder, "/rank_", rank, ".", name, ".log") : "";
      return WorkerOutput(std::move(pipe), cat("[rank ", rank, "] "), stream, !(hidden & stream),
                          file, &worker.last);
    };
    worker.out.emplace(relay(std::move(process.out), STDOUT_FILENO, "out"));
    worker.err.emplace(relay(std::move(process.err), STDERR_FILENO, "err"));
    worker.err->set_taken([this, rank](std::string_view line) {
      const auto now = steady_clock::now();
      if (line.starts_with("tessera: ")) {  // what led to it stands above
        warnings_.release(rank, now);
        tell_warnings(false);
      }
      return warnings_.take(rank, line, now);
    });
  }
}

int WorkerGroup::running() const {
  int count = 0;
  for (const Worker& worker : workers_) count += worker.pid != 0;
  return count;
}

JobEnd WorkerGroup::run() {
  take_news();
  while (running() > 0 || !end_) {
    if (running() == 0 && !done_) {
      done_ = true;
      if (!failed_ && !interrupted_) nodes_.report_done();
    }
    wait_for_events();
    take_signals();
    take_exits();
    take_news();
    kill_when_due();
  }
  tell_warnings(true);
  if (end_->kind != JobEnd::Kind::kDone && status_ == 0) {
    bool asked = end_->kind == JobEnd::Kind::kInterrupted || end_->kind == JobEnd::Kind::kRegroup;
    status_ = asked ? end_->status : 1;
  }
  return *end_;
}

void WorkerGroup::wait_for_events() {
  std::vector<pollfd> polls{{signals_.fd(), POLLIN, 0}, {end_ ? -1 : nodes_.notice(), POLLIN, 0}};
  for (Worker& worker : workers_) {
    polls.push_back({worker.out->fd(), POLLIN, 0});
    polls.push_back({worker.err->fd(), POLLIN, 0});
  }
  const TimePoint next = std::min(
      {kill_at_.value_or(TimePoint::max()), ask_at_.value_or(TimePoint::max()), warnings_.next()});
  ::poll(polls.data(), polls.size(), next < TimePoint::max() ? poll_timeout(next) : -1);
  for (Worker& worker : workers_) {
    worker.out->relay();
    worker.err->relay();
  }
  tell_warnings(false);
  const bool stepped =
      !workers_.empty() && workers_.front().rank == 0 && workers_.front().last.has_first_step();
  if (stepped && on_first_step_) std::exchange(on_first_step_, nullptr)();
}

void WorkerGroup::tell_warnings(bool all) {
  std::string lines;
  for (const std::string& line : warnings_.due(steady_clock::now(), all)) lines += line + "\n";
  if (!lines.empty()) LineWriter(STDERR_FILENO, "tessera: ").write(lines);
}

void WorkerGroup::take_signals() {
  while (int signal = signals_.next()) {
    if (signal == SIGCHLD) continue;
    if (signal == SIGTSTP) {
      suspend();
    } else if (signal == SIGUSR2) {
      // For the ranks themselves, not for what they have started.
      for (const Worker& worker : workers_)
        if (worker.pid != 0) ::kill(worker.pid, SIGUSR2);
      TESSERA_INFO("SIGUSR2: passed on to the ranks, which write reports of what they do");
    } else {
      take_request(signal);
    }
  }
}

// Once more than once, it is passed on: what that means is the workers' choice.
void WorkerGroup::take_request(int signal) {
  const bool repeated = std::exchange(asked_, true);
  if (!interrupted_ && !failed_) {
    interrupt(signal, ::strsignal(signal));
  } else if (repeated || failed_) {
    forwarded_ = signal;
    insisted_ = true;
    send(signal);
    if (signal == SIGINT && kill_at_)
      kill_at_ = std::min(*kill_at_, steady_clock::now() + kInsistedGrace);
  }
  // Only behind one that has come here: where a node or a worker ended first, the next is the
  // first.
  if (!repeated) signals_.drop_repetitions();
}

// Ctrl-Z: the terminal knows of the agent only, since workers lead groups of their own.
void WorkerGroup::suspend() {
  auto begin = steady_clock::now();
  send(SIGSTOP);
  ::raise(SIGSTOP);  // until somebody lets it continue
  send(SIGCONT);
  if (kill_at_) *kill_at_ += steady_clock::now() - begin;
}

// This node was asked to end, or the job was.
void WorkerGroup::interrupt(int signal, std::string_view why) {
  forwarded_ = signal;
  interrupted_ = true;
  TESSERA_INFO(cat(why, ": workers finish their step, save and exit"));
  const bool others_stay = place_.may_leave && place_.nodes.size() > 1;
  const bool goes_on = end_ ? end_->kind == JobEnd::Kind::kRegroup : others_stay;
  stop(signal, kSaveGrace, goes_on ? Ending::kGoesOn : Ending::kAsked);
  JobEnd end{JobEnd::Kind::kInterrupted, kInterruptedStatus, false, "interrupted"};
  if (place_.may_leave) {
    end.kind = JobEnd::Kind::kRegroup;
    end.text = cat("node ", place_.node_rank, " on ",
                   place_.nodes[static_cast<size_t>(place_.node_rank)].host, " leaves");
  }
  own_end_ = end.text;
  nodes_.report(end);
}

void WorkerGroup::take_news() {
  take_proposal();
  take_end();
}

// What the ranks have learned is safe first: were they ended, and could not save then, it would be
// lost, and nothing has failed. On the node of rank 0.
void WorkerGroup::take_proposal() {
  const std::optional<JobEnd> proposed = nodes_.proposal();
  if (regroups_) return;
  Worker& first = workers_.front();
  std::optional<bool> saved;
  if (proposed && !proposal_) {
    delay_told_ = false;
    first.last.forget_answer();
    ask_at_ = steady_clock::now();
    if (!saves_ || first.pid == 0 || !first.last.has_first_step() || is_ignored(SIGUSR2))
      saved = true;
  } else if (!proposed && proposal_) {
    TESSERA_INFO(cat(proposal_->text, ", and is gone again: the job goes on as it is"));
  }
  proposal_ = proposed;
  if (!saved && proposal_) saved = first.last.has_saved();
  if (saved || !proposal_ || first.pid == 0) ask_at_.reset();
  if (saved == true) {
    regroups_ = true;
    nodes_.report(*proposal_);
  } else if (saved == false && !std::exchange(delay_told_, true)) {
    TESSERA_WARN(cat(proposal_->text,
                     ", but what the job has learned cannot be saved: it goes on "
                     "with the nodes that it has, until it has saved a checkpoint"));
  } else if (ask_at_ && steady_clock::now() >= *ask_at_) {
    send_save_request(first.pid);
    ask_at_ = steady_clock::now() + kAskToSaveAgain;
  }
}

void WorkerGroup::take_end() {
  if (end_) return;
  end_ = nodes_.end();
  if (!end_ || end_->kind == JobEnd::Kind::kDone) return;
  if (end_->kind == JobEnd::Kind::kFailed || end_->kind == JobEnd::Kind::kLost) {
    tell_warnings(true);
    print_error(end_->text);
  }
  if (failed_) return;
  if (end_->kind == JobEnd::Kind::kRegroup) {
    if (!interrupted_) interrupt(SIGTERM, end_->text);
  } else if (end_->kind == JobEnd::Kind::kInterrupted) {
    if (!interrupted_) interrupt(SIGTERM, ::strsignal(SIGTERM));
  } else {
    failed_ = true;
    stop(SIGTERM, kFailureGrace, Ending::kFailed);
  }
}

void WorkerGroup::take_exits() {
  // Of those that have ended meanwhile, one that a signal ended did so before any that noticed,
  // though it may take longer to be gone.
  std::vector<Worker*> killed, exited;
  collect_exits(killed, exited);
  const bool failure =
      std::ranges::any_of(exited, [&](Worker* worker) { return ends_[worker->rank].status != 0; });
  const TimePoint latest = steady_clock::now() + kDying;
  auto dying = [](const Worker& worker) { return worker.pid != 0 && is_being_killed(worker.pid); };
  while (failure && killed.empty() && !failed_ && !interrupted_ &&
         std::ranges::any_of(workers_, dying) && steady_clock::now() < latest) {
    std::this_thread::sleep_for(milliseconds(1));
    collect_exits(killed, exited);
  }
  for (const std::vector<Worker*>& some : {killed, exited})
    for (Worker* worker : some) on_exit(*worker, ends_[worker->rank]);
}

void WorkerGroup::collect_exits(std::vector<Worker*>& killed, std::vector<Worker*>& exited) {
  const bool asked = failed_ || interrupted_;
  for (Worker& worker : workers_) {
    siginfo_t info{};
    int options = WEXITED | WNOHANG | WNOWAIT;
    if (worker.pid == 0 || ::waitid(P_PID, static_cast<id_t>(worker.pid), &info, options) != 0 ||
        info.si_pid == 0) {
      continue;
    }
    // What it started ends with it. Before its number is given back: it names the group.
    ::kill(-worker.pid, SIGKILL);
    guard_.forget(worker.pid);
    ::waitpid(worker.pid, nullptr, 0);
    worker.pid = 0;
    worker.out->finish();
    worker.err->finish();
    const bool by_itself = info.si_code == CLD_EXITED;
    RankEnd& end = ends_[worker.rank];
    (by_itself ? end.status : end.signal) = info.si_status;
    end.asked = asked && (end.signal != SIGKILL || kills_);
    end.time =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    (by_itself ? exited : killed).push_back(&worker);
  }
}

void WorkerGroup::on_exit(Worker& worker, const RankEnd& how) {
  const int code = how.status, signal = how.signal;
  if (code == 0 && signal == 0) return;
  int status = signal != 0 ? 128 + signal : code;
  if (interrupted_ && (code == kInterruptedStatus || (signal != 0 && signal == forwarded_))) {
    // One that starts may have nothing to save yet, and no handler: the signal itself ends it.
    if (status_ == 0) status_ = insisted_ ? status : kInterruptedStatus;
    return;
  }
  if (failed_) return;  // it was told to end
  // Somebody interrupted this worker itself, or one of another node, of which the end of the
  // attempt tells.
  if (code == kInterruptedStatus) {
    status_ = kInterruptedStatus;
    interrupt(SIGTERM, ::strsignal(SIGTERM));
    return;
  }
  failed_ = true;
  status_ = status;
  std::string text = cat("rank ", worker.rank, " failed first: ", describe(code, signal));
  if (place_.nodes.size() > 1) {
    text += cat(" (node ", place_.node_rank, " on ",
                place_.nodes[static_cast<size_t>(place_.node_rank)].host, ")");
  }
  if (!worker.last.lines().empty()) text += "; its last lines:";
  for (const std::string& line : worker.last.lines()) text += cat("\n    ", line);
  failure_ = text;
  // First: the store may be out of reach, which takes time to see.
  stop(SIGTERM, kFailureGrace, Ending::kFailed);
  // With a wrong command line the next attempt would be the same.
  nodes_.report({JobEnd::Kind::kFailed, status, code != kUsageStatus, text});
}

void WorkerGroup::stop(int signal, milliseconds grace, Ending ending) {
  kill_at_ = steady_clock::now() + grace;
  if (ended_at_ == TimePoint()) ended_at_ = steady_clock::now();
  for (const Worker& worker : workers_)
    if (worker.pid != 0 && is_stopped(worker.pid)) ends_[worker.rank].stopped = true;
  for (const Worker& worker : workers_)
    if (worker.pid != 0 && is_own_ && ending != Ending::kAsked)
      send_ending(worker.pid, signal, ending);
  send(signal);
  send(SIGCONT);  // one that is stopped takes no other signal
}

void WorkerGroup::send(int signal) {
  for (const Worker& worker : workers_) {
    if (worker.pid != 0) ::kill(-worker.pid, signal);
  }
}

void WorkerGroup::kill_when_due() {
  if (!kill_at_ || steady_clock::now() < *kill_at_) return;
  kill_at_.reset();
  if (running() > 0) TESSERA_WARN(cat(running(), " workers do not end: killing them"));
  kills_ = true;
  send(SIGKILL);
}

}  // namespace tessera
