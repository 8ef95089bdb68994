#include "launch/agent.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "comm/job.h"
#include "comm/slurm_token.h"
#include "comm/tcp_socket.h"
#include "launch/job_token.h"
#include "launch/node_group.h"
#include "launch/worker_group.h"

namespace tessera {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

const char* environment(const char* name) { return std::getenv(name); }

// Between the end of one attempt and the next: what made an attempt fail may pass.
constexpr std::chrono::milliseconds kFirstPause{500}, kLongestPause{30'000};

std::chrono::milliseconds pause_before(int attempt) {
  auto pause = kFirstPause;
  for (int i = 1; i < attempt && pause < kLongestPause; ++i) pause *= 2;
  return std::min(pause, kLongestPause);
}

// A job that Slurm has requeued goes on as one that was restarted.
int earlier_starts(const RunOptions& options) {
  return options.slurm ? options.slurm->restarts : 0;
}

Variables shared_variables(const RunOptions& options, const NodePlace& place, const Endpoint& store,
                           const std::string& token, const std::string& job_id) {
  return {{"WORLD_SIZE", cat(place.world_size)},
          {"LOCAL_WORLD_SIZE", cat(options.nproc_per_node)},
          {"MASTER_ADDR", store.host},
          {"MASTER_PORT", cat(store.port)},
          {"TESSERA_JOB_TOKEN", token},
          {"TESSERA_JOB_ID", job_id},
          {"TESSERA_ATTEMPT", cat(place.attempt + earlier_starts(options))},
          {"TESSERA_AGENT_STORE", "1"}};
}

void announce(const RunOptions& options, const NodePlace& place, const Endpoint& store) {
  std::string ranks = cat(place.first_rank);
  if (options.nproc_per_node > 1) ranks += cat("-", place.first_rank + options.nproc_per_node - 1);
  TESSERA_INFO(cat("Rendezvous complete: master_addr=", store.host, " master_port=", store.port,
                   " node_rank=", place.node_rank, " nnodes=", options.nnodes, " ranks=", ranks,
                   " world_size=", place.world_size,
                   " attempt=", place.attempt + earlier_starts(options)));
}

class Agent {
 public:
  Agent(RunOptions options, std::span<const std::string> own_commands)
      : options_(std::move(options)), own_commands_(own_commands) {}

  int run() {
    // Refuses a command that does not exist before the nodes meet.
    std::vector<std::string> notes;
    worker_command(options_, own_commands_, 0, notes);
    if (options_.nnodes == 1) require_no_other_task();
    // While nodes meet for the first time there is nothing to save: a signal just ends this
    // process.
    signals_.let_through(true);
    std::optional<SlurmToken> shared = find_in_slurm();
    token_ = shared ? shared->value() : job_token(options_, environment);
    warn();
    NodeGroup nodes(options_, token_);
    nodes.connect();
    job_id_ = options_.slurm ? options_.slurm->identity() : nodes.job_id();
    auto place = nodes.join([] { return false; });
    shared.reset();  // all have read it
    signals_.let_through(false);
    while (true) {
      auto [end, status] = attempt(nodes, *place);
      bool again = end.kind == JobEnd::Kind::kFailed && end.may_retry &&
                   place->attempt < options_.max_restarts;
      if (!again) nodes.leave();
      nodes.close_attempt();
      if (!again) return status;
      nodes.keep_place();  // a node that takes that of a lost one may come meanwhile
      wait_to_restart(place->attempt + 1);
      place = nodes.join([this] { return is_interrupted(); });
      if (!place) return kInterruptedStatus;
    }
  }

 private:
  // What takes time to find out of a step on several nodes: where the first one is, and the token.
  std::optional<SlurmToken> find_in_slurm() {
    if (!options_.slurm || options_.nnodes == 1) return std::nullopt;
    Endpoint& endpoint = *options_.rdzv_endpoint;
    if (endpoint.host == options_.slurm->first_node)
      endpoint.host = reach_slurm_node(endpoint.host);
    if (!options_.token_file.empty()) return std::nullopt;
    return std::make_optional<SlurmToken>(
        *options_.slurm, environment,
        std::chrono::milliseconds(static_cast<int64_t>(options_.join_timeout * 1000)));
  }

  // A signal that asks for the end ends the pause, too: the nodes hear of it where they meet.
  void wait_to_restart(int attempt) {
    auto pause = pause_before(attempt);
    TESSERA_INFO(cat("Restart ", attempt, " of at most ", options_.max_restarts, " in ",
                     format("%.1f", static_cast<double>(pause.count()) / 1000), " s"));
    auto until = std::chrono::steady_clock::now() + pause;
    while (!asked_to_end_ && std::chrono::steady_clock::now() < until) {
      pollfd signal{signals_.fd(), POLLIN, 0};
      ::poll(&signal, 1, poll_timeout(until));
      asked_to_end_ = is_interrupted();
    }
  }

  void warn() const {
    for (const std::string& warning : options_.warnings) TESSERA_WARN(warning);
    if (std::string idle = idle_part_of_slurm_job();
        options_.nnodes == 1 && idle.ends_with("nodes"))
      TESSERA_WARN(cat("this agent is for one node, and its Slurm job has ", idle,
                       ": start it with srun --ntasks-per-node=1, and all of them take part"));
    if (options_.nproc_per_node > available_cores()) {
      TESSERA_WARN(cat(options_.nproc_per_node, " ranks on ", available_cores(),
                       available_cores() == 1 ? " core" : " cores", ": they will slow each other"));
    }
  }

  std::pair<JobEnd, int> attempt(NodeGroup& nodes, const NodePlace& place) {
    announce(options_, place, nodes.store_address());
    std::vector<std::string> notes;
    WorkerCommand command =
        worker_command(options_, own_commands_, place.attempt + earlier_starts(options_), notes);
    for (const std::string& note : notes) TESSERA_INFO(note);
    nodes.watch(place);
    WorkerGroup workers(options_, place, nodes, signals_, guard_);
    try {
      workers.start(command,
                    shared_variables(options_, place, nodes.store_address(), token_, job_id_));
    } catch (const Error& error) {
      nodes.report({JobEnd::Kind::kFailed, 1, false,
                    cat("node ", place.node_rank, " could not start its workers: ", error.what())});
      nodes.leave();
      throw;
    }
    JobEnd end = workers.run();
    if (end.kind == JobEnd::Kind::kFailed || end.kind == JobEnd::Kind::kLost) tell(end.text);
    // Where a failure here did not end the job, it still decides this node's exit status.
    if (end.kind != JobEnd::Kind::kFailed && !workers.failure().empty()) tell(workers.failure());
    asked_to_end_ = workers.is_interrupted();
    return {end, workers.status()};
  }

  static void tell(const std::string& text) { std::fprintf(stderr, "tessera: %s\n", text.c_str()); }

  bool is_interrupted() {
    if (asked_to_end_) return true;
    while (int signal = signals_.next()) {
      if (signal != SIGCHLD && signal != SIGTSTP) return true;
    }
    return false;
  }

  RunOptions options_;
  std::span<const std::string> own_commands_;
  std::string token_, job_id_;
  bool asked_to_end_ = false;
  ProcessGuard guard_;  // before anything that has threads
  AgentSignals signals_;
};

}  // namespace

int run_agent(RunOptions options, std::span<const std::string> own_commands) {
  return Agent(std::move(options), own_commands).run();
}

}  // namespace tessera
