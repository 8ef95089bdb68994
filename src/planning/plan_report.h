#pragma once
#include <filesystem>
#include <string>

#include "planning/job_plan.h"

namespace tessera {

// What a job of `config.world` ranks would take, from the plans alone: the report of `tessera
// plan`. Its last lines are the verdict: without a limit given, on this machine as `root` shows it,
// where a lane of a stream takes `reading` bytes for its files.
struct PlanReport {
  std::string text;
  bool fits = true;  // in --memory and --host_memory
};
PlanReport plan_report(const RunConfig& config, const ModelConfig& model, const PlanTarget& target,
                       const std::filesystem::path& root = "/", int64_t reading = 0);

}  // namespace tessera
