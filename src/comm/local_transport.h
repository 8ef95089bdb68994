#pragma once
#include <array>
#include <chrono>

#include "comm/health.h"
#include "comm/local_memory.h"
#include "comm/peer_transport.h"

namespace tessera {

// Between ranks that share memory: threads of a process, or processes of a host. Sources inside
// shared memory are read where they lie; others are copied into the staging area round by round.
// Ranks wait for each other's counters: a short spin, then asleep on a futex.
class LocalTransport final : public PeerTransport {
 public:
  LocalTransport(int rank, int world_size, LocalMemory& memory, Health& health,
                 std::chrono::milliseconds deadline);

  bool reaches(int rank) const override { return rank != rank_ && memory_.holds(rank); }
  void begin(const Exchange& exchange) override;
  void offer(int64_t round) override;
  PieceView take(int from, int64_t round) override;
  void release(int64_t round) override;
  void end() override;

 private:
  GroupCounters& counters(int index) const;
  // Where the piece for (or from) a peer lies in a staging area.
  int64_t staging_offset(int to, int64_t round) const;
  [[noreturn]] void out_of_step(int index);
  void wait_for(SharedCounter& counter, uint32_t value, int index);
  void advance(SharedCounter& counter, uint32_t value);

  int rank_;
  int64_t half_;  // of the staging area
  LocalMemory& memory_;
  Health& health_;
  std::chrono::milliseconds deadline_;
  std::array<uint32_t, kMaxGroups> rounds_before_{};  // of each group, over all exchanges

  // Of the running exchange.
  const Exchange* exchange_ = nullptr;
  std::vector<int> peers_;  // indices in the group
  uint32_t base_ = 0;
  bool direct_ = false;
  size_t read_in_place_ = 0;  // peers
};

}  // namespace tessera
