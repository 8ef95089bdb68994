#include "comm/exchange_communicator.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/peer_mesh.h"

namespace tessera {
namespace {

constexpr size_t kLongestLabel = 500;  // the text travels in one message

// All that must be the same on every rank of the group.
std::string describe(const CommCall& call) {
  std::string text = cat("'", call.label.substr(0, kLongestLabel), "' (", name(call.action),
                         call.reduction == Reduction::kMax ? " max" : "", " of ", call.outer, " x ",
                         call.inner, " ", name(call.dtype));
  if (call.output_dtype != call.dtype) text += cat(" to ", name(call.output_dtype));
  return cat(text, " in group ", call.group->name, ")");
}

}  // namespace

ExchangeCommunicator::ExchangeCommunicator(int rank, int world_size, Options options,
                                           Connections connections)
    : Communicator(rank, world_size, options), connections_(std::move(connections)) {
  for (const auto& transport : connections_.transports) transports_.push_back(transport.get());
}

ExchangeCommunicator::~ExchangeCommunicator() {
  // The others wait for calls that this rank will never finish; so does its own thread.
  if (unfinished()) fail("it ended in the middle of a call");
  if (connections_.mesh) connections_.mesh->leave();
  connections_.health->leave(rank());
  stop();
  for (PeerTransport* transport : transports_) transport->linger();
}

HostBuffer ExchangeCommunicator::allocate(int64_t bytes) {
  return connections_.allocate ? connections_.allocate(bytes) : HostBuffer(bytes);
}

void ExchangeCommunicator::fail(std::string_view reason) {
  connections_.health->fail(cat("rank ", rank(), " failed: ", reason));
}

void ExchangeCommunicator::perform(const CommCall& call) {
  try {
    connections_.health->check();
    std::string what = describe(call);
    uint64_t identity = hash_text(what);
    connections_.health->begin_call(rank(), call.group->ranks, std::move(what));
    for (Exchange& exchange : exchanges_of(call, world_size())) {
      exchange.identity = identity;
      run_exchange(exchange, transports_);
      identity = hash_combine(identity, 1);
    }
  } catch (const CommError& error) {
    for (PeerTransport* transport : transports_) transport->abandon();
    throw CommError(cat(call.label, " (", name(call.action), " in group ", call.group->name,
                        ", ranks ", join(call.group->ranks, ", "), "): ", error.what()));
  } catch (const std::exception& error) {
    fail(error.what());
    for (PeerTransport* transport : transports_) transport->abandon();
    throw;
  }
}

}  // namespace tessera
