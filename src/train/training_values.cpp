// How weights and gradients are distributed, for --histogram_freq.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/log.h"
#include "observe/distribution.h"
#include "programs/job_slots.h"
#include "programs/shard_pieces.h"
#include "train/training_run.h"

namespace tessera {
namespace {

// What this rank has of a parameter that no rank before it has.
struct Part {
  std::string slot, tag, layer_tag;
  double factor = 1;
  std::vector<PieceRange> ranges;
};

int64_t elements_of(const Programs& programs, const std::string& slot) {
  for (const Slot& s : programs.slots)
    if (s.name() == slot) return num_elements(s.type.shape);
  return -1;
}

std::vector<Part> parts_of(const Programs& programs, int rank, double gradient_factor,
                           bool& left_out) {
  std::vector<Part> parts;
  for (const FlatUnit& unit : programs.units) {
    const std::string layer = unit.name.substr(0, unit.name.find('/'));
    const std::string gradient = gradient_slot(unit);
    // Sums that are not this rank's piece are added up over the ranks by the update only.
    const bool is_sum = elements_of(programs, gradient) == unit.shard_size;
    left_out |= unit.trainable && !is_sum;
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const std::string& name = programs.parameters[static_cast<size_t>(unit.parameters[k])].name;
      const bool copy = is_copy(programs, unit, k, rank);
      const auto ranges = copy ? std::vector<PieceRange>() : piece_ranges(programs, unit, k, rank);
      parts.push_back(
          {weight_slot(unit), cat("Weights/", name), cat("Norms/weights/", layer), 1, ranges});
      if (unit.trainable && is_sum)
        parts.push_back({gradient, cat("Gradients/", name), cat("Norms/gradients/", layer),
                         gradient_factor, ranges});
    }
  }
  return parts;
}

}  // namespace

void TrainingRun::tell_values(int64_t batch, double gradient_factor) {
  bool left_out = false;
  const std::vector<Part> parts = parts_of(session_->programs(), rank(), gradient_factor, left_out);
  if (left_out && rank() == 0)
    TESSERA_WARN_ONCE(
        "--histogram_freq tells of weights alone: with this sharding no rank has sums of gradients "
        "over all ranks");
  std::vector<Distribution> values(parts.size());
  const State& state = session_->state();
  device_.pool->run(std::ssize(parts), [&](int64_t i, int) {
    constexpr int64_t kChunk = 1 << 14;
    const Part& part = parts[static_cast<size_t>(i)];
    std::vector<float> some;
    for (const PieceRange& range : part.ranges) {
      for (int64_t at = 0; at < range.count; at += kChunk) {
        some.resize(static_cast<size_t>(std::min(kChunk, range.count - at)));
        state.read_as_f32(part.slot, range.local + at, some);
        values[static_cast<size_t>(i)].add(some, part.factor);
      }
    }
  });
  if (device_.control) {
    std::string text;
    for (const Distribution& d : values) text += d.to_text() + "\n";
    const std::vector<std::string> all = device_.control->exchange("distributions", text);
    for (size_t r = 0; rank() == 0 && r < all.size(); ++r) {
      if (r == 0) continue;
      const std::vector<std::string_view> lines = split(all[r], '\n');
      for (size_t i = 0; i < values.size(); ++i)
        values[i].add(Distribution::from_text(lines.at(i)));
    }
  }
  if (rank() > 0) return;
  ValuesReport report;
  report.batch = batch;
  std::map<std::string, double> squares;
  for (size_t i = 0; i < parts.size(); ++i) {
    double& sum = squares[parts[i].layer_tag];
    sum += values[i].sum_of_squares();
    // Sums leave out what is not finite: such a layer is the one that is looked for.
    if (values[i].not_finite() > 0) sum = std::numeric_limits<double>::quiet_NaN();
    report.parameters.push_back({parts[i].tag, std::move(values[i])});
  }
  for (const auto& [tag, sum] : squares) report.norms.emplace_back(tag, std::sqrt(sum));
  for (const auto& sink : sinks_) sink->values(report);
}

}  // namespace tessera
