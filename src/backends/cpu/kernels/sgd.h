#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// One step of gradient descent with momentum over a flat buffer that holds many parameters, all in
// f32 and in place:
//   m = momentum m + (g * scale + decay * w),   w -= lr * m
// The scalars behind pointers are read when the kernel runs. With *ok == 0 nothing changes,
// whatever g holds.
struct Sgd {
  float* w;        // [size]
  float* m;        // [size]
  const float* g;  // [size]
  int64_t size;
  // As for AdamW: parameter s covers [segment_begin[s], segment_begin[s + 1]).
  const int64_t* segment_begin;  // [segments]
  const float* segment_decay;    // [segments]
  int64_t segments;
  const float* lr;
  const float* scale;  // of the gradient
  const uint8_t* ok;   // whether to update
  double momentum;
};
void sgd(const Sgd& args, Isa isa, ThreadPool& pool);

// Elements [begin, end), all of one parameter.
TESSERA_DECLARE_PER_ISA(void sgd_range(const Sgd& args, float decay, int64_t begin, int64_t end))

}  // namespace tessera::cpu
