#pragma once
#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/kernel_launch.h"

namespace tessera::cuda {

// Everything here takes f32 and bf16 tensors; other dtypes run through the decomposition.
inline bool takes(DType d) { return d == DType::kF32 || d == DType::kBF16; }

// A prepare function for kernels that accept every node of f32 or bf16 tensors (judged by operand
// `which`).
template <class Make>
Prepare for_floats(size_t which, Make make) {
  return [which, make](const PrepareContext& context) -> Prepared {
    DType d = context.inputs[which].dtype;
    if (!takes(d)) return cat("takes f32 and bf16, not ", name(d));
    return make(context);
  };
}

// What makes up register_composite_kernels().

// rms_norm, layer_norm, their gradients, and that of add_bias.
void register_norms(KernelTable& table, Device& device);
// swiglu, gelu, add_bias, scale, sum_n, dropout, rope, rope_at.
void register_activations(KernelTable& table, Device& device);
// embedding, its gradient, cache_write.
void register_embedding(KernelTable& table, Device& device);
// linear and its two gradients.
void register_linear(KernelTable& table, Device& device, const MakeProduct& product);
// linear_cross_entropy, linear_log_sum_exp and their gradients; count_targets, sum_squares.
void register_head(KernelTable& table, Device& device, const MakeProduct& product,
                   int64_t head_rows);
// attention, its gradient, cached_attention.
void register_attention(KernelTable& table, Device& device, const Prepare& library,
                        int64_t slope_bytes);
// adamw, sgd, lion.
void register_optimizers(KernelTable& table, Device& device);

}  // namespace tessera::cuda
