#include "programs/job_slots.h"

#include <map>
#include <set>

#include "passes/far_state.h"

namespace tessera {

std::string gradient_slot(const FlatUnit& unit) { return slot_name(kGradientKind, unit.name); }

std::vector<Slot> slots_of(const std::vector<const Graph*>& programs,
                           const std::vector<FlatUnit>& units, const Optimizer& optimizer) {
  std::map<std::string, TensorType> types;
  for (const Graph* g : programs) {
    for (const GraphInput& input : g->inputs())
      if (input.kind == InputKind::kState) types.emplace(input.name, g->type(input.value));
    for (const StateUpdate& update : g->updates())
      types.emplace(update.slot, g->type(update.value));
  }
  std::vector<Slot> slots;
  auto take = [&](Slot slot) {
    auto entry = types.extract(slot.name());
    if (entry.empty()) return;
    slot.type = entry.mapped();
    slots.push_back(std::move(slot));
  };
  for (const FlatUnit& unit : units) {
    take({std::string(kWeightKind), SlotRole::kWeight, unit.name, {}, true});
    take({std::string(kComputeWeightKind), SlotRole::kComputeWeight, unit.name, {}, false});
    for (const Slot& slot : optimizer.slots(unit.name, {})) take(slot);
    take({std::string(kGradientKind), SlotRole::kGradient, unit.name, {}, false});
  }
  // Sums are of the running step, and the loss scale is in the record of a run.
  for (const auto& [name, type] : types)
    slots.push_back({name, SlotRole::kScalar, "", type, name == kOptimizerStep});
  return slots;
}

Graph with_far_units(const Graph& graph, const std::vector<FlatUnit>& units,
                     const Optimizer& optimizer) {
  std::set<std::string> far;
  for (const Slot& slot : slots_of({&graph}, units, optimizer))
    if (slot.role != SlotRole::kScalar) far.insert(slot.name());
  return far_state(graph, [&](const std::string& slot) { return far.contains(slot); });
}

}  // namespace tessera
