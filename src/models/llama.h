#pragma once
#include "models/model_config.h"
#include "models/model_ends.h"

namespace tessera {

// Llama 2, 3, 3.1 and 3.2 (Touvron et al. 2023; Dubey et al. 2024): x + attention(norm(x)), then
// x + mlp(norm(x)), with RMS norms, rotary positions, grouped queries and SwiGLU. Mistral differs
// by its attention window, Qwen2 by biases of queries, keys and values.
ModelGraph llama(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head);

}  // namespace tessera
