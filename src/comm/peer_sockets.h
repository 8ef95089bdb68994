#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/job.h"
#include "comm/tcp_socket.h"

namespace tessera {

// Version of what ranks say to each other; ranks of different versions refuse each other.
constexpr uint32_t kPeerProtocol = 4;

// Where a rank can be reached.
struct PeerAddress {
  bool same_host = false;
  std::string unix_name;  // abstract Unix socket: gone with its process
  std::string address;    // numeric; empty: the rank does not talk to other hosts
  int port = 0;
};

// The sockets on which a rank is found by its peers.
class PeerListeners {
 public:
  // A Unix socket under a random name and, if `address` (numeric) is given, a TCP socket on it with
  // a port of the system's choice. CommError when that is not possible.
  explicit PeerListeners(const std::string& address);
  const PeerAddress& address() const { return address_; }

 private:
  friend class PeerConnector;
  FileDescriptor unix_, tcp_;
  PeerAddress address_;
};

// One connection to every other rank, by rank: Unix within a host, TCP otherwise. Who connects says
// which rank it is; both prove with an HMAC over fresh random bytes that they know the job's token,
// which itself does not travel. On a Unix socket they must be of the same user besides. CommError
// that names the ranks that have not connected by the deadline, or the one that refused.
std::vector<FileDescriptor> connect_peers(const PeerListeners& own, const JobMember& self,
                                          const std::vector<PeerAddress>& peers, Deadline deadline);

// The numeric address of the interface of this name; without a name, of the one that leads to
// `master_address`. UserError if there is no such interface, CommError if the master's name does
// not resolve.
std::string local_address(const std::string& interface, const std::string& master_address);

}  // namespace tessera
