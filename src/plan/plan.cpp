#include "plan/plan.h"

#include <algorithm>
#include <map>

#include "ir/printer.h"
#include "ir/state_alone.h"
#include "plan/arena_space.h"
#include "plan/layout.h"

namespace tessera {
namespace {

// First and last node at which each storage is live. A view of nothing read lives at its
// definition.
void set_lifetimes(const Layout& layout, Plan& plan, int32_t nodes) {
  for (Storage& s : plan.storages) s.first = nodes;
  for (int32_t id = 0; id < layout.num_ids(); ++id) {
    Storage& s = plan.storages[static_cast<size_t>(plan.places[static_cast<size_t>(id)].storage)];
    s.first = std::min(s.first, std::max(0, layout.defined(id)));
    s.last = std::max({s.last, layout.last_use(id), layout.defined(id)});
  }
  // A fill or copy into a flatten may come before the first placed operand; gaps are written when
  // the flatten runs, so only the target's own definition matters: covered above.
}

// Lays out the arena of one tier and returns its size.
int64_t assign_offsets(Plan& plan, MemoryTier tier, int32_t nodes) {
  std::vector<int32_t> order;
  for (size_t s = 0; s < plan.storages.size(); ++s) {
    if (!plan.storages[s].external && plan.storages[s].tier == tier)
      order.push_back(static_cast<int32_t>(s));
  }
  auto storage = [&](int32_t s) -> Storage& { return plan.storages[static_cast<size_t>(s)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return storage(a).bytes != storage(b).bytes ? storage(a).bytes > storage(b).bytes
                                                : storage(a).first < storage(b).first;
  });
  ArenaSpace space(nodes + 1);  // what outlives the program is live behind its last node
  int64_t arena = 0;
  for (int32_t s : order) {
    Storage& self = storage(s);
    int64_t bytes = buffer_room(self.bytes);
    self.arena_offset = space.lowest_free(self.first, self.last, bytes);
    space.take(self.first, self.last, self.arena_offset, bytes);
    arena = std::max(arena, checked_add(self.arena_offset, bytes));
  }
  plan.steps += space.steps();
  return arena;
}

void find_peak(Plan& plan, int32_t nodes) {
  const std::vector<int64_t> live = live_bytes(plan, nodes);
  for (int32_t i = 0; i <= nodes; ++i) {
    if (live[static_cast<size_t>(i)] > plan.live_peak_bytes) {
      plan.live_peak_bytes = live[static_cast<size_t>(i)];
      plan.peak_node = i;
    }
  }
}

}  // namespace

int64_t buffer_room(int64_t bytes) {
  return checked_add(bytes, kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

std::vector<int64_t> live_bytes(const Plan& plan, int32_t nodes) {
  std::vector<int64_t> change(static_cast<size_t>(nodes) + 2, 0);
  for (const Storage& s : plan.storages) {
    if (s.external || s.tier == MemoryTier::kFar) continue;
    int64_t& begins = change[static_cast<size_t>(s.first)];
    int64_t& ends = change[static_cast<size_t>(s.last) + 1];
    begins = checked_add(begins, buffer_room(s.bytes));
    ends = checked_add(ends, -buffer_room(s.bytes));
  }
  change.pop_back();
  for (size_t i = 1; i < change.size(); ++i) change[i] = checked_add(change[i], change[i - 1]);
  return change;
}

Plan make_plan(const Graph& graph, const std::vector<int64_t>& workspace_bytes,
               const PlanOptions& options) {
  Layout layout(graph, options);
  auto nodes = static_cast<int32_t>(graph.nodes().size());
  Plan plan = layout.statistics;
  std::vector<int32_t> storage_of(static_cast<size_t>(layout.num_ids()), -1);
  for (int32_t id = 0; id < layout.num_ids(); ++id) {
    int32_t root = layout.locate(id).root;
    int32_t& s = storage_of[static_cast<size_t>(root)];
    if (s < 0) {
      s = static_cast<int32_t>(plan.storages.size());
      Storage storage;
      storage.bytes = layout.bytes(root);
      storage.external = layout.external(root);
      storage.external_name = layout.external_name(root);
      storage.tier = layout.tier(root);
      plan.storages.push_back(storage);
    }
    plan.places.push_back({s, layout.locate(id).offset});
  }
  set_lifetimes(layout, plan, nodes);
  plan.workspaces.assign(static_cast<size_t>(nodes), -1);
  for (int32_t i = 0; i < nodes && !workspace_bytes.empty(); ++i) {
    if (workspace_bytes[static_cast<size_t>(i)] == 0) continue;
    plan.workspaces[static_cast<size_t>(i)] = static_cast<int32_t>(plan.storages.size());
    Storage scratch;
    scratch.bytes = workspace_bytes[static_cast<size_t>(i)];
    scratch.first = scratch.workspace_of = i;
    scratch.last = layout.finish(i);
    plan.storages.push_back(scratch);
  }
  plan.arena_bytes = assign_offsets(plan, MemoryTier::kNear, nodes);
  plan.far_arena_bytes = assign_offsets(plan, MemoryTier::kFar, nodes);
  find_peak(plan, nodes);
  auto renumber = [&](Place p) {
    return p.storage < 0 ? p : Place{storage_of[static_cast<size_t>(p.storage)], p.offset};
  };
  // A place taken before later merges names a root that was merged since.
  auto current = [&](Place p) {
    if (p.storage < 0) return p;
    Layout::Location l = layout.locate(p.storage);
    return renumber({l.root, l.offset + p.offset});
  };
  auto append = [&](const std::vector<Instruction>& list) {
    for (Instruction instruction : list) {
      instruction.source = current(instruction.source);
      instruction.target = current(instruction.target);
      plan.instructions.push_back(instruction);
    }
  };
  std::vector<std::vector<Instruction>> waits(static_cast<size_t>(nodes) + 1);
  for (int32_t i = 0; i < nodes; ++i) {
    append(waits[static_cast<size_t>(i)]);
    append(layout.before[static_cast<size_t>(i)]);
    if (!layout.no_launch[static_cast<size_t>(i)])
      plan.instructions.push_back(
          {.kind = InstructionKind::kLaunch, .node = i, .lane = layout.lane(i)});
    if (layout.lane(i) != Lane::kCompute) {
      Instruction wait{.kind = InstructionKind::kWait, .node = i};
      if (layout.finish(i) == i)
        plan.instructions.push_back(wait);
      else
        waits[static_cast<size_t>(layout.finish(i))].push_back(wait);
    }
    append(layout.after[static_cast<size_t>(i)]);
  }
  append(waits.back());
  append(layout.at_end);
  plan.steps += layout.steps();
  for (int32_t id : layout.outputs()) plan.outputs.push_back(plan.places[static_cast<size_t>(id)]);
  plan.places.resize(static_cast<size_t>(graph.num_values()));
  return plan;
}

std::vector<StorageUse> storage_uses(const Graph& graph, const Plan& plan) {
  std::vector<bool> of_state_alone = made_of_state_alone(graph);
  std::vector<StorageUse> uses(plan.storages.size());
  for (int32_t v = 0; v < graph.num_values(); ++v) {
    const int32_t maker = graph.producer({v});
    const Node& node = graph.nodes()[static_cast<size_t>(maker)];
    if (!node.op->view_offsets().empty()) continue;
    StorageUse& use = uses[static_cast<size_t>(plan.places[static_cast<size_t>(v)].storage)];
    if (use.node < 0) use = {maker, {v}, ""};
  }
  for (size_t s = 0; s < plan.storages.size(); ++s) {
    StorageUse& use = uses[s];
    if (use.node < 0) {
      use.node = plan.storages[s].workspace_of;
      use.category = use.node >= 0 ? "workspace" : "copies of results";
      continue;
    }
    const Node& node = graph.nodes()[static_cast<size_t>(use.node)];
    bool of_state = of_state_alone[static_cast<size_t>(node.outputs[0].id)];
    const GraphInput* slot = node.inputs.empty() ? nullptr : graph.input_of(node.inputs[0]);
    bool changes = of_state && slot && graph.updates_slot(slot->name);
    use.category = node.op->tier() == Tier::kInput ? "arguments"
                   : changes                       ? "state that is updated"
                   : of_state                      ? "compute copies of parameters"
                                                   : cat(name(node.phase), " values");
  }
  return uses;
}

std::vector<MemoryCategory> memory_at_peak(const Graph& graph, const Plan& plan) {
  const std::vector<StorageUse> uses = storage_uses(graph, plan);
  std::map<std::string, int64_t> bytes;
  for (size_t s = 0; s < plan.storages.size(); ++s) {
    const Storage& storage = plan.storages[s];
    if (storage.external || storage.tier == MemoryTier::kFar || storage.first > plan.peak_node ||
        storage.last < plan.peak_node)
      continue;
    bytes[uses[s].category] += buffer_room(storage.bytes);
  }
  std::vector<MemoryCategory> categories;
  for (auto& [category, size] : bytes) categories.push_back({category, size});
  std::sort(categories.begin(), categories.end(),
            [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return categories;
}

std::string describe(const Graph& graph, const Plan& plan) {
  std::string where = graph.nodes().empty() ? "an empty program" : "no op";
  if (plan.peak_node >= 0 && plan.peak_node < static_cast<int32_t>(graph.nodes().size())) {
    const Node& node = graph.nodes()[static_cast<size_t>(plan.peak_node)];
    where = cat(node.scope, node.scope.empty() ? "" : " ", node.op->name(), " (", name(node.phase),
                ")");
  }
  return cat(
      "arena ", format_bytes(plan.arena_bytes), " (", plan.arena_bytes, " bytes)",
      plan.far_arena_bytes > 0 ? cat(", far arena ", format_bytes(plan.far_arena_bytes)) : "",
      ", live peak ", format_bytes(plan.live_peak_bytes), " at ", where, "; ",
      plan.instructions.size(), " instructions, ", plan.views, " views, ", plan.in_place,
      " in place, ", plan.copies, " copies (", format_bytes(plan.copy_bytes), "), ", plan.fills,
      " fills (", format_bytes(plan.fill_bytes), ")",
      plan.lodged_bytes > 0 ? cat(", ", format_bytes(plan.lodged_bytes), " lodged in slots") : "");
}

std::string to_string(const Graph& graph, const Plan& plan) {
  auto place = [&](Place p) {
    const Storage& s = plan.storages[static_cast<size_t>(p.storage)];
    if (s.external) return cat(s.external_name, "+", p.offset);
    return cat(s.tier == MemoryTier::kFar ? "far@" : "@", s.arena_offset + p.offset);
  };
  std::string text = cat("arena ", plan.arena_bytes, "\n");
  if (plan.far_arena_bytes > 0) text += cat("far arena ", plan.far_arena_bytes, "\n");
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kArgument)
      text += cat("argument ", input.name, " ",
                  place(plan.places[static_cast<size_t>(input.value.id)]), "\n");
  }
  for (const Instruction& i : plan.instructions) {
    if (i.kind == InstructionKind::kLaunch) {
      const Node& node = graph.nodes()[static_cast<size_t>(i.node)];
      std::string in, out;
      for (Value v : node.inputs) in += cat(" ", place(plan.places[static_cast<size_t>(v.id)]));
      for (Value v : node.outputs)
        out += cat(" ", place(plan.places[static_cast<size_t>(v.id)]), ":",
                   to_string(graph.type(v), &graph.mesh()));
      text += cat("launch ", i.lane == Lane::kCompute ? "" : cat("on ", name(i.lane), " "),
                  node.op->key(), in, " ->", out, "  # ", node.scope, " ", name(node.phase), "\n");
    } else if (i.kind == InstructionKind::kWait) {
      text += cat("wait ", graph.nodes()[static_cast<size_t>(i.node)].op->name(), " of node ",
                  i.node, "\n");
    } else if (i.kind == InstructionKind::kCopy) {
      text += cat("copy ", place(i.source), " -> ", place(i.target), " ", i.bytes, "\n");
    } else {
      text += cat("fill ", place(i.target), " ", i.bytes, "\n");
    }
  }
  return text;
}

}  // namespace tessera
