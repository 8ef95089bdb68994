#include "runtime/plan_addresses.h"

#include "plan/reuse_distance.h"

namespace tessera {

PlanAddresses::PlanAddresses(const Graph& graph, const Plan& plan,
                             const std::function<std::byte*(const Storage&)>& storage) {
  for (const Storage& s : plan.storages) storages_.push_back(storage(s));
  auto place = [&](Value v) { return at(plan.places[static_cast<size_t>(v.id)]); };
  for (const Node& node : graph.nodes()) {
    for (Value v : node.inputs) inputs_.push_back(place(v));
    for (Value v : node.outputs) outputs_.push_back(place(v));
  }
  const std::vector<int64_t> distances = reuse_distances(graph, plan);
  size_t in = 0, out = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const int32_t scratch = plan.workspaces[i];
    launches_.push_back({std::span(inputs_).subspan(in, node.inputs.size()),
                         std::span(outputs_).subspan(out, node.outputs.size()),
                         scratch < 0 ? nullptr : storages_[static_cast<size_t>(scratch)],
                         distances[i]});
    in += node.inputs.size();
    out += node.outputs.size();
  }
}

}  // namespace tessera
