#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/tensor_box.h"

namespace tessera {

// What makes a directory a checkpoint: written last, it names every other file with its size and
// hash, and says of every tensor of the state where its parts are. As JSON:
//   {"format": "tessera checkpoint", "version": 3, "run": "32 digits", "job": "32 digits",
//    "files": [{"name": "state.safetensors", "bytes": 123, "xxh3": "00112233445566ff"}, ...],
//    "tensors": [{"name": "lm_head.weight", "role": "weight", "dtype": "f32", "shape": [300, 64],
//      "boxes": [{"file": 0, "offset": 96, "begin": [0, 0], "shape": [150, 64], "xxh3": "..."},
//                ...]}, ...],
//    "elsewhere": [0], "xxh3": "of the above"}
// The hash of a file that has boxes is of the bytes that no box has: its header. `elsewhere`, if it
// is there, are files that hosts with a directory of their own have written.
// Version 2 has hashes of whole files. Version 1 has no tensors: its state files hold pieces as the
// mesh of the run cut them. The oldest lack run, job and the last hash, too.
struct ManifestFile {
  std::string name;  // a plain file name inside the checkpoint, or `tokenizer/` and one
  uint64_t bytes = 0;
  uint64_t hash = 0;  // XXH3, 64 bits; of what Manifest::hashes_rest() says
};

// Who wrote a checkpoint; 32 hexadecimal digits each, empty in checkpoints from before there were
// identities.
struct CheckpointOrigin {
  std::string run;  // a training run from its first step on, over all its stops and resumes
  std::string job;  // of this run the processes that wrote it, with their restarts by one agent
};

enum class TensorRole { kWeight, kMoment, kCounter, kOther };
std::string_view name(TensorRole role);  // "weight", "moment", "counter", "other"

// A part of a tensor, C-contiguous in one of the files.
struct StoredBox {
  size_t file = 0;  // index into Manifest::files
  uint64_t offset = 0;
  TensorBox box;
  std::optional<uint64_t> hash;  // XXH3; none where the caller found the box: CheckpointReader
};

// A tensor of the state under its logical name, whatever ranks wrote it: boxes that do not overlap
// make it up.
struct ManifestTensor {
  std::string name;
  TensorRole role = TensorRole::kWeight;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<StoredBox> boxes;

  int64_t bytes() const { return num_elements(shape) * size_of(dtype); }
};

struct Manifest {
  std::vector<ManifestFile> files;
  CheckpointOrigin origin = {};
  std::vector<ManifestTensor> tensors = {};
  std::vector<size_t> elsewhere = {};  // indices into `files`, increasing
  int version = 3;

  // Whether the hash of a file that has boxes is that of its other bytes.
  bool hashes_rest() const { return version > 2; }
  bool is_elsewhere(size_t file) const { return std::ranges::binary_search(elsewhere, file); }
};

// Equal for all parts of one checkpoint, wherever their hosts have them.
uint64_t identity_of(Manifest manifest);

inline constexpr std::string_view kManifestName = "manifest.json";

std::string to_json(const Manifest& manifest);

// Inverse of to_json. UserError that names `file` for anything else: broken JSON, another format or
// a newer version, a missing field, a file name that leads out of the directory or appears twice, a
// box outside of its tensor or file, boxes that are not as many elements as their tensor (unless
// `partial`: what one process wrote), a last hash that is not that of the rest.
Manifest parse_manifest(std::string_view json, std::string_view file, bool partial = false);

// Reads `{checkpoint}/manifest.json`. UserError as parse_manifest, or when it cannot be read.
Manifest read_manifest(const std::filesystem::path& checkpoint);

}  // namespace tessera
