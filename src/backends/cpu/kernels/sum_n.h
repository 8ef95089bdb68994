#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// y = x[0] + x[1] + ... in that order, in f32, rounded once. y may be any of the operands.
struct SumN {
  DType dtype;           // of all tensors: kF32 or kBF16
  const void* const* x;  // `count` operands of n elements
  int64_t count;
  void* y;
  int64_t n;
};
void sum_n(const SumN& args, Isa isa, ThreadPool& pool);

TESSERA_DECLARE_PER_ISA(void sum_n_range(const SumN& args, int64_t begin, int64_t end))

}  // namespace tessera::cpu
