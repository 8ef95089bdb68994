#pragma once
#include <string>
#include <vector>

#include "planning/job_plan.h"

namespace tessera {

// The same job with some options changed, planned as a whole: what `tessera plan` says of these
// options, beside what it says of the job.
struct Saving {
  std::string options;         // "--checkpointing_policy op"
  int64_t near = 0, far = 0;   // bytes of a rank more than the job's; below 0: saved
  double flops = 0;            // of a step of as many tokens a rank, as a share of the job's
  bool other_results = false;  // what is trained is another thing
};

// Changes that save memory and those that would undo what the job's options save, by what they
// leave near, least first. Of options that do not go together with the job's none.
std::vector<Saving> savings(const RunConfig& config, const ModelConfig& model,
                            const PlanTarget& target, const JobPlan& plan);

}  // namespace tessera
