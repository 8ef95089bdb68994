#include "options/checkpoint_tiers.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

int64_t kept(const std::string& word) {
  int64_t count = 0;  // of None: all
  std::from_chars(word.data(), word.data() + word.size(), count);
  return count;
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
    if (std::ranges::count(directories, directories[i]) > 1)
      throw UsageError(cat("--checkpoint_dir names '", directories[i], "' twice"));
    const std::string& every = frequencies[frequencies.size() == count ? i : 0];
    auto interval = parse_checkpoint_interval(every);
    if (!interval) throw UsageError(cat("--checkpoint_freq '", every, "' is no interval"));
    tiers.push_back({directories[i], *interval, counts.empty() ? 0 : kept(counts[i])});
  }
  return tiers;
}

}  // namespace tessera
