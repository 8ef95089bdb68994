#pragma once
#include <cstdint>
#include <vector>

namespace tessera {

// Llama 3.1's change of rotary frequencies: those whose wavelength 2 pi / f exceeds
// original_max_position / low_freq_factor are divided by `factor`, those below
// original_max_position / high_freq_factor stay, and between the two both are mixed linearly in
// original_max_position / wavelength.
struct Llama3Scaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position = 8192;
};

// YaRN (Peng et al. 2023, section 3.4): frequencies that turn less than beta_slow times within the
// original context are divided by `factor`, those that turn more than beta_fast times stay, and
// between the two both are mixed linearly in i. `truncate` widens that range to whole i.
struct YarnScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  double original_max_position = 8192;
  bool truncate = true;
};

// f_i = theta^(-2i / dims), i < dims / 2 (Su et al. 2021, section 3.2.2), in radians a position.
std::vector<double> rotary_frequencies(int64_t dims, double theta);
std::vector<double> scale_llama3(std::vector<double> frequencies, const Llama3Scaling& scaling);
// Positions divided by `factor` (Chen et al. 2023).
std::vector<double> scale_linear(std::vector<double> frequencies, double factor);
// `theta` is that of the frequencies.
std::vector<double> scale_yarn(std::vector<double> frequencies, double theta,
                               const YarnScaling& scaling);

}  // namespace tessera
