#include "explain/held_memory.h"

#include <algorithm>
#include <functional>
#include <map>

#include "ir/printer.h"
#include "ir/state_alone.h"
#include "ir/views.h"
#include "passes/graph_diff.h"

namespace tessera {
namespace {

// What a graph says of its values: who reads them last, who of another layer does, and why they are
// there for so long.
class Values {
 public:
  Values(const Graph& graph, const ResidencyOptions& residency)
      : graph_(graph),
        residency_(residency),
        of_state_alone_(made_of_state_alone(graph)),
        last_reader_(static_cast<size_t>(graph.num_values()), -1),
        leaves_layer_(static_cast<size_t>(graph.num_values())),
        is_result_(static_cast<size_t>(graph.num_values())) {
    for (const GraphOutput& output : graph.outputs()) is_result_[index(output.value)] = true;
    for (const StateUpdate& update : graph.updates()) is_result_[index(update.value)] = true;
    for (size_t i = graph.nodes().size(); i-- > 0;) {
      const Node& node = graph.nodes()[i];
      for (Value v : node.inputs) {
        int32_t& last = last_reader_[index(v)];
        if (!is_view(node)) {
          last = std::max(last, static_cast<int32_t>(i));
          if (node.phase == Phase::kForward && node.layer != maker(v).layer)
            leaves_layer_[index(v)] = true;
          continue;
        }
        // A view is its operand.
        for (Value seen : node.outputs) {
          last = std::max(last, last_reader_[index(seen)]);
          if (leaves_layer_[index(seen)]) leaves_layer_[index(v)] = true;
          if (is_result_[index(seen)]) is_result_[index(v)] = true;
        }
      }
    }
  }

  int32_t last_reader(Value v) const { return last_reader_[index(v)]; }
  bool is_result(Value v) const { return is_result_[index(v)]; }

  std::string reason(Value v) const {
    const Node& made = maker(v);
    if (is_result(v)) return "a result of the program";
    if (last_reader(v) < 0) return "nobody reads it";
    const Node& reader = graph_.nodes()[static_cast<size_t>(last_reader(v))];
    const std::string by = place_text(reader);
    if (const GraphInput* input = graph_.input_of(v))
      return cat("argument ", input->name, ", until ", by);
    if (made.phase == Phase::kRecompute) return cat("computed again for ", by);
    if (made.phase != Phase::kForward || reader.phase == Phase::kForward) return cat("until ", by);
    if (of_state_alone_[index(v)]) return cat("compute copy of parameters, kept for ", by);
    const std::string why = why_not_computed_again(v);
    return cat("kept for ", by, why.empty() ? "" : cat("; ", why));
  }

 private:
  static size_t index(Value v) { return static_cast<size_t>(v.id); }
  const Node& maker(Value v) const {
    return graph_.nodes()[static_cast<size_t>(graph_.producer(v))];
  }

  // The rule of residency_choice.cpp that keeps a forward value, with its option.
  std::string why_not_computed_again(Value v) const {
    const Node& made = maker(v);
    if (made.layer == kNoLayer) return "only decoder layers are computed again";
    if (leaves_layer_[index(v)]) return "what a layer hands on is kept";
    const bool costly = made.op->contracts() || made.op->tier() == Tier::kCollective;
    if (costly && residency_.policy == CheckpointPolicy::kOp)
      return "--checkpointing_policy op keeps results of products and exchanges";
    if (residency_.share_numerator == 0)
      return "--activation_checkpointing 1 would compute it again";
    if (!is_recomputed(residency_, made.layer))
      return "--selective_checkpointing leaves this layer out";
    return "";
  }

