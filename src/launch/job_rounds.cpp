#include "launch/job_rounds.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "comm/peer_sockets.h"
#include "launch/etcd_membership_store.h"
#include "launch/tcp_membership_store.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// For an etcd that is started together with the job.
constexpr double kFindEtcd = 60;  // seconds
// For the nodes of a round to meet: they were all there a moment ago.
constexpr double kMeet = 30;  // seconds
constexpr milliseconds kFindEtcdAgain{500}, kFarewell{10'000}, kReach{5000};

// The name of the endpoint, where that is this host: others reach it by that. Else the address by
// which this host reaches the endpoint.
std::string reachable_host(const RunOptions& options) {
  if (!options.local_addr.empty()) return options.local_addr;
  const std::string& endpoint = options.rdzv_endpoint->host;
  return is_local_host(endpoint) ? endpoint : local_address("", endpoint);
}

// Where nothing listens any more the round has just ended.
void require_reach(const Endpoint& store) {
  try {
    connect_to(store, steady_clock::now() + kReach);
  } catch (const ConnectionRefusedError&) {
  }
}

Membership::Settings settings_of(const RunOptions& o) {
  Membership::Settings settings;
  settings.place = to_string(*o.rdzv_endpoint);
  settings.min_nodes = o.min_nodes;
  settings.max_nodes = o.nnodes;
  settings.max_restarts = o.max_restarts;
  settings.node_rank = o.node_rank;
  settings.join_timeout = Membership::Seconds(o.join_timeout);
  settings.last_call = Membership::Seconds(o.last_call);
  settings.keep_alive_interval = Membership::Seconds(o.keep_alive_interval);
  settings.longest_silence = longest_silence(o);
  settings.require_reach = require_reach;
  return settings;
}

}  // namespace

JobRounds::JobRounds(const RunOptions& options, std::string token)
    : options_(options), token_(std::move(token)) {
  std::unique_ptr<MembershipStore> store = open_store();
  own_host_ = reachable_host(options_);
  Membership::Settings settings = settings_of(options_);
  if (store_) settings.place = to_string(store_->address());
  membership_ = std::make_unique<Membership>(std::move(store), settings);
}

std::unique_ptr<MembershipStore> JobRounds::open_store() {
  if (options_.rdzv_backend != RendezvousBackend::kEtcd) {
    store_ = std::make_unique<JobStore>(options_, token_);
    return std::make_unique<TcpMembershipStore>(store_->connect(), longest_silence(options_));
  }
  std::vector<Endpoint> endpoints{*options_.rdzv_endpoint};
  endpoints.insert(endpoints.end(), options_.other_endpoints.begin(),
                   options_.other_endpoints.end());
  auto store = std::make_unique<EtcdMembershipStore>(
      std::make_unique<EtcdClient>(std::move(endpoints), options_.etcd), options_.rdzv_id,
      longest_silence(options_));
  const double longest = std::min(options_.join_timeout, kFindEtcd);
  const auto deadline = steady_clock::now() + std::chrono::duration<double>(longest);
  for (bool told = false;; told = true) {
    try {
      store->read();
      return store;
    } catch (const MembershipUnavailableError& error) {
      if (steady_clock::now() >= deadline)
        throw CommError(cat(error.what(), " (tried for ", longest, " s)"));
      if (!told) TESSERA_WARN(cat(error.what(), "; trying for ", longest, " s"));
    }
    std::this_thread::sleep_for(kFindEtcdAgain);
  }
}

Endpoint JobRounds::serve() {
  if (!server_) {
    Endpoint bind = options_.local_addr.empty() ? address_to_bind({own_host_, 0}, true)
                                                : Endpoint{options_.local_addr, 0};
    server_ = std::make_unique<TcpStoreServer>(token_, bind);
  }
  return {own_host_, server_->port()};
}

std::optional<Round> JobRounds::join(const Membership::LastRound& last,
                                     const std::function<bool()>& should_stop) {
  return membership_->join(
      last, [this] { return serve(); }, should_stop);
}

std::unique_ptr<TcpStoreServer> JobRounds::take_server(const Round& round) {
  bool ours = server_ && round.store.host == own_host_ && round.store.port == server_->port();
  return ours ? std::move(server_) : nullptr;
}

RunOptions JobRounds::options_of(const Round& round) const {
  RunOptions options = options_;
  options.min_nodes = options.nnodes = static_cast<int>(round.nodes.size());
  options.node_rank = round.node_rank;
  options.rdzv_backend = RendezvousBackend::kStatic;
  options.rdzv_endpoint = round.store;
  options.join_timeout = std::min(options_.join_timeout, kMeet);
  return options;
}

void JobRounds::close(const JobEnd& end) {
  membership_->close(end);
  if (is_needed()) membership_->wait_for_others(kFarewell);
}

}  // namespace tessera
