#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace tessera {

// What a plan says of memory while its program runs; state slots, which always live, excluded.

// Near bytes that are live while each node runs.
std::vector<int64_t> live_bytes(const Graph& graph, const Plan& plan);

struct LiveBuffer {
  std::string name;  // "linear in layers.3.mlp (forward) bf16[4, 128]", "workspace of ...", ...
  int64_t bytes = 0;
};
// What lives near at the peak, largest first; behind `most` of them one entry for all others.
std::vector<LiveBuffer> live_at_peak(const Graph& graph, const Plan& plan, size_t most);

}  // namespace tessera
