#include "passes/compute_weights.h"

#include <map>

#include "ir/marks.h"
#include "ir/rewriter.h"
#include "ir/slot.h"
#include "ops/primitive/elementwise.h"

namespace tessera {

bool keeps_compute_weights(const FlatUnit& unit) {
  return unit.trainable && unit.compute_dtype != unit.dtype;
}

std::string compute_weight_slot(const FlatUnit& unit) {
  return slot_name(kComputeWeightKind, unit.name);
}

Graph read_compute_weights(const Graph& graph, const std::vector<FlatUnit>& units) {
  struct Master {
    const FlatUnit* unit;
    AxisSet varying;  // of the slot
  };
  std::map<Value, Master> masters;
  for (const FlatUnit& unit : units) {
    if (!keeps_compute_weights(unit)) continue;
    if (const Value slot = graph.find_input(weight_slot(unit)))
      masters[slot] = {&unit, graph.type(slot).varying};
  }
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  std::map<const FlatUnit*, Value> slots;
  for (const Node& node : graph.nodes()) {
    auto read = node.inputs.empty() ? masters.end() : masters.find(node.inputs[0]);
    if (read != masters.end()) {
      const auto [unit, varying] = read->second;
      if (dynamic_cast<const VaryOp*>(node.op.get())) masters[node.outputs[0]] = read->second;
      if (dynamic_cast<const Convert*>(node.op.get())) {
        TESSERA_CHECK(graph.type(node.outputs[0]).dtype == unit->compute_dtype, unit->name);
        rewriter.enter(node);
        Value& slot = slots[unit];
        if (!slot)
          slot = result.input(compute_weight_slot(*unit), InputKind::kState,
                              {{unit->shard_size}, unit->compute_dtype, varying});
        rewriter.map(node.outputs[0], vary(result, slot, graph.type(node.inputs[0]).varying));
        continue;
      }
    }
    rewriter.copy(node);
  }
  rewriter.finish();
  return result;
}

}  // namespace tessera
