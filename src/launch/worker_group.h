#pragma once
#include <chrono>
#include <csignal>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/interruption.h"
#include "flight/postmortem.h"
#include "launch/job_end.h"
#include "launch/node_group.h"
#include "launch/process_guard.h"
#include "launch/repeated_warnings.h"
#include "launch/worker_output.h"
#include "launch/worker_process.h"

namespace tessera {

// Signals of the agent, to be read instead of interrupting it. Blocked in threads and processes
// that are started while it holds them.
class AgentSignals {
 public:
  AgentSignals();
  int fd() const { return fd_.get(); }
  // The next one that has come: SIGCHLD, SIGTSTP, SIGUSR2 or one of ending_signals(); 0: none.
  int next();
  // Forgets those that belong to the one that has just come: kSameSignal.
  void drop_repetitions();
  // For as long as there are no workers: a signal that asks for the end ends this process,
  // end_by().
  void let_through(bool yes);

 private:
  sigset_t set_;
  FileDescriptor fd_;
  std::jthread ending_;  // takes them meanwhile
};

// The workers of one node during one attempt: starts them, relays their output, passes signals on
// and ends them together.
class WorkerGroup {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  WorkerGroup(const RunOptions& options, const NodePlace& place, NodeGroup& nodes,
              AgentSignals& signals, ProcessGuard& guard)
      : options_(options), place_(place), nodes_(nodes), signals_(signals), guard_(guard) {}
  ~WorkerGroup();  // leaves no process behind

  // `variables` are those of all workers; each gets its ranks in addition.
  void start(const WorkerCommand& command,
             std::vector<std::pair<std::string, std::string>> variables);

  // Returns when all workers are gone and it is known how the attempt ended; a failure is told as
  // soon as it is known.
  JobEnd run();
  // Exit status of this node: 0, that of its worker that failed, 143 after an interruption.
  int status() const { return status_; }
  // What this node reported, and whether it was asked to end.
  const std::string& failure() const { return failure_; }
  bool is_interrupted() const {
    return asked_ || (end_ && !own_end_.empty() && end_->text == own_end_);
  }
  // How the workers ended, by rank.
  const std::map<int, RankEnd>& ends() const { return ends_; }
  // When it was known here that the attempt ends.
  TimePoint ended_at() const { return ended_at_; }
  // To be called when rank 0, if it is here, has done its first step.
  void on_first_step(std::function<void()> call) { on_first_step_ = std::move(call); }

 private:
  struct Worker {
    int rank = 0;
    pid_t pid = 0;  // 0: gone
    LastLines last;
    std::optional<WorkerOutput> out, err;
  };

  void wait_for_events();
  void tell_warnings(bool all);
  void take_signals();
  void take_news();
  void take_proposal();
  void take_end();
  void take_exits();
  void collect_exits(std::vector<Worker*>& killed, std::vector<Worker*>& exited);
  void on_exit(Worker& worker, const RankEnd& how);
  void take_request(int signal);
  void interrupt(int signal, std::string_view why);
  void suspend();
  void stop(int signal, std::chrono::milliseconds grace, Ending ending);
  void send(int signal);
  void kill_when_due();
  int running() const;

  const RunOptions& options_;
  const NodePlace& place_;
  NodeGroup& nodes_;
  AgentSignals& signals_;
  ProcessGuard& guard_;
  std::list<Worker> workers_;
  std::map<int, RankEnd> ends_;
  RepeatedWarnings warnings_;
  std::optional<TimePoint> kill_at_;
  std::optional<TimePoint> ask_at_;  // to save, once more
  TimePoint ended_at_{};
  std::optional<JobEnd> end_, proposal_;  // the second as soon as the step is saved
  bool is_own_ = false, saves_ = false;   // the command: WorkerCommand
  bool failed_ = false, interrupted_ = false, done_ = false;
  bool asked_ = false;       // this node itself to end
  bool insisted_ = false;    // more than once
  bool kills_ = false;       // those that do not end
  bool delay_told_ = false;  // of a proposal that waits
  bool regroups_ = false;    // as was proposed
  std::string own_end_;      // that workers of this node were asked to, as it reported it
  int status_ = 0;
  std::string failure_;
  std::function<void()> on_first_step_;
  int forwarded_ = 0;  // the last signal that asked for the end
};

}  // namespace tessera
