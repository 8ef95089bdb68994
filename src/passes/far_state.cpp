#include "passes/far_state.h"

#include <map>
#include <set>

#include "ir/rewriter.h"
#include "ops/move/far_tier.h"

namespace tessera {

Graph far_state(const Graph& graph, const std::function<bool(const std::string& slot)>& is_far) {
  std::set<Value> slots, results;
  for (const GraphInput& input : graph.inputs())
    if (input.kind == InputKind::kState && is_far(input.name)) slots.insert(input.value);
  for (const StateUpdate& update : graph.updates())
    if (is_far(update.slot)) results.insert(update.value);
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  std::map<Value, Value> far_results;
  for (const Node& node : graph.nodes()) {
    rewriter.enter(node);
    std::map<Value, Value> slot_of;
    for (Value v : node.inputs) {
      if (!slots.contains(v) || slot_of.contains(v)) continue;
      slot_of[v] = rewriter(v);
      rewriter.map(v, fetch(result, rewriter(v)));
    }
    rewriter.copy(node);
    for (auto [slot, value] : slot_of) rewriter.map(slot, value);
    for (Value v : node.outputs)
      if (results.contains(v)) far_results[v] = offload(result, rewriter(v));
  }
  result.set_scope("");
  for (const GraphOutput& output : graph.outputs())
    result.output(output.name, rewriter(output.value));
  for (const StateUpdate& update : graph.updates()) {
    bool far = is_far(update.slot);
    result.update(update.slot, far ? far_results.at(update.value) : rewriter(update.value));
  }
  return result;
}

}  // namespace tessera
