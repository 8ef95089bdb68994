#pragma once
#include "planning/job_plan.h"

namespace tessera {

// A job with some options changed, planned as a whole: what it says is what `tessera plan` says of
// these options.
struct PlanAlternative {
  std::string options;  // "--checkpointing_policy op --train_batch_size 1"
  JobPlan plan;
  StepCosts costs;  // of as many tokens a rank as the job's own step has
};

// Sets of options under which a job that does not fit does, with the same tokens a step unless the
// world grows, cheapest first: what costs nothing without more ranks, then by the longest of the
// times that arithmetic and transfers take.
// Found on models of few layers where there are many; each was then planned. `any_world`: the
// backend compiles for other numbers of ranks, too, which one of a job's ranks does not.
std::vector<PlanAlternative> fitting_alternatives(const RunConfig& config, const ModelConfig& model,
                                                  const PlanTarget& target, const JobPlan& plan,
                                                  const MemoryLimits& limits,
                                                  bool any_world = true);

// The same for a job that fits, and options that make use of the memory that is left: less is
// computed again, sent or offloaded.
std::vector<PlanAlternative> cheaper_alternatives(const RunConfig& config, const ModelConfig& model,
                                                  const PlanTarget& target, const JobPlan& plan,
                                                  const MemoryLimits& limits);

}  // namespace tessera
