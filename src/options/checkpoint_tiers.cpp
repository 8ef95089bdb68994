#include "options/checkpoint_tiers.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "checkpoint/places.h"

namespace tessera {
namespace {

// Equal for what is one directory by whatever name.
std::string whole_name(const std::string& directory) {
  std::filesystem::path path = directory;
  std::error_code error;
  if (!is_in_bucket(path)) path = weakly_canonical(absolute(path), error);
  if (error) path = directory;
  path = path.lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).string();
}

}  // namespace

std::vector<CheckpointTier> checkpoint_tiers(const RunConfig& config) {
  const auto &directories = config.checkpoint_dir, &frequencies = config.checkpoint_freq,
             &counts = config.num_kept_checkpoints;
  const size_t count = directories.size(), wanted = std::max<size_t>(1, count);
  const std::vector<std::string> usual = RunConfig().checkpoint_freq;
  auto fits = [&](const std::vector<std::string>& list, const std::vector<std::string>& unsaid) {
    return list == unsaid || list.size() == wanted;
  };
  if (!fits(frequencies, usual) || !fits(counts, {})) {
    throw UsageError(cat("these lists must have equal lengths: --checkpoint_dir has ", count,
                         ", --checkpoint_freq has ", frequencies.size(),
                         ", --num_kept_checkpoints has ", counts.size(),
                         "; give one of each for every directory"));
  }
  if (count > kMaxCheckpointTiers)
    throw UsageError(cat("--checkpoint_dir has ", count, " directories: give ", kMaxCheckpointTiers,
                         " at most"));
  std::vector<CheckpointTier> tiers;
  for (size_t i = 0; i < count; ++i) {
    if (directories[i].empty()) throw UsageError("--checkpoint_dir has an entry without a name");
    const std::string whole = whole_name(directories[i]);
    for (size_t other = 0; other < i; ++other)
      if (whole_name(directories[other]) == whole)
        throw UsageError(cat("--checkpoint_dir names '", directories[other], "' twice",
                             directories[i] == directories[other]
                                 ? ""
                                 : cat(", the second time as '", directories[i], "'")));
    const std::string& every = frequencies[frequencies.size() == count ? i : 0];
    auto interval = parse_checkpoint_interval(every);
    if (!interval) throw UsageError(cat("--checkpoint_freq '", every, "' is no interval"));
    const std::string kept = counts.empty() ? "None" : counts[i];
    tiers.push_back({directories[i], *interval, parse_number<int64_t>(kept).value_or(0)});
  }
  return tiers;
}

}  // namespace tessera
