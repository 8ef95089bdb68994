#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/state_files.h"

namespace tessera {

// A checkpoint of these boxes.
inline std::filesystem::path save_boxes(
    const std::filesystem::path& directory, const std::string& model, int64_t step,
    const std::vector<StateBox>& boxes, const std::string& run_json = "{}",
    const Retention& retention = {}, const CheckpointOrigin& origin = {},
    const std::vector<AttachedFile>& attached = {}, const CheckpointGroup& group = {}) {
  StateFiles files(boxes, group.rank, group.ranks);
  auto write = [&](const std::filesystem::path& to) { return files.write(to); };
  return save_checkpoint(directory, {model, step, write, run_json, origin, attached}, retention,
                         group);
}

}  // namespace tessera
