#include "planning/plan_levers.h"

#include <algorithm>
#include <limits>

#include "options/option_table.h"

namespace tessera {
namespace {

using Change = std::function<void(RunConfig&)>;

Change recompute(const std::string& policy, const std::string& share) {
  return [=](RunConfig& c) {
    c.activation_checkpointing = true;
    c.checkpointing_policy = policy;
    c.selective_checkpointing = share;
  };
}
void keep_everything(RunConfig& c) { c.activation_checkpointing = false; }

// Kinds of recomputation from the least to the most; the last is the default.
struct RecomputationStep {
  bool at_all;
  const char *policy, *share;
};
constexpr RecomputationStep kRecomputation[] = {
    {false, "", ""}, {true, "op", "1"}, {true, "layer", "1/2"}, {true, "layer", "1"}};
constexpr size_t kMostRecomputation = std::size(kRecomputation) - 1;

// Where a job stands among them; what is none of them counts as the next weaker one.
size_t recomputation_of(const RunConfig& c) {
  if (!c.activation_checkpointing) return 0;
  auto share = parse_layer_share(c.selective_checkpointing);
  double of_all = share ? share->numerator / share->denominator : 1;
  if (c.checkpointing_policy == "op") return 1;
  return of_all >= 1 ? kMostRecomputation : of_all >= 0.5 ? 2 : 0;
}
Change recomputation(size_t step) {
  const RecomputationStep& s = kRecomputation[step];
  if (!s.at_all) return keep_everything;
  return recompute(s.policy, s.share);
}

Lever recompute_more(const RunConfig& c) {
  Lever lever;
  for (size_t step = recomputation_of(c) + 1; step <= kMostRecomputation; ++step)
    lever.rungs.push_back(recomputation(step));
  return lever;
}
Lever recompute_less(const RunConfig& c) {
  Lever lever;
  for (size_t step = recomputation_of(c); step-- > 0;) lever.rungs.push_back(recomputation(step));
  return lever;
}

// Powers of two that divide n, and n.
std::vector<int64_t> some_divisors(int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 2; d < n && n % d == 0; d *= 2) divisors.push_back(d);
  if (n > 1) divisors.push_back(n);
  return divisors;
}

// The same windows a step in more micro-batches, or in fewer.
Lever smaller_micro_batches(const RunConfig& c) {
  Lever lever;
  for (int64_t parts : some_divisors(c.train_batch_size)) {
    lever.rungs.push_back([=](RunConfig& to) {
      to.train_batch_size /= parts;
      to.gradient_accumulation_steps *= parts;
    });
  }
  return lever;
}
Lever larger_micro_batches(const RunConfig& c) {
  Lever lever;
  for (int64_t times : some_divisors(c.gradient_accumulation_steps)) {
    lever.rungs.push_back([=](RunConfig& to) {
      to.train_batch_size *= times;
      to.gradient_accumulation_steps /= times;
    });
  }
  return lever;
}

// A validation of as many rows in more batches.
Lever smaller_validation_batches(const RunConfig& c) {
  Lever lever;
  if (!asks_for_validation(c)) return lever;
  for (int64_t parts : some_divisors(c.val_batch_size)) {
    lever.rungs.push_back([=](RunConfig& to) {
      to.val_batch_size /= parts;
      to.validation_batches =
          std::min(to.validation_batches, std::numeric_limits<int64_t>::max() / parts) * parts;
    });
  }
  return lever;
}

// State over more ranks.
Lever shard_more(const RunConfig& c, const JobPlan& plan) {
  Lever lever;
  if (plan.parallelism.data_ranks() <= 1) return lever;
  bool whole = plan.parallelism.mesh.size(plan.parallelism.data.shard) == 1;
  bool part = !plan.parallelism.data.replicate.empty();
  if (whole) lever.rungs.push_back([](RunConfig& to) { to.sharding_strategy = "shard_grad_op"; });
  if (whole || part || !plan.parallelism.regather) {
    lever.rungs.push_back([](RunConfig& to) {
      to.sharding_strategy = "full_shard";
      to.shard_degree = std::nullopt;
    });
  }
  for (Change& rung : lever.rungs) {
    // Without a degree the world does not follow from it.
    rung = [=, world = plan.parallelism.mesh.world_size(), change = rung](RunConfig& to) {
      change(to);
      to.shard_degree = std::nullopt;
      if (!to.world && c.shard_degree) to.world = world;
    };
  }
  return lever;
}
Lever gather_once(const RunConfig& c, const JobPlan& plan) {
  if (!plan.parallelism.regather) return {};
  std::string kept = c.sharding_strategy == "full_shard" ? "shard_grad_op" : "_hybrid_shard_zero2";
  return {{[=](RunConfig& to) { to.sharding_strategy = kept; }}};
}

// Layers cut over more ranks of a host. Fewer of them then see different rows.
Lever cut_layers(const RunConfig& c, const JobPlan& plan) {
  Lever lever;
  for (int64_t times = 2; times * c.tensor_parallel_degree <= plan.ranks_on_host; times *= 2) {
    lever.rungs.push_back([=, world = plan.parallelism.mesh.world_size(),
                           shared = plan.parallelism.data_ranks() / times](RunConfig& to) {
      if (!to.world) to.world = world;
      if (to.shard_degree) to.shard_degree = std::min<int64_t>(*to.shard_degree, shared);
      to.tensor_parallel_degree *= times;
      to.gradient_accumulation_steps *= times;
    });
  }
  return lever;
}

Lever more_ranks(const JobPlan& plan) {
  constexpr int64_t kMost = 1024;
  Lever lever;
  lever.changes_world = true;
  for (int64_t times = 2; times <= kMost; times *= 2) {
    lever.rungs.push_back([=, world = plan.parallelism.mesh.world_size()](RunConfig& to) {
      to.world = world * times;
      if (to.gradient_accumulation_steps % times == 0) to.gradient_accumulation_steps /= times;
    });
  }
  return lever;
}

Lever set_offload(bool RunConfig::*option, bool value) {
  Lever lever{{[=](RunConfig& to) { to.*option = value; }}};
  lever.uses_host = value;
  return lever;
}

void add(std::vector<Lever>& levers, Lever lever) {
  if (!lever.rungs.empty()) levers.push_back(std::move(lever));
}

}  // namespace

