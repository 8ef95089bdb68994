#pragma once
#include "models/model_config.h"
#include "models/model_ends.h"

namespace tessera {

// GPT-2 (Radford et al. 2019): x + attention(norm(x)), then x + mlp(norm(x)), with layer norms,
// learned positions, GELU and a tied output matrix; biases by `bias`. With ModelHead::kTraining
// dropout on embeddings, on attention weights and on what enters the residual stream.
//
// Queries, keys and values of all heads are one parameter, c_attn: [3, E, E] and [3, E]. So they
// are one tensor in a checkpoint, and each of the three is cut by heads on tensor-parallel ranks.
//
// First values as in the paper: matrices whose results enter the residual stream have a standard
// deviation of initializer_range / sqrt(2 L).
ModelGraph gpt2(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head);

}  // namespace tessera
