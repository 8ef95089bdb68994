#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/process_identity.h"
#include "comm/tcp_store.h"
#include "launch/job_end.h"
#include "launch/job_store.h"
#include "launch/node_record.h"
#include "launch/run_options.h"

namespace tessera {

// This node's place in one attempt of the job.
struct NodePlace {
  int attempt = 0;
  int node_rank = 0;
  int first_rank = 0;  // global rank of its local rank 0
  int world_size = 1;
  std::vector<NodeRecord> nodes;  // by node rank
  bool may_leave = false;         // when it is asked to end, the others go on without it
};

// The agents of a job: meet through a store that one of them serves, learn of each other's failures
// and agree on how an attempt ended. Keys begin with "agent/"; everything else in the store is the
// workers'.
class NodeGroup {
 public:
  // Serves the store, if that is this node's part: JobStore.
  NodeGroup(const RunOptions& options, std::string token);
  // Of a job that runs in rounds (membership.h): the group of one round, which has this number as
  // its attempt. `options` are static, of as many nodes as the round has; `server` is that of the
  // node that serves the store at their endpoint.
  NodeGroup(const RunOptions& options, std::string token, int round,
            std::unique_ptr<TcpStoreServer> server);
  ~NodeGroup();

  // JobStore::connect().
  void connect(const std::function<void()>& while_waiting = {});

  // Identity of the job: drawn by the node that connects first, the same on all of them.
  std::string job_id();

  // Where workers find the store.
  const Endpoint& store_address() const { return job_store_.address(); }

  // Of a job whose number of nodes may change. What fails before the first step of a round is
  // taken for the fault of a node that was in none which had one, and that node leaves, if at
  // least so many others were (JobEnd::sends_node_away()). Not so where another node `retries`:
  // what has failed without the newcomer may fail with it.
  void expect_newcomers(int least, bool is_known, bool retries);

  // Waits until all nodes have joined the attempt that is open. CommError at the deadline, which
  // names who is missing, on all nodes that are there; they also fail together when their options
  // differ. No value when `should_stop` says so.
  std::optional<NodePlace> join(const std::function<bool()>& should_stop);

  // From here on the end of the attempt is looked for by a thread, which also gives signs of life
  // and, where the store is served, looks for those of the others. `notice` is readable then.
  void watch(const NodePlace& place);
  int notice() const { return notice_.get(); }
  // How the attempt ended, once that is known here.
  std::optional<JobEnd> end();

  // Rank 0 has done its first step; whether it has, as far as that is known here.
  void report_first_step();
  bool has_first_step() const { return has_first_step_; }
  // Whether now, behind the attempt, all of its nodes were in one that had a first step.
  bool are_all_known() const;
  // All workers of this node are done; the last node to say so ends the attempt.
  void report_done();
  // From any thread, for who runs the attempt: it could end so, or need not any more. `notice` is
  // readable then, and not any more when that was looked at: end() is to be looked at behind it.
  void propose(std::optional<JobEnd> end);
  std::optional<JobEnd> proposal();
  // Ends the attempt, unless somebody was first; nobody hears of it when the store is gone. A
  // failure here after another node's agent has ended is that node's.
  void report(const JobEnd& end);
  // Stops watching; join() may follow.
  void close_attempt();
  // Before a pause ahead of the next join(): nobody else gets this node's place there.
  void keep_place();
  // Waits, where the store is served, until the others know how the last attempt ended.
  void leave();

 private:
  struct Claim {
    int attempt, node_rank, turn;
  };
  std::optional<Claim> claim(int attempt, int node);
  Claim claim_place(int attempt);
  [[noreturn]] void throw_no_place() const;
  bool find_nodes(std::vector<NodeRecord>& nodes, const NodeRecord& own);
  // Nodes of the attempt, as messages name them.
  struct Arrivals {
    std::vector<std::string> here, missing;
  };
  Arrivals arrivals();
  std::string describe_missing();
  [[noreturn]] void fail_join(const std::string& text);
  JobEnd blame(JobEnd end);
  void look_for_first_step();
  void watch_loop();
  std::optional<JobEnd> find_silent_node();
  std::optional<JobEnd> find_gone_node(Store& store);
  bool is_gone(Store& store, int node, const NodeRecord& record) const;
  bool has_ended(int node);
  void set_end(JobEnd end);
  std::string key(std::string_view name) const;

  const RunOptions& options_;
  const std::string id_ = random_id();  // of this agent
  std::optional<Claim> kept_;           // by keep_place()
  int least_known_ = 0;                 // 0: newcomers are like others
  bool is_known_ = false, retries_ = false;
  std::atomic<bool> has_first_step_ = false;
  JobStore job_store_;
  std::unique_ptr<TcpStore> store_;
  int attempt_ = 0, node_rank_ = -1;
  std::vector<NodeRecord> nodes_;  // of the attempt that is watched, by node rank
  std::set<int> silent_;           // of them; they will not leave by themselves
  struct SignOfLife {
    std::string count;
    std::chrono::steady_clock::time_point seen;
  };
  std::vector<SignOfLife> signs_;

  FileDescriptor notice_;
  std::thread watcher_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false, look_now_ = false;
  std::optional<JobEnd> end_, proposal_;
};

}  // namespace tessera
