#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/verification.h"

namespace tessera {

// One in the middle of a file.
inline void flip_a_bit(const std::filesystem::path& file) {
  std::string content = read_file(file);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  write_file_atomic(file, content);
}

// Flips so many single bits of a checkpoint, one at a time, in all its files: verify_checkpoint()
// finds each, and names the tensor and box that has the byte, or else the file.
inline void expect_flipped_bits_named(const std::filesystem::path& checkpoint, int flips,
                                      uint64_t seed) {
  const Manifest manifest = read_manifest(checkpoint);
  std::vector<std::string> names{std::string(kManifestName)};
  for (const ManifestFile& file : manifest.files) names.push_back(file.name);
  int in_tensors = 0, in_headers = 0, elsewhere = 0;
  for (int flip = 0; flip < flips; ++flip) {
    auto draw = [&](uint64_t stream, uint64_t bound) {
      return random_below(seed, stream, static_cast<uint64_t>(flip), bound);
    };
    const std::string& name = names[draw(0, names.size())];
    const std::string content = read_file(checkpoint / name);
    if (content.empty()) continue;
    const uint64_t at = draw(1, content.size());
    std::string flipped = content;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << draw(2, 8)));
    std::ofstream(checkpoint / name) << flipped;
    const CheckpointVerification result = verify_checkpoint(checkpoint);
    std::ofstream(checkpoint / name) << content;

    SCOPED_TRACE(name + ", byte " + std::to_string(at));
    ASSERT_EQ(result.damages.size(), 1u);
    const CheckpointDamage& damage = result.damages[0];
    EXPECT_EQ(damage.file, name);
    std::string tensor;
    TensorBox box;
    for (const ManifestTensor& t : manifest.tensors) {
      for (const StoredBox& stored : t.boxes) {
        auto bytes = static_cast<uint64_t>(stored.box.elements() * size_of(t.dtype));
        if (manifest.files[stored.file].name != name || at < stored.offset ||
            at >= stored.offset + bytes)
          continue;
        tensor = t.name;
        box = stored.box;
      }
    }
    EXPECT_EQ(damage.tensor, tensor);
    EXPECT_EQ(damage.box, box);
    const bool state = name.ends_with(".safetensors");
    EXPECT_EQ(damage.what.starts_with("header or padding"), state && tensor.empty());
    (tensor.empty() ? state ? in_headers : elsewhere : in_tensors) += 1;
  }
  EXPECT_GT(in_tensors, flips / 100);
  EXPECT_GT(in_headers, flips / 100);
  EXPECT_GT(elsewhere, flips / 100);
  EXPECT_TRUE(verify_checkpoint(checkpoint).damages.empty());
}

}  // namespace tessera
