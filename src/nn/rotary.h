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

// f_i = theta^(-2i / dims), i < dims / 2 (Su et al. 2021, section 3.2.2), in radians a position.
std::vector<double> rotary_frequencies(int64_t dims, double theta);
std::vector<double> scale_llama3(std::vector<double> frequencies, const Llama3Scaling& scaling);

}  // namespace tessera
