#pragma once
#include <cstdint>
#include <vector>

#include "comm/channels.h"

namespace tessera {

// What lies between two ranks.
struct Link {
  int low = 0, high = 0;  // ranks, low < high
  double latency = 0;     // seconds of an exchange of 4 bytes both ways, the median
  double bandwidth = 0;   // bytes/s in each direction while both are used, the best
};

// Measures all pairs, in rounds of pairs that have no rank in common and work at the same time: the
// ranks of a host share its network as they do in training. All ranks call it; every one gets all
// links. CommError as the communicator.
std::vector<Link> measure_links(const Channels& channels, int64_t bytes);

// By how much the clock of each rank is ahead of that of rank 0, in seconds, the median of some
// rounds. Ranks leave a barrier not quite together: by milliseconds on a busy host. All ranks call
// it; every one gets all.
std::vector<double> clock_offsets(Control& control);

}  // namespace tessera
