#pragma once
#include "options/run_config.h"
#include "planning/job_plan.h"

namespace tessera {

// What `tessera plan --device_type xla --target GPU` adds to the report: compiles the programs of
// the job for that GPU with XLA, without one, and prints its figures beside those of our plan,
// program by program. Writes what was compiled where --save_executable asks for it.
void plan_ahead_of_time(const RunConfig& config, const ModelConfig& model,
                        const PlanTarget& target);

// UsageError where the options of this do not go together.
void check_target(const RunConfig& config);

}  // namespace tessera
