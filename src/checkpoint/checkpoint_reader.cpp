#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <utility>

#include "base/element_types.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/places.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kChunk = 4 << 20;

std::string describe(DType dtype, const Shape& shape) {
  return cat(name(dtype), " ", to_string(shape));
}

bool contains(const TensorBox& box, const Shape& element) {
  for (size_t d = 0; d < element.size(); ++d) {
    if (element[d] < box.begin[d] || element[d] >= box.begin[d] + box.shape[d]) return false;
  }
  return true;
}

// Throws what the file system says of the file, too.
void check_hash(const fs::path& path, const ManifestFile& expected) {
  const auto file = open_content(path, expected.bytes);
  if (file->size() != expected.bytes) {
    throw UserError(cat("'", path.string(), "' has ", file->size(), " bytes, the manifest says ",
                        expected.bytes));
  }
  Hasher hasher;
  std::vector<std::byte> chunk(std::min(kChunk, file->size()));
  for (uint64_t at = 0; at < file->size(); at += kChunk) {
    auto part = std::span(chunk).first(std::min(kChunk, file->size() - at));
    file->read(at, part);
    hasher.add(part.data(), part.size());
  }
  if (uint64_t hash = hasher.digest(); hash != expected.hash) {
    throw UserError(cat("'", path.string(), "' has hash ", hex(hash), ", the manifest says ",
                        hex(expected.hash)));
  }
}

StateTarget::Write converted(DType stored, const StateTarget& target) {
  return [stored, &target](int64_t first, std::span<const std::byte> content) {
    std::vector<float> values(content.size() / static_cast<size_t>(size_of(stored)));
    to_f32(stored, content.data(), values);
    std::vector<std::byte> rounded(values.size() * static_cast<size_t>(size_of(target.dtype)));
    from_f32(values, target.dtype, rounded.data());
    target.write(first, rounded);
  };
}

// Runs what reads the checkpoint's files.
template <class Work>
void reading(const Work& work) {
  try {
    work();
  } catch (const DamagedCheckpoint&) {
    throw;
  } catch (const UserError& error) {
    throw DamagedCheckpoint(cat(error.what(), ": the checkpoint is damaged, use another one"));
  }
}

}  // namespace

CheckpointReader::CheckpointReader(fs::path checkpoint)
    : path_(std::move(checkpoint)), manifest_(read_manifest(path_)) {
  bool has_record = false;
  for (const ManifestFile& file : manifest_.files) {
    has_record |= file.name == kRunName;
    if (file.name != kRunName && !is_attached_name(file.name)) continue;
    reading([&] { check_hash(path_ / file.name, file); });
  }
  if (!has_record) {
    throw UserError(cat("'", (path_ / kManifestName).string(), "' does not name '", kRunName, "'"));
  }
  run_json_ = read_content(path_ / kRunName);
}

void CheckpointReader::verify_files() const {
  for (const ManifestFile& file : manifest_.files)
    reading([&] { check_hash(path_ / file.name, file); });
}

void CheckpointReader::set_tensors(std::vector<ManifestTensor> tensors) {
  std::ranges::sort(tensors, {}, &ManifestTensor::name);
  manifest_.tensors = std::move(tensors);
}

const ManifestTensor* CheckpointReader::find(std::string_view tensor) const {
  auto found = std::ranges::lower_bound(manifest_.tensors, tensor, {}, &ManifestTensor::name);
  return found != manifest_.tensors.end() && found->name == tensor ? &*found : nullptr;
}

const ByteSource& CheckpointReader::file(size_t index) const {
  std::lock_guard lock(mutex_);
  std::unique_ptr<ByteSource>& source = files_[index];
  if (source) return *source;
  const ManifestFile& expected = manifest_.files.at(index);
  auto opened = open_content(path_ / expected.name, expected.bytes);
  if (opened->size() != expected.bytes) {
    throw UserError(cat("'", opened->name(), "' has ", opened->size(), " bytes, the manifest says ",
                        expected.bytes));
  }
  source = std::move(opened);
  return *source;
}

