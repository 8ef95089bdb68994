#include "options/remote_options.h"

namespace tessera {

RemoteOptions remote_options(const RunConfig& config) {
  RemoteOptions options = remote_options_from_environment(config.hf_home);
  options.cache_directory = config.cache_dir;
  options.cache_bytes = static_cast<uint64_t>(config.max_cache_size);
  return options;
}

}  // namespace tessera
