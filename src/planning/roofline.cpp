#include "planning/roofline.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/text.h"

namespace tessera {
namespace {

// The launches of an op in a step. Each is as long as the longer of its arithmetic and its memory.
struct OpTime {
  std::string op;
  double launches = 0, flops = 0, bytes = 0, arithmetic = 0, memory = 0, seconds = 0;

  void add(const OpTime& other) {
    launches += other.launches;
    flops += other.flops;
    bytes += other.bytes;
    arithmetic += other.arithmetic;
    memory += other.memory;
    seconds += other.seconds;
  }
};

bool by_matrix_units(const Graph& graph, const Node& node) {
  return node.op->contracts() && std::ranges::any_of(node.inputs, [&](Value v) {
           const DType dtype = graph.type(v).dtype;
           return dtype == DType::kBF16 || dtype == DType::kF16;
         });
}

// What runs on the compute lane: no exchange, no copy to or from the host, no view or placement.
bool computes(const Node& node) {
  return node.op->tier() != Tier::kInput && node.op->lane() == Lane::kCompute &&
         node.op->view_offsets().empty() && node.op->placement_offsets().empty();
}

std::vector<OpTime> op_times(const Programs& programs, int64_t micro_batches,
                             const DeviceSheet& sheet) {
  std::map<std::string, OpTime> by_op;
  for_programs(programs, micro_batches, [&](const Graph& graph, double runs) {
    for (const Node& node : graph.nodes()) {
      if (!computes(node)) continue;
      const Cost cost = node_cost(graph, node);
      const double arithmetic =
          cost.flops / (by_matrix_units(graph, node) ? sheet.matrix_flops : sheet.f32_flops);
      const double memory = cost.bytes / sheet.memory_bandwidth;
      by_op[std::string(node.op->name())].add({"", runs, runs * cost.flops, runs * cost.bytes,
                                               runs * arithmetic, runs * memory,
                                               runs * std::max(arithmetic, memory)});
    }
  });
  std::vector<OpTime> times;
  for (auto& [op, time] : by_op) {
    time.op = op;
    times.push_back(time);
  }
  std::ranges::stable_sort(times, std::greater{}, &OpTime::seconds);
  return times;
}

struct ExchangeTime {
  double calls = 0, seconds = 0;
};

ExchangeTime exchange_time(const RunConfig& config, const Programs& programs) {
  ExchangeTime time;
  for_programs(programs, config.gradient_accumulation_steps, [&](const Graph& graph, double runs) {
    for (const Node& node : graph.nodes()) {
      const auto communication = node.op->communication();
      if (!communication) continue;
      const int64_t ranks = graph.mesh().size(communication->axes);
      const int64_t on_host =
          ranks_on_host(graph.mesh(), communication->axes, config.ranks_per_host);
      auto bytes = static_cast<double>(
          std::max(graph.type(node.inputs[0]).bytes(), graph.type(node.outputs[0]).bytes()));
      const Traffic traffic = communication->traffic;
      const bool sums = traffic == Traffic::kReduceScatter || traffic == Traffic::kAllReduce;
      // Sums travel as f32.
      if (sums && size_of(graph.type(node.inputs[0]).dtype) == 2) bytes *= 2;
      time.calls += runs;
      time.seconds +=
          runs * exchange_seconds(bytes, ranks, on_host, traffic == Traffic::kAllReduce);
    }
  });
  return time;
}

std::string op_row(const OpTime& t, double all_seconds) {
  return format("  %-28s %9.0f %10.3g %10.3g  %-10s %10.3f ms %5.1f %%\n", t.op.c_str(), t.launches,
                t.flops, t.bytes, t.arithmetic >= t.memory ? "arithmetic" : "memory",
                1e3 * t.seconds, all_seconds > 0 ? 100 * t.seconds / all_seconds : 0);
}

}  // namespace

std::string roofline_text(const RunConfig& config, const Programs& programs,
                          const PlanTarget& target) {
  if (!target.sheet) return "";
  const DeviceSheet& sheet = *target.sheet;
  constexpr size_t kShown = 12;
  std::string text = format(
      "\nRoofline: no speed is claimed. Ops of a step of one rank, one after another, each as long "
      "as the longer of "
      "its arithmetic\nand its memory at the peaks of the data sheet: %.4g TFLOP/s in bf16, %.3g "
      "in "
      "f32, %.3g TB/s:\n",
      sheet.matrix_flops / 1e12, sheet.f32_flops / 1e12, sheet.memory_bandwidth / 1e12);
  text += format("  %-28s %9s %10s %10s  %-10s %13s\n", "op", "launches", "FLOP", "bytes",
                 "the longer", "time");
  OpTime all, others;
  const std::vector<OpTime> times = op_times(programs, config.gradient_accumulation_steps, sheet);
  for (const OpTime& t : times) all.add(t);
  for (size_t i = 0; i < times.size(); ++i) {
    if (i < kShown)
      text += op_row(times[i], all.seconds);
    else
      others.add(times[i]);
  }
  others.op = cat(times.size() - std::min(times.size(), kShown), " other ops");
  if (others.launches > 0) text += op_row(others, all.seconds);
  all.op = "together";
  text += op_row(all, all.seconds);
  const ExchangeTime exchanges = exchange_time(config, programs);
  if (exchanges.calls == 0) return text;
  if (!sheet.known_links)
    return text + "  exchanges: no model of them for this GPU; see the times above\n";
  return text + format(
                    "  exchanges, an estimate        %8.0f calls, %.3f ms, beside it as far as "
                    "they are hidden: by published times\n"
                    "  of NCCL on hosts of 8 H100 with 3200 Gbit/s each (docs/planning.md)%s\n",
                    exchanges.calls, 1e3 * exchanges.seconds,
                    config.reproducible ? "; sums in rank order (--reproducible) take longer" : "");
}

}  // namespace tessera
