#pragma once
#include "models/model_config.h"
#include "nn/parameter.h"

namespace tessera {

// What the forward pass is for, and so what it ends in.
enum class ModelHead {
  kLoss,      // outputs "loss_sum" f32 and "token_count" i64 over the tokens whose target is not
              // ignored
  kTraining,  // the same with dropout, where the model has any: input "row_keys" i64 [B], of which
              // each row's random numbers are made
  kLogits,    // output "logits" f32 [B * T, V]
  kNext,      // input "position" i32 [B]: output "logits" f32 [B, V] of those of the B * T tokens
};

// What every family begins and ends with.

// A graph in which nothing is written down yet. `config` is that of for_head().
ModelGraph begin_model(const ModelConfig& config);

// Input "tokens" i32 [B, T].
Value token_input(ModelGraph& model, int64_t batch, int64_t length);

// The configuration as this head computes it: without dropout unless it trains.
ModelConfig for_head(ModelConfig config, ModelHead head);

// Input "row_keys" i64 [B]; no value where the model has no dropout.
Value row_keys_input(ModelGraph& model, const ModelConfig& config, int64_t batch);

// Dropout whose random numbers are called after its place, so that each has its own. x where p is
// 0.
Value drop(Graph& graph, Value x, Value row_keys, double p);

// Outputs of a head from the last normalised values x [B, T, E] and the output matrix w [V, E].
// Input "targets" i32 [B, T], already shifted: targets[b, t] follows tokens[b, t].
void write_head(ModelGraph& model, ModelHead head, Value x, Value w);

}  // namespace tessera
