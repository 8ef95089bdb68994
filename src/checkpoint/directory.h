#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The names in a checkpoint directory and what may be removed from it. A checkpoint NAME is
// `{model_type}-{step}steps`. Two other names appear beside it for a moment:
//   NAME.tmp-PID    being written, or being removed, by process PID; never loaded
//   NAME.replaced   the older checkpoint of the same step while the new one takes its place; as
//   good
//                   as NAME itself as long as NAME is not there

struct CheckpointEntry {
  std::filesystem::path path;
  std::string model_type;
  int64_t step = 0;
  bool replaced = false;
  pid_t writer = 0;  // of a NAME.tmp-PID; 0 for the others
};

std::string checkpoint_name(std::string_view model_type, int64_t step);

// nullopt for the name of anything else.
std::optional<CheckpointEntry> parse_checkpoint_name(const std::filesystem::path& path);

// Why the directory is not a whole checkpoint, judged by its manifest and the sizes of its files;
// nullopt if it is one. Hashes are checked when it is read.
std::optional<std::string> incomplete_reason(const std::filesystem::path& checkpoint);

// Removes the files of a checkpoint, then its directory, out of sight first so that no half of it
// is ever found. Files that are not a checkpoint's own stay, with their directory.
void remove_checkpoint(const std::filesystem::path& checkpoint);

// Removes what processes that are gone left half written or half removed in `directory`.
void remove_leftovers(const std::filesystem::path& directory);

// Puts the finished directory `temporary` in the place of `final`, so that at every moment one
// complete checkpoint of the step is found, and flushes the directory. UserError if it fails.
void move_into_place(const std::filesystem::path& temporary, const std::filesystem::path& final);

// Removes all but the newest `num_kept` complete checkpoints of the model type (0: none), always
// keeping `written`. What cannot be removed is warned about.
void remove_old_checkpoints(const std::filesystem::path& written, int64_t num_kept);

}  // namespace tessera
