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
#include "base/error.h"
#include "base/shape.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace tessera {

inline constexpr std::string_view kStateName = "state.safetensors";
inline constexpr std::string_view kRunName = "run.json";

// The processes that write or read a checkpoint together, on one file system. `exchange` is called
// by all of them at the same points and gives the texts of all, by rank.
struct CheckpointGroup {
  int rank = 0, ranks = 1;
  // Ranks with the same number have the same state: the first of them writes it.
  int part = 0, parts = 1;
  bool writes = true;
  std::function<std::vector<std::string>(const std::string& text)> exchange;
};

// "state.safetensors", or of several parts "state-00001-of-00004.safetensors".
std::string state_name(const CheckpointGroup& group);

// Which older checkpoints of a model type stay when one has been written.
struct Retention {
  Retention(int64_t newest = 0, std::string best = "") : num_kept(newest), also(std::move(best)) {}
  int64_t num_kept;  // the newest so many complete ones; 0: all
  std::string also;  // and, beside them, the one of this name
};

// Writes the checkpoint `{directory}/{model_type}-{step}steps/` and returns its path. `tensors` is
// the whole state of the run, `run_json` what else the caller wants back.
//
// Everything is written and flushed under another name and then renamed: killed at any point, or
// with the disk full, what was complete before is still found by newest_complete_checkpoint. A
// checkpoint of the same step is replaced. After that older checkpoints of this model type and run
// are removed as `retention` says; the one just written stays in any case. One process or group at
// a time saves in a directory: DirectoryLock sees to that. UserError with path and cause, in all
// processes, when one of them cannot write; nothing of it is left then. Of several processes each
// writes its own part, the first what belongs to all, `attached` among it.
std::filesystem::path save_checkpoint(const std::filesystem::path& directory,
                                      std::string_view model_type, int64_t step,
                                      std::span<const TensorView> tensors,
                                      std::string_view run_json, const Retention& retention = {},
                                      const CheckpointGroup& group = {},
                                      const CheckpointOrigin& origin = {},
                                      std::span<const AttachedFile> attached = {});

// The newest complete checkpoint by step: `path` itself if that is one, else of those in it;
// nullopt if there is none or the path does not exist. Newer ones that are not complete are skipped
// with the warning `{dir}/manifest.json not found. Skipping this incomplete checkpoint`, those that
// are not `wanted` without one. UserError if `path` is a file or cannot be read.
std::optional<std::filesystem::path> newest_complete_checkpoint(
    const std::filesystem::path& path,
    const std::function<bool(const std::filesystem::path&)>& wanted = {});

// How many parts a complete checkpoint has: CheckpointGroup::parts of those that wrote it.
int checkpoint_parts(const std::filesystem::path& checkpoint);

// Where the bytes of a tensor that is read go: into memory, or wherever a function puts them.
class TensorSink {
 public:
  using Write = std::function<void(std::span<const std::byte> content)>;
  TensorSink(void* data);
  TensorSink(Write write) : write_(std::move(write)) {}
  void write(std::span<const std::byte> content) const { write_(content); }

 private:
  Write write_;
};

// Where the caller wants a tensor to go; C-contiguous.
struct TensorBuffer {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  TensorSink data = nullptr;
};

// A file of a checkpoint is missing or not what was written; an older checkpoint may be whole.
struct DamagedCheckpoint : UserError {
  using UserError::UserError;
};

// A complete checkpoint, its files checked against the manifest's hashes.
class CheckpointReader {
 public:
  // Reads what belongs to all and the part of this process. DamagedCheckpoint that names the file
  // which is missing, damaged or of another size; UserError for a checkpoint of another number of
  // parts.
  explicit CheckpointReader(std::filesystem::path checkpoint, const CheckpointGroup& group = {});

  const std::filesystem::path& path() const { return path_; }
  const std::string& run_json() const { return run_json_; }
  const CheckpointOrigin& origin() const { return origin_; }
  const SafetensorsFile& state() const { return *state_; }

  // Fill the buffers. Names, element types and shapes must agree exactly, and load_all also wants
  // every tensor of the checkpoint to have a buffer. Otherwise UserError, which names the first
  // tensor that does not fit and both its types and shapes, before any buffer is touched.
  void load_all(std::span<const TensorBuffer> buffers) const;
  void load_some(std::span<const TensorBuffer> buffers) const;

 private:
  std::vector<const TensorInfo*> match(std::span<const TensorBuffer> buffers) const;

  std::filesystem::path path_;
  std::string run_json_;
  CheckpointOrigin origin_;
  std::optional<SafetensorsFile> state_;
};

}  // namespace tessera
