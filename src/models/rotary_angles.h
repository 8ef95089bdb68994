#pragma once
#include "models/model_config.h"
#include "ops/composite/rope.h"

namespace tessera {

// How the heads of this model turn, for windows of at most longest_window().
RotaryAngles rotary_angles(const ModelConfig& config);

}  // namespace tessera
