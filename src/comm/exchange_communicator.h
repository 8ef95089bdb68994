#pragma once
#include <memory>
#include <vector>

#include "comm/health.h"
#include "comm/local_memory.h"
#include "comm/peer_transport.h"
#include "runtime/communicator.h"

namespace tessera {

class PeerMesh;

// What connects a rank to its peers; everything but the health may be absent.
struct Connections {
  std::shared_ptr<Health> health;
  std::shared_ptr<PeerMesh> mesh;  // between processes
  std::shared_ptr<LocalMemory> memory;
  std::vector<std::unique_ptr<PeerTransport>> transports;  // use the members above
  std::function<HostBuffer(int64_t)> allocate;             // absent: ordinary memory
};

// The one communicator: direct exchange over whatever transports reach the peers.
class ExchangeCommunicator final : public Communicator {
 public:
  ExchangeCommunicator(int rank, int world_size, Options options, Connections connections);
  ~ExchangeCommunicator() override;

  HostBuffer allocate(int64_t bytes) override;

 private:
  void perform(const CommCall& call) override;
  void fail(std::string_view reason);

  Connections connections_;
  std::vector<PeerTransport*> transports_;
};

}  // namespace tessera
