#include "models/rotary_angles.h"

#include "nn/rotary.h"

namespace tessera {

RotaryAngles rotary_angles(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  auto original = static_cast<double>(s.original_max_position);
  std::vector<double> f = rotary_frequencies(rotary_width(c), c.rope_theta);
  switch (s.type) {
    case RopeScalingType::kNone:
    case RopeScalingType::kDynamic: return f;
    case RopeScalingType::kLinear: return scale_linear(std::move(f), s.factor);
    case RopeScalingType::kLlama3:
      return scale_llama3(std::move(f),
                          {s.factor, s.low_freq_factor, s.high_freq_factor, original});
    case RopeScalingType::kYarn:
      return {scale_yarn(std::move(f), c.rope_theta,
                         {s.factor, s.beta_fast, s.beta_slow, original, s.truncate}),
              s.attention_factor};
  }
  throw InternalError("a rotary scaling that is not known");
}

}  // namespace tessera
