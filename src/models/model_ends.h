#pragma once
#include "nn/parameter.h"

namespace tessera {

// What the forward pass is for, and so what it ends in.
enum class ModelHead {
  kLoss,      // outputs "loss_sum" f32 and "token_count" i64 over the tokens whose target is not
              // ignored
  kTraining,  // the same with dropout, where the model has any: input "row_keys" i64 [B], of which
              // each row's random numbers are made
  kLogits,    // output "logits" f32 [B * T, V]
  kNext,      // input "position" i32 [1]: output "logits" f32 [1, V] of that token of the first
              // sequence
};

// What every family begins and ends with.

// Input "tokens" i32 [B, T].
Value token_input(ModelGraph& model, int64_t batch, int64_t length);

// Outputs of a head from the last normalised values x [B, T, E] and the output matrix w [V, E].
// Input "targets" i32 [B, T], already shifted: targets[b, t] follows tokens[b, t].
void write_head(ModelGraph& model, ModelHead head, Value x, Value w);

}  // namespace tessera
