#include "train/loss_history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tessera {
namespace {

double middle_of(std::vector<double> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  if (values.size() % 2 == 1) return *half;
  return (*half + *std::max_element(values.begin(), half)) / 2;
}

}  // namespace

double LossHistory::median() const {
  return losses_.empty() ? 0 : middle_of({losses_.begin(), losses_.end()});
}

double LossHistory::limit() const {
  if (2 * static_cast<int64_t>(losses_.size()) < window_)
    return std::numeric_limits<double>::infinity();
  const double middle = median();
  std::vector<double> distances;
  for (const double loss : losses_) distances.push_back(std::abs(loss - middle));
  const double deviation = 1.4826 * middle_of(std::move(distances));
  return middle + threshold_ * std::max(deviation, 0.01 * std::abs(middle));
}

void LossHistory::add(double loss) {
  if (!std::isfinite(loss)) return;
  losses_.push_back(loss);
  if (static_cast<int64_t>(losses_.size()) > window_) losses_.pop_front();
}

void LossHistory::restore(std::deque<double> losses) {
  losses_.clear();
  for (const double loss : losses) add(loss);
}

}  // namespace tessera
