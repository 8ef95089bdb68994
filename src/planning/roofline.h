#pragma once
#include <string>

#include "planning/job_plan.h"

namespace tessera {

// The ops of a step at the peaks of the target's data sheet, and its exchanges by a model: the part
// of the report of `tessera plan` that says so; each line ends in a line break. Empty of targets
// without a data sheet. It says where time cannot be saved by better kernels; it is no prediction.
std::string roofline_text(const RunConfig& config, const Programs& programs,
                          const PlanTarget& target);

}  // namespace tessera
