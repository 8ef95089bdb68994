#include "profile/profile_report.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "profile/exchange_arrivals.h"

namespace tessera {
namespace {

using Kind = TraceEvent::Kind;
struct Sum {
  double calls = 0, seconds = 0, flops = 0, bytes = 0;
  double light = 0, lit_seconds = 0;  // of what has a speed of light
  void add(double more_seconds) {
    ++calls;
    seconds += more_seconds;
  }
  void add(const TraceEvent& event) {
    ++calls;
    seconds += event.seconds();
    flops += event.flops;
    bytes += event.bytes;
    if (event.light_seconds <= 0) return;
    light += event.light_seconds;
    lit_seconds += event.seconds();
  }
};

// "7" for decoder layer 7, else the first part of the scope.
std::string layer_of(const TraceEvent& event) {
  if (event.layer >= 0) return format("%lld", static_cast<long long>(event.layer));
  return event.scope.substr(0, event.scope.find('.'));
}

template <class Key>
std::vector<ProfileRow> rows_of(const std::map<Key, Sum>& sums, double steps, double total,
                                const std::function<void(const Key&, ProfileRow&)>& name) {
  std::vector<ProfileRow> rows;
  for (const auto& [key, sum] : sums) {
    ProfileRow row;
    name(key, row);
    row.calls = sum.calls / steps;
    row.seconds = sum.seconds / steps;
    row.share = total > 0 ? sum.seconds / total : 0;
    row.flops = sum.flops / steps;
    row.bytes = sum.bytes / steps;
    if (sum.lit_seconds > 0) row.light = sum.light / sum.lit_seconds;
    rows.push_back(std::move(row));
  }
  return rows;
}

void longest_first(std::vector<ProfileRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
}

bool is_number(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

class Accounts {
 public:
  explicit Accounts(std::span<const RankTrace> traces) : last_(last_arrivals(traces)) {
    for (const RankTrace& trace : traces) take(trace);
  }

  ProfileReport report(std::span<const RankTrace> traces) {
    ProfileReport report;
    report.world_size = traces[0].world_size;
    report.first_step = traces[0].first_step;
    report.state = traces[0].state;
    for (const TracePeak& peak : traces[0].peaks)
      if (peak.bytes > report.peak.bytes) report.peak = peak;
    // A run that went back has recorded some steps more than once.
    std::set<std::pair<int64_t, int64_t>> steps_done;
    std::map<std::pair<int64_t, int64_t>, int64_t> times;  // of a step on a rank
    for (const RankTrace& trace : traces) {
      report.lost += trace.lost;
      report.clock_error = std::max(report.clock_error, trace.clock_error);
      for (const TraceEvent& event : trace.events)
        if (event.kind == Kind::kStep)
          steps_done.emplace(event.step, ++times[{trace.rank, event.step}]);
    }
    report.steps = std::ssize(steps_done);
    report.last_step = steps_done.rbegin()->first;
    report.ranks = std::ssize(ranks_);
    report.step_seconds = total_ / steps_;
    const double steps = steps_;
    using Op = std::pair<std::string, std::string>;
    report.by_op = rows_of<Op>(ops_, steps, total_, [](const Op& op, ProfileRow& row) {
      row.name = op.first;
      row.phase = op.second;
    });
    auto named = [](const std::string& name, ProfileRow& row) { row.name = name; };
    report.by_phase = rows_of<std::string>(phases_, steps, total_, named);
    report.by_layer = rows_of<std::string>(layers_, steps, total_, named);
    longest_first(report.by_op);
    longest_first(report.by_phase);
    std::stable_sort(report.by_layer.begin(), report.by_layer.end(),
                     [](const ProfileRow& a, const ProfileRow& b) {
                       const bool x = is_number(a.name), y = is_number(b.name);
                       if (x != y) return x;
                       return x ? std::pair(a.name.size(), a.name) <
                                      std::pair(b.name.size(), b.name)
                                : a.seconds > b.seconds;
                     });
    for (auto& [rank, sums] : ranks_) {
      RankRow row = sums.row;
      for (double* value :
           {&row.step, &row.computing, &row.waiting, &row.data, &row.exchanging, &row.kept_waiting})
        *value /= sums.steps;
      for (auto& [other, seconds] : row.waited_for) seconds /= sums.steps;
      row.other = std::max(0.0, row.step - row.computing - row.waiting - row.data);
      report.by_rank.push_back(std::move(row));
    }
    for (const auto& [key, sum] : exchanges_)
      report.exchanges.push_back({key.first, key.second, sum.calls / steps, sum.bytes / steps,
                                  sum.seconds / steps, waits_[key] / steps});
    std::stable_sort(
        report.exchanges.begin(), report.exchanges.end(),
        [](const ExchangeRow& a, const ExchangeRow& b) { return a.waiting > b.waiting; });
    return report;
  }

 private:
  struct RankSums {
    RankRow row;
    double steps = 0;
  };

  void take(const RankTrace& trace) {
    RankSums& own = ranks_[trace.rank];
    own.row.rank = trace.rank;
    own.row.host = trace.host;
    double accounted = 0, time = 0;
    std::map<std::pair<std::string, int64_t>, std::string> axes;  // of an exchange, for its waits
    for (const TraceEvent& event : trace.events)
      if (event.kind == Kind::kExchange) axes[{event.ranks, event.sequence}] = event.axes;
    for (const TraceEvent& event : trace.events) {
      if (event.step < 0) continue;
      const double seconds = event.seconds();
      if (event.kind == Kind::kStep) {
        own.steps += 1;
        steps_ += 1;
        own.row.step += seconds;
        time += seconds;
        continue;
      }
      if (event.kind == Kind::kExchange) {
        exchanges_[{event.op, event.axes}].add(event);
        own.row.exchanging += seconds;
        continue;
      }
      accounted += seconds;
      if (event.kind == Kind::kData) {
        phases_["data"].add(event);
        ops_[{"data", ""}].add(event);
        own.row.data += seconds;
        continue;
      }
      const bool waits = event.kind == Kind::kWait;
      (waits ? own.row.waiting : own.row.computing) += seconds;
      phases_[waits ? "waiting" : event.phase].add(event);
      layers_[layer_of(event)].add(event);
      ops_[{cat(waits                        ? "wait for "
                : event.kind == Kind::kBegin ? "begin "
                                             : "",
                event.op),
            event.phase}]
          .add(event);
      if (!waits) continue;
      waits_[{event.op, axes[{event.ranks, event.sequence}]}] += seconds;
      blame(trace, event, own.row);
    }
    if (time > accounted) {
      phases_["other"].add(time - accounted);
      ops_[{"other", ""}].add(time - accounted);
    }
    total_ += time;
  }

  // Until the last rank came, it was that one which was waited for; then the exchange.
  void blame(const RankTrace& trace, const TraceEvent& wait, RankRow& row) {
    const auto found = last_.find(key_of(trace, wait));
    if (found == last_.end() || wait.sequence < 0 || found->second.rank == trace.rank) return;
    const int64_t until = std::clamp(found->second.begin, wait.begin, wait.end);
    if (until <= wait.begin) return;
    const double seconds = static_cast<double>(until - wait.begin) * 1e-9;
    row.waited_for[found->second.rank] += seconds;
    RankSums& late = ranks_[found->second.rank];
    late.row.kept_waiting += seconds;
  }

  std::map<ExchangeKey, LastArrival> last_;
  std::map<std::pair<std::string, std::string>, Sum> ops_, exchanges_;
  std::map<std::pair<std::string, std::string>, double> waits_;
  std::map<std::string, Sum> phases_, layers_;
  std::map<int64_t, RankSums> ranks_;
  double steps_ = 0, total_ = 0;
};

}  // namespace

ProfileReport profile_report(std::span<const RankTrace> traces) {
  for (const RankTrace& trace : traces) {
    const bool has_steps = std::ranges::any_of(
        trace.events, [](const TraceEvent& event) { return event.kind == Kind::kStep; });
    if (!has_steps)
      throw UserError(cat("the trace of rank ", trace.rank, " holds no step: record it again"));
  }
  TESSERA_CHECK(!traces.empty());
  return Accounts(traces).report(traces);
}

}  // namespace tessera
