#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_box.h"

namespace tessera {

inline constexpr std::string_view kStateName = "state.safetensors";
inline constexpr std::string_view kRunName = "run.json";

// The processes that write a checkpoint together, on one file system. `exchange` is called by all
// of them at the same points and gives the texts of all, by rank. `long_work` runs what may take
// longer than a call of exchange may, in all of them.
struct CheckpointGroup {
  int rank = 0, ranks = 1;
  // The one that makes the directory which this one writes to: of one that all see the first, else
  // the first that sees it.
  int first_here = 0;
  std::function<std::vector<std::string>(const std::string& text)> exchange = {};
  std::function<void(const std::function<void()>& work)> long_work =
      [](const std::function<void()>& work) { work(); };
};

// What a process has of a tensor of the state, C-contiguous.
struct StateBox {
  std::string tensor;
  TensorRole role = TensorRole::kWeight;
  DType dtype = DType::kF32;
  Shape shape;  // of the whole tensor
  TensorBox box;
  TensorBytes data = nullptr;
  bool is_copy = false;  // another process has the same and writes it
};

// Which older checkpoints of a model type stay when one has been written.
struct Retention {
  Retention(int64_t newest = 0, std::string best = "", bool is_last = false)
      : num_kept(newest), also(std::move(best)), last(is_last) {}
  int64_t num_kept;  // the newest so many complete ones; 0: all
  std::string also;  // and, beside them, the one of this name
  bool last;         // of its run: on a full disk fewer stay, so that it finds room
};

// What goes into a checkpoint, of this process.
struct CheckpointContent {
  std::string model_type;
  int64_t step = 0;
  // Writes the state files of this process into a directory and says what is where:
  // StateFiles::write().
  std::function<Manifest(const std::filesystem::path&)> write_state;
  std::string run_json;  // what else the caller wants back
  CheckpointOrigin origin = {};
  std::vector<AttachedFile> attached = {};
  // In every process, when it is whole: removing older ones, which may take as long, follows.
  std::function<void()> on_complete = {};
};

// Writes the checkpoint `{directory}/{model_type}-{step}steps/` and returns its path.
//
// Everything is written and flushed under another name and then renamed: killed at any point, or
// with the disk full, what was complete before is still found by newest_complete_checkpoint. A
// checkpoint of the same step is replaced. After that older checkpoints of this model type and run
// are removed as `retention` says; the one just written stays in any case. One process or group at
// a time saves in a directory: DirectoryLock sees to that. UserError with path and cause, in all
// processes, when one of them cannot write; nothing of it is left then. Of several processes each
// writes its own boxes, in files of its own, the first what belongs to all, `attached` among it; it
// calls `check` before all else.
std::filesystem::path save_checkpoint(const std::filesystem::path& directory,
                                      const CheckpointContent& content,
                                      const Retention& retention = {},
                                      const CheckpointGroup& group = {},
                                      const std::function<void()>& check = {});

// The newest complete checkpoint by step: `path` itself if that is one, else of those in it;
// nullopt if there is none or the path does not exist. Newer ones that are not complete are skipped
// with the warning `{dir}/manifest.json not found. Skipping this incomplete checkpoint`, those that
// are not `wanted` without one. UserError if `path` is a file or cannot be read.
std::optional<std::filesystem::path> newest_complete_checkpoint(
    const std::filesystem::path& path,
    const std::function<bool(const std::filesystem::path&)>& wanted = {});

// The newest of what newest_complete_checkpoint() finds at each of the places, by the steps in
// their names; of equal ones the first. Of several places one that cannot be read is warned about.
std::optional<std::filesystem::path> newest_of_all(
    std::span<const std::string> places,
    const std::function<bool(const std::filesystem::path&)>& wanted = {});

// What is wrong with a checkpoint at one of the places that was whole once: every one that has its
// final name was. nullopt where all are whole, or there is none.
std::optional<std::string> find_damaged_checkpoint(std::span<const std::string> places);

}  // namespace tessera
