#include "launch/job_store.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wait_notice.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char *kNodesKey = "agent/nnodes", *kOtherNodesKey = "agent/nnodes/other";
constexpr milliseconds kAgain{200}, kGlance{1000}, kShortestLoss{5000};

milliseconds join_timeout(const RunOptions& options) {
  return milliseconds(static_cast<int64_t>(options.join_timeout * 1000));
}

bool listens(const Endpoint& place) {
  try {
    connect_to(place, steady_clock::now() + kGlance);
    return true;
  } catch (const CommError&) {
    return false;
  }
}

}  // namespace

milliseconds longest_silence(const RunOptions& options) {
  return milliseconds(static_cast<int64_t>(options.keep_alive_interval * 1000)) *
         options.keep_alive_max_attempt;
}

JobStore::JobStore(const RunOptions& options, std::string token)
    : options_(options),
      token_(std::move(token)),
      address_(options.rdzv_endpoint.value_or(Endpoint{"127.0.0.1", 0})),
      reach_(address_) {
  if (!should_serve()) return;
  const auto deadline = steady_clock::now() + join_timeout(options_);
  for (Obstacle obstacle; !serve(obstacle);) {
    if (steady_clock::now() >= deadline)
      throw CommError(cat("this node is to serve the job's store, and ", options_.join_timeout,
                          " s after its start ", obstacle.what, ": ", obstacle.advice));
    std::this_thread::sleep_for(kAgain);
  }
}

JobStore::JobStore(const RunOptions& options, std::string token,
                   std::unique_ptr<TcpStoreServer> server)
    : options_(options),
      token_(std::move(token)),
      address_(*options.rdzv_endpoint),
      reach_(address_),
      server_(std::move(server)) {}

// False where that may change by itself: a warning says so once.
bool JobStore::serve(Obstacle& obstacle) {
  Endpoint bind{options_.local_addr, address_.port};
  Obstacle now;
  try {
    if (bind.host.empty()) bind = address_to_bind(address_, options_.nnodes > 1);
    server_ = std::make_unique<TcpStoreServer>(token_, bind);
    address_.port = server_->port();
    reach_ = bind.host.empty() ? address_ : Endpoint{bind.host, address_.port};
    return true;
  } catch (const UnknownHostError&) {
    // The name of a host that has just started may come later.
    if (!options_.local_addr.empty()) throw;
    now = {cat("the name '", address_.host, "' of this node does not resolve yet"),
           "is it spelled right?"};
  } catch (const AddressInUseError& error) {
    const std::string advice = "choose another port with --rdzv_endpoint or --master_port";
    if (options_.rdzv_backend != RendezvousBackend::kC10d || options_.is_host)
      throw CommError(cat(error.what(), ": is another job running here? Else ", advice));
    // With c10d another node of this job on this host may have been first. Where nobody listens, it
    // is the near end of somebody's connection, and free again when that is closed.
    if (listens(bind.host.empty() ? address_ : bind)) return true;
    now = {cat(error.what(), " that does not listen there"), advice};
  }
  if (obstacle.what != now.what)
    TESSERA_WARN(cat(now.what, "; trying for ", options_.join_timeout, " s"));
  obstacle = now;
  return false;
}

bool JobStore::should_serve() const {
  if (options_.rdzv_backend == RendezvousBackend::kStatic) return options_.node_rank == 0;
  if (options_.is_host) return *options_.is_host;
  try {
    return is_local_host(address_.host);
  } catch (const CommError&) {
    return false;  // a name that is not known yet: connect() tries again
  }
}

std::unique_ptr<TcpStore> JobStore::connect(const std::function<void()>& while_waiting) const {
  auto lost_after = std::max(longest_silence(options_), kShortestLoss);
  // What may not change by itself, as a name that is misspelled, is told of long before the end.
  WaitNotice notice;
  auto store = std::make_unique<TcpStore>(
      reach_, token_, join_timeout(options_), lost_after, [&](const std::string& so_far) {
        if (while_waiting) while_waiting();
        if (notice.is_due())
          TESSERA_WARN(cat(so_far, " Trying for ", options_.join_timeout, " s in all"));
      });
  const std::string own = options_.nodes_text();
  if (store->replace(kNodesKey, std::nullopt, own)) return store;
  const std::string first = store->get(kNodesKey, lost_after);
  const bool was_elastic = first.find(':') != first.npos;
  if (was_elastic == options_.is_elastic()) return store;  // other differences are found later
  store->replace(kOtherNodesKey, std::nullopt, own);
  throw CommError(cat("the job at ", to_string(address_), " was started with --nnodes ", first,
                      ", this node with --nnodes ", own, ": give all nodes the same"));
}

std::optional<std::string> JobStore::other_nodes(Store& store) {
  return store.find(kOtherNodesKey);
}

}  // namespace tessera
