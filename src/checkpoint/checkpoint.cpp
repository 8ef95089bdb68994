#include "checkpoint/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// A directory that vanishes with what is in it unless it was moved away.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(fs::path path) : path_(std::move(path)) { make_directories(path_); }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write_files(const fs::path& directory, std::span<const TensorView> tensors,
                 std::string_view run_json) {
  FileDigest state = write_safetensors(directory / kStateName, tensors);
  write_file_atomic(directory / kRunName, run_json);
  Manifest manifest;
  manifest.files.push_back({std::string(kStateName), state.bytes, state.hash});
  manifest.files.push_back({std::string(kRunName), run_json.size(), hash_text(run_json)});
  write_file_atomic(directory / kManifestName, to_json(manifest));
}

void check_hash(const fs::path& path, const ManifestFile& expected) {
  MappedFile file(path);
  if (file.size() != expected.bytes) {
    throw UserError(cat("'", path.string(), "' has ", file.size(), " bytes, the manifest says ",
                        expected.bytes, ": the checkpoint is damaged, use another one"));
  }
  uint64_t hash = hash_bytes(file.data(), file.size());
  if (hash != expected.hash) {
    throw UserError(cat("'", path.string(), "' has hash ", hex(hash), ", the manifest says ",
                        hex(expected.hash), ": the checkpoint is damaged, use another one"));
  }
}

std::string describe(DType dtype, const Shape& shape) {
  return cat(name(dtype), " ", to_string(shape));
}

}  // namespace

fs::path save_checkpoint(const fs::path& directory, std::string_view model_type, int64_t step,
                         std::span<const TensorView> tensors, std::string_view run_json,
                         int64_t num_kept) {
  TESSERA_CHECK(num_kept >= 0);
  fs::path final = directory / checkpoint_name(model_type, step);
  make_directories(directory);
  remove_leftovers(directory);
  {
    TemporaryDirectory temporary(fs::path(final) += cat(".tmp-", ::getpid()));
    write_files(temporary.path(), tensors, run_json);
    move_into_place(temporary.path(), final);
  }
  remove_old_checkpoints(final, num_kept);
  return final;
}

CheckpointReader::CheckpointReader(fs::path checkpoint) : path_(std::move(checkpoint)) {
  Manifest manifest = read_manifest(path_);
  for (std::string_view needed : {kStateName, kRunName}) {
    if (std::none_of(manifest.files.begin(), manifest.files.end(),
                     [&](const ManifestFile& file) { return file.name == needed; })) {
      throw UserError(cat("'", (path_ / kManifestName).string(), "' does not name '", needed, "'"));
    }
  }
  for (const ManifestFile& file : manifest.files) check_hash(path_ / file.name, file);
  run_json_ = read_file(path_ / kRunName);
  state_.emplace(path_ / kStateName);
}

std::vector<const TensorInfo*> CheckpointReader::match(
    std::span<const TensorBuffer> buffers) const {
  std::vector<const TensorInfo*> sources;
  for (const TensorBuffer& buffer : buffers) {
    const TensorInfo* source = state_->find(buffer.name);
    if (!source) {
      throw UserError(cat("checkpoint '", path_.string(), "' does not fit: it has no tensor '",
                          buffer.name, "', expected as ", describe(buffer.dtype, buffer.shape)));
    }
    if (source->dtype != buffer.dtype || source->shape != buffer.shape) {
      throw UserError(cat("checkpoint '", path_.string(), "' does not fit: tensor '", buffer.name,
                          "' is ", describe(source->dtype, source->shape), " there, expected ",
                          describe(buffer.dtype, buffer.shape)));
    }
    sources.push_back(source);
  }
  return sources;
}

void CheckpointReader::load_some(std::span<const TensorBuffer> buffers) const {
  std::vector<const TensorInfo*> sources = match(buffers);
  for (size_t i = 0; i < buffers.size(); ++i) {
    std::span<const std::byte> bytes = state_->bytes(*sources[i]);
    if (!bytes.empty()) std::memcpy(buffers[i].data, bytes.data(), bytes.size());
  }
}

void CheckpointReader::load_all(std::span<const TensorBuffer> buffers) const {
  match(buffers);
  std::vector<std::string_view> wanted;
  for (const TensorBuffer& buffer : buffers) wanted.push_back(buffer.name);
  std::sort(wanted.begin(), wanted.end());
  for (const TensorInfo& tensor : state_->tensors()) {
    if (!std::binary_search(wanted.begin(), wanted.end(), tensor.name)) {
      throw UserError(cat("checkpoint '", path_.string(), "' does not fit: its tensor '",
                          tensor.name, "', ", describe(tensor.dtype, tensor.shape),
                          ", is not part of this run"));
    }
  }
  load_some(buffers);
}

}  // namespace tessera
