#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// Rotary position embedding (Su et al., "RoFormer", 2021, eq. 34), in the layout of Llama's Hugging
// Face weights: in each head, element i < R/2 pairs with i + R/2,
//   y[i] = x[i] cos - x[i + R/2] sin,   y[i + R/2] = x[i + R/2] cos + x[i] sin,
// with cos and sin of [t, i]; elements from R on are copied. `inverse` negates sin, which is the
// gradient. Computed in f32, rounded once. y may be x (with the same stride).
//
// Heads of one token lie side by side, tokens `x_stride` and `y_stride` elements apart, so that q
// or k can be part of a packed [B, T, (Hq + 2 Hkv) D] buffer.
struct Rope {
  DType dtype;       // of x and y: kF32 or kBF16
  const void* x;     // [batch, tokens, heads, width]
  void* y;           // [batch, tokens, heads, width]
  const float* cos;  // [positions, rotary / 2]
  const float* sin;  // [positions, rotary / 2]
  int64_t batch, tokens, heads, width;
  int64_t rotary;              // R: even, at most width
  int64_t x_stride, y_stride;  // at least heads * width
  bool inverse;
  // [batch], or null: the position of each sequence's first token instead of 0.
  const int32_t* start = nullptr;
  // [batch, tokens], or null: positions of the tokens with position 0, each at most its token's.
  const int32_t* document_starts = nullptr;
};
void rope(const Rope& args, Isa isa, ThreadPool& pool);

// Tokens [begin, end) of the batch * tokens ones.
TESSERA_DECLARE_PER_ISA(void rope_tokens(const Rope& args, int64_t begin, int64_t end))

}  // namespace tessera::cpu
