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

#include "comm/tcp_store.h"
#include "launch/job_end.h"
#include "launch/run_options.h"

namespace tessera {

// What a node says of itself when it joins.
struct NodeRecord {
  std::string host;
  int nnodes = 1, workers = 1, max_restarts = 0;

  std::string to_text() const;
  static std::optional<NodeRecord> from_text(std::string_view text);
};

// This node's place in one attempt of the job.
struct NodePlace {
  int attempt = 0;
  int node_rank = 0;
  int first_rank = 0;  // global rank of its local rank 0
  int world_size = 1;
  std::vector<NodeRecord> nodes;  // by node rank
};

// The agents of a job: meet through a store that one of them serves, learn of each other's failures
// and agree on how an attempt ended. Keys begin with "agent/"; everything else in the store is the
// workers'. The seam for other ways to meet (etcd) and for changing numbers of nodes is here.
class NodeGroup {
 public:
  // Serves the store, if that is this node's part. CommError when the port is in use, or its own
  // name does not resolve within the join timeout.
  NodeGroup(const RunOptions& options, std::string token);
  ~NodeGroup();

  // Connects to the store. CommError when the port is another program's or another job's, or nobody
  // serves a store there within the join timeout.
  void connect();

  // Identity of the job: drawn by the node that connects first, the same on all of them.
  std::string job_id();

  // Where workers find the store.
  const Endpoint& store_address() const { return address_; }

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

  // All workers of this node are done; the last node to say so ends the attempt.
  void report_done();
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
  bool should_serve() const;
  bool serve();
  std::chrono::milliseconds longest_silence() const;
  int claim_place(int attempt);
  std::string describe_missing();
  [[noreturn]] void fail_join(const std::string& text);
  void watch_loop();
  std::optional<JobEnd> find_silent_node();
  std::optional<JobEnd> find_gone_node(Store& store);
  bool has_ended(int node);
  void set_end(JobEnd end);
  std::string key(std::string_view name) const;

  const RunOptions& options_;
  struct KeptPlace {
    int attempt, node_rank;
  };
  std::optional<KeptPlace> kept_;  // by keep_place()
  std::string token_;
  Endpoint address_, reach_;  // for the workers, and from here
  std::unique_ptr<TcpStoreServer> server_;
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
  std::optional<JobEnd> end_;
};

}  // namespace tessera
