#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// y = x * rstd * w, rstd = 1 / sqrt(mean(x^2) + epsilon) over each row (Zhang and Sennrich, "Root
// Mean Square Layer Normalization", 2019, eq. 4). Computed in f32; y is rounded once. y may be x.
struct RmsNormForward {
  DType dtype;    // of x, w and y: kF32 or kBF16
  const void* x;  // [rows, width]
  const void* w;  // [width]
  void* y;        // [rows, width]
  float* rstd;    // [rows]
  int64_t rows, width;
  float epsilon;
};
void rms_norm_forward(const RmsNormForward& args, Isa isa, ThreadPool& pool);

// With h = x * rstd: dx = rstd * (dy * w - h * mean(dy * w * h)), dw = sum over rows of dy * h.
// dw is summed in f32 over tiles of 32 rows, then over the tiles in ascending order. dx may be dy
// or `added`.
struct RmsNormBackward {
  DType dtype;                  // of x, w, dy and dx: kF32 or kBF16
  const void* x;                // [rows, width]
  const void* w;                // [width]
  const float* rstd;            // [rows], from the forward pass
  const void* dy;               // [rows, width]
  const void* added = nullptr;  // [rows, width], to which dx is added before it is rounded; or null
  void* dx;                     // [rows, width]
  float* dw;                    // [width]
  float* workspace;             // rms_norm_backward_workspace() bytes
  int64_t rows, width;
};
int64_t rms_norm_backward_workspace(int64_t rows, int64_t width);  // bytes
void rms_norm_backward(const RmsNormBackward& args, Isa isa, ThreadPool& pool);

TESSERA_DECLARE_PER_ISA(void rms_norm_forward_rows(const RmsNormForward& args, int64_t begin,
                                                   int64_t end))
// Rows [begin, end); overwrites partial_dw[width] with their share of dw.
TESSERA_DECLARE_PER_ISA(void rms_norm_backward_rows(const RmsNormBackward& args, int64_t begin,
                                                    int64_t end, float* partial_dw))

}  // namespace tessera::cpu
