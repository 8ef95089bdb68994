#pragma once
#include <cstdint>

#include "comm/exchange.h"

namespace tessera {

// Brings the contributions of some peers to this rank, and its own to them. One exchange at a time:
// begin, then for every round offer and, not before it, take (each peer once) and release; end.
// Rounds are offered one ahead of the one that is taken. Every wait ends with a CommError when a
// rank fails or the deadline passes.
class PeerTransport {
 public:
  virtual ~PeerTransport() = default;
  // The ranks of the job (not of a group) that it connects to.
  virtual bool reaches(int rank) const = 0;
  // `exchange` must live until end().
  virtual void begin(const Exchange& exchange) = 0;
  // Makes this rank's pieces of a round available to the peers.
  virtual void offer(int64_t round) = 0;
  // The piece of the group's rank `from`, readable until release().
  virtual PieceView take(int from, int64_t round) = 0;
  virtual void release(int64_t round) = 0;
  // Returns when the source may be changed.
  virtual void end() = 0;
  // A failure has ended the exchange: when it returns, nothing touches the caller's buffers any
  // more.
  virtual void abandon() {}
  // This rank has left in good order: sees to it that what it sent arrives.
  virtual void linger() {}
};

}  // namespace tessera