  const Graph& graph_;
  const ResidencyOptions& residency_;
  std::vector<bool> of_state_alone_;
  std::vector<int32_t> last_reader_;
  std::vector<bool> leaves_layer_, is_result_;
};

// Of every storage the value that lies there at the peak: the largest, of equals the youngest.
std::vector<Value> values_at_peak(const Graph& graph, const Plan& plan, const Values& values) {
  std::vector<Value> found(plan.storages.size());
  for (int32_t id = 0; id < graph.num_values(); ++id) {
    const Value v{id};
    const int32_t made = graph.producer(v);
    if (is_view(graph.nodes()[static_cast<size_t>(made)])) continue;
    if (made > plan.peak_node && graph.input_of(v) == nullptr) continue;
    if (values.last_reader(v) < plan.peak_node && made != plan.peak_node && !values.is_result(v))
      continue;
    Value& best = found[static_cast<size_t>(plan.places[static_cast<size_t>(id)].storage)];
    if (!best || graph.type(v).bytes() >= graph.type(best).bytes()) best = v;
  }
  return found;
}

std::vector<HeldSum> sums(const std::vector<HeldStorage>& held,
                          const std::function<std::string(const HeldStorage&)>& name_of) {
  std::map<std::string, HeldSum> by_name;
  for (const HeldStorage& storage : held) {
    HeldSum& sum = by_name[name_of(storage)];
    sum.bytes += storage.bytes;
    ++sum.storages;
  }
  std::vector<HeldSum> all;
  for (auto& [name, sum] : by_name) all.push_back({name, sum.bytes, sum.storages});
  std::ranges::stable_sort(all, std::greater(), &HeldSum::bytes);
  return all;
}

}  // namespace

std::vector<HeldStorage> held_at_peak(const Graph& graph, const Plan& plan,
                                      const ResidencyOptions& residency) {
  const Values values(graph, residency);
  const std::vector<StorageUse> uses = storage_uses(graph, plan);
  const std::vector<Value> at_peak = values_at_peak(graph, plan, values);
  std::vector<HeldStorage> held;
  for (size_t s = 0; s < plan.storages.size(); ++s) {
    const Storage& storage = plan.storages[s];
    if (storage.external || storage.tier == MemoryTier::kFar || storage.bytes == 0 ||
        storage.first > plan.peak_node || storage.last < plan.peak_node)
      continue;
    HeldStorage one;
    one.bytes = buffer_room(storage.bytes);
    one.category = uses[s].category;
    one.value = at_peak[s] ? at_peak[s] : uses[s].value;
    one.maker = one.value ? graph.producer(one.value) : uses[s].node;
    if (one.value) {
      one.type = to_string(graph.type(one.value), &graph.mesh());
      one.reader = values.last_reader(one.value);
      one.reason = values.reason(one.value);
    } else {
      one.reason = one.maker < 0 ? "a copy of a result" : "scratch of a kernel while it runs";
    }
    held.push_back(std::move(one));
  }
  std::ranges::stable_sort(held, std::greater(), &HeldStorage::bytes);
  return held;
}

std::vector<HeldSum> held_by_category(const std::vector<HeldStorage>& held) {
  return sums(held, [](const HeldStorage& storage) { return storage.category; });
}

std::vector<HeldSum> held_by_op(const Graph& graph, const std::vector<HeldStorage>& held) {
  return sums(held, [&](const HeldStorage& storage) {
    if (storage.maker < 0) return std::string("copies");
    const Node& node = graph.nodes()[static_cast<size_t>(storage.maker)];
    return cat(storage.value ? "" : "scratch of ", node.op->name(), " (", name(node.phase), ")");
  });
}

std::vector<HeldSum> held_by_place(const Graph& graph, const std::vector<HeldStorage>& held) {
  return sums(held, [&](const HeldStorage& storage) {
    std::string place =
        storage.maker < 0 ? "" : place_in_model(graph.nodes()[static_cast<size_t>(storage.maker)]);
    return place.empty() ? "outside of the model" : place;
  });
}

const Session::Program* largest_program(const Session& session) {
  const Session::Program* largest = nullptr;
  for (const Session::Program& program : session.compiled()) {
    const Plan* plan = program.executable->plan();
    if (plan && (!largest || plan->arena_bytes > largest->executable->plan()->arena_bytes))
      largest = &program;
  }
  return largest;
}

}  // namespace tessera
