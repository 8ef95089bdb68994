#include "checkpoint/pruning.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "checkpoint/places.h"

namespace tessera {
namespace fs = std::filesystem;

std::vector<PruningChoice> choose_for_pruning(const fs::path& directory, const PruningRule& rule) {
  TESSERA_CHECK(rule.keep >= 1 && rule.every.value_or(1) >= 1);
  struct Run {
    int64_t kept = 0;
    std::string best;
  };
  std::map<std::pair<std::string, std::string>, Run> runs;  // by model type and identity
  std::vector<PruningChoice> choices;
  for (CheckpointEntry& entry : list_checkpoints(directory)) {
    if (!entry.maker.empty()) continue;
    PruningChoice& choice = choices.emplace_back(PruningChoice{std::move(entry), false, ""});
    const CheckpointEntry& one = choice.entry;
    if (!is_in_bucket(one.path) && fs::is_symlink(one.path)) {
      choice.reason = "a link";
    } else if (is_superseded(one)) {
      choice.goes = true;
      choice.reason = "replaced";
    } else if (auto reason = incomplete_reason(one.path)) {
      choice.reason = "not complete: " + *reason;
    } else {
      Run& run = runs[{one.model_type, read_manifest(one.path).origin.run}];
      if (run.kept == 0 && rule.best) run.best = rule.best(one.path);
      if (run.kept < rule.keep) {
        ++run.kept;
        choice.reason = run.kept == 1 ? "newest" : cat("newest ", rule.keep);
      } else if (rule.every && one.step % *rule.every == 0) {
        choice.reason = cat("every ", *rule.every);
      } else if (!run.best.empty() && run.best == checkpoint_name(one.model_type, one.step)) {
        choice.reason = "best";
      } else {
        choice.goes = true;
        choice.reason = "older";
      }
    }
  }
  return choices;
}

}  // namespace tessera
