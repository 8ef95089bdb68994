#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Low-rank adaptation (Hu et al. 2021): a linear layer y = x W^T + b that is a target becomes
//   y + scale * (dropout(x) A^T) B^T
// with A [rank, in], first uniform(-1 / sqrt(in), 1 / sqrt(in)), and B [out, rank], first zeros.
// Only these are trained: everything else of the model is frozen. Names and first values are those
// of PEFT.
struct Lora {
  int64_t rank = 0;  // 0: nothing is adapted, and the rest says nothing
  double alpha = 8;
  bool rank_stabilised = false;
  double dropout = 0;  // in training
  // Names of linear layers, whole or their ends behind a dot ("q_proj", "layers.0.mlp.up_proj"), or
  // kAllLinear alone.
  std::vector<std::string> targets;

  // alpha / rank, or rank-stabilised (Kalajdzievski 2023) alpha / sqrt(rank).
  double scale() const;
  // Whether a layer, "model.layers.0.self_attn.q_proj", is a target.
  bool adapts(std::string_view layer) const;
  bool operator==(const Lora&) const = default;
};

// The target that stands for every linear layer but the output matrix.
inline constexpr std::string_view kAllLinear = "all-linear";

// Whether `target` is the name of the layer or an end of it.
bool names_layer(std::string_view target, std::string_view layer);

// Targets that name these layers and no other of `all`: their last words where those do, else the
// names. Each once, in the order of the layers.
std::vector<std::string> targets_for(std::span<const std::string> layers,
                                     std::span<const std::string> all);

}  // namespace tessera
