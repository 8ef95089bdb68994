#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// What makes a directory a checkpoint: written last, it names every other file with its size and
// hash. As JSON:
//   {"format": "tessera checkpoint", "version": 1, "run": "32 digits", "job": "32 digits",
//    "files": [{"name": "state.safetensors", "bytes": 123, "xxh3": "00112233445566ff"}, ...],
//    "xxh3": "of the above"}
// Older ones lack run, job and the last hash.
struct ManifestFile {
  std::string name;  // a plain file name inside the checkpoint, or `tokenizer/` and one
  uint64_t bytes = 0;
  uint64_t hash = 0;  // XXH3, 64 bits
};

// Who wrote a checkpoint; 32 hexadecimal digits each, empty in checkpoints from before there were
// identities.
struct CheckpointOrigin {
  std::string run;  // a training run from its first step on, over all its stops and resumes
  std::string job;  // of this run the processes that wrote it, with their restarts by one agent
};

struct Manifest {
  std::vector<ManifestFile> files;
  CheckpointOrigin origin = {};
};

inline constexpr std::string_view kManifestName = "manifest.json";

std::string to_json(const Manifest& manifest);

// Inverse of to_json. UserError that names `file` for anything else: broken JSON, another format or
// a newer version, a missing field, a file name that leads out of the directory or appears twice, a
// last hash that is not that of the rest.
Manifest parse_manifest(std::string_view json, std::string_view file);

// Reads `{checkpoint}/manifest.json`. UserError as parse_manifest, or when it cannot be read.
Manifest read_manifest(const std::filesystem::path& checkpoint);

}  // namespace tessera
