#pragma once
#include <string>

#include "launch/run_options.h"

namespace tessera {

// The job's secret: from --token_file, else TESSERA_JOB_TOKEN, else for one node at random, else
// from --rdzv_id, which everybody can guess who knows the id: options.warnings then says so.
// UserError for a file that holds no token or is open to other users.
std::string job_token(RunOptions& options, const RunEnvironment& environment);

}  // namespace tessera
