#pragma once
#include <cstdint>
#include <memory>

#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/matmul.h"

namespace tessera::cpu {

// With so many rows multiplying takes about as long as in the other products, which pack w.
inline constexpr int64_t kFewRows = 16;

// A few rows times a matrix that is stored by its columns, y[m, n] = sum_k x[m, k] w[n, k] (+
// bias[n]): bound by reading w, which happens once and without packing. A row of the result has the
// same bits whatever the other rows are and however many. Declines other problems, and more rows
// than kFewRows.
std::unique_ptr<const Matmul> make_rows_matmul(const MatmulProblem& problem, Isa isa);

struct MatmulRows {
  DType dtype;     // of w: kF32 or kBF16
  DType c;         // of y and bias
  const float* x;  // also where w is bf16: each element of it serves many columns
  const void* w;
  const void* bias;  // or null
  void* y;
  int64_t m, k;
  int64_t x_stride, w_stride, y_stride;  // elements between rows
};
// Columns [begin, end) of all rows of y.
TESSERA_DECLARE_PER_ISA(void matmul_rows(const MatmulRows& args, int64_t begin, int64_t end))

}  // namespace tessera::cpu
