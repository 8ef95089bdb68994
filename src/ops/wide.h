#pragma once
#include "base/dtype.h"

namespace tessera {

// dtype of statistics (norms, log-sum-exp, losses) that belong to tensors of dtype d, and of
// gradients of parameters of dtype d: f64 for f64, else f32.
inline DType wide(DType d) { return d == DType::kF64 ? DType::kF64 : DType::kF32; }

}  // namespace tessera
