#pragma once
#include <string>

#include "backends/cpu/cpu_kernels.h"

namespace tessera::cpu {

inline std::string kernel_name(std::string_view op, Isa isa) { return cat(op, " ", name(isa)); }

// What kernels take of document_starts [B, T]: of ascending tokens, none behind its own.
// InternalError.
void check_document_starts(const int32_t* starts, int64_t batch, int64_t tokens);

// For ops that change an operand in place: copies it where the plan could not let it share its
// bytes with the result.
void copy_unless_shared(const void* operand, void* result, int64_t bytes, ThreadPool& pool);

// What makes up register_composite_kernels(); each has a file of its name.

// embedding and its gradient.
void register_embedding(KernelTable& table, Isa isa, ThreadPool& pool);
// rms_norm, layer_norm and their gradients.
void register_norms(KernelTable& table, Isa isa, ThreadPool& pool);
// linear and its two gradients.
void register_linear(KernelTable& table, Isa isa, ThreadPool& pool);
// rope and rope_at.
void register_rope(KernelTable& table, Isa isa, ThreadPool& pool);
// attention and its gradient.
void register_attention(KernelTable& table, Isa isa, ThreadPool& pool);
// swiglu, gelu, add_bias, their gradients, dropout and scale.
void register_activations(KernelTable& table, Isa isa, ThreadPool& pool);
// linear_cross_entropy, linear_log_sum_exp and their gradients.
void register_head(KernelTable& table, Isa isa, ThreadPool& pool);
// sum_squares, sum_n, count_targets.
void register_sums(KernelTable& table, Isa isa, ThreadPool& pool);
// adamw, sgd, lion.
void register_optimizers(KernelTable& table, Isa isa, ThreadPool& pool);

}  // namespace tessera::cpu
