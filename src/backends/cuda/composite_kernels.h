#pragma once
#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/kernel_launch.h"

namespace tessera::cuda {

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
