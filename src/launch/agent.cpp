#include "launch/agent.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/terminal_text.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "comm/job.h"
#include "comm/slurm_token.h"
#include "comm/tcp_socket.h"
#include "flight/flight_places.h"
#include "flight/postmortem.h"
#include "launch/job_rounds.h"
#include "launch/job_token.h"
#include "launch/node_group.h"
#include "launch/worker_group.h"

namespace tessera {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

const char* environment(const char* name) { return std::getenv(name); }

// So often the same nodes may fail to meet after they have found a round, one time after the other.
constexpr int kMeetings = 4;
// So often a newcomer may not reach the store of a round. Then the others meet without it: until
// then it lets them begin the next round, for it may be as much out of their reach. So does one
// that served it, and for longer: others of a new job may not reach it.
constexpr int kUnreached = 2;
constexpr std::chrono::seconds kLetOthersBegin{2};

// Between the end of one attempt and the next: what made an attempt fail may pass.
constexpr std::chrono::milliseconds kFirstPause{500}, kLongestPause{30'000};

std::chrono::milliseconds pause_before(int attempt) {
  auto pause = kFirstPause;
  for (int i = 1; i < attempt && pause < kLongestPause; ++i) pause *= 2;
  return std::min(pause, kLongestPause);
}

Variables shared_variables(const RunOptions& options, const NodePlace& place, const Endpoint& store,
                           const std::string& token, const std::string& job_id) {
  return {{"WORLD_SIZE", cat(place.world_size)},
          {"LOCAL_WORLD_SIZE", cat(options.nproc_per_node)},
          {"MASTER_ADDR", store.host},
          {"MASTER_PORT", cat(store.port)},
          {"TESSERA_JOB_TOKEN", token},
          {"TESSERA_JOB_ID", job_id},
          {"TESSERA_ATTEMPT", cat(place.attempt + options.earlier_attempts())},
          {"TESSERA_AGENT_STORE", "1"}};
}

void announce(const RunOptions& options, const NodePlace& place, const Endpoint& store) {
  std::string ranks = cat(place.first_rank);
  if (options.nproc_per_node > 1) ranks += cat("-", place.first_rank + options.nproc_per_node - 1);
  TESSERA_INFO(cat("Rendezvous complete: master_addr=", store.host, " master_port=", store.port,
                   " node_rank=", place.node_rank, " nnodes=", options.nnodes, " ranks=", ranks,
                   " world_size=", place.world_size,
                   " attempt=", place.attempt + options.earlier_attempts()));
}

class Agent {
 public:
  Agent(RunOptions options, std::span<const std::string> own_commands)
      : options_(std::move(options)), own_commands_(own_commands) {}

  int run() {
    // Refuses a command that does not exist before the nodes meet.
    std::vector<std::string> notes;
    const WorkerCommand command = worker_command(options_, own_commands_, 0, notes);
    if (options_.is_elastic() && command.saves_nothing)
      options_.warnings.push_back(
          cat("--nnodes ", options_.nodes_text(),
              " without --checkpoint_dir: whenever a node comes or is lost, "
              "`train` begins again with nothing learned"));
    if (options_.nnodes == 1) require_no_other_task();
    // While nodes meet for the first time there is nothing to save: a signal just ends this
    // process.
    signals_.let_through(true);
    if (options_.has_rounds()) {
      token_ = job_token(options_, environment);
      warn();
      return run_rounds();
    }
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
      auto [end, status] = attempt(nodes, *place, options_);
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
  // A job whose nodes leave and join, or meet at etcd.
  int run_rounds() {
    JobRounds rounds(options_, token_);
    signals_.let_through(false);
    Membership::LastRound last;
    bool failed_without_newcomer = false;
    while (true) {
      std::optional<Round> round;
      try {
        round = rounds.join(last, [this] { return is_interrupted(); });
      } catch (const JobHasEndedError& error) {
        return take_end_of_job(error);
      }
      if (!round) {
        rounds.membership().leave(
            {JobEnd::Kind::kInterrupted, kInterruptedStatus, false, "interrupted"});
        return kInterruptedStatus;
      }
      job_id_ = round->job_id;
      const RunOptions options = rounds.options_of(*round);
      NodeGroup nodes(options, token_, round->number, rounds.take_server(*round));
      if (options_.is_elastic())
        nodes.expect_newcomers(
            options_.min_nodes, is_known_,
            last.counts && failed_without_newcomer && round->restarts < options_.max_restarts);
      std::optional<NodePlace> place = meet(rounds, *round, nodes);
      if (!place) {
        last = {};
        continue;
      }
      place->may_leave = options_.is_elastic() && !rounds.is_needed();
      auto [end, status] = attempt_of_round(rounds, *round, nodes, *place, options);
      nodes.leave();
      nodes.close_attempt();
      is_known_ = is_known_ || nodes.has_first_step();
      failed_without_newcomer = nodes.are_all_known();  // if it has failed
      if (end.sends_node_away()) {
        const std::string who = cat("node ", end.lost_node, " on ",
                                    place->nodes[static_cast<size_t>(end.lost_node)].host);
        if (end.lost_node == place->node_rank) {
          rounds.membership().leave(end);
          print_error(cat("with this node, ", who,
                          ", the job did not come to its next step: it goes on without it"));
          return status;
        }
        TESSERA_WARN(cat("with ", who, ", which has just come, the job did not come to its next ",
                         "step: it goes on without that node"));
      }
      if (end.kind == JobEnd::Kind::kRegroup && asked_to_end_) {
        rounds.membership().leave(
            {JobEnd::Kind::kInterrupted, kInterruptedStatus, false, "interrupted"});
        return status;
      }
      if (!goes_on(end, *round, last)) {
        rounds.close(end);
        return status;
      }
    }
  }

  // No value where the round did not come about, or this node was asked to end. CommError: there is
  // no sense in another one.
  std::optional<NodePlace> meet(JobRounds& rounds, const Round& round, NodeGroup& nodes) {
    const auto should_stop = [&] {
      rounds.membership().require_all_of(round);
      return is_interrupted();
    };
    bool reached = false;
    try {
      nodes.connect([&] {
        if (should_stop()) throw CommError("interrupted");
      });
      reached = true;
      auto place = nodes.join(should_stop);
      not_met_ = not_reached_ = 0;
      return place;
    } catch (const CommError& error) {
      if (asked_to_end_) return std::nullopt;
      std::set<std::string> ids;
      std::vector<std::string> names;
      for (const MemberNode& node : round.nodes) {
        names.push_back(cat(names.size(), " on ", node.host));
        ids.insert(node.id);
      }
      not_met_ = ids == std::exchange(not_met_by_, ids) ? not_met_ + 1 : 1;
      if (round.node_rank > 0) not_reached_ = reached || is_known_ ? 0 : not_reached_ + 1;
      if (not_reached_ == kUnreached)
        throw CommError(cat("this node leaves the others, as it did not reach the store of ",
                            kUnreached, " rounds; that of round ", round.number, " is at ",
                            to_string(round.store), ", node ", names[0], ": ", error.what()));
      if (not_met_ == kMeetings) throw;
      TESSERA_WARN(cat("round ", round.number, " of nodes ", join(names, ", "),
                       " did not come about: ", error.what()));
      if (round.node_rank == 0 && !is_known_)
        pause(2 * kLetOthersBegin);
      else if (not_reached_ > 0)
        pause(kLetOthersBegin);
      return std::nullopt;
    }
  }

  std::pair<JobEnd, int> attempt_of_round(JobRounds& rounds, const Round& round, NodeGroup& nodes,
                                          const NodePlace& place, const RunOptions& options) {
    struct Watch {
      ~Watch() { membership.watch(nullptr); }
      Membership& membership;
    } watch{rounds.membership()};
    if (round.node_rank == 0) {
      watch.membership.watch([&nodes](const MemberNode* node, bool without_it) {
        if (!node) return nodes.propose(std::nullopt);
        JobEnd end{JobEnd::Kind::kRegroup, kInterruptedStatus, true,
                   cat(without_it ? "others have gone on without this node, among them "
                                  : "a node has come, ",
                       node->host)};
        // What others train already is not this node's to save.
        without_it ? nodes.report(end) : nodes.propose(std::move(end));
      });
    }
    return attempt(nodes, place, options);
  }

  // Whether another round follows, and what it must know of this one.
  bool goes_on(const JobEnd& end, const Round& round, Membership::LastRound& last) {
    last = {};
    if (end.kind == JobEnd::Kind::kRegroup) return true;
    const bool lost = end.kind == JobEnd::Kind::kLost || end.lost_node >= 0;
    if (end.lost_node >= 0) last.lost = {end.lost_node};
    if (lost && options_.is_elastic()) return true;
    last.counts = lost || (end.kind == JobEnd::Kind::kFailed && end.may_retry);
    if (!last.counts || round.restarts >= options_.max_restarts) return false;
    wait_to_restart(round.restarts + 1);
    return true;
  }

  static int take_end_of_job(const JobHasEndedError& error) {
    if (error.end.kind == JobEnd::Kind::kDone) {
      TESSERA_INFO(error.what());
      return 0;
    }
    print_error(error.what());
    return error.end.kind == JobEnd::Kind::kInterrupted ? kInterruptedStatus : 1;
  }

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

  void wait_to_restart(int attempt) {
    const auto longest = pause_before(attempt);
    TESSERA_INFO(cat("Restart ", attempt, " of at most ", options_.max_restarts, " in ",
                     format("%.1f", static_cast<double>(longest.count()) / 1000), " s"));
    pause(longest);
  }

  // A signal that asks for the end ends the pause, too: the nodes hear of it where they meet.
  void pause(std::chrono::milliseconds longest) {
    auto until = std::chrono::steady_clock::now() + longest;
    while (!asked_to_end_ && std::chrono::steady_clock::now() < until) {
      pollfd signal{signals_.fd(), POLLIN, 0};
      ::poll(&signal, 1, poll_timeout(until));
      is_interrupted();
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

  std::pair<JobEnd, int> attempt(NodeGroup& nodes, const NodePlace& place,
                                 const RunOptions& options) {
    announce(options, place, nodes.store_address());
    std::vector<std::string> notes;
    WorkerCommand command =
        worker_command(options, own_commands_, place.attempt + options.earlier_attempts(), notes);
    for (const std::string& note : notes) TESSERA_INFO(note);
    nodes.watch(place);
    WorkerGroup workers(options, place, nodes, signals_, guard_);
    workers.on_first_step([this, &nodes, met = seconds_since_end()] {
      nodes.report_first_step();
      if (!interrupted_by_.empty())
        TESSERA_INFO(cat("The first step after an interruption (", interrupted_by_, ") is done ",
                         format("%.1f", seconds_since_end()),
                         " s after that was noticed; nodes met after ", format("%.1f", met), " s"));
    });
    try {
      workers.start(command,
                    shared_variables(options, place, nodes.store_address(), token_, job_id_));
    } catch (const Error& error) {
      nodes.report({JobEnd::Kind::kFailed, 1, false,
                    cat("node ", place.node_rank, " could not start its workers: ", error.what())});
      nodes.leave();
      throw;
    }
    JobEnd end = workers.run();
    // With a wrong command line no rank got as far as a step.
    if ((end.kind == JobEnd::Kind::kFailed || end.kind == JobEnd::Kind::kLost) && command.records &&
        end.status != kUsageStatus)
      tell_what_rings_say(command, place.attempt + options.earlier_attempts(), workers.ends());
    // Where a failure here did not end the job, it still decides this node's exit status.
    if (end.kind != JobEnd::Kind::kFailed && !workers.failure().empty())
      print_error(workers.failure());
    asked_to_end_ = workers.is_interrupted();
    interrupted_by_ = end.text.substr(0, end.text.find_first_of(":;\n"));
    ended_at_ = workers.ended_at();
    return {end, workers.status()};
  }

  // Of the ranks whose rings are in reach of this host.
  void tell_what_rings_say(const WorkerCommand& command, int attempt,
                           const std::map<int, RankEnd>& ends) const {
    const std::filesystem::path path =
        flight_directory(command.flight_recorder_dir, job_id_, attempt);
    if (!std::filesystem::exists(path)) return;
    try {
      const FlightDirectory directory = read_flights(path);
      const double now =
          std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
              .count();
      const auto lines = postmortem_lines(postmortem_of(directory, now, ends));
      for (const std::string& line : lines) print_error(line);
      // Else the rank that failed has said it all.
      if (!lines.empty()) print_error(cat("more of it: tessera postmortem ", path.string()));
    } catch (const UserError&) {
      // The ranks may have ended before they had rings.
    }
  }

  bool is_interrupted() {
    for (int signal = 0; !asked_to_end_ && (signal = signals_.next()) != 0;)
      asked_to_end_ = signal != SIGCHLD && signal != SIGTSTP && signal != SIGUSR2;
    return asked_to_end_;
  }

  RunOptions options_;
  std::span<const std::string> own_commands_;
  double seconds_since_end() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - ended_at_).count();
  }

  std::string token_, job_id_;
  // The last attempt, as far as there was one: why it ended, and when that was known here.
  std::string interrupted_by_;
  std::chrono::steady_clock::time_point ended_at_;
  bool asked_to_end_ = false;
  bool is_known_ = false;  // NodeRecord::is_known
  // Rounds that did not come about, one behind the other, and who was in the last of them.
  int not_met_ = 0, not_reached_ = 0;
  std::set<std::string> not_met_by_;
  ProcessGuard guard_;  // before anything that has threads
  AgentSignals signals_;
};

}  // namespace

int run_agent(RunOptions options, std::span<const std::string> own_commands) {
  return Agent(std::move(options), own_commands).run();
}

}  // namespace tessera
