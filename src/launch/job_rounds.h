#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launch/job_store.h"
#include "launch/membership.h"

namespace tessera {

// The rounds of this node's job, as its options say: over a store that an agent serves (c10d) or
// over etcd.
class JobRounds {
 public:
  // CommError or UserError when nobody answers within the join timeout, a minute at most for etcd.
  JobRounds(const RunOptions& options, std::string token);

  Membership& membership() { return *membership_; }
  // Membership::join(), where this node serves a store if it is its part.
  std::optional<Round> join(const Membership::LastRound& last,
                            const std::function<bool()>& should_stop);
  // The server of the round that has just begun, on the node that serves its store.
  std::unique_ptr<TcpStoreServer> take_server(const Round& round);
  // `options` for one round.
  RunOptions options_of(const Round& round) const;
  // Others could not go on without this node, which serves them the membership itself.
  bool is_needed() const { return store_ && store_->server(); }
  // Tells the others that the job has ended so.
  void close(const JobEnd& end);

 private:
  std::unique_ptr<MembershipStore> open_store();
  Endpoint serve();

  const RunOptions& options_;
  std::string token_;
  std::unique_ptr<JobStore> store_;  // not over etcd
  std::unique_ptr<Membership> membership_;
  std::string own_host_;  // by which others reach this node
  std::unique_ptr<TcpStoreServer> server_;
};

}  // namespace tessera
