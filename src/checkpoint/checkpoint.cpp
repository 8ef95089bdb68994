#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kOk = "ok";

// Runs one part of the work in every process and tells the others how it went: either all go on,
// with the results of all, or all throw.
std::vector<std::string> together(const CheckpointGroup& group,
                                  const std::function<std::string()>& work) {
  std::string result;
  try {
    result = cat(kOk, work());
  } catch (const UserError& error) {
    if (group.ranks == 1) throw;
    result = error.what();
  }
  if (group.ranks == 1) return {result.substr(kOk.size())};
  std::vector<std::string> all = group.exchange(result);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].starts_with(kOk)) throw UserError(cat("rank ", rank, ": ", all[rank]));
    all[rank] = all[rank].substr(kOk.size());
  }
  return all;
}

// One line of a manifest on its way to the first process.
std::string to_text(const ManifestFile& file) {
  return cat(file.name, "\n", file.bytes, "\n", file.hash);
}
ManifestFile manifest_file(const std::string& text) {
  auto lines = split(text, '\n');
  return {std::string(lines.at(0)), std::stoull(std::string(lines.at(1))),
          std::stoull(std::string(lines.at(2)))};
}

// Throws what the caller's file system says of the file, too.
void check_hash(const fs::path& path, const ManifestFile& expected) {
  MappedFile file(path);
  if (file.size() != expected.bytes) {
    throw UserError(cat("'", path.string(), "' has ", file.size(), " bytes, the manifest says ",
                        expected.bytes));
  }
  Hasher hasher;
  constexpr size_t kWindow = size_t{64} << 20;  // of which no more is in memory
  for (size_t at = 0; at < file.size(); at += kWindow) {
    size_t bytes = std::min(kWindow, file.size() - at);
    hasher.add(file.data() + at, bytes);
    file.advise(at, bytes, Advice::kDone);
  }
  uint64_t hash = hasher.digest();
  if (hash != expected.hash) {
    throw UserError(cat("'", path.string(), "' has hash ", hex(hash), ", the manifest says ",
                        hex(expected.hash)));
  }
}

int state_files(const Manifest& manifest) {
  return static_cast<int>(std::ranges::count_if(
      manifest.files, [](const ManifestFile& file) { return file.name.starts_with("state"); }));
}

std::string describe(DType dtype, const Shape& shape) {
  return cat(name(dtype), " ", to_string(shape));
}

}  // namespace

TensorSink::TensorSink(void* data)
    : write_([data](std::span<const std::byte> content) {
        if (!content.empty()) std::memcpy(data, content.data(), content.size());
      }) {}

std::string state_name(const CheckpointGroup& group) {
  if (group.parts == 1) return std::string(kStateName);
  return format("state-%05d-of-%05d.safetensors", group.part + 1, group.parts);
}

int checkpoint_parts(const fs::path& checkpoint) { return state_files(read_manifest(checkpoint)); }

fs::path save_checkpoint(const fs::path& directory, std::string_view model_type, int64_t step,
                         std::span<const TensorView> tensors, std::string_view run_json,
                         const Retention& retention, const CheckpointGroup& group,
                         const CheckpointOrigin& origin, std::span<const AttachedFile> attached) {
  TESSERA_CHECK(retention.num_kept >= 0);
  fs::path final = directory / checkpoint_name(model_type, step);
  std::optional<TemporaryDirectory> temporary;  // of the first process
  std::string aside = together(group, [&]() -> std::string {
    if (group.rank > 0) return "";
    make_directories(directory);
    remove_leftovers(directory);
    if (!origin.run.empty() && !incomplete_reason(final)) {
      std::string other = read_manifest(final).origin.run;
      if (!other.empty() && other != origin.run) {
        throw UserError(cat("'", final.string(), "' belongs to another run, ", other,
                            ": it is not overwritten"));
      }
    }
    temporary.emplace(fs::path(final) += cat(".tmp-", unique_suffix()));
    return temporary->path().string();
  })[0];
  std::vector<std::string> written = together(group, [&]() -> std::string {
    if (!group.writes) return "";
    std::string name = state_name(group);
    FileDigest digest = write_safetensors(fs::path(aside) / name, tensors);
    return to_text({name, digest.bytes, digest.hash});
  });
  together(group, [&]() -> std::string {
    if (group.rank > 0) return "";
    Manifest manifest{{}, origin};
    for (const std::string& file : written) {
      if (!file.empty()) manifest.files.push_back(manifest_file(file));
    }
    for (ManifestFile& file : write_attached(temporary->path(), attached))
      manifest.files.push_back(std::move(file));
    write_file_atomic(temporary->path() / kRunName, run_json);
    manifest.files.push_back({std::string(kRunName), run_json.size(), hash_text(run_json)});
    write_file_atomic(temporary->path() / kManifestName, to_json(manifest));
    move_into_place(temporary->path(), final);
    return "";
  });
  temporary.reset();
  if (group.rank == 0) remove_old_checkpoints(final, retention.num_kept, retention.also);
  return final;
}

CheckpointReader::CheckpointReader(fs::path checkpoint, const CheckpointGroup& group)
    : path_(std::move(checkpoint)) {
  Manifest manifest = read_manifest(path_);
  origin_ = manifest.origin;
  std::string state = state_name(group);
  int64_t parts = state_files(manifest);
  if (parts > 0 && parts != group.parts) {
    throw UserError(
        cat("checkpoint '", path_.string(), "' has ", parts, parts == 1 ? " part" : " parts",
            ", this run has ", group.parts,
            ": resume with the number of ranks and the sharding that it was saved with"));
  }
  std::vector<std::string> all_needed{state, std::string(kRunName)};
  for (const ManifestFile& file : manifest.files) {
    if (is_attached_name(file.name)) all_needed.push_back(file.name);
  }
  for (const std::string& needed : all_needed) {
    auto file = std::ranges::find(manifest.files, needed, &ManifestFile::name);
    if (file == manifest.files.end()) {
      throw UserError(cat("'", (path_ / kManifestName).string(), "' does not name '", needed, "'"));
    }
    try {
      check_hash(path_ / file->name, *file);
    } catch (const UserError& error) {
      throw DamagedCheckpoint(cat(error.what(), ": the checkpoint is damaged, use another one"));
    }
  }
  run_json_ = read_file(path_ / kRunName);
  state_.emplace(path_ / state);
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
    buffers[i].data.write(bytes);
    state_->advise(*sources[i], 0, bytes.size(), Advice::kDone);
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
