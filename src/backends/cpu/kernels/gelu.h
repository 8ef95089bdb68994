#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// y = gelu(x) on n elements (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2),
// by erf or, unless `exact`, by tanh; with dy, the gradient dy * gelu'(x) instead. erf is formula
// 7.1.26 of Abramowitz and Stegun, as everywhere in f32. Computed in f32, rounded once. y may be x
// or dy.
struct Gelu {
  DType dtype;  // of all tensors: kF32 or kBF16
  bool exact;
  const void* x;
  const void* dy;  // or null: forward
  void* y;
  int64_t n;
};
void gelu(const Gelu& args, Isa isa, ThreadPool& pool);

TESSERA_DECLARE_PER_ISA(void gelu_range(const Gelu& args, int64_t begin, int64_t end))

}  // namespace tessera::cpu
