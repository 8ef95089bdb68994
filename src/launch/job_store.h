#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/tcp_store.h"
#include "launch/run_options.h"

namespace tessera {

// The store at which the nodes of a job meet: served by one of their agents, found by the others.
class JobStore {
 public:
  // Serves it, if that is this node's part. CommError when the port is in use by another program,
  // or for the whole join timeout by a connection, or its own name does not resolve by then.
  JobStore(const RunOptions& options, std::string token);
  // It is at that place already; `server`: of the node that serves it.
  JobStore(const RunOptions& options, std::string token, std::unique_ptr<TcpStoreServer> server);

  // CommError when the port is another program's or another job's, nobody serves a store there
  // within the join timeout (a warning says early that it is waited for), or the number of nodes
  // may change for this node and not for the first that came, or the other way round: they meet in
  // other ways. `while_waiting` is called now and then, and may throw.
  std::unique_ptr<TcpStore> connect(const std::function<void()>& while_waiting = {}) const;
  // --nnodes of a node that was turned away for that.
  static std::optional<std::string> other_nodes(Store& store);

  // Where workers find it.
  const Endpoint& address() const { return address_; }
  // On the node that serves it.
  TcpStoreServer* server() const { return server_.get(); }

 private:
  bool should_serve() const;
  // What is in the way of serving it and may go by itself.
  struct Obstacle {
    std::string what, advice;
  };
  bool serve(Obstacle& obstacle);

  const RunOptions& options_;
  std::string token_;
  Endpoint address_, reach_;  // for the workers, and from here
  std::unique_ptr<TcpStoreServer> server_;
};

// How long a node may give no sign of life before it counts as lost.
std::chrono::milliseconds longest_silence(const RunOptions& options);

}  // namespace tessera
