#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// y = silu(gate) * up, silu(g) = g / (1 + e^-g) (Shazeer, "GLU Variants Improve Transformer", 2020,
// eq. 5). Computed in f32, rounded once. The strides count elements from row to row, so that gate
// and up can be the halves of one [rows, 2 width] buffer. y may be gate or up (with the same
// stride).
struct SwigluForward {
  DType dtype;       // of all tensors: kF32 or kBF16
  const void* gate;  // [rows, width], rows gate_stride apart
  const void* up;    // [rows, width], rows up_stride apart
  void* y;           // [rows, width], rows y_stride apart
  int64_t rows, width;
  int64_t gate_stride, up_stride, y_stride;
};
void swiglu_forward(const SwigluForward& args, Isa isa, ThreadPool& pool);

// With s = 1 / (1 + e^-gate): dup = dy * gate * s, dgate = dy * up * s * (1 + gate * (1 - s)).
// dgate and dup may each be any of gate, up and dy (with the same stride).
struct SwigluBackward {
  DType dtype;       // of all tensors: kF32 or kBF16
  const void* gate;  // [rows, width], and so on
  const void* up;
  const void* dy;
  void* dgate;
  void* dup;
  int64_t rows, width;
  int64_t gate_stride, up_stride, dy_stride, dgate_stride, dup_stride;
};
void swiglu_backward(const SwigluBackward& args, Isa isa, ThreadPool& pool);

TESSERA_DECLARE_PER_ISA(void swiglu_forward_rows(const SwigluForward& args, int64_t begin,
                                                 int64_t end))
TESSERA_DECLARE_PER_ISA(void swiglu_backward_rows(const SwigluBackward& args, int64_t begin,
                                                  int64_t end))

}  // namespace tessera::cpu
