#include "nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {

std::vector<double> rotary_frequencies(int64_t dims, double theta) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dims / 2; ++i) {
    frequencies.push_back(
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  return frequencies;
}

std::vector<double> scale_llama3(std::vector<double> frequencies, const Llama3Scaling& scaling) {
  for (double& f : frequencies) {
    double turns =
        scaling.original_max_position * f / (2 * std::numbers::pi);  // within the original context
    if (turns < scaling.low_freq_factor) {
      f /= scaling.factor;
    } else if (turns <= scaling.high_freq_factor) {
      double smooth =
          (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      f = (1 - smooth) * f / scaling.factor + smooth * f;
    }
  }
  return frequencies;
}

std::vector<double> scale_linear(std::vector<double> frequencies, double factor) {
  for (double& f : frequencies) f /= factor;
  return frequencies;
}

std::vector<double> scale_yarn(std::vector<double> frequencies, double theta,
                               const YarnScaling& scaling) {
  auto dims = 2 * static_cast<double>(frequencies.size());
  // The i whose frequency turns so many times within the original context.
  auto dim_of = [&](double turns) {
    return dims * std::log(scaling.original_max_position / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = dim_of(scaling.beta_fast), high = dim_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;  // as every implementation of it, so that the ramp has a slope
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= stretched / scaling.factor + (1 - stretched);
  }
  return frequencies;
}

}  // namespace tessera
