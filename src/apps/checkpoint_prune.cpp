#include <algorithm>
#include <cstdio>
#include <memory>

#include "apps/checkpoint_command.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "checkpoint/directory_lock.h"
#include "checkpoint/places.h"
#include "checkpoint/pruning.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

void say(const char* what, const fs::path& path, const std::string& reason) {
  std::printf("%-14s%s  %s\n", what, path.filename().c_str(), reason.c_str());
}

}  // namespace

int prune_checkpoints(const ParsedOptions& parsed) {
  const RunConfig& config = parsed.config;
  if (parsed.words.size() != 2) {
    throw UsageError("checkpoint prune takes one directory: tessera checkpoint prune DIR --keep N");
  }
  if (!config.keep)
    throw UsageError("checkpoint prune needs --keep N: how many of the newest checkpoints stay");
  const fs::path directory = parsed.words[1];
  if (!is_stored_folder(directory))
    throw UserError(cat("'", directory.string(), "' is no directory"));
  if (is_stored(directory / kManifestName)) {
    throw UserError(
        cat("'", directory.string(), "' is a checkpoint; give the directory that it is in"));
  }
  PruningRule rule{*config.keep, config.every, {}};
  if (config.keep_best) {
    rule.best = [](const fs::path& newest) {
      return record_of(CheckpointReader(newest)).best_checkpoint;
    };
  }
  const bool dry = config.dry_run;
  const char* removal = dry ? "would remove" : "removed";
  std::vector<CheckpointEntry> leftovers = list_checkpoints(directory);
  std::erase_if(leftovers, [](const CheckpointEntry& entry) { return entry.maker.empty(); });
  int64_t freed = 0;
  for (const CheckpointEntry& entry : leftovers) freed += bytes_below(entry.path);
  // Whoever holds it removes what others have left.
  std::unique_ptr<CheckpointLock> lock;
  if (!dry) {
    lock = lock_checkpoints(directory, {random_id(), 0});
  } else if (auto seen = find_lock(directory)) {
    TESSERA_WARN(cat("'", directory.string(), "' is held by ", seen->holder,
                     ": nothing is removed there while it lives"));
  }
  std::vector<PruningChoice> choices = choose_for_pruning(directory, rule);
  for (const PruningChoice& choice : choices)
    if (!choice.goes) say("keeps", choice.entry.path, choice.reason);
  for (const CheckpointEntry& entry : leftovers) {
    if (dry || !is_stored(entry.path)) {
      say(removal, entry.path, "leftover");
    } else {
      say("keeps", entry.path, "leftover with files that tessera did not write");
      freed -= bytes_below(entry.path);
    }
  }
  // Oldest first: at every moment the newest ones are there.
  std::ranges::reverse(choices);
  for (const PruningChoice& choice : choices) {
    if (!choice.goes) continue;
    const fs::path& path = choice.entry.path;
    int64_t bytes = bytes_below(path);
    if (lock) {
      lock->require_held();
      remove_checkpoint(path);
    }
    const bool foreign = lock && is_stored(path);
    if (foreign) bytes -= bytes_below(path);
    say(removal, path,
        cat(choice.reason, ", ", format_bytes(bytes),
            foreign ? "; files that tessera did not write stay" : ""));
    freed += bytes;
  }
  std::printf("%s %s\n", dry ? "would free" : "freed", format_bytes(freed).c_str());
  return 0;
}

}  // namespace tessera
