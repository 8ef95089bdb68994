#include "planning/plan_verdict.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/memory_pools.h"
#include "base/thread_pool.h"
#include "planning/host_memory.h"
#include "planning/plan_search.h"

namespace tessera {
namespace {

std::string seconds_text(double seconds) {
  return seconds >= 1 ? format("%.2f s", seconds) : format("%.3g ms", 1e3 * seconds);
}
std::string rate_text(double bytes) { return format("%.3g GB/s", bytes / 1e9); }

// "+1.20 GiB", "-3.00 MiB", "+0 B".
std::string difference_text(double bytes) {
  return (bytes < 0 ? "-" : "+") + format_bytes(static_cast<int64_t>(std::abs(bytes)));
}

std::string percent_of(int64_t part, int64_t whole) {
  return format("%.0f %%", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string limit_text(const std::string& named, int64_t need, int64_t limit,
                       const std::string& of) {
  if (need > limit)
    return cat("Does not fit: ", format_bytes(need - limit), " more than ", named, of, "\n");
  return cat("Fits in ", named, of, ": ", format_bytes(limit - need), " are left (",
             percent_of(need, limit), " full)\n");
}

std::string staging_text(const JobPlan& plan) {
  if (plan.staging == 0) return "";
  return cat(" (with ", format_bytes(plan.staging),
             " from which checkpoints are written: --async_checkpoint auto can do without)");
}

std::string alternative_text(const PlanAlternative& alternative, const JobPlan& plan,
                             const DeviceRates& rates) {
  const StepCosts &now = plan.costs, &then = alternative.costs;
  const JobPlan& changed = alternative.plan;
  double flops = then.all_flops() - now.all_flops();
  std::string host =
      changed.memory.far() == 0 ? "" : cat(", ", format_bytes(changed.far_on_host()), " of a host");
  return cat("  ", alternative.options, "\n      ", format_bytes(changed.near()), " a rank", host,
             format("; %+.3g FLOP (%+.1f %%), ", flops, 100 * flops / now.all_flops()),
             difference_text(then.wire_bytes() - now.wire_bytes()), " on the wire, ",
             difference_text(then.link_bytes - now.link_bytes), " to and from host memory; ",
             seconds_text(step_seconds(then, rates).longest()), "\n");
}

// A quarter of the memory, or more, has no use.
bool leaves_much(const MemoryLimits& limits, const JobPlan& plan) {
  if (limits.device)
    return checked_add(plan.memory.near(), plan.beside().total()) <= limits.device->memory / 4 * 3;
  return limits.near && plan.near() <= *limits.near / 4 * 3;
}

}  // namespace

std::string times_text(const RunConfig& config, const PlanTarget& target, const JobPlan& plan) {
  DeviceRates rates = device_rates(config, target);
  StepSeconds seconds = step_seconds(plan.costs, rates);
  std::string text = "\nA step of one rank takes no less than the longest of these:\n";
  auto row = [&](const std::string& label, double time, const std::string& note) {
    if (time > 0)
      text += format("  %-28s %12s  %s\n", label.c_str(), seconds_text(time).c_str(), note.c_str());
  };
  row("arithmetic", seconds.arithmetic,
      format("at %.3g TFLOP/s (%s--peak_tflops_per_gpu)", rates.flops / 1e12,
             config.peak_tflops_per_gpu ? "" : "nominal; "));
  row("sending to other hosts", seconds.network,
      cat("at ", rate_text(rates.network), " a rank (", config.network_bandwidth ? "" : "nominal; ",
          "--network_bandwidth)"));
  row("sending within a host", seconds.peer,
      cat("at ", rate_text(rates.peer), " a rank (", config.peer_bandwidth ? "" : "nominal; ",
          "--peer_bandwidth)"));
  row("to and from host memory", seconds.link,
      cat("at ", rate_text(rates.link), " a rank (--host_bandwidth)"));
  std::vector<std::string> longer;
  for (auto [what, time] : {std::pair{"sending to other hosts", seconds.network},
                            {"sending within a host", seconds.peer},
                            {"moving to and from host memory", seconds.link}}) {
    if (time > seconds.arithmetic)
      longer.push_back(cat(what, " takes ", seconds_text(time - seconds.arithmetic),
                           " longer than the arithmetic can hide"));
  }
  if (plan.costs.wire_bytes() + plan.costs.link_bytes == 0) return text;
  return text + (longer.empty() ? "The arithmetic can hide all transfers.\n"
                                : cat("Not hidden: ", join(longer, "; "), ".\n"));
}

std::string alternatives_text(const RunConfig& config, const ModelConfig& model,
                              const PlanTarget& target, const JobPlan& plan) {
  MemoryLimits limits = memory_limits(config, target);
  if (!limits.any()) return "";
  std::vector<PlanAlternative> alternatives;
  std::string text;
  if (!plan.fits(limits)) {
    alternatives = fitting_alternatives(config, model, target, plan, limits);
    text = alternatives.empty() ? "\nNo change of validation batch, recomputation, micro-batch, "
                                  "sharding, tensor parallelism, offload and world makes it fit.\n"
                                : "\nIt fits with any of these, the cheapest first";
  } else if (leaves_much(limits, plan)) {
    alternatives = cheaper_alternatives(config, model, target, plan, limits);
    if (!alternatives.empty()) text = "\nCheaper, and fits as well";
  }
  if (alternatives.empty()) return text;
  text +=
      " (each was planned; beside this plan, for a step of as many tokens a rank; time as "
      "above):\n";
  for (const PlanAlternative& a : alternatives)
    text += alternative_text(a, plan, device_rates(config, target));
  return text;
}

std::string verdict_text(const MemoryLimits& limits, const JobPlan& plan) {
  std::string text = "\n";
  if (!limits.any()) text += "No limit was given: --memory, and --host_memory for what is far.\n";
  if (limits.near)
    text += limit_text(cat("--memory ", format_bytes(*limits.near)), plan.near(), *limits.near,
                       staging_text(plan));
  if (limits.device)
    text +=
        limit_text(cat("the ", format_bytes(limits.device->memory), " of an ", limits.device->name),
                   checked_add(plan.memory.near(), plan.beside().total()), limits.device->memory,
                   cat(" (estimate: ", format_bytes(plan.beside().total()), " beside the plan)"));
  if (limits.host && plan.memory.far() > 0)
    text += limit_text(cat("--host_memory ", format_bytes(*limits.host)), plan.far_on_host(),
                       *limits.host,
                       plan.ranks_on_host == 1 ? "" : cat(", ", plan.ranks_on_host, " ranks"));
  return text;
}

std::string machine_verdict_text(const RunConfig& config, const JobPlan& plan,
                                 const std::filesystem::path& root, int64_t reading) {
  if (config.device_type != "auto" && config.device_type != "cpu") return "";
  auto cores = static_cast<int64_t>(available_cores());
  auto threads =
      static_cast<int>(config.threads.value_or(std::max<int64_t>(1, cores / plan.ranks_on_host)));
  int64_t planned = checked_add(plan.memory.total(), plan.staging);
  int64_t beside = memory_beside_plan(config, planned, threads);
  if (config.streaming == "on")
    beside += memory_of_lanes(config, plan.parallelism.data_ranks(), reading);
  RankMemory rank{planned, beside, memory_pools(root)};
  auto smallest = smallest_pool(rank);
  if (!smallest) return "";
  // Of ranks with the same state one writes it.
  RankMemory copy = rank;
  copy.planned = plan.memory.total();
  std::vector<RankMemory> host;
  int64_t need = 0;
  for (int r = 0; r < plan.ranks_on_host; ++r) {
    const Parallelism& p = plan.parallelism;
    host.push_back(p.mesh.index(r, p.data.replicate) == 0 ? rank : copy);
    need += host.back().need();
  }
  if (auto shortage = find_shortage(host))
    return cat("Does not fit on this machine: ", shortage->text, staging_text(plan), "\n");
  return cat("Fits on this machine: ",
             plan.ranks_on_host == 1 ? "a rank needs " : cat(plan.ranks_on_host, " ranks need "),
             format_bytes(need), " with about ", format_bytes(rank.beside),
             plan.ranks_on_host == 1 ? " beside the plan; " : " beside each plan; ", smallest->name,
             " has ", format_bytes(smallest->available), " left", staging_text(plan), "\n");
}

}  // namespace tessera