void CheckpointReader::read_bytes(
    size_t index, uint64_t offset, uint64_t bytes,
    const std::function<void(uint64_t, std::span<const std::byte>)>& take) const {
  thread_local std::vector<std::byte> chunk;
  const ByteSource& source = file(index);
  if (chunk.size() < std::min(kChunk, bytes)) chunk.resize(std::min(kChunk, bytes));
  for (uint64_t done = 0; done < bytes; done += kChunk) {
    auto part = std::span(chunk).first(std::min(kChunk, bytes - done));
    source.read(offset + done, part);
    take(done, part);
  }
  bytes_read_ += static_cast<int64_t>(bytes);
}

void CheckpointReader::verify(const ManifestTensor& tensor, const StoredBox& stored) const {
  if (!stored.hash) return;
  Hasher hasher;
  auto bytes = static_cast<uint64_t>(stored.box.elements() * size_of(tensor.dtype));
  reading([&] {
    read_bytes(stored.file, stored.offset, bytes, [&](uint64_t, std::span<const std::byte> part) {
      hasher.add(part.data(), part.size());
    });
    if (hasher.digest() == stored.hash) return;
    throw UserError(cat("'", (path_ / manifest_.files[stored.file].name).string(), "': tensor '",
                        tensor.name, "' ", to_string(stored.box), " has hash ",
                        hex(hasher.digest()), ", the manifest says ", hex(*stored.hash)));
  });
}

void CheckpointReader::verify(std::span<const StateTarget> targets) const {
  for (const StateTarget& target : targets) {
    const ManifestTensor* tensor = find(target.tensor);
    if (!tensor || tensor->shape.size() != target.shape.size()) continue;  // loading says so
    for (const StoredBox& stored : tensor->boxes)
      if (contains(target.box, stored.box.begin)) verify(*tensor, stored);
  }
}

void CheckpointReader::check_fit(std::span<const StateTarget> targets) const {
  for (const StateTarget& target : targets) {
    const ManifestTensor* tensor = find(target.tensor);
    if (!tensor) {
      throw UserError(cat("checkpoint '", path_.string(), "' does not fit: it has no tensor '",
                          target.tensor, "', expected as ", describe(target.dtype, target.shape)));
    }
    bool fits = tensor->dtype == target.dtype ||
                (is_weight_dtype(tensor->dtype) && is_weight_dtype(target.dtype));
    if (!fits || tensor->shape != target.shape) {
      throw UserError(cat("checkpoint '", path_.string(), "' does not fit: tensor '", target.tensor,
                          "' is ", describe(tensor->dtype, tensor->shape), " there, expected ",
                          describe(target.dtype, target.shape)));
    }
  }
}

void CheckpointReader::read(const ManifestTensor& tensor, const TensorBox& box,
                            const StateTarget::Write& write) const {
  const auto element = size_of(tensor.dtype);
  int64_t found = 0;
  for (const StoredBox& stored : tensor.boxes) {
    found += for_each_common_run(stored.box, box, [&](int64_t from, int64_t to, int64_t count) {
      read_bytes(stored.file, stored.offset + static_cast<uint64_t>(from * element),
                 static_cast<uint64_t>(count * element),
                 [&](uint64_t done, std::span<const std::byte> part) {
                   write(to + static_cast<int64_t>(done) / element, part);
                 });
    });
  }
  if (found != box.elements()) {
    throw DamagedCheckpoint(cat("checkpoint '", path_.string(), "' has no whole tensor '",
                                tensor.name, "': its manifest is damaged"));
  }
}

void CheckpointReader::load_some(std::span<const StateTarget> targets) const {
  check_fit(targets);
  for (const StateTarget& target : targets) {
    const ManifestTensor& tensor = *find(target.tensor);
    read(tensor, target.box,
         tensor.dtype == target.dtype ? target.write : converted(tensor.dtype, target));
  }
}

void CheckpointReader::load_all(std::span<const StateTarget> targets) const {
  check_fit(targets);
  std::vector<std::string_view> wanted;
  for (const StateTarget& target : targets) wanted.push_back(target.tensor);
  std::ranges::sort(wanted);
  for (const ManifestTensor& tensor : manifest_.tensors) {
    if (tensor.role == TensorRole::kCounter) continue;
    if (!std::ranges::binary_search(wanted, tensor.name)) {
      throw UserError(cat("checkpoint '", path_.string(), "' does not fit: its tensor '",
                          tensor.name, "', ", describe(tensor.dtype, tensor.shape),
                          ", is not part of this run"));
    }
  }
  load_some(targets);
}

}  // namespace tessera
