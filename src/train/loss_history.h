#pragma once
#include <cstdint>
#include <deque>

namespace tessera {

// The losses of the last steps, and from where on the next one stands out: `threshold` standard
// deviations above their median. The deviation is 1.4826 times the median distance from the median,
// which for normal numbers is the standard deviation, and is not moved by the spikes that are to be
// found; it counts as at least 1 % of the median, so that a loss which hardly moves makes no
// spikes.
class LossHistory {
 public:
  LossHistory(double threshold, int64_t window) : threshold_(threshold), window_(window) {}

  // Infinite as long as half a window is not known.
  double limit() const;
  double median() const;
  // Of every step; what is not finite is left out. Spikes belong to it, too: where the loss stays
  // that high it is none any more.
  void add(double loss);
  int64_t window() const { return window_; }

  // Oldest first, as checkpoints keep them.
  const std::deque<double>& losses() const { return losses_; }
  void restore(std::deque<double> losses);

 private:
  double threshold_;
  int64_t window_;
  std::deque<double> losses_;
};

}  // namespace tessera
