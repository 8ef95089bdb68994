#include "launch/job_store.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kNameAgain{500}, kShortestLoss{5000};

milliseconds join_timeout(const RunOptions& options) {
  return milliseconds(static_cast<int64_t>(options.join_timeout * 1000));
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
  // The name of a host that has just started may come later.
  auto deadline = steady_clock::now() + join_timeout(options_);
  for (bool told = false; !serve(); told = true) {
    if (!told) {
      TESSERA_WARN(cat("the name '", address_.host,
                       "' of this node does not resolve yet: trying for ", options_.join_timeout,
                       " s"));
    }
    if (steady_clock::now() >= deadline) {
      throw CommError(cat("the name '", address_.host,
                          "', where this node is to serve the job's store, did not resolve within ",
                          options_.join_timeout, " s: is it spelled right?"));
    }
    std::this_thread::sleep_for(kNameAgain);
  }
}

JobStore::JobStore(const RunOptions& options, std::string token,
                   std::unique_ptr<TcpStoreServer> server)
    : options_(options),
      token_(std::move(token)),
      address_(*options.rdzv_endpoint),
      reach_(address_),
      server_(std::move(server)) {}

// False where the name of this node is not known yet.
bool JobStore::serve() {
  try {
    Endpoint bind = options_.local_addr.empty() ? address_to_bind(address_, options_.nnodes > 1)
                                                : Endpoint{options_.local_addr, address_.port};
    server_ = std::make_unique<TcpStoreServer>(token_, bind);
    address_.port = server_->port();
    reach_ = bind.host.empty() ? address_ : Endpoint{bind.host, address_.port};
  } catch (const UnknownHostError&) {
    if (!options_.local_addr.empty()) throw;
    return false;
  } catch (const AddressInUseError& error) {
    // With c10d another node of this job on this host may have been first.
    if (options_.rdzv_backend == RendezvousBackend::kC10d && !options_.is_host) return true;
    throw CommError(cat(error.what(),
                        ": is another job running here? Choose another port with "
                        "--rdzv_endpoint or --master_port"));
  }
  return true;
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

std::unique_ptr<TcpStore> JobStore::connect() const {
  auto lost_after = std::max(longest_silence(options_), kShortestLoss);
  return std::make_unique<TcpStore>(reach_, token_, join_timeout(options_), lost_after);
}

}  // namespace tessera
