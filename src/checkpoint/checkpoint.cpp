#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/places.h"

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
      result = cat(" on ", host_name(), ": ", error.what());
    }
  });
  if (group.ranks == 1) return {result.substr(kOk.size())};
  std::vector<std::string> all = group.exchange(result);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].starts_with(kOk)) throw UserError(cat("rank ", rank, all[rank]));
    all[rank] = all[rank].substr(kOk.size());
  }
  return all;
}

// Where a checkpoint is made; without finish() nothing of it stays.
class Aside {
 public:
  virtual ~Aside() = default;
  virtual const fs::path& path() const = 0;
  // Of one that has its manifest: makes it the checkpoint of its step.
  virtual void finish() = 0;
};

class DirectoryAside : public Aside {
 public:
  explicit DirectoryAside(const fs::path& final)
      : final_(final), directory_(fs::path(final) += cat(".tmp-", unique_suffix())) {}
  const fs::path& path() const override { return directory_.path(); }
  void finish() override { move_into_place(directory_.path(), final_); }

 private:
  fs::path final_;
  TemporaryDirectory directory_;
};

// Nothing can be renamed there, and the manifest alone makes it a checkpoint. Where there is a
// whole one of the step the new one is called NAME.replaced, and stays so: the other goes behind
// it.
class BucketAside : public Aside {
 public:
  explicit BucketAside(const fs::path& final) : final_(final), path_(final) {
    if (!incomplete_reason(final)) path_ += ".replaced";
    remove_checkpoint(path_);
    bucket_store().abort_uploads((path_ / "").string());
  }
  ~BucketAside() override {
    if (finished_) return;
    try {
      remove_checkpoint(path_);
    } catch (const std::exception&) {
      // The next holder of the lock removes it.
    }
  }
  const fs::path& path() const override { return path_; }
  void finish() override {
    finished_ = true;
    if (path_ != final_) remove_checkpoint(final_);
  }

 private:
  fs::path final_, path_;
  bool finished_ = false;
};

std::unique_ptr<Aside> make_aside(const fs::path& final) {
  if (is_in_bucket(final)) return std::make_unique<BucketAside>(final);
  return std::make_unique<DirectoryAside>(final);
}

