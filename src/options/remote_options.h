#pragma once
#include "options/run_config.h"
#include "remote/options.h"

namespace tessera {

// How a run reads files of servers: with what other tools of the hub and of S3 are configured by
// (remote_options_from_environment), --hf_home, and a cache of --max_cache_size below --cache_dir.
RemoteOptions remote_options(const RunConfig& config);

}  // namespace tessera
