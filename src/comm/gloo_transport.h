#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/health.h"
#include "comm/peer_mesh.h"
#include "comm/peer_transport.h"

namespace tessera {

// Between hosts: Gloo's point-to-point buffers over TCP on the interface of `address` (numeric).
// `remote`: for every rank whether it is reached this way. One context for the whole job, whose
// addresses travel over the mesh; groups need none of their own, since every pair of ranks has the
// same calls in the same order. Returns when all are connected; CommError otherwise.
std::unique_ptr<PeerTransport> gloo_transport(PeerMesh& mesh, std::vector<bool> remote,
                                              const std::string& address, Health& health,
                                              std::chrono::milliseconds deadline);

}  // namespace tessera
