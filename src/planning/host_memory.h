#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/memory_pools.h"
#include "base/shape.h"
#include "options/run_config.h"

namespace tessera {

// What one rank takes of its host: `planned` bytes, about `beside` them, out of `pools`.
struct RankMemory {
  int64_t planned = 0, beside = 0;
  std::vector<MemoryPool> pools;
  int64_t need() const { return checked_add(planned, beside); }

  // One text for another rank, and back.
  std::string to_text() const;
  static RankMemory from_text(std::string_view text);
};

// Bytes that a process takes beside what is planned, from the moment at which it has its plan: a
// modest bound on what was measured (host_memory.cpp). Page cache is not in it: files that are
// mapped or written, token caches among them.
int64_t memory_beside_plan(const RunConfig& config, int64_t planned, int threads);

// Bytes that the lanes of a stream and the threads that read them take on one of so many
// data-parallel ranks, in no plan either: each `reading` for what unpacks its files, or a batch of
// a table.
int64_t memory_of_lanes(const RunConfig& config, int64_t data_ranks, int64_t reading);

// A pool that does not hold what the ranks that share it need.
struct MemoryShortage {
  std::string pool;
  int ranks = 1;
  int64_t need = 0, available = 0;  // of all of them
  int64_t planned_each = 0;         // what a rank might plan
  // "2 ranks need 6.10 GiB, 5.90 GiB planned and about 200.0 MiB beside; cgroup /a has 800.0 MiB"
  std::string text;
};
// The pool that lacks most; nothing if there is enough of all.
std::optional<MemoryShortage> find_shortage(std::span<const RankMemory> ranks);
// The smallest of the pools of one rank, if any is known.
std::optional<MemoryPool> smallest_pool(const RankMemory& rank);

}  // namespace tessera
