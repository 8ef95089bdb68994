#pragma once
#include <set>
#include <string_view>

#include "launch/run_options.h"

namespace tessera {

// Number of nodes, this node's number and where they meet, as far as neither the command line nor a
// PET_ variable says them, from what started this agent:
//
// - srun, as one of several tasks, one a node: the nodes of the step, which meet on its first one
// at
//   a port that follows from job and step;
// - a Kubernetes operator that sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, where RANK
// counts
//   pods, and so does WORLD_SIZE unless PET_ variables say otherwise.
//
// `given` are the names of the options that are. UsageError for several tasks on a node, for a
// given option that contradicts srun, and for variables of an operator that contradict each other.
void complete_from_environment(RunOptions& options, const std::set<std::string_view>& given,
                               const Environment& environment);

}  // namespace tessera
