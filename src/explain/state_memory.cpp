#include "explain/state_memory.h"

#include <algorithm>

namespace tessera {

std::string StateMemory::formula() const {
  const std::string bytes_each = cat(" x ", size_of(dtype), " B (", name(dtype), ")");
  if (role == SlotRole::kScalar) return cat(slots, slots == 1 ? " number" : " numbers", bytes_each);
  const std::string whole = padding == 0
                                ? cat(parameters, " parameters")
                                : cat("(", parameters, " parameters + ", padding, " of padding)");
  return cat(whole, pieces > 1 ? cat(" / ", pieces, " ranks") : "", bytes_each);
}

std::vector<StateMemory> state_memory(const Session& session) {
  const Programs& programs = session.programs();
  const Parallelism& parallelism = programs.parallelism;
  std::vector<StateMemory> all;
  for (const Slot& slot : programs.slots) {
    const bool scalar = slot.role == SlotRole::kScalar;
    const std::string kind = scalar ? "counters" : slot.kind;
    auto at = std::ranges::find_if(
        all, [&](const StateMemory& s) { return s.kind == kind && s.dtype == slot.type.dtype; });
    if (at == all.end()) {
      all.push_back({.kind = kind, .role = slot.role, .dtype = slot.type.dtype});
      at = all.end() - 1;
    }
    ++at->slots;
    at->elements += slot.type.elements();
    at->bytes += slot.type.bytes();
    if (scalar) continue;
    auto unit = std::ranges::find(programs.units, slot.unit, &FlatUnit::name);
    TESSERA_CHECK(unit != programs.units.end(), slot.unit);
    at->pieces = parallelism.mesh.size(parallelism.data.shard);
    int64_t parameters = 0;
    for (const UnitMember& member : unit->members) parameters += num_elements(member.shape);
    at->parameters += parameters;
    at->padding += slot.type.elements() * at->pieces - parameters;
  }
  std::ranges::stable_sort(all, {}, &StateMemory::role);
  return all;
}

}  // namespace tessera
