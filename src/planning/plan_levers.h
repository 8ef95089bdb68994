#pragma once
#include <functional>
#include <string>
#include <vector>

#include "planning/job_plan.h"

namespace tessera {

// One way to change a job, as rungs from the mildest to the strongest: each a change of options.
// Levers change different options, or multiply the same, so that several may be pulled.
struct Lever {
  std::vector<std::function<void(RunConfig&)>> rungs;
  bool uses_host = false;
  bool changes_world = false;
};

// Cheapest kinds first: smaller validation batches, recomputation, smaller micro-batches, sharding,
// tensor parallelism, offload, more ranks; and without offload where the host is full, or with XLA.
// Where both tiers are one memory, that of the ranks as they are, neither offload nor more ranks.
std::vector<Lever> levers_that_save_memory(const RunConfig& config, const JobPlan& plan,
                                           const MemoryLimits& limits);

// Less offload, less recomputation, parameters gathered once, larger micro-batches.
std::vector<Lever> levers_that_save_time(const RunConfig& config, const JobPlan& plan);

// What has to be given to make the second of the first: "--checkpointing_policy op --world 16".
std::string changed_options(const RunConfig& from, const RunConfig& to);

}  // namespace tessera
