#pragma once
#include "models/model_config.h"
#include "nn/parameter.h"

namespace tessera {

// What the forward pass ends in.
enum class ModelHead {
  kLoss,    // outputs "loss_sum" f32 and "token_count" i64 over the tokens whose target is not
            // ignored
  kLogits,  // output "logits" f32 [B * T, V]
  kNext,    // input "position" i32 [1]: output "logits" f32 [1, V] of that token of the first
            // sequence
};

// Llama 2, 3, 3.1 and 3.2, and Mistral, which differs by its attention window. Inputs "tokens" i32
// [B, T], and for kLoss "targets" i32 [B, T], already shifted: targets[b, t] follows tokens[b, t].
ModelGraph llama(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head);

}  // namespace tessera