// What all processes wrote, as one manifest. `is_here`: whether a rank writes to the directory of
// this process.
void add_state_files(Manifest& all, std::span<const std::string> written,
                     const std::function<bool(size_t rank)>& is_here) {
  std::map<std::string, size_t> index_of;
  for (size_t rank = 0; rank < written.size(); ++rank) {
    Manifest part = parse_manifest(written[rank], cat("of rank ", rank), /*partial=*/true);
    const size_t first_file = all.files.size();
    for (size_t i = 0; i < part.files.size() && !is_here(rank); ++i)
      all.elsewhere.push_back(first_file + i);
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

// What the first process alone has, for those that make other directories.
std::string pack(const CheckpointContent& content) {
  std::string text;
  auto add = [&](std::string_view part) { text += cat(part.size(), " ", part); };
  add(content.run_json);
  for (const AttachedFile& file : content.attached) {
    add(file.folder);
    add(file.name);
    add(file.content);
  }
  return text;
}

void unpack(std::string_view text, CheckpointContent& content) {
  auto next = [&] {
    const size_t blank = text.find(' ');
    size_t size = 0;
    for (char digit : text.substr(0, blank)) size = 10 * size + static_cast<size_t>(digit - '0');
    std::string part(text.substr(blank + 1, size));
    text.remove_prefix(blank + 1 + size);
    return part;
  };
  content.run_json = next();
  content.attached.clear();
  while (!text.empty()) {
    const std::string folder = next();
    std::string name = next();
    content.attached.push_back(
        {std::move(name), next(), folder == kDataFolder ? kDataFolder : kTokenizerFolder});
  }
}

// Errors travel between processes as text.
bool says_disk_is_full(std::string_view error) {
  return error.ends_with(std::strerror(ENOSPC)) || error.ends_with(std::strerror(EDQUOT));
}

// Of a save that found no room on the disk: whether what was to go behind it has gone ahead of it,
// or with the last save of a run the oldest one. One at least stays, and the best one, which is not
// given up before there is another.
bool make_room(const fs::path& directory, const CheckpointContent& content,
               const Retention& retention, const CheckpointGroup& group,
               const std::function<void()>& check, std::string_view error) {
  const std::string name = checkpoint_name(content.model_type, content.step);
  if (retention.num_kept < 2 || retention.also == name) return false;
  const std::vector<std::string> removed = together(group, [&]() -> std::string {
    if (group.rank != group.first_here) return "";
    const fs::path final = directory / name;
    int64_t others = retention.num_kept - (is_stored(final) ? 0 : 1);
    try {
      if (check) check();
      auto remove = [&](int64_t kept) {
        return join(remove_old_checkpoints(final, content.origin.run, kept, retention.also),
                    "', '");
      };
      std::string names = remove(others);
      others = std::min<int64_t>(others, std::ssize(list_checkpoints(directory)));
      while (names.empty() && retention.last && others > 1) names = remove(--others);
      if (!names.empty())
        TESSERA_WARN(cat(error, "; removed '", names, "' in '", directory.string(),
                         "' to make room, and it is tried once more"));
      return names;
    } catch (const UserError& other) {
      TESSERA_WARN(cat("no room is made in '", directory.string(), "': ", other.what()));
      return "";
    }
  });
  return std::ranges::any_of(removed, [](const std::string& names) { return !names.empty(); });
}

fs::path try_to_save(const fs::path& directory, const CheckpointContent& content,
                     const Retention& retention, const CheckpointGroup& group,
                     const std::function<void()>& check) {
  fs::path final = directory / checkpoint_name(content.model_type, content.step);
  const bool is_first = group.rank == group.first_here;
  std::unique_ptr<Aside> made;  // of the first process here
  // Who is first where each process is, and from that one the path.
  const std::vector<std::string> places = together(group, [&]() -> std::string {
    if (!is_first) return cat(group.first_here, " ");
    if (check) check();
    if (!is_in_bucket(directory)) make_directories(directory);
    remove_leftovers(directory);
    if (!content.origin.run.empty() && !incomplete_reason(final)) {
      std::string other = read_manifest(final).origin.run;
      if (!other.empty() && other != content.origin.run) {
        throw UserError(cat("'", final.string(), "' belongs to another run, ", other,
                            ": it is not overwritten"));
      }
    }
    made = make_aside(final);
    return cat(group.first_here, " ", made->path().string());
  });
  auto first_of = [&](size_t rank) { return std::stoi(places[rank]); };
  const std::string& own = places[static_cast<size_t>(group.first_here)];
  const std::string aside = own.substr(own.find(' ') + 1);
  const bool is_apart = std::ranges::any_of(
      places, [](const std::string& place) { return !place.starts_with("0 "); });
  CheckpointContent common = content;
  if (is_apart) {
    const std::string first =
        together(group, [&] { return group.rank == 0 ? pack(content) : std::string(); })[0];
    unpack(first, common);
  }
  std::vector<std::string> written =
      together(group, [&]() -> std::string { return to_json(content.write_state(aside)); });
  together(group, [&]() -> std::string {
    if (!is_first) return "";
    Manifest manifest{{}, content.origin};
    add_state_files(manifest, written, [&](size_t rank) { return first_of(rank) == group.rank; });
    for (ManifestFile& file : write_attached(made->path(), common.attached))
      manifest.files.push_back(std::move(file));
    write_content(made->path() / kRunName, common.run_json);
    manifest.files.push_back(
        {std::string(kRunName), common.run_json.size(), hash_text(common.run_json)});
    write_content(made->path() / kManifestName, to_json(manifest));
    made->finish();
    return "";
  });
  made.reset();
  if (is_in_bucket(final)) final = aside;
  if (content.on_complete) content.on_complete();
  // What is whole stays so, whatever becomes of the older ones: all ranks say the same of it.
  try {
    if (is_first)
      remove_old_checkpoints(final, content.origin.run, retention.num_kept, retention.also);
  } catch (const UserError& error) {
    TESSERA_WARN(cat("older checkpoints stay: ", error.what()));
  }
  return final;
}

}  // namespace

fs::path save_checkpoint(const fs::path& directory, const CheckpointContent& content,
                         const Retention& retention, const CheckpointGroup& group,
                         const std::function<void()>& check) {
  TESSERA_CHECK(retention.num_kept >= 0);
  while (true) {
    try {
      return try_to_save(directory, content, retention, group, check);
    } catch (const UserError& error) {
      if (!says_disk_is_full(error.what()) ||
          !make_room(directory, content, retention, group, check, error.what()))
        throw;
    }
  }
}

}  // namespace tessera
