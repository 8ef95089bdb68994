#pragma once
#include <functional>

#include "models/model_config.h"
#include "models/model_ends.h"

namespace tessera {

// The forward pass of a model on one device, of whatever family. Inputs and outputs: model_ends.h.
// `length` is at most longest_window(config).
// InternalError: a family without a graph (mixtral).
ModelGraph build_model(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head);

// The names of its linear layers that can be adapted (nn/lora.h), "model.layers.0.mlp.up_proj": all
// but the output matrix. Empty for a family without a graph.
std::vector<std::string> linear_layers(const ModelConfig& config);

// build_model() with its configuration bound.
using ModelBuilder = std::function<ModelGraph(int64_t batch, int64_t length, ModelHead head)>;
ModelBuilder model_builder(const ModelConfig& config);

}  // namespace tessera
