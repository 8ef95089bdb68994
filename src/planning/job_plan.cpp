#include "planning/job_plan.h"

#include <algorithm>
#include <set>

namespace tessera {
namespace {

Routes routes(const RunConfig& config) {
  if (config.device_type != "cuda") return Routes::kDirect;
  return config.reproducible ? Routes::kDirectSums : Routes::kRings;
}

}  // namespace

MemoryLimits memory_limits(const RunConfig& config, const PlanTarget& target) {
  MemoryLimits limits{config.memory, config.host_memory, {}, {}};
  if (!config.memory) limits.device = target.sheet;
  return limits;
}

bool JobPlan::fits(const MemoryLimits& limits) const {
  return (!limits.near || near() <= *limits.near) &&
         (!limits.host || far_on_host() <= *limits.host) &&
         (!limits.both || checked_add(memory.total(), staging) <= *limits.both) &&
         (!limits.device || checked_add(memory.near(), beside().total()) <= limits.device->memory);
}

bool saves_checkpoints(const RunConfig& config) {
  return config.save_ckpt && !config.checkpoint_dir.empty() && !config.eval_only;
}

int64_t planned_world(const RunConfig& config) {
  return config.world.value_or(std::max<int64_t>(1, config.shard_degree.value_or(1)) *
                               config.tensor_parallel_degree);
}

ProgramOptions planned_options(const RunConfig& config, const ModelConfig& model) {
  const int64_t world = planned_world(config);
  return program_options(
      config, make_parallelism(config, model, world, std::min(world, config.ranks_per_host)));
}

std::unique_ptr<Session> plan_session(const RunConfig& config, const ModelConfig& model,
                                      const PlanTarget& target, PassObserver observer) {
  ProgramOptions options = planned_options(config, model);
  options.passes.observer = std::move(observer);
  return std::make_unique<Session>(build_programs(model_builder(model), options), *target.backend);
}

JobPlan job_plan(const RunConfig& config, const Session& session) {
  JobPlan plan;
  plan.parallelism = session.programs().parallelism;
  plan.memory = session.planned_memory();
  plan.ranks_on_host = std::min(planned_world(config), config.ranks_per_host);
  int64_t windows = config.eval_only ? config.val_batch_size
                                     : config.gradient_accumulation_steps * config.train_batch_size;
  plan.tokens = static_cast<double>(plan.parallelism.data_ranks()) *
                static_cast<double>(windows * config.max_context_width);
  plan.costs = step_costs(session.programs(), config.gradient_accumulation_steps,
                          config.ranks_per_host, routes(config));
  std::set<uint32_t> axes;
  for_programs(session.programs(), config.gradient_accumulation_steps,
               [&](const Graph& graph, double) {
                 for (const Node& node : graph.nodes())
                   if (auto communication = node.op->communication())
                     axes.insert(communication->axes.bits);
               });
  plan.groups = std::ssize(axes);
  plan.slots = std::ssize(session.programs().slots);
  if (saves_checkpoints(config) && config.async_checkpoint == "on" && config.device_type != "cuda")
    plan.staging = checked_add(plan.memory.parameters, plan.memory.optimizer);
  return plan;
}

DeviceRates device_rates(const RunConfig& config, const PlanTarget& target) {
  constexpr double kNetwork = 25e9, kPeer = 200e9;
  auto rate = [](std::optional<int64_t> given, double nominal) {
    return given ? static_cast<double>(*given) : nominal;
  };
  double given = config.peak_tflops_per_gpu.value_or(0) * 1e12;
  return {given > 0 ? given : target.peak_flops,
          rate(config.network_bandwidth, target.sheet ? target.sheet->network_bandwidth : kNetwork),
          rate(config.peer_bandwidth, target.sheet ? target.sheet->peer_bandwidth : kPeer),
          static_cast<double>(config.host_bandwidth)};
}

}  // namespace tessera
