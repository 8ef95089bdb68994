#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/directory.h"

namespace tessera {

// Which checkpoints of a directory stay. Of every run and model type on its own: the newest `keep`
// complete ones, beside them those whose step is a multiple of `every`, and the one that `best`
// names, which is given the newest complete one.
struct PruningRule {
  int64_t keep = 1;
  std::optional<int64_t> every;
  std::function<std::string(const std::filesystem::path& newest)> best = {};
};

struct PruningChoice {
  CheckpointEntry entry;
  bool goes = false;
  std::string reason;  // why it stays or goes, in a few words
};

// Newest step first, without what is half written or half removed. What is not complete stays, and
// so do links; of two checkpoints of one step the replaced one goes if the other is complete.
// UserError if the directory cannot be read.
std::vector<PruningChoice> choose_for_pruning(const std::filesystem::path& directory,
                                              const PruningRule& rule);

}  // namespace tessera
