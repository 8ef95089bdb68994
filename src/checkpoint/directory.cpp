#include "checkpoint/directory.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parse_number.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/places.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr std::string_view kReplacedMark = ".replaced";
constexpr std::string_view kStepsMark = "steps";

// Of a checkpoint in a bucket, which ends with its manifest: that goes first. Foreign files stay.
void remove_from_bucket(const fs::path& checkpoint) {
  std::vector<std::string> own;
  for (const BucketFile& file : files_below(checkpoint))
    if (is_checkpoint_file(file.name) || is_attached_name(file.name)) own.push_back(file.name);
  std::stable_partition(own.begin(), own.end(),
                        [](const std::string& name) { return name == kManifestName; });
  for (const std::string& name : own) bucket_store().remove((checkpoint / name).string());
}

// Checkpoints and what is left of such.
std::vector<CheckpointEntry> list_in_bucket(const fs::path& directory) {
  std::vector<CheckpointEntry> entries;
  for (const BucketFile& file : files_below(directory)) {
    const size_t slash = file.name.find('/');
    if (slash == std::string::npos) continue;
    auto entry = parse_checkpoint_name(directory / file.name.substr(0, slash));
    if (entry && entry->maker.empty() && (entries.empty() || entries.back().path != entry->path))
      entries.push_back(*std::move(entry));
  }
  return entries;
}

// What has no manifest is half written or half removed.
void remove_leftovers_in_bucket(const fs::path& directory) {
  // Of other places below it, and of what else a bucket is used for, nothing is known.
  bucket_store().abort_uploads((directory / "").string(), [](std::string_view name) {
    const size_t slash = name.find('/');
    return slash != name.npos && parse_checkpoint_name(name.substr(0, slash));
  });
  for (const CheckpointEntry& entry : list_in_bucket(directory))
    if (!is_stored_file(entry.path / kManifestName)) remove_from_bucket(entry.path);
}

// Sizes of the files of a checkpoint, by one question of a bucket.
class FileSizes {
 public:
  explicit FileSizes(const fs::path& checkpoint) : checkpoint_(checkpoint) {
    if (!is_in_bucket(checkpoint)) return;
    for (const BucketFile& file : files_below(checkpoint)) in_bucket_[file.name] = file.bytes;
  }
  uint64_t of(const std::string& name) const {
    const fs::path path = checkpoint_ / name;
    std::error_code error;
    if (is_in_bucket(checkpoint_)) {
      auto found = in_bucket_.find(name);
      if (found != in_bucket_.end()) return found->second;
      error = std::make_error_code(std::errc::no_such_file_or_directory);
    }
    const uintmax_t bytes = error ? 0 : fs::file_size(path, error);
    if (error) throw UserError(cat("cannot read '", path.string(), "': ", error.message()));
    return bytes;
  }

 private:
  const fs::path& checkpoint_;
  std::map<std::string, uint64_t> in_bucket_;
};

// Returns whether the directory is gone: not if foreign files are in it.
bool remove_own_files(const fs::path& directory) {
  remove_attached(directory);
  std::error_code error;
  std::vector<fs::path> own;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (is_checkpoint_file(it->path().filename().string())) own.push_back(it->path());
  }
  // The manifest last: what is left of a checkpoint still says what belongs to it.
  std::stable_partition(own.begin(), own.end(),
                        [](const fs::path& path) { return path.filename() != kManifestName; });
  for (const fs::path& path : own) {
    if (!error) fs::remove(path, error);
  }
  if (error) throw UserError(cat("cannot clear '", directory.string(), "': ", error.message()));
  return fs::remove(directory, error);
}

void rename_directory(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    throw UserError(
        cat("cannot move '", from.string(), "' to '", to.string(), "': ", error.message()));
  }
}

fs::path with_suffix(fs::path path, std::string_view suffix) { return path += suffix; }

// What is not a checkpoint's own, and so was not removed with it, makes room for the next one.
void put_away(const fs::path& replaced) {
  fs::path away;
  for (int number = 1; away.empty() || is_stored(away); ++number)
    away = with_suffix(replaced, cat("-", number));
  rename_directory(replaced, away);
  TESSERA_WARN(
      cat("files that tessera did not write were in a checkpoint that is replaced: they are in '",
          away.string(), "'"));
}

// Warns, once a process, unless the checkpoint is complete.
bool is_complete_or_warn(const fs::path& checkpoint) {
  std::optional<std::string> reason = incomplete_reason(checkpoint);
  if (reason) {
    TESSERA_WARN_ONCE(cat(*reason, ". Skipping this ",
                          is_stored(checkpoint / kManifestName) ? "damaged" : "incomplete",
                          " checkpoint"));
  }
  return !reason;
}

