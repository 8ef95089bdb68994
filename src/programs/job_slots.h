#pragma once
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/slot.h"
#include "optim/optimizer.h"
#include "passes/flat_units.h"

namespace tessera {

// The state slot of a unit's sum of gradients; that of its weights is in passes/flat_units.h.
std::string gradient_slot(const FlatUnit& unit);

// The slots that programs read or update, those of units first, in the order of units.
std::vector<Slot> slots_of(const std::vector<const Graph*>& programs,
                           const std::vector<FlatUnit>& units, const Optimizer& optimizer);

// The program with all but its scalars in the far tier.
Graph with_far_units(const Graph& graph, const std::vector<FlatUnit>& units,
                     const Optimizer& optimizer);

}  // namespace tessera
