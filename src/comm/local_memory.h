#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera {

// Where a source lies, in words that mean the same to every rank that shares memory.
struct Location {
  int64_t segment = -1;  // -1: nowhere that others can read; it comes through the staging area
  int64_t offset = 0;
};

// A counter that ranks sleep on, on a cache line of its own.
struct alignas(64) SharedCounter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};
};

// What a rank shows the ranks that share memory with it about one group. Both counters count rounds
// over all exchanges of the group.
struct GroupCounters {
  SharedCounter offered;   // rounds that may be read
  uint64_t identity = 0;   // of the running exchange; written before `offered` rises, as is
  Location source;         // where its source lies
  SharedCounter released;  // rounds of the others that this rank has read
};

// Every group has a number; groups of one make_group() share it.
constexpr int kMaxGroups = 64;

struct ControlPage {
  GroupCounters groups[kMaxGroups];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Memory of several ranks that all of them can read.
class LocalMemory {
 public:
  virtual ~LocalMemory() = default;
  virtual bool holds(int rank) const = 0;
  virtual ControlPage& control(int rank) = 0;
  // Two halves of round_bytes(): for odd and even rounds.
  virtual std::byte* staging(int rank) = 0;
  // Of a source of this rank.
  virtual Location find(const void* data, int64_t bytes) = 0;
  // What another rank's find() gave. CommError when it does not turn up in time.
  virtual const std::byte* resolve(int rank, const Location& location, int64_t bytes) = 0;
};

}  // namespace tessera