// Whether it was whole once: every one under its final name, but for what is not of a checkpoint
// at all, and for one in a bucket that was never finished: its manifest comes last.
bool was_complete(const CheckpointEntry& entry) {
  if (!entry.maker.empty()) return false;
  if (is_in_bucket(entry.path)) return is_stored_file(entry.path / kManifestName);
  std::error_code ignored;
  const fs::directory_iterator files(entry.path, ignored);
  return std::ranges::any_of(files, [](const fs::directory_entry& file) {
    return is_checkpoint_file(file.path().filename().string());
  });
}

}  // namespace

std::string checkpoint_name(std::string_view model_type, int64_t step) {
  TESSERA_CHECK(!model_type.empty() && model_type.find('/') == std::string_view::npos && step >= 0,
                cat("no checkpoint can be named after '", model_type, "' and step ", step));
  return cat(model_type, "-", step, kStepsMark);
}

std::optional<CheckpointEntry> parse_checkpoint_name(const fs::path& path) {
  CheckpointEntry entry;
  entry.path = path;
  std::string name = path.filename().string();
  std::string_view rest = name;
  if (size_t mark = rest.rfind(kTemporaryMark); mark != std::string_view::npos) {
    entry.maker = rest.substr(mark + kTemporaryMark.size());
    if (!is_unique_suffix(entry.maker)) return {};
    rest = rest.substr(0, mark);
  }
  if (rest.ends_with(kReplacedMark)) {
    entry.replaced = true;
    rest.remove_suffix(kReplacedMark.size());
  }
  if (!rest.ends_with(kStepsMark)) return {};
  rest.remove_suffix(kStepsMark.size());
  size_t dash = rest.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return {};
  auto step = parse_number<int64_t>(rest.substr(dash + 1));
  if (!step) return {};
  entry.model_type = rest.substr(0, dash);
  entry.step = *step;
  return entry;
}

bool is_checkpoint_file(std::string_view name) {
  name = name.substr(0, name.find(kTemporaryMark));
  bool is_part = name.starts_with("state-") && name.ends_with(".safetensors");
  return is_part || name == kStateName || name == kRunName || name == kManifestName;
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& directory) {
  std::vector<CheckpointEntry> entries;
  std::error_code error;
  fs::directory_iterator it;
  if (is_in_bucket(directory))
    entries = list_in_bucket(directory);
  else
    it = fs::directory_iterator(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    auto entry = parse_checkpoint_name(it->path());
    if (entry && is_stored_folder(it->path())) entries.push_back(*std::move(entry));
  }
  if (error) throw UserError(cat("cannot read '", directory.string(), "': ", error.message()));
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(b.step, a.replaced, a.path) < std::tie(a.step, b.replaced, b.path);
  });
  return entries;
}

