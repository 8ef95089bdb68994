#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/tensor_box.h"

namespace tessera {

// Something in a checkpoint that is not what was written, as near to its place as hashes tell.
struct CheckpointDamage {
  std::string file;    // inside the checkpoint: "state.safetensors"
  std::string tensor;  // in whose bytes it is, if in any's
  TensorBox box;       // of this tensor
  std::string what;    // "has another hash than when it was written"
};

// "state.safetensors: tensor 'lm_head.weight' [0:300, 0:64] has another hash than ..."
std::string to_string(const CheckpointDamage& damage);

struct CheckpointVerification {
  std::vector<CheckpointDamage> damages;  // none: the checkpoint is whole
  std::vector<std::string> foreign;       // files that are no part of it; they do no harm
  int64_t files = 0, tensors = 0, boxes = 0, bytes = 0;  // of which the manifest tells
};

// Reads all files of a checkpoint, several at once, and compares them with the hashes in the
// manifest: of boxes, so that the tensor is named; of whole files, so that every bit counts. Looks
// besides whether boxes overlap, in tensors and in files. What is damaged, missing or cannot be
// read is a part of the result. `progress` hears of bytes read and to be read, from one thread at a
// time.
CheckpointVerification verify_checkpoint(
    const std::filesystem::path& checkpoint, int threads = 1,
    const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace tessera
