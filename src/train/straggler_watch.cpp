#include "train/straggler_watch.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/median.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera {
namespace {

// What is less than this share of a step nobody minds. Nor what is less than so many seconds of
// one: threads that wake late make as much of steps that are as short.
constexpr double kNoticed = 0.05, kNoticedLag = 1e-3;

std::string text_of(const PhaseSeconds& s) {
  return cat(s.compute, " ", s.data, " ", s.save, " ", s.steps, " ", s.step_seconds, " ",
             host_name());
}

std::pair<PhaseSeconds, std::string> from_text(const std::string& text) {
  std::istringstream in(text);
  PhaseSeconds s;
  std::string host;
  in >> s.compute >> s.data >> s.save >> s.steps >> s.step_seconds >> host;
  return {s, host};
}

}  // namespace

std::optional<StragglerReport> slowest_rank(const std::vector<PhaseSeconds>& ranks,
                                            const std::vector<std::string>& hosts,
                                            double threshold) {
  if (ranks.size() < 2 || ranks[0].steps == 0) return std::nullopt;
  const std::pair<const char*, double PhaseSeconds::*> phases[] = {
      {"compute", &PhaseSeconds::compute},
      {"data", &PhaseSeconds::data},
      {"save", &PhaseSeconds::save}};
  StragglerReport slowest;
  double most = -1;
  for (const auto& [phase, field] : phases) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      std::vector<double> others;
      for (size_t o = 0; o < ranks.size(); ++o)
        if (o != r) others.push_back(ranks[o].*field);
      const double usual = median(std::move(others)), excess = ranks[r].*field - usual;
      if (excess <= most) continue;
      most = excess;
      const auto steps = static_cast<double>(ranks[0].steps);
      slowest = {.rank = static_cast<int>(r),
                 .host = hosts[r],
                 .phase = phase,
                 .seconds = ranks[r].*field / steps,
                 .median_seconds = usual / steps};
    }
  }
  const double noticed =
      std::max(kNoticed * ranks[0].step_seconds, kNoticedLag * static_cast<double>(ranks[0].steps));
  slowest.is_straggler = slowest.seconds >= threshold * slowest.median_seconds && most >= noticed;
  return slowest;
}

StragglerWatch::StragglerWatch(Control& control, int64_t interval, double threshold)
    : control_(control), interval_(interval), threshold_(threshold) {}

std::optional<StragglerReport> StragglerWatch::add(const StepReport& step, double data_seconds) {
  own_.compute += step.step_seconds - step.exchange_seconds.value_or(0);
  own_.data += data_seconds;
  own_.step_seconds += step.step_seconds + step.data_seconds;
  batch_ = step.batch;
  if (++own_.steps < interval_) return take(false);
  auto last = take(true);  // begun a whole interval ago
  auto compare = [this, mine = text_of(std::exchange(own_, {})), batch = batch_] {
    std::vector<PhaseSeconds> ranks;
    std::vector<std::string> hosts;
    for (const std::string& text : control_.exchange("times of the ranks", mine)) {
      auto [seconds, host] = from_text(text);
      ranks.push_back(seconds);
      hosts.push_back(std::move(host));
    }
    StragglerReport report = slowest_rank(ranks, hosts, threshold_).value_or(StragglerReport());
    report.batch = batch;
    report.steps = ranks[0].steps;
    return report;
  };
  comparing_ = std::async(std::launch::async, std::move(compare));
  return last;
}

std::optional<StragglerReport> StragglerWatch::take(bool wait) {
  if (!comparing_.valid()) return std::nullopt;
  if (!wait && comparing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return std::nullopt;
  return comparing_.get();
}

}  // namespace tessera
