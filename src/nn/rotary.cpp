#include "nn/rotary.h"

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

}  // namespace tessera
