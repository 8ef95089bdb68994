#pragma once
#include <filesystem>
#include <string>

#include "planning/job_plan.h"

namespace tessera {

// The parts of the report of `tessera plan` that judge: each ends in a line break.

// How long arithmetic and transfers of a step take at the rates of the options, and whether the
// former can hide the latter.
std::string times_text(const RunConfig& config, const PlanTarget& target, const JobPlan& plan);

// Options under which a job fits that does not, or that use memory which a job leaves, with what
// they cost. Empty without a limit, or where nothing was found to say.
std::string alternatives_text(const RunConfig& config, const ModelConfig& model,
                              const PlanTarget& target, const JobPlan& plan);

// Whether the job fits: a line a limit, of a rank's memory and of a host's.
std::string verdict_text(const MemoryLimits& limits, const JobPlan& plan);

// Whether the ranks of one host would fit on this machine, of which `root` has /proc and cgroups,
// with `reading` bytes a lane of a stream (memory_of_lanes()); empty where that is not known, or
// the plan is for another kind of device.
std::string machine_verdict_text(const RunConfig& config, const JobPlan& plan,
                                 const std::filesystem::path& root, int64_t reading);

}  // namespace tessera
