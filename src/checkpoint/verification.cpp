#include "checkpoint/verification.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interruption.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/places.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kReadAtOnce = 4 << 20;
constexpr const char* kOtherHash = "has another hash than when it was written";

// A box of a tensor as a range of bytes of a file.
struct BoxBytes {
  const ManifestTensor* tensor = nullptr;
  const StoredBox* stored = nullptr;
  uint64_t begin = 0, end = 0;
};

// Hashes the boxes of a file, which do not overlap, and all of it or all but them, as its bytes
// come by.
class FileHashes {
 public:
  FileHashes(std::span<const BoxBytes> boxes, bool rest_only)
      : boxes_(boxes), rest_only_(rest_only) {
    hasher_.emplace();
  }

  // The bytes from `at` on. Calls wrong(box) for those of another hash.
  void add(uint64_t at, std::span<const std::byte> bytes,
           const std::function<void(const BoxBytes&)>& wrong) {
    const uint64_t end = at + bytes.size();
    auto add_to = [&](Hasher& hasher, uint64_t from, uint64_t to) {
      if (from < to) hasher.add(bytes.data() + (from - at), to - from);
    };
    uint64_t rest = at;  // begin of what no box has
    if (!rest_only_) add_to(file_, at, end);
    for (; next_ < boxes_.size(); ++next_, hasher_.emplace()) {
      const BoxBytes& box = boxes_[next_];
      if (rest_only_) add_to(file_, rest, std::min(box.begin, end));
      rest = std::max(rest, box.end);
      add_to(*hasher_, std::max(box.begin, at), std::min(box.end, end));
      if (box.end > end) return;  // goes on behind these bytes
      if (box.stored->hash && hasher_->digest() != *box.stored->hash) wrong(box);
    }
    if (rest_only_) add_to(file_, rest, end);
  }
  uint64_t digest() const { return file_.digest(); }

  // Those whose last byte has not come by.
  std::span<const BoxBytes> rest() const { return boxes_.subspan(next_); }

 private:
  std::span<const BoxBytes> boxes_;
  bool rest_only_;
  size_t next_ = 0;
  std::optional<Hasher> hasher_;  // of the next box
  Hasher file_;
};

// "; 3 boxes of tensors are lost, the first of 'lm_head.weight'"
std::string lost(std::span<const BoxBytes> boxes) {
  if (boxes.empty()) return "";
  return cat("; ", boxes.size(), boxes.size() == 1 ? " box" : " boxes", " of tensors ",
             boxes.size() == 1 ? "is" : "are", " lost, the first of '", boxes[0].tensor->name, "'");
}

class Verifier {
 public:
  Verifier(const fs::path& checkpoint, int threads,
           const std::function<void(int64_t, int64_t)>& progress)
      : checkpoint_(checkpoint), threads_(threads), progress_(progress) {}

  CheckpointVerification run() {
    if (!open_manifest()) return std::move(result_);
    find_overlaps_in_tensors();
    find_boxes_of_files();
    const std::vector<ManifestFile>& files = manifest_.files;
    for (const ManifestFile& file : files) result_.bytes += static_cast<int64_t>(file.bytes);
    result_.files = std::ssize(files);
    found_.resize(files.size());
    ThreadPool pool(std::clamp(threads_, 1, std::max(1, static_cast<int>(files.size()))));
    pool.run(std::ssize(files), [&](int64_t i, int) { check_file(static_cast<size_t>(i)); });
    for (std::vector<CheckpointDamage>& damages : found_)
      std::ranges::move(damages, std::back_inserter(result_.damages));
    find_foreign("");
    return std::move(result_);
  }

 private:
  // False if nothing can be checked without it.
  bool open_manifest() {
    std::string name(kManifestName);
    if (!is_stored_file(checkpoint_ / name)) {
      result_.damages.push_back({name, "", {}, "is missing: nothing else can be checked"});
      return false;
    }
    try {
      manifest_ = read_manifest(checkpoint_);
    } catch (const UserError& e) {
      result_.damages.push_back({name, "", {}, cat(e.what(), "; nothing else can be checked")});
      return false;
    }
    if (std::ranges::count(manifest_.files, kRunName, &ManifestFile::name) == 0)
      result_.damages.push_back({name, "", {}, cat("does not name '", kRunName, "'")});
    return true;
  }

  void find_overlaps_in_tensors() {
    result_.tensors = std::ssize(manifest_.tensors);
    for (const ManifestTensor& tensor : manifest_.tensors) {
      check_interruption();
      result_.boxes += std::ssize(tensor.boxes);
      std::vector<TensorBox> boxes;
      for (const StoredBox& stored : tensor.boxes) boxes.push_back(stored.box);
      if (auto overlap = find_overlap(boxes)) {
        result_.damages.push_back({std::string(kManifestName), tensor.name, boxes[overlap->first],
                                   cat("overlaps ", to_string(boxes[overlap->second]))});
      }
    }
  }

