#include "checkpoint/state_files.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/hash.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr uint64_t kChunk = 1 << 20;

std::string file_name(int rank, int ranks, size_t number) {
  std::string stem(kStateName.substr(0, kStateName.find('.')));
  if (ranks > 1) stem += format("-%05d-of-%05d", rank + 1, ranks);
  if (number > 0) stem += cat("-", static_cast<char>('a' + number));
  return stem + ".safetensors";
}

SafetensorsMetadata metadata_of(std::span<const StateBox* const> boxes) {
  nlohmann::json begins = nlohmann::json::object();
  for (const StateBox* b : boxes) begins[b->tensor] = {{"saved_offsets", b->box.begin}};
  return {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", begins.dump()}};
}

class StateFile {
 public:
  StateFile(const std::filesystem::path& path, std::vector<const StateBox*> boxes)
      : boxes_(by_alignment(std::move(boxes))),
        writer_(path, infos_of(boxes_), metadata_of(boxes_)),
        offset_(writer_.bytes_written()) {}

  // The box k of the file, as it was written.
  StoredBox write(size_t k) {
    const StateBox& state = *boxes_[k];
    const auto bytes = static_cast<uint64_t>(state.box.elements() * size_of(state.dtype));
    Hasher hasher;
    std::vector<std::byte> chunk(std::min(kChunk, bytes));
    for (uint64_t done = 0; done < bytes; done += kChunk) {
      auto part = std::span(chunk).first(std::min(kChunk, bytes - done));
      state.data.read(done, part);
      hasher.add(part.data(), part.size());
      writer_.write(part.data(), part.size());
    }
    StoredBox stored{0, offset_, state.box, hasher.digest()};
    offset_ += bytes;
    return stored;
  }

  const std::vector<const StateBox*>& boxes() const { return boxes_; }
  FileDigest commit() { return writer_.commit(); }

 private:
  static std::vector<const StateBox*> by_alignment(std::vector<const StateBox*> boxes) {
    std::ranges::stable_sort(boxes, std::greater{},
                             [](const StateBox* b) { return size_of(b->dtype); });
    return boxes;
  }
  static std::vector<TensorInfo> infos_of(std::span<const StateBox* const> boxes) {
    std::vector<TensorInfo> infos;
    for (const StateBox* b : boxes) infos.push_back({b->tensor, b->dtype, b->box.shape});
    return infos;
  }

  std::vector<const StateBox*> boxes_;
  SafetensorsWriter writer_;
  uint64_t offset_;
};

}  // namespace

Manifest write_state_files(const std::filesystem::path& directory, std::span<const StateBox> state,
                           int rank, int ranks) {
  std::vector<std::vector<const StateBox*>> files;
  std::map<std::string_view, size_t> number_of;  // boxes of a tensor so far
  for (const StateBox& b : state) {
    if (b.is_copy) continue;
    size_t number = number_of[b.tensor]++;
    if (number == files.size()) files.emplace_back();
    files[number].push_back(&b);
  }
  Manifest manifest;
  std::map<std::string_view, size_t> index_of;
  for (size_t number = 0; number < files.size(); ++number) {
    std::string name = file_name(rank, ranks, number);
    StateFile file(directory / name, std::move(files[number]));
    for (size_t k = 0; k < file.boxes().size(); ++k) {
      const StateBox& b = *file.boxes()[k];
      auto [it, fresh] = index_of.try_emplace(b.tensor, manifest.tensors.size());
      if (fresh) manifest.tensors.push_back({b.tensor, b.role, b.dtype, b.shape, {}});
      StoredBox stored = file.write(k);
      stored.file = number;
      manifest.tensors[it->second].boxes.push_back(std::move(stored));
    }
    FileDigest digest = file.commit();
    manifest.files.push_back({std::move(name), digest.bytes, digest.hash});
  }
  return manifest;
}

}  // namespace tessera
