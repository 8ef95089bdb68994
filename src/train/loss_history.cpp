#include "train/loss_history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/median.h"

namespace tessera {

double LossHistory::median() const { return tessera::median({losses_.begin(), losses_.end()}); }

double LossHistory::limit() const {
  if (2 * static_cast<int64_t>(losses_.size()) < window_)
    return std::numeric_limits<double>::infinity();
  const double middle = median();
  std::vector<double> distances;
  for (const double loss : losses_) distances.push_back(std::abs(loss - middle));
  const double deviation = 1.4826 * tessera::median(std::move(distances));
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
