#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// One step of AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019,
// algorithm 2) over a flat buffer that holds many parameters, all in f32 and in place:
//   g' = g * scale
//   m  = beta1 m + (1 - beta1) g',   v = beta2 v + (1 - beta2) g'^2
//   w -= lr * (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon) + decay * w)
// The scalars behind pointers are read when the kernel runs. With *ok == 0 nothing changes,
// whatever g holds; only `shadow`, an output, is written in any case.
struct AdamW {
  float* w;                // [size]
  float* m;                // [size]
  float* v;                // [size]
  const float* g;          // [size]
  BF16* shadow = nullptr;  // [size] or null: the new w, rounded
  int64_t size;
  // Parameter s covers [segment_begin[s], segment_begin[s + 1]), the last one up to size.
  // Ascending, the first 0; empty segments, also at or behind size, are allowed.
  const int64_t* segment_begin;  // [segments]
  const float* segment_decay;    // [segments]
  int64_t segments;
  const float* lr;
  const float* scale;   // of the gradient: clipping, 1 / number of tokens
  const uint8_t* ok;    // whether to update
  const int64_t* step;  // updates so far, this one included: at least 1 where *ok
  double beta1, beta2, epsilon;
};
void adamw(const AdamW& args, Isa isa, ThreadPool& pool);

// Elements [begin, end), all of one parameter. The inverses are 1 / (1 - beta1^step) and
// 1 / sqrt(1 - beta2^step).
struct AdamWFactors {
  float lr, scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  float inverse_m, inverse_root_v;
};
TESSERA_DECLARE_PER_ISA(void adamw_range(const AdamW& args, const AdamWFactors& factors,
                                         int64_t begin, int64_t end))

}  // namespace tessera::cpu
