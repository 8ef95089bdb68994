#pragma once
#include <string>

#include "cluster/cluster_options.h"

namespace tessera {

// The batch script of a job for sbatch: what `tessera slurm render` writes. It starts the ranks by
// srun, has them save ahead of the time limit, and puts the job back into the queue then.
// `program` is the word that starts tessera on the nodes.
std::string slurm_script(const ClusterOptions& options, const std::string& program);

}  // namespace tessera
