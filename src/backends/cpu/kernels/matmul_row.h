#pragma once
#include <cstdint>
#include <memory>

#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/matmul.h"

namespace tessera::cpu {

// One row times a matrix that is stored by its columns, y[n] = sum_k x[k] w[n, k] (+ bias[n]):
// bound by reading w, which happens once and without packing. Declines other problems.
std::unique_ptr<const Matmul> make_row_matmul(const MatmulProblem& problem, Isa isa);

struct MatmulRow {
  DType dtype;  // of x and w: kF32 or kBF16
  DType c;      // of y and bias
  const void* x;
  const void* w;
  const void* bias;  // or null
  void* y;
  int64_t k, stride;  // elements between rows of w
};
// y[begin, end).
TESSERA_DECLARE_PER_ISA(void matmul_row(const MatmulRow& args, int64_t begin, int64_t end))

}  // namespace tessera::cpu
