#include "programs/step_costs.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

double sum_flops(const Graph& graph, bool recomputed) {
  double flops = 0;
  for (const Node& node : graph.nodes()) {
    const Cost cost = node_cost(graph, node);
    const double again = node.phase == Phase::kRecompute ? cost.flops : cost.recomputed_flops;
    flops += recomputed ? again : cost.flops - again;
  }
  return flops;
}

// The same directly and in rings; an all-reduce is a reduce-scatter and an all-gather.
double bytes_sent(const Graph& graph, const Node& node, const Communication& communication) {
  auto ranks = static_cast<double>(graph.mesh().size(communication.axes));
  double bytes = static_cast<double>(
      std::max(graph.type(node.inputs[0]).bytes(), graph.type(node.outputs[0]).bytes()));
  return bytes * (ranks - 1) / ranks * (communication.traffic == Traffic::kAllReduce ? 2 : 1);
}

// Of the bytes that a rank sends, which go to other hosts.
double network_share(Traffic traffic, int64_t ranks, int64_t on_host, Routes routes) {
  if (on_host >= ranks) return 0;
  const double ring = 1 / static_cast<double>(on_host),
               direct = static_cast<double>(ranks - on_host) / static_cast<double>(ranks - 1);
  if (routes == Routes::kDirect || traffic == Traffic::kAllToAll) return direct;
  if (routes == Routes::kRings || traffic == Traffic::kGather) return ring;
  return traffic == Traffic::kAllReduce ? (direct + ring) / 2 : direct;
}

}  // namespace

int64_t ranks_on_host(const Mesh& mesh, AxisSet axes, int64_t ranks_per_host) {
  int64_t count = 0;
  for (int rank = 0; rank < mesh.world_size() && rank < ranks_per_host; ++rank)
    count += mesh.index(rank, AxisSet{~0u} - axes) == 0;
  return count;
}

void for_programs(const Programs& programs, int64_t micro_batches,
                  const std::function<void(const Graph& graph, double runs)>& f) {
  if (programs.apply.nodes().empty()) return f(programs.evaluate, 1.0);
  f(programs.micro_batch(true, micro_batches == 1).graph, 1.0);
  if (micro_batches > 2)
    f(programs.micro_batch(false, false).graph, static_cast<double>(micro_batches - 2));
  if (micro_batches > 1) f(programs.micro_batch(false, true).graph, 1.0);
  f(programs.apply, 1.0);
}

Cost node_cost(const Graph& graph, const Node& node) {
  if (node.op->tier() == Tier::kInput || !node.op->view_offsets().empty()) return {};
  std::vector<TensorType> inputs, outputs;
  for (Value v : node.inputs) inputs.push_back(graph.type(v));
  for (Value v : node.outputs) outputs.push_back(graph.type(v));
  return node.op->cost(inputs, outputs);
}

double program_flops(const Graph& graph) { return sum_flops(graph, false); }
double recomputed_flops(const Graph& graph) { return sum_flops(graph, true); }

StepCosts step_costs(const Programs& programs, int64_t micro_batches, int64_t ranks_per_host,
                     Routes routes) {
  StepCosts costs;
  std::map<uint32_t, int64_t> on_host;
  for_programs(programs, micro_batches, [&](const Graph& graph, double runs) {
    costs.flops += runs * program_flops(graph);
    costs.recomputed += runs * recomputed_flops(graph);
    for (const Node& node : graph.nodes()) {
      costs.link_bytes += runs * node_cost(graph, node).link_bytes;
      auto communication = node.op->communication();
      if (!communication) continue;
      AxisSet axes = communication->axes;
      auto [entry, added] = on_host.try_emplace(axes.bits);
      if (added) entry->second = ranks_on_host(graph.mesh(), axes, ranks_per_host);
      const double share =
          network_share(communication->traffic, graph.mesh().size(axes), entry->second, routes);
      const double sent = runs * bytes_sent(graph, node, *communication);
      costs.network_bytes += sent * share;
      costs.peer_bytes += sent * (1 - share);
    }
  });
  return costs;
}

std::vector<ExchangeTotal> exchange_totals(const Programs& programs, int64_t micro_batches) {
  std::map<std::pair<std::string, std::string>, ExchangeTotal> totals;
  for_programs(programs, micro_batches, [&](const Graph& graph, double runs) {
    for (const Node& node : graph.nodes()) {
      auto communication = node.op->communication();
      if (!communication) continue;
      AxisSet axes = communication->axes;
      std::string of = graph.mesh().to_string(axes), op(node.op->name());
      ExchangeTotal& total = totals[{of, op}];
      total.axes = of;
      total.op = op;
      total.bytes += runs * bytes_sent(graph, node, *communication);
      total.calls += runs;
      total.ranks = graph.mesh().size(axes);
    }
  });
  std::vector<ExchangeTotal> list;
  for (auto& [key, total] : totals) list.push_back(total);
  return list;
}

double StepSeconds::longest() const { return std::max({arithmetic, network, peer, link}); }

StepSeconds step_seconds(const StepCosts& costs, const DeviceRates& rates) {
  return {costs.all_flops() / rates.flops, costs.network_bytes / rates.network,
          costs.peer_bytes / rates.peer, costs.link_bytes / rates.link};
}

}  // namespace tessera
