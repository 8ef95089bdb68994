// What a training run may take of its host, held against what it plans.
#include <utility>

#include "base/log.h"
#include "planning/host_memory.h"
#include "planning/plan_search.h"
#include "train/baselines.h"
#include "train/training_run.h"

namespace tessera {
namespace {

// Behind ": ", with what else helps behind it.
std::string doing_without(int64_t staging) {
  return staging == 0 ? ""
                      : cat("--async_checkpoint auto needs ", format_bytes(staging),
                            " less, which checkpoints are written from; or ");
}

// A run has as many ranks as were started: "--world 4" is for plans.
std::string with_ranks(const PlanAlternative& a) {
  const int world = a.plan.parallelism.mesh.world_size();
  const std::string option = cat("--world ", world);
  std::string text = a.options;
  if (const size_t at = text.find(option); at != text.npos)
    text.replace(at, option.size(), cat("on ", world, " ranks"));
  return text;
}

}  // namespace

// The limits that the user gave: --memory of a rank, --host_memory for what is offloaded.
void TrainingRun::check_budgets() const {
  const Session::Memory memory = session_->planned_memory();
  // What checkpoints are written from lies on no GPU.
  const bool stages = saver_ && config_.async_checkpoint == "on" && !device_.memory;
  const int64_t staging = stages ? saver_->staging_bytes() : 0;
  int64_t need = memory.near() + staging, of_host = memory.far() * device_.ranks_per_host;
  if (config_.host_memory && of_host > *config_.host_memory) {
    throw UserError(cat("this run needs ", format_bytes(of_host),
                        " of its host for what is offloaded by ", device_.ranks_per_host,
                        " ranks, which is ", format_bytes(of_host - *config_.host_memory),
                        " more than --host_memory ", format_bytes(*config_.host_memory),
                        ": leave out --offload_activations or --cpu_offload"));
  }
  if (device_.memory && memory.near() > *device_.memory && !config_.memory) {
    throw UserError(cat("not enough memory: this run needs ", format_bytes(memory.near()), " of ",
                        device_.description, ", of which ", format_bytes(*device_.memory),
                        " are free; ",
                        what_would_fit({device_.memory, config_.host_memory, {}, {}})));
  }
  if (!config_.memory) return;
  bool over = need > *config_.memory;
  if (device_.control) over = device_.control->any("memory over its limit", over);
  if (!over) return;
  // The first rank writes checkpoints: none needs more.
  throw UserError(on_first_rank("search for options that fit", [&] {
    const std::string without_staging =
        need - staging <= *config_.memory ? doing_without(staging) : "";
    return cat("this run needs ", format_bytes(need), ", which is ",
               format_bytes(need - *config_.memory), " more than --memory ",
               format_bytes(*config_.memory), ": ", without_staging,
               what_would_fit({config_.memory, config_.host_memory, {}, {}}));
  }));
}

// Options with which each rank plans no more than that, and what they cost.
std::string TrainingRun::what_would_fit(const MemoryLimits& limits) const {
  if (!session_->compiled().front().executable->plan())
    return cat("lower --train_batch_size, --val_batch_size or --max_context_width",
               config_.activation_checkpointing ? "" : ", or give --activation_checkpointing 1");
  RunConfig config = config_;
  config.world = world_size();
  config.ranks_per_host = device_.ranks_per_host;
  JobPlan plan = job_plan(config, *session_);
  std::vector<std::string> parts;
  const bool any_world = !device_.control;
  for (const PlanAlternative& a : fitting_alternatives(
           config, record_.model, {.backend = device_.backend}, plan, limits, any_world)) {
    double more = 100 * (a.costs.all_flops() / plan.costs.all_flops() - 1);
    std::string arithmetic = more > 0.05 ? format(" and %.1f %% more FLOP", more) : "";
    const int64_t bytes = limits.both ? a.plan.memory.total() + a.plan.staging : a.plan.near();
    parts.push_back(cat(with_ranks(a), " plans ", format_bytes(bytes),
                        limits.both || a.plan.memory.far() == 0
                            ? ""
                            : cat(" and ", format_bytes(a.plan.far_on_host()), " of a host"),
                        arithmetic));
  }
  if (parts.empty())
    return cat("no other batch of training or validation, recomputation",
               limits.both ? " or sharding"
               : any_world ? ", sharding, offload or number of ranks"
                           : ", sharding or offload",
               " makes it fit: take a smaller model or window",
               limits.both ? ", or more hosts"
               : any_world ? ""
                           : ", or more ranks");
  return cat("what would fit: ", join(parts, "; "));
}

// What --streaming auto comes to is known with the data only.
bool TrainingRun::will_stream() const {
  return data_.stream || (config_.streaming == "on" && !config_.eval_only);
}

int64_t TrainingRun::memory_of_lanes() const {
  if (!will_stream()) return 0;
  return tessera::memory_of_lanes(config_, session_->programs().parallelism.data_ranks(),
                                  data_.lane_reading_bytes);
}

int64_t TrainingRun::memory_of_baselines() const {
  return config_.compare_baselines ? data_.training_tokens() * kBaselineBytesPerToken : 0;
}

// What all ranks need, with so many bytes for what checkpoints are written from, held against what
// their hosts have left; the same on every rank.
std::optional<MemoryShortage> TrainingRun::memory_shortage(int64_t staging) const {
  const Session::Memory memory = session_->planned_memory();
  const int64_t planned = (device_.memory ? memory.far() : memory.total()) + staging;
  RankMemory own{planned, memory_beside_plan(config_, planned, device_.pool->threads()),
                 memory_pools(device_.system_root)};
  own.beside += memory_of_lanes() + memory_of_baselines();
  std::vector<RankMemory> ranks{own};
  if (device_.control) {
    ranks.clear();
    for (const std::string& text : device_.control->exchange("memory of hosts", own.to_text()))
      ranks.push_back(RankMemory::from_text(text));
  }
  return find_shortage(ranks);
}

// Before anything is allocated. With --memory the user knows better.
void TrainingRun::check_memory() {
  check_budgets();
  const bool may_stage = saver_ && config_.async_checkpoint != "off";
  int64_t staging = may_stage ? saver_->staging_bytes() : 0;
  std::optional<MemoryShortage> shortage = memory_shortage(staging);
  if (may_stage && config_.async_checkpoint == "auto") {
    bool over = config_.memory && !device_.memory &&
                session_->planned_memory().near() + staging > *config_.memory;
    if (device_.control) over = device_.control->any("memory for checkpoints", over);
    if (shortage || over) staging = 0;
    if (shortage) shortage = memory_shortage(0);
  }
  saves_beside_training_ = staging > 0;
  if (!shortage) return;
  if (config_.memory) {
    if (rank() == 0 && !std::exchange(warned_of_shortage_, true))
      TESSERA_WARN(cat(shortage->text, "; going on, as --memory is given"));
    return;
  }
  const bool must_stage = may_stage && config_.async_checkpoint == "on";
  const std::string without_staging =
      must_stage && !memory_shortage(0) ? doing_without(staging) : "";
  std::string without_data;
  if (const int64_t lanes = memory_of_lanes())
    without_data +=
        cat("lanes of the stream take ", format_bytes(lanes), " of it, fewer --data_lanes less; ");
  if (const int64_t baselines = memory_of_baselines())
    without_data += cat("--compare_baselines takes ", format_bytes(baselines), " of it; ");
  std::string alternatives = "nothing is left for the plan";
  if (shortage->planned_each > 0 || without_data.empty())
    alternatives = on_first_rank("search for options that fit", [&] {
      return what_would_fit({{}, {}, shortage->planned_each, {}});
    });
  throw UserError(cat("not enough memory: ", shortage->text, "; ", without_staging, without_data,
                      alternatives,
                      ". Where the system is wrong, say by --memory BYTES what a rank may use"));
}

}  // namespace tessera
