#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "checkpoint/manifest.h"

namespace tessera {

// A file of a checkpoint is missing or not what was written; an older checkpoint may be whole.
struct DamagedCheckpoint : UserError {
  using UserError::UserError;
};

// What a process wants of a tensor. `write` takes elements of the box, row-major from `first` on;
// calls come in any order.
struct StateTarget {
  using Write = std::function<void(int64_t first, std::span<const std::byte> content)>;
  std::string tensor;
  DType dtype = DType::kF32;
  Shape shape;  // of the whole tensor
  TensorBox box;
  Write write;
};

// A checkpoint is the part that a host wrote, and what is asked for is in the part of another.
struct PartElsewhere : UserError {
  using UserError::UserError;
};

// A box that is stored: indices into Manifest::tensors and ManifestTensor::boxes.
struct BoxIndex {
  size_t tensor = 0, box = 0;
  auto operator<=>(const BoxIndex&) const = default;
};

// A complete checkpoint, of any number of processes: whoever reads it asks for the boxes that it
// needs, and only their bytes are read. Several threads may read at once; with a pool it uses
// those, and targets are written to by several of them at once.
class CheckpointReader {
 public:
  // Reads the manifest, run.json and the attached files. DamagedCheckpoint that names the file
  // which is missing, damaged or of another size.
  explicit CheckpointReader(std::filesystem::path checkpoint);

  const std::filesystem::path& path() const { return path_; }
  const std::string& run_json() const { return run_json_; }
  const Manifest& manifest() const { return manifest_; }
  const CheckpointOrigin& origin() const { return manifest_.origin; }
  // nullptr if there is none of that name.
  const ManifestTensor* find(std::string_view tensor) const;

  // Checkpoints from before manifests said where tensors are: what the caller knows of its state
  // files, whose boxes have no hash. The files are checked as wholes first: DamagedCheckpoint.
  void verify_files() const;
  void set_tensors(std::vector<ManifestTensor> tensors);

  // Whether what is stored is what was written, by the hashes of boxes: of those whose first
  // element lies in a target, so that processes which share out a tensor check every box once.
  // DamagedCheckpoint that names tensor and file.
  void verify(std::span<const StateTarget> targets, ThreadPool* pool = nullptr) const;
  void verify(const ManifestTensor& tensor, const StoredBox& stored) const;

  // Names, shapes and element types of the targets must be those of the checkpoint, but f32, bf16
  // and f16 become each other. load_all also wants every tensor of the checkpoint, counters aside,
  // to have a target, if with an empty box. Otherwise UserError, which names the first tensor that
  // does not fit and both its types and shapes, before any target is written to.
  //
  // Every byte is read once. Boxes that verify() would look at are read whole, and what is written
  // to targets are the bytes that were hashed; of other boxes it is the ranges that are needed, and
  // the process that has their first element knows whether they are whole. DamagedCheckpoint as of
  // verify(), when targets hold what is good for nothing.
  void load_all(std::span<const StateTarget> targets, ThreadPool* pool = nullptr) const;
  void load_some(std::span<const StateTarget> targets, ThreadPool* pool = nullptr) const;
  // Elements of a box of the tensor, as they are stored. Looks at no hash.
  void read(const ManifestTensor& tensor, const TensorBox& box,
            const StateTarget::Write& write) const;

  // Of the part of a host: boxes that the targets need and that are not in its files. Reading them
  // throws PartElsewhere until they are supplied with the bytes as they are stored.
  std::vector<BoxIndex> missing_boxes(std::span<const StateTarget> targets) const;
  bool has_file(size_t file) const;
  uint64_t bytes_of(BoxIndex box) const;
  std::string stored_bytes(BoxIndex box) const;
  void supply(BoxIndex box, std::string bytes);
  // PartElsewhere unless it has been supplied.
  void require(BoxIndex box) const;

  // Of state files, so far.
  int64_t bytes_read() const { return bytes_read_; }

 private:
  // A stored box, and which targets want something of it.
  struct NeededBox {
    const ManifestTensor* tensor = nullptr;
    const StoredBox* stored = nullptr;
    std::vector<size_t> targets;
    bool verified = false;  // its first element is in one of them
  };
  void check_fit(std::span<const StateTarget> targets) const;
  std::vector<NeededBox> needed_boxes(std::span<const StateTarget> targets) const;
  void load(const NeededBox& box, std::span<const StateTarget> targets) const;
  void require_hash(const ManifestTensor& tensor, const StoredBox& stored,
                    const Hasher& seen) const;
  const ByteSource& file(size_t index) const;
  void read_bytes(size_t file, uint64_t offset, uint64_t bytes,
                  const std::function<void(uint64_t, std::span<const std::byte>)>& take) const;

  std::filesystem::path path_;
  std::string run_json_;
  Manifest manifest_;
  mutable std::atomic<int64_t> bytes_read_ = 0;
  mutable std::mutex mutex_;  // of the files, which are opened when they are first read
  mutable std::map<size_t, std::unique_ptr<ByteSource>> files_;
  std::map<std::pair<size_t, uint64_t>, std::string> supplied_;  // by file and offset
};

}  // namespace tessera
