#pragma once
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_reader.h"

namespace tessera {

// All tensors of a checkpoint in memory, put together.
class WholeState {
 public:
  explicit WholeState(const CheckpointReader& reader) : manifest_(reader.manifest()) {
    for (const ManifestTensor& t : manifest_.tensors) {
      std::vector<std::byte>& content = contents_[t.name];
      const int64_t size = size_of(t.dtype);
      content.resize(static_cast<size_t>(num_elements(t.shape) * size));
      reader.read(t, whole_box(t.shape), [&](int64_t first, std::span<const std::byte> part) {
        std::memcpy(content.data() + first * size, part.data(), part.size());
      });
    }
  }

  bool contains(const std::string& tensor) const { return contents_.contains(tensor); }
  std::vector<std::byte>& content(const std::string& tensor) { return contents_.at(tensor); }
  // To save them again.
  std::vector<StateBox> boxes() const {
    std::vector<StateBox> boxes;
    for (const ManifestTensor& t : manifest_.tensors) {
      boxes.push_back(
          {t.name, t.role, t.dtype, t.shape, whole_box(t.shape), contents_.at(t.name).data()});
    }
    return boxes;
  }
  bool operator==(const WholeState& other) const { return contents_ == other.contents_; }

 private:
  Manifest manifest_;
  std::map<std::string, std::vector<std::byte>> contents_;
};

}  // namespace tessera
