#pragma once
#include <cstdint>

namespace tessera {

// Gradients of f16 underflow: the loss that is differentiated, the mean over a micro-batch, is
// multiplied by a power of two, and the gradients are divided by it in f32 (Micikevicius et al.
// 2018, "Mixed Precision Training"). An update whose gradients are not finite is skipped and halves
// the factor, `interval` good ones in a row double it: the constants of PyTorch's GradScaler, with
// bounds.
struct LossScaling {
  double initial = 0x1p16, lowest = 1, highest = 0x1p40;
  int64_t interval = 2000;
};

// Between steps.
struct LossScaleState {
  float scale = 0;
  int64_t good_steps = 0;  // since the scale changed
};

}  // namespace tessera
