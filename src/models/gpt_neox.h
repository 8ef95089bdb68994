#pragma once
#include "models/model_config.h"
#include "models/model_ends.h"

namespace tessera {

// GPT-NeoX (Black et al. 2022): attention and MLP side by side, x + attention(norm(x)) +
// mlp(norm'(x)), or one after the other without `parallel_residual`; layer norms, rotary positions
// on the first `rotary_pct` of each head, exact GELU, biases in all layers but the output matrix,
// which is not tied unless asked for.
//
// Queries, keys and values are one parameter that begins with the heads, query_key_value
// [H, 3, D, E] and [H, 3, D]: the rows of a checkpoint's tensor [3 E, E], and cut like them.
ModelGraph gpt_neox(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head);

}  // namespace tessera
