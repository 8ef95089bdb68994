#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "options/option_table.h"
#include "options/run_config.h"

namespace tessera {

// A place where a run keeps checkpoints: entry i of --checkpoint_dir, --checkpoint_freq and
// --num_kept_checkpoints.
struct CheckpointTier {
  std::string directory;
  CheckpointInterval interval;
  int64_t num_kept = 0;  // 0: all
};

inline constexpr size_t kMaxCheckpointTiers = 16;

// In the order given; none where nothing is saved. A list that is not given, or holds its default,
// is that default for each. UsageError that names the options: lists of different lengths, a
// directory that is given twice or has no name, more than kMaxCheckpointTiers.
std::vector<CheckpointTier> checkpoint_tiers(const RunConfig& config);

}  // namespace tessera
