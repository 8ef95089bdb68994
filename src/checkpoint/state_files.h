#pragma once
#include <filesystem>
#include <span>

#include "checkpoint/checkpoint.h"

namespace tessera {

// Writes what this process has of the state, copies left out, into files of its own in `directory`,
// and says what is where: a manifest of these files and boxes alone.
//
// The files are safetensors: under the name of each tensor one box of it. PyTorch's
// HuggingFaceStorageReader puts the boxes of all files together: their begins are in the metadata, in
// its form. Where a process has several boxes of a tensor (the end of a row that another began) the
// next ones are in a second and third file. "state.safetensors", or of several processes
// "state-00002-of-00004.safetensors", then "state-00002-of-00004-b.safetensors".
Manifest write_state_files(const std::filesystem::path& directory, std::span<const StateBox> state,
                           int rank, int ranks);

}  // namespace tessera