std::vector<Lever> levers_that_save_memory(const RunConfig& config, const JobPlan& plan,
                                           const MemoryLimits& limits) {
  bool host_is_full = limits.host && plan.far_on_host() > *limits.host;
  std::vector<Lever> levers;
  for (bool RunConfig::*option : {&RunConfig::offload_activations, &RunConfig::cpu_offload})
    if (host_is_full && config.*option) levers.push_back(set_offload(option, false));
  add(levers, smaller_validation_batches(config));
  add(levers, recompute_more(config));
  add(levers, smaller_micro_batches(config));
  add(levers, shard_more(config, plan));
  add(levers, cut_layers(config, plan));
  if (limits.both) return levers;
  const bool keeps_far = config.device_type != "xla";
  for (bool RunConfig::*option : {&RunConfig::offload_activations, &RunConfig::cpu_offload})
    if (keeps_far && !(config.*option)) levers.push_back(set_offload(option, true));
  add(levers, more_ranks(plan));
  return levers;
}

std::vector<Lever> levers_that_save_time(const RunConfig& config, const JobPlan& plan) {
  std::vector<Lever> levers;
  for (bool RunConfig::*option : {&RunConfig::cpu_offload, &RunConfig::offload_activations})
    if (config.*option) levers.push_back(set_offload(option, false));
  add(levers, recompute_less(config));
  add(levers, gather_once(config, plan));
  add(levers, larger_micro_batches(config));
  return levers;
}

std::string changed_options(const RunConfig& from, const RunConfig& to) {
  std::vector<std::string> words;
  for (const OptionRow& row : option_table()) {
    if ((row.scopes & in(OptionScope::kPlan)) == 0 || row.name == "dump_pass") continue;
    std::string value = value_text(to, row);
    if (value != value_text(from, row)) words.push_back(cat("--", row.name, " ", value));
  }
  return join(words, " ");
}

}  // namespace tessera
