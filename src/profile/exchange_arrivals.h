#pragma once
#include <map>
#include <span>
#include <string>
#include <tuple>

#include "profile/trace_reader.h"

namespace tessera {

// An exchange of several ranks: the first step of its trace, who takes part, its number among
// theirs.
using ExchangeKey = std::tuple<int64_t, std::string, int64_t>;
inline ExchangeKey key_of(const RankTrace& trace, const TraceEvent& event) {
  return {trace.first_step, event.ranks, event.sequence};
}

// The rank that came last to an exchange, and when. Until then all others wait for it.
struct LastArrival {
  int64_t rank = -1, begin = 0;
};
std::map<ExchangeKey, LastArrival> last_arrivals(std::span<const RankTrace> traces);

}  // namespace tessera
