#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
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
  group.long_work([&] {
    try {
      result = cat(kOk, work());
    } catch (const UserError& error) {
      if (group.ranks == 1) throw;
      result = error.what();
    }
  });
  if (group.ranks == 1) return {result.substr(kOk.size())};
  std::vector<std::string> all = group.exchange(result);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].starts_with(kOk)) throw UserError(cat("rank ", rank, ": ", all[rank]));
    all[rank] = all[rank].substr(kOk.size());
  }
  return all;
}

// What all processes wrote, as one manifest.
void add_state_files(Manifest& all, std::span<const std::string> written) {
  std::map<std::string, size_t> index_of;
  for (size_t rank = 0; rank < written.size(); ++rank) {
    Manifest part = parse_manifest(written[rank], cat("of rank ", rank), /*partial=*/true);
    const size_t first_file = all.files.size();
    std::ranges::move(part.files, std::back_inserter(all.files));
    for (ManifestTensor& tensor : part.tensors) {
      auto [found, fresh] = index_of.try_emplace(tensor.name, all.tensors.size());
      if (fresh) all.tensors.push_back({tensor.name, tensor.role, tensor.dtype, tensor.shape, {}});
      ManifestTensor& whole = all.tensors[found->second];
      TESSERA_CHECK(whole.shape == tensor.shape && whole.dtype == tensor.dtype,
                    cat("ranks disagree on '", tensor.name, "'"));
      for (StoredBox& stored : tensor.boxes) {
        stored.file += first_file;
        whole.boxes.push_back(std::move(stored));
      }
    }
  }
  std::ranges::sort(all.tensors, {}, &ManifestTensor::name);
}

}  // namespace

fs::path save_checkpoint(const fs::path& directory, const CheckpointContent& content,
                         const Retention& retention, const CheckpointGroup& group,
                         const std::function<void()>& check) {
  TESSERA_CHECK(retention.num_kept >= 0);
  fs::path final = directory / checkpoint_name(content.model_type, content.step);
  std::optional<TemporaryDirectory> temporary;  // of the first process
  std::string aside = together(group, [&]() -> std::string {
    if (group.rank > 0) return "";
    if (check) check();
    make_directories(directory);
    remove_leftovers(directory);
    if (!content.origin.run.empty() && !incomplete_reason(final)) {
      std::string other = read_manifest(final).origin.run;
      if (!other.empty() && other != content.origin.run) {
        throw UserError(cat("'", final.string(), "' belongs to another run, ", other,
                            ": it is not overwritten"));
      }
    }
    temporary.emplace(fs::path(final) += cat(".tmp-", unique_suffix()));
    return temporary->path().string();
  })[0];
  std::vector<std::string> written =
      together(group, [&]() -> std::string { return to_json(content.write_state(aside)); });
  together(group, [&]() -> std::string {
    if (group.rank > 0) return "";
    Manifest manifest{{}, content.origin};
    add_state_files(manifest, written);
    for (ManifestFile& file : write_attached(temporary->path(), content.attached))
      manifest.files.push_back(std::move(file));
    write_file_atomic(temporary->path() / kRunName, content.run_json);
    manifest.files.push_back(
        {std::string(kRunName), content.run_json.size(), hash_text(content.run_json)});
    write_file_atomic(temporary->path() / kManifestName, to_json(manifest));
    move_into_place(temporary->path(), final);
    return "";
  });
  temporary.reset();
  // What is whole stays so, whatever becomes of the older ones: all ranks say the same of it.
  try {
    if (group.rank == 0) remove_old_checkpoints(final, retention.num_kept, retention.also);
  } catch (const UserError& error) {
    TESSERA_WARN(cat("older checkpoints stay: ", error.what()));
  }
  return final;
}

}  // namespace tessera
