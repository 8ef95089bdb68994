#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The names in a checkpoint directory and what may be removed from it. A checkpoint NAME is
// `{model_type}-{step}steps`. Two other names appear beside it for a moment:
//   NAME.tmp-MAKER  being written, or being removed, by a process (base/process_identity.h); never
//                   loaded
//   NAME.replaced   the older checkpoint of the same step while the new one takes its place; as
//                   good as NAME itself as long as NAME is not there

struct CheckpointEntry {
  std::filesystem::path path;
  std::string model_type;
  int64_t step = 0;
  bool replaced = false;
  std::string maker = {};  // of a NAME.tmp-MAKER; empty for the others
};

std::string checkpoint_name(std::string_view model_type, int64_t step);

// nullopt for the name of anything else.
std::optional<CheckpointEntry> parse_checkpoint_name(const std::filesystem::path& path);

// Whether a file directly in a checkpoint is one of its own by its name, or is such a file while it
// is written aside.
bool is_checkpoint_file(std::string_view name);

// Checkpoints and their temporary forms in `directory`, newest step first, a final name before its
// replaced one. UserError if the directory cannot be read.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& directory);

// Why the directory is not a whole checkpoint, or the whole part of one that its host wrote, judged
// by its manifest and the sizes of its files; nullopt if it is one. Hashes are checked when it is
// read.
std::optional<std::string> incomplete_reason(const std::filesystem::path& checkpoint);

// Whether it was replaced, and the newer one of its step is whole.
bool is_superseded(const CheckpointEntry& entry);

// Removes the files of a checkpoint, then its directory, out of sight first so that no half of it
// is ever found. Files that are not a checkpoint's own stay, with their directory.
void remove_checkpoint(const std::filesystem::path& checkpoint);

// Removes what was left half written or half removed in `directory`: by this process and those that
// have certainly ended; by all, for the holder of the directory's lock.
enum class Leftovers { kOfEndedProcesses, kAll };
void remove_leftovers(const std::filesystem::path& directory,
                      Leftovers which = Leftovers::kOfEndedProcesses);

// The newest complete checkpoint in `directory` that `run` has not written: of another run, and, if
// `run` is empty, any; where there is none then, one that was damaged since. One without an
// identity may be anybody's: it counts in the second case only.
std::optional<std::filesystem::path> checkpoint_of_another_run(
    const std::filesystem::path& directory, std::string_view run);

// Puts the finished directory `temporary` in the place of `final`, so that at every moment one
// complete checkpoint of the step is found, and flushes the directory. UserError if it fails.
void move_into_place(const std::filesystem::path& temporary, const std::filesystem::path& final);

// Removes all but the newest `num_kept` complete checkpoints of the model type that `run` wrote (0:
// none), always keeping `written`, which may not be there yet, and, beside them, the one named
// `also`; returns the names of those that went. What cannot be removed is warned about.
std::vector<std::string> remove_old_checkpoints(const std::filesystem::path& written,
                                                std::string_view run, int64_t num_kept,
                                                std::string_view also = "");

}  // namespace tessera
