#pragma once
#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// How a forward value reaches the backward pass: it stays near, is computed again, or waits in the
// far tier. Activation checkpointing, the second gather of sharded parameters and offload are this
// one choice.
enum class Residency : uint8_t { kKeep, kRecompute, kOffload };

// What a recomputed layer keeps: only what enters it, or also results of products (Op::contracts)
// and of collectives.
enum class CheckpointPolicy : uint8_t { kLayer, kOp };

struct ResidencyOptions {
  // Share of the decoder layers that are recomputed, spread evenly: of layers 1, 2, ... each l with
  // floor(l p + 1/2) > floor((l - 1) p + 1/2), p = numerator / denominator at most 1. p = 1 / k is
  // every k-th.
  double share_numerator = 0, share_denominator = 1;
  CheckpointPolicy policy = CheckpointPolicy::kLayer;
  // Compute copies of parameters (converted, gathered) do not live from the forward to the backward
  // pass: they are made again there, once a unit. Without it those that were gathered do; with a
  // layer that is recomputed, what is only a conversion or a copy in another order is made again.
  bool regather = false;
  // What decoder layers keep for the backward pass waits in the far tier and is brought back when
  // the backward pass begins the layer `horizon` before the one that reads it; what would be
  // brought back before the backward pass begins, or is read outside layers, stays.
  bool offload = false;
  int64_t horizon = 2;

  bool changes_anything() const { return share_numerator > 0 || regather || offload; }
};

bool is_recomputed(const ResidencyOptions& options, int64_t layer);

// A choice for every node of a graph with gradients; only those of forward nodes count.
std::vector<Residency> choose_residency(const Graph& graph, const ResidencyOptions& options);

// Carries out a choice. Backward nodes read, in place of a forward value,
// - kRecompute: a clone (phase recompute; same op and scope, hence the same random numbers and the
//   same bits), made right before the first backward node that needs it, once, from values chosen
//   the same way: a chain ends at graph inputs and kept values;
// - kOffload: fetch(offload(value)); `horizon` as above.
// Views follow their operand. Forward nodes that nobody reads any more are dropped. Equal nodes
// must not be merged behind this pass.
Graph apply_residency(const Graph& graph, const std::vector<Residency>& choice, int64_t horizon);

// The pass: both of the above.
Graph residency(const Graph& graph, const ResidencyOptions& options);

}  // namespace tessera
