#pragma once
#include <vector>

#include "comm/peer_sockets.h"
#include "comm/store.h"

namespace tessera {

// What a rank needs to know of another to connect to it.
struct PeerRecord {
  uint32_t protocol = kPeerProtocol;
  int world_size = 1;
  std::string transport;  // name of what it was told to use
  std::string host_id;
  PeerAddress address;
};

// Puts this rank's record into the store and returns those of all, by rank. Rank 0 collects them,
// so the store sees a handful of calls a rank. CommError on every rank, with the same words, when
// one has another protocol, world size or transport or stands there twice; when the time is over,
// it names who is missing: "ranks 2, 3 of 4 have not arrived within 300 s".
std::vector<PeerRecord> meet(Store& store, const JobMember& self, const PeerRecord& own,
                             std::chrono::milliseconds deadline);

}  // namespace tessera
