#include "profile/exchange_arrivals.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {

std::map<ExchangeKey, LastArrival> last_arrivals(std::span<const RankTrace> traces) {
  std::map<ExchangeKey, LastArrival> last;
  std::map<ExchangeKey, const TraceEvent*> seen;
  for (const RankTrace& trace : traces) {
    for (const TraceEvent& event : trace.events) {
      if (event.kind != TraceEvent::Kind::kExchange || event.sequence < 0) continue;
      const TraceEvent& same = *seen.emplace(key_of(trace, event), &event).first->second;
      if (same.op != event.op || same.scope != event.scope)
        throw UserError(cat("exchange ", event.sequence, " of ranks ", event.ranks, " is ",
                            event.op, " in ", event.scope, " on rank ", trace.rank, " and ",
                            same.op, " in ", same.scope,
                            " on another: these are traces of different runs"));
      LastArrival& of = last[key_of(trace, event)];
      if (of.rank < 0 || event.begin > of.begin) of = {trace.rank, event.begin};
    }
  }
  return last;
}

}  // namespace tessera