  void find_boxes_of_files() {
    boxes_.resize(manifest_.files.size());
    for (const ManifestTensor& tensor : manifest_.tensors) {
      for (const StoredBox& stored : tensor.boxes) {
        auto bytes = static_cast<uint64_t>(stored.box.elements() * size_of(tensor.dtype));
        boxes_[stored.file].push_back({&tensor, &stored, stored.offset, stored.offset + bytes});
      }
    }
    for (size_t i = 0; i < boxes_.size(); ++i) {
      std::ranges::stable_sort(boxes_[i], {},
                               [](const BoxBytes& b) { return std::pair(b.begin, b.end); });
      uint64_t end = 0;
      std::erase_if(boxes_[i], [&](const BoxBytes& b) {
        bool overlaps = b.begin < end;
        if (overlaps) {
          result_.damages.push_back(
              {std::string(kManifestName), b.tensor->name, b.stored->box,
               cat("has bytes of '", manifest_.files[i].name, "' that another box has, too")});
        }
        end = std::max(end, b.end);
        return overlaps;
      });
    }
  }

  void check_file(size_t index) {
    const ManifestFile& expected = manifest_.files[index];
    auto report = [&](std::string what, const BoxBytes* box = nullptr) {
      CheckpointDamage damage{expected.name, "", {}, std::move(what)};
      if (box) {
        damage.tensor = box->tensor->name;
        damage.box = box->stored->box;
      }
      found_[index].push_back(std::move(damage));
    };
    const fs::path path = checkpoint_ / expected.name;
    if (!is_stored_file(path)) {
      const bool away = manifest_.is_elsewhere(index) && !is_stored(path);
      report(cat(away              ? "is in the part of another host"
                 : is_stored(path) ? "is no plain file"
                                   : "is missing",
                 lost(boxes_[index])));
      return add_progress(expected.bytes);
    }
    FileHashes hashes(boxes_[index], manifest_.hashes_rest());
    uint64_t done = 0;
    try {
      const auto file = open_content(path, expected.bytes);
      const uint64_t bytes = std::min(file->size(), expected.bytes);
      std::vector<std::byte> piece(std::min(kReadAtOnce, bytes));
      for (; done < bytes; done += std::min(kReadAtOnce, bytes - done)) {
        check_interruption();
        auto part = std::span(piece).first(std::min(kReadAtOnce, bytes - done));
        file->read(done, part);
        hashes.add(done, part, [&](const BoxBytes& box) { report(kOtherHash, &box); });
        add_progress(part.size());
      }
      if (file->size() != expected.bytes) {
        report(
            cat("has ", file->size(), " bytes instead of ", expected.bytes, lost(hashes.rest())));
      } else if (hashes.digest() != expected.hash && found_[index].empty()) {
        bool has_header = expected.name.ends_with(".safetensors") && !boxes_[index].empty();
        report(cat(has_header ? "header or padding " : "", kOtherHash));
      }
    } catch (const UserError& e) {
      report(cat(e.what(), lost(hashes.rest())));
    }
    add_progress(expected.bytes - std::min(done, expected.bytes));
  }

  void add_progress(uint64_t bytes) {
    if (!progress_) return;
    std::lock_guard lock(mutex_);
    done_ += static_cast<int64_t>(bytes);
    progress_(done_, result_.bytes);
  }

  // In the checkpoint, then in the folders of attached files, which are not empty if `folder` is
  // "tokenizer/".
  void find_foreign(const std::string& folder) {
    std::set<std::string> names;
    std::error_code error;
    fs::directory_iterator it;
    if (!is_in_bucket(checkpoint_)) {
      it = fs::directory_iterator(checkpoint_ / folder, error);
    } else {
      for (const BucketFile& file : files_below(checkpoint_)) names.insert(file.name);
    }
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      std::error_code ignored;
      bool is_folder = it->is_directory(ignored) && !it->is_symlink(ignored);
      names.insert(cat(folder, it->path().filename().string(), is_folder ? "/" : ""));
    }
    for (const std::string& name : names) {
      bool known = name == kManifestName ||
                   std::ranges::count(manifest_.files, name, &ManifestFile::name) > 0;
      if (known) continue;
      if (name == cat(kTokenizerFolder, "/") || name == cat(kDataFolder, "/"))
        find_foreign(name);
      else
        result_.foreign.push_back(name);
    }
  }

  const fs::path& checkpoint_;
  const int threads_;
  const std::function<void(int64_t, int64_t)>& progress_;
  Manifest manifest_;
  std::vector<std::vector<BoxBytes>> boxes_;          // by file, in their order
  std::vector<std::vector<CheckpointDamage>> found_;  // by file
  CheckpointVerification result_;
  std::mutex mutex_;  // of what follows
  int64_t done_ = 0;
};

}  // namespace

std::string to_string(const CheckpointDamage& damage) {
  if (damage.tensor.empty()) return cat(damage.file, ": ", damage.what);
  return cat(damage.file, ": tensor '", damage.tensor, "' ", to_string(damage.box), " ",
             damage.what);
}

CheckpointVerification verify_checkpoint(const fs::path& checkpoint, int threads,
                                         const std::function<void(int64_t, int64_t)>& progress) {
  return Verifier(checkpoint, threads, progress).run();
}

}  // namespace tessera
