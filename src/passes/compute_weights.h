#pragma once
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/flat_units.h"

namespace tessera {

// Weights that are trained in f32 and used in bf16 or f16 are kept in both: whoever updates the
// masters writes the rounded ones beside them, and the programs of a step read those, half as many
// bytes, in the place of converting the masters in each.
bool keeps_compute_weights(const FlatUnit& unit);

// State slot of a unit's rounded weights.
std::string compute_weight_slot(const FlatUnit& unit);

// Conversions of masters become reads of that slot, of the same bits. For graphs of flat_units(),
// with their gradients where they have any: those are of the masters.
Graph read_compute_weights(const Graph& graph, const std::vector<FlatUnit>& units);

}  // namespace tessera
