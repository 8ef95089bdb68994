#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace tessera {

// The files in which one process writes what it has of the state, copies left out.
//
// They are safetensors: under the name of each tensor one box of it. PyTorch's
// HuggingFaceStorageReader puts the boxes of all files together: their begins are in the metadata,
// in its form. Where a process has several boxes of a tensor (the end of a row that another began)
// the next ones are in a second and third file. "state.safetensors", or of several processes
// "state-00002-of-00004.safetensors", then "state-00002-of-00004-b.safetensors".
class StateFiles {
 public:
  StateFiles(std::span<const StateBox> state, int rank, int ranks);

  // Memory that holds all files as they will be on disk.
  int64_t staging_bytes() const;
  // Fills such memory from where the boxes are, which may change afterwards, and says what
  // write_staged() writes: a manifest of these files and boxes alone.
  Manifest stage(std::span<std::byte> memory) const;
  void write_staged(const std::filesystem::path& directory,
                    std::span<const std::byte> staged) const;

  // Both at once, without that memory.
  Manifest write(const std::filesystem::path& directory) const;

 private:
  struct File {
    std::string name, beginning;
    std::vector<StateBox> boxes;    // in the order of the file
    std::vector<uint64_t> offsets;  // of them
    uint64_t bytes = 0;
    uint64_t staged_at = 0;
  };
  static uint64_t bytes_of(const StateBox& box) {
    return static_cast<uint64_t>(box.box.elements() * size_of(box.dtype));
  }
  static void lay_out(File& file);
  class Content;
  Manifest manifest(std::span<const std::vector<uint64_t>> hashes) const;

  std::vector<File> files_;
};

}  // namespace tessera
