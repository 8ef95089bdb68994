#include "comm/connect.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "comm/exchange_communicator.h"
#include "comm/gloo_transport.h"
#include "comm/local_transport.h"
#include "comm/message_control.h"
#include "comm/rendezvous.h"
#include "comm/shared_segments.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 3> kNames{"auto", "shared_memory", "gloo"};

// For every rank whether it shares memory with this one.
std::vector<bool> ranks_of_this_host(const std::vector<PeerRecord>& records, int rank,
                                     Transport transport) {
  const std::string& host = records[static_cast<size_t>(rank)].host_id;
  std::vector<bool> local;
  for (const PeerRecord& record : records) {
    if (transport == Transport::kSharedMemory && record.host_id != host)
      throw CommError(cat("rank ", local.size(), " runs on another host than rank ", rank,
                          ": they share no memory"));
    local.push_back(transport != Transport::kGloo && record.host_id == host);
  }
  return local;
}

// Connects the ranks. One that fails leaves the job, in which others fail in turn: so all say what
// the first one said.
std::vector<FileDescriptor> connect_or_tell(Store& store, const PeerListeners& listeners,
                                            const JobMember& self,
                                            const std::vector<PeerAddress>& peers,
                                            Deadline deadline) {
  try {
    return connect_peers(listeners, self, peers, deadline);
  } catch (const CommError& error) {
    std::string own = error.what(), first = own;
    try {
      if (store.add("failures", 1) == 1)
        store.set("failure", own);
      else
        first = store.get("failure", std::chrono::milliseconds(1000));
    } catch (const CommError&) {
      // The store went down with the rank that served it.
    }
    throw CommError(first == own ? own : cat(first, " (and here: ", own, ")"));
  }
}

}  // namespace

std::string_view name(Transport transport) { return kNames[static_cast<size_t>(transport)]; }

Channels connect(const JobMember& self, std::shared_ptr<Store> store, Communicator::Options options,
                 Transport transport) {
  TESSERA_CHECK(self.rank >= 0 && self.rank < self.world_size);
  Connections connections;
  connections.health = std::make_shared<Health>(self.world_size);
  ControlLink link{connections.health, {}, {}};
  if (self.world_size > 1) {
    std::string address;
    if (transport != Transport::kSharedMemory)
      address = local_address(self.interface, self.master_address);
    PeerListeners listeners(address);
    PrefixStore keys(std::move(store), cat("comm/", self.attempt, "/"));
    PeerRecord own{kPeerProtocol, self.world_size, std::string(name(transport)), self.host_id,
                   listeners.address()};
    std::vector<PeerRecord> records = meet(keys, self, own, options.deadline);

    std::vector<bool> local = ranks_of_this_host(records, self.rank, transport);
    std::vector<PeerAddress> addresses;
    for (const PeerRecord& record : records) {
      addresses.push_back(record.address);
      addresses.back().same_host = local[addresses.size() - 1];
    }
    auto end = std::chrono::steady_clock::now() + options.deadline;
    Health& health = *connections.health;
    connections.mesh = std::make_shared<PeerMesh>(
        self.rank, connect_or_tell(keys, listeners, self, addresses, end), health,
        options.deadline);
    link.inbox = {connections.mesh, &connections.mesh->inbox()};
    link.post = [mesh = connections.mesh](const std::string& message) { mesh->post(message); };
    if (std::count(local.begin(), local.end(), true) > 1) {
      auto segments = std::make_shared<SharedSegments>(*connections.mesh, local);
      connections.transports.push_back(std::make_unique<LocalTransport>(
          self.rank, self.world_size, *segments, health, options.deadline));
      connections.allocate = [segments](int64_t bytes) { return segments->allocate(bytes); };
      connections.memory = std::move(segments);
    }
    std::vector<bool> remote = local;
    remote.flip();
    remote[static_cast<size_t>(self.rank)] = false;
    if (std::count(remote.begin(), remote.end(), true) > 0) {
      connections.transports.push_back(
          gloo_transport(*connections.mesh, remote, address, health, options.deadline));
    }
  }
  Channels channels;
  channels.control = std::make_unique<MessageControl>(self.rank, self.world_size, options.deadline,
                                                      std::move(link));
  channels.communicator = std::make_unique<ExchangeCommunicator>(self.rank, self.world_size,
                                                                 options, std::move(connections));
  return channels;
}

}  // namespace tessera
