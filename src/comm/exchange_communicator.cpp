#include "comm/exchange_communicator.h"

#include "base/error.h"
#include "base/text.h"
#include "comm/peer_mesh.h"

namespace tessera {

ExchangeCommunicator::ExchangeCommunicator(int rank, int world_size, Options options,
                                           Connections connections)
    : Communicator(rank, world_size, options), connections_(std::move(connections)) {
  for (const auto& transport : connections_.transports) transports_.push_back(transport.get());
}

ExchangeCommunicator::~ExchangeCommunicator() {
  // The others wait for calls that this rank will never finish; so does its own thread.
  if (unfinished()) report_failure("it ended in the middle of a call");
  if (connections_.mesh) connections_.mesh->leave();
  connections_.health->leave(rank());
  stop();
  for (PeerTransport* transport : transports_) transport->linger();
  if (connections_.mesh) connections_.mesh->stop();
  connections_.transports.clear();
  connections_.memory.reset();
  connections_.mesh.reset();
}

HostBuffer ExchangeCommunicator::allocate(int64_t bytes) {
  return connections_.allocate ? connections_.allocate(bytes) : HostBuffer(bytes);
}

void ExchangeCommunicator::report_failure(std::string_view reason) noexcept {
  connections_.health->fail(cat("rank ", rank(), " failed: ", reason));
}

void ExchangeCommunicator::perform(const CommCall& call) {
  try {
    connections_.health->check();
    for (const Exchange& exchange : exchanges_of(call, world_size()))
      run_exchange(exchange, transports_);
  } catch (const CommError& error) {
    for (PeerTransport* transport : transports_) transport->abandon();
    throw CommError(cat(call.label, " (", name(call.action), " in group ", call.group->name,
                        ", ranks ", join(call.group->ranks, ", "), "): ", error.what()));
  } catch (const std::exception& error) {
    report_failure(error.what());
    for (PeerTransport* transport : transports_) transport->abandon();
    throw;
  }
}

}  // namespace tessera
