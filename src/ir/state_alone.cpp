#include "ir/state_alone.h"

#include <algorithm>

namespace tessera {

std::vector<bool> made_of_state_alone(const Graph& graph) {
  std::vector<bool> alone(static_cast<size_t>(graph.num_values()));
  for (const GraphInput& input : graph.inputs())
    alone[static_cast<size_t>(input.value.id)] = input.kind == InputKind::kState;
  for (const Node& node : graph.nodes()) {
    if (node.inputs.empty() || node.op->contracts()) continue;
    bool all =
        std::ranges::all_of(node.inputs, [&](Value v) { return alone[static_cast<size_t>(v.id)]; });
    for (Value v : node.outputs) alone[static_cast<size_t>(v.id)] = all;
  }
  return alone;
}

}  // namespace tessera
