#pragma once
#include <functional>
#include <string>
#include <vector>

#include "programs/programs.h"

namespace tessera {

// What one rank does in a step, by the graphs alone.
struct StepCosts {
  double flops = 0;       // the model's own and the update's, as Op::cost counts them
  double recomputed = 0;  // of micro-batches, on top: values that are computed again
  // Bytes that the rank sends, to ranks of other hosts and of its own.
  double network_bytes = 0, peer_bytes = 0;
  double link_bytes = 0;  // between near and far tier, both ways

  double all_flops() const { return flops + recomputed; }
  double wire_bytes() const { return network_bytes + peer_bytes; }
};

// The exchanges of a step of one kind: over the same axes, by the same op.
struct ExchangeTotal {
  std::string axes, op;
  double bytes = 0, calls = 0, ranks = 0;
};

// How the bytes of exchanges reach other hosts.
enum class Routes {
  kDirect,      // each rank sends to each of its peers: the CPU's communicators
  kRings,       // NCCL's: they leave a host once, whatever number of its ranks there is
  kDirectSums,  // of gathers rings, of sums direct: NCCL with --reproducible
};

StepCosts step_costs(const Programs& programs, int64_t micro_batches, int64_t ranks_per_host,
                     Routes routes);
std::vector<ExchangeTotal> exchange_totals(const Programs& programs, int64_t micro_batches);

// Calls f(graph, how often it runs in a step, or for a validation batch where nothing is trained).
void for_programs(const Programs& programs, int64_t micro_batches,
                  const std::function<void(const Graph& graph, double runs)>& f);

// Ranks of a group along the axes that are on one host, hosts being runs of ranks.
int64_t ranks_on_host(const Mesh& mesh, AxisSet axes, int64_t ranks_per_host);

// Of one launch; of inputs and views, for which nothing runs, nothing.
Cost node_cost(const Graph& graph, const Node& node);

// Arithmetic of a program by Op::cost, without what is computed again: the model's own.
double program_flops(const Graph& graph);
double recomputed_flops(const Graph& graph);

// What a device does in a second, for times that no plan can be faster than.
struct DeviceRates {
  double flops = 0;                        // of matrix products
  double network = 0, peer = 0, link = 0;  // bytes: to other hosts, within a host, to host memory
};

// Each on its own; they may all run at the same time.
struct StepSeconds {
  double arithmetic = 0, network = 0, peer = 0, link = 0;
  double longest() const;
  double sum() const { return arithmetic + network + peer + link; }
};
StepSeconds step_seconds(const StepCosts& costs, const DeviceRates& rates);

}  // namespace tessera