std::optional<std::string> incomplete_reason(const fs::path& checkpoint) {
  fs::path manifest_path = checkpoint / kManifestName;
  if (is_in_bucket(checkpoint) ? !is_stored_file(manifest_path) : !is_stored(manifest_path))
    return cat(manifest_path.string(), " not found");
  try {
    const FileSizes sizes(checkpoint);
    const Manifest manifest = read_manifest(checkpoint);
    for (size_t i = 0; i < manifest.files.size(); ++i) {
      const ManifestFile& file = manifest.files[i];
      if (manifest.is_elsewhere(i) && !is_stored(checkpoint / file.name)) continue;
      const uint64_t bytes = sizes.of(file.name);
      if (bytes == file.bytes) continue;
      return cat("'", (checkpoint / file.name).string(), "' has ", bytes, " bytes instead of ",
                 file.bytes);
    }
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

bool is_superseded(const CheckpointEntry& entry) {
  fs::path unreplaced = entry.path;
  return entry.replaced && !incomplete_reason(unreplaced.replace_extension());
}

std::optional<fs::path> newest_complete_checkpoint(
    const fs::path& path, const std::function<bool(const fs::path&)>& wanted) {
  fs::path directory = path.has_filename() ? path : path.parent_path();
  auto takes = [&](const fs::path& one) {
    return is_complete_or_warn(one) && (!wanted || wanted(one));
  };
  if (!is_stored(directory)) {
    // A crash may have come between the two renames that replace this very checkpoint.
    fs::path replaced = with_suffix(directory, kReplacedMark);
    if (is_stored(replaced) && takes(replaced)) return replaced;
    return {};
  }
  if (!is_stored_folder(directory)) {
    throw UserError(cat("'", directory.string(),
                        "' is a file; give a checkpoint or a directory of checkpoints"));
  }
  if (is_stored(directory / kManifestName)) {
    if (takes(directory)) return directory;
    return {};
  }
  bool any = false;
  for (const CheckpointEntry& entry : list_checkpoints(directory)) {
    if (!entry.maker.empty()) continue;
    any = true;
    if (takes(entry.path)) return entry.path;
  }
  // Named like a checkpoint and holding none: it was meant to be one itself.
  if (!any && parse_checkpoint_name(directory)) is_complete_or_warn(directory);
  return {};
}

std::optional<fs::path> newest_of_all(std::span<const std::string> places,
                                      const std::function<bool(const fs::path&)>& wanted) {
  std::optional<fs::path> newest;
  int64_t newest_step = 0;
  for (const std::string& place : places) {
    std::optional<fs::path> found;
    try {
      found = newest_complete_checkpoint(place, wanted);
    } catch (const UserError& error) {
      if (places.size() == 1) throw;
      TESSERA_WARN(cat(error.what(), ": no checkpoint is looked for there"));
    }
    if (!found) continue;
    const auto entry = parse_checkpoint_name(*found);
    const int64_t step = entry ? entry->step : -1;
    if (newest && step <= newest_step) continue;
    newest = std::move(found);
    newest_step = step;
  }
  return newest;
}

std::optional<std::string> find_damaged_checkpoint(std::span<const std::string> places) {
  for (const std::string& place : places) {
    const fs::path path(place), directory = path.has_filename() ? path : path.parent_path();
    if (!is_stored_folder(directory)) continue;
    std::vector<CheckpointEntry> entries;
    try {
      entries = list_checkpoints(directory);
    } catch (const UserError&) {
      continue;  // of several places one may not be there
    }
    auto itself = parse_checkpoint_name(directory);
    if (entries.empty() && itself) entries.push_back(*std::move(itself));
    for (const CheckpointEntry& entry : entries) {
      if (!was_complete(entry)) continue;
      if (auto reason = incomplete_reason(entry.path)) return reason;
    }
  }
  return {};
}

void remove_checkpoint(const fs::path& checkpoint) {
  if (is_in_bucket(checkpoint)) return remove_from_bucket(checkpoint);
  fs::path aside = with_suffix(checkpoint, cat(kTemporaryMark, unique_suffix()));
  rename_directory(checkpoint, aside);
  if (!remove_own_files(aside)) rename_directory(aside, checkpoint);
}

std::optional<fs::path> checkpoint_of_another_run(const fs::path& directory, std::string_view run) {
  std::optional<fs::path> damaged;
  for (const CheckpointEntry& entry : list_checkpoints(directory)) {
    if (!was_complete(entry)) continue;
    if (incomplete_reason(entry.path)) {
      if (run.empty() && !damaged) damaged = entry.path;
      continue;
    }
    std::string other = read_manifest(entry.path).origin.run;
    if (run.empty() || (!other.empty() && other != run)) return entry.path;
  }
  return damaged;
}

void remove_leftovers(const fs::path& directory, Leftovers which) {
  if (is_in_bucket(directory)) {
    // There they have no maker: who holds the lock knows that they are nobody's.
    if (which == Leftovers::kAll) remove_leftovers_in_bucket(directory);
    return;
  }
  for (const CheckpointEntry& entry : list_checkpoints(directory)) {
    if (entry.maker.empty()) continue;
    if (which != Leftovers::kAll && !made_here(entry.maker) && !maker_has_ended(entry.maker))
      continue;
    try {
      remove_own_files(entry.path);
    } catch (const UserError& error) {
      TESSERA_WARN(error.what());
    }
  }
}

void move_into_place(const fs::path& temporary, const fs::path& final) {
  // Not an exchange of the two names: NFS and Lustre do not know it.
  fs::path replaced = with_suffix(final, kReplacedMark);
  if (is_stored(final)) {
    if (is_stored(replaced)) remove_checkpoint(replaced);
    if (is_stored(replaced)) put_away(replaced);
    rename_directory(final, replaced);
  }
  rename_directory(temporary, final);
  sync_directory(final.parent_path());
}

std::vector<std::string> remove_old_checkpoints(const fs::path& written, std::string_view run,
                                                int64_t num_kept, std::string_view also) {
  std::string model_type = parse_checkpoint_name(written).value().model_type;
  std::vector<std::string> removed;
  int64_t kept = 0;
  for (const CheckpointEntry& entry : list_checkpoints(written.parent_path())) {
    bool ours = entry.maker.empty() && entry.model_type == model_type &&
                (is_in_bucket(entry.path) || !fs::is_symlink(entry.path));
    if (!ours) continue;
    if (!is_superseded(entry)) {
      if (num_kept == 0) continue;  // without reading manifests, of which there may be many
      if (incomplete_reason(entry.path) || read_manifest(entry.path).origin.run != run) continue;
      if (checkpoint_name(entry.model_type, entry.step) == also && entry.path != written) continue;
      ++kept;
      if (kept <= num_kept || entry.path == written) continue;
    }
    try {
      remove_checkpoint(entry.path);
      removed.push_back(entry.path.filename().string());
    } catch (const UserError& error) {
      TESSERA_WARN(error.what());
    }
  }
  return removed;
}

}  // namespace tessera
