#include "profile/speed_of_light.h"

#include <algorithm>

namespace tessera {

double SpeedOfLight::seconds(bool contracts, double flops, double bytes, DType dtype) const {
  double arithmetic = flops / (contracts && dtype == DType::kBF16 ? matrix_bf16 : matrix_f32);
  return std::max(arithmetic, bytes / bandwidth);
}

void SpeedOfLight::reached(bool contracts, double flops, double bytes, double seconds,
                           DType dtype) {
  if (seconds <= 0) return;
  double& rate = contracts && dtype == DType::kBF16 ? matrix_bf16 : matrix_f32;
  rate = std::max(rate, flops / seconds);
  if (bytes >= 2.0 * kCopiedBytes) bandwidth = std::max(bandwidth, bytes / seconds);
}

}  // namespace tessera
