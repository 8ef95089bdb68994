#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// y = (x - mean) * rstd * w + b, mean = mean(x), rstd = 1 / sqrt(mean((x - mean)^2) + epsilon) over
// each row (Ba, Kiros and Hinton, "Layer Normalization", 2016, section 3). Computed in f32, the
// variance from centred values; y is rounded once. y may be x.
struct LayerNormForward {
  DType dtype;    // of x, w, b and y: kF32 or kBF16
  const void* x;  // [rows, width]
  const void* w;  // [width]
  const void* b;  // [width], or null: none
  void* y;        // [rows, width]
  float* mean;    // [rows]
  float* rstd;    // [rows]
  int64_t rows, width;
  float epsilon;
};
void layer_norm_forward(const LayerNormForward& args, Isa isa, ThreadPool& pool);

// With h = (x - mean) * rstd and g = dy * w: dx = rstd * (g - mean(g) - h * mean(g * h)), dw = sum
// over rows of dy * h, db = sum over rows of dy. Both are summed in f32 over tiles of 32 rows, then
// over the tiles in ascending order. dx may be dy or `added`.
struct LayerNormBackward {
  DType dtype;        // of x, w, dy and dx: kF32 or kBF16
  const void* x;      // [rows, width]
  const void* w;      // [width]
  const float* mean;  // [rows], from the forward pass
  const float* rstd;
  const void* dy;               // [rows, width]
  const void* added = nullptr;  // [rows, width], to which dx is added before it is rounded; or null
  void* dx;                     // [rows, width]
  float* dw;                    // [width]
  float* db;                    // [width]
  float* workspace;             // layer_norm_backward_workspace() bytes
  int64_t rows, width;
};
int64_t layer_norm_backward_workspace(int64_t rows, int64_t width);  // bytes
void layer_norm_backward(const LayerNormBackward& args, Isa isa, ThreadPool& pool);

TESSERA_DECLARE_PER_ISA(void layer_norm_forward_rows(const LayerNormForward& args, int64_t begin,
                                                     int64_t end))
// Rows [begin, end); overwrites partial_dw[width] and partial_db[width] with their shares.
TESSERA_DECLARE_PER_ISA(void layer_norm_backward_rows(const LayerNormBackward& args, int64_t begin,
                                                      int64_t end, float* partial_dw,
                                                      float* partial_db))

}  // namespace tessera::cpu
