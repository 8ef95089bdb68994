#include "checkpoint/checkpoint_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/element_types.h"
#include "base/text.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/places.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kChunk = 256 << 10;  // stays in a core's cache until it is used
// So much is on its way from the disk while what came before is hashed and copied: loading 1.3 GB
// that were not in the page cache took 0.83 of the time, by the median of 9 pairs.
constexpr uint64_t kAhead = 8 << 20;

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

void run_all(ThreadPool* pool, size_t tasks, const std::function<void(size_t)>& task) {
  if (pool)
    return pool->run(static_cast<int64_t>(tasks),
                     [&](int64_t i, int) { task(static_cast<size_t>(i)); });
  for (size_t i = 0; i < tasks; ++i) task(i);
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

DamagedCheckpoint not_whole(const fs::path& checkpoint, const ManifestTensor& tensor) {
  return DamagedCheckpoint(cat("checkpoint '", checkpoint.string(), "' has no whole tensor '",
                               tensor.name, "': its manifest is damaged"));
}

// Elements that follow each other in a stored box and in what is written to.
struct CommonRun {
  int64_t from = 0, to = 0, count = 0;
  size_t write = 0;
};

// Has the kernel fetch bytes of a file of this machine; does nothing for others.
class ReadAhead {
 public:
  explicit ReadAhead(const fs::path& path)
      : fd_(is_in_bucket(path) ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~ReadAhead() {
    if (fd_ >= 0) ::close(fd_);
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  // In pieces, since the kernel takes no more at once than it reads ahead of itself.
  void fetch(uint64_t offset, uint64_t bytes) const {
    for (uint64_t at = 0; fd_ >= 0 && at < bytes; at += kChunk)
      ::posix_fadvise(fd_, static_cast<off_t>(offset + at),
                      static_cast<off_t>(std::min(kChunk, bytes - at)), POSIX_FADV_WILLNEED);
  }

 private:
  int fd_;
};

// Runs what reads the checkpoint's files.
template <class Work>
void reading(const Work& work) {
  try {
    work();
  } catch (const DamagedCheckpoint&) {
    throw;
  } catch (const PartElsewhere&) {
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

bool CheckpointReader::has_file(size_t file) const {
  return !manifest_.is_elsewhere(file) || is_stored(path_ / manifest_.files[file].name);
}

std::vector<BoxIndex> CheckpointReader::missing_boxes(std::span<const StateTarget> targets) const {
  std::set<BoxIndex> missing;
  if (manifest_.elsewhere.empty()) return {};
  for (const StateTarget& target : targets) {
    const ManifestTensor* tensor = find(target.tensor);
    if (!tensor || tensor->shape.size() != target.shape.size()) continue;  // loading says so
    for (size_t b = 0; b < tensor->boxes.size(); ++b) {
      const StoredBox& stored = tensor->boxes[b];
      const bool needed = common_elements(stored.box, target.box) > 0;
      if ((needed || contains(target.box, stored.box.begin)) && !has_file(stored.file))
        missing.insert({static_cast<size_t>(tensor - manifest_.tensors.data()), b});
    }
  }
  return {missing.begin(), missing.end()};
}

uint64_t CheckpointReader::bytes_of(BoxIndex box) const {
  const ManifestTensor& tensor = manifest_.tensors.at(box.tensor);
  return static_cast<uint64_t>(tensor.boxes.at(box.box).box.elements() * size_of(tensor.dtype));
}

std::string CheckpointReader::stored_bytes(BoxIndex box) const {
  const StoredBox& stored = manifest_.tensors.at(box.tensor).boxes.at(box.box);
  std::string bytes(bytes_of(box), '\0');
  read_bytes(stored.file, stored.offset, bytes.size(),
             [&](uint64_t at, std::span<const std::byte> part) {
               std::memcpy(bytes.data() + at, part.data(), part.size());
             });
  return bytes;
}

void CheckpointReader::supply(BoxIndex box, std::string bytes) {
  const StoredBox& stored = manifest_.tensors.at(box.tensor).boxes.at(box.box);
  if (bytes.size() != bytes_of(box)) return;  // it stays missing
  supplied_[{stored.file, stored.offset}] = std::move(bytes);
}

void CheckpointReader::require(BoxIndex box) const {
  const StoredBox& stored = manifest_.tensors.at(box.tensor).boxes.at(box.box);
  if (!supplied_.contains({stored.file, stored.offset})) file(stored.file);
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
  if (!has_file(index)) {
    throw PartElsewhere(cat("checkpoint '", path_.string(), "' is the part of one host: '",
                            expected.name, "' is in the part of another"));
  }
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
  auto supplied = supplied_.upper_bound({index, offset});
  if (supplied != supplied_.begin() && (--supplied)->first.first == index &&
      offset + bytes <= supplied->first.second + supplied->second.size())
    return take(
        0,
        std::as_bytes(std::span(supplied->second)).subspan(offset - supplied->first.second, bytes));
  thread_local std::vector<std::byte> chunk;
  const ByteSource& source = file(index);
  if (chunk.size() < std::min(kChunk, bytes)) chunk.resize(std::min(kChunk, bytes));
  std::optional<ReadAhead> ahead;
  if (bytes > kChunk)
    ahead.emplace(path_ / manifest_.files[index].name).fetch(offset, std::min(kAhead, bytes));
  for (uint64_t done = 0; done < bytes; done += kChunk) {
    if (bytes - done > kAhead)
      ahead->fetch(offset + done + kAhead, std::min(kChunk, bytes - done - kAhead));
    auto part = std::span(chunk).first(std::min(kChunk, bytes - done));
    source.read(offset + done, part);
    take(done, part);
  }
  bytes_read_ += static_cast<int64_t>(bytes);
}

void CheckpointReader::require_hash(const ManifestTensor& tensor, const StoredBox& stored,
                                    const Hasher& seen) const {
  if (!stored.hash || seen.digest() == stored.hash) return;
  throw UserError(cat("'", (path_ / manifest_.files[stored.file].name).string(), "': tensor '",
                      tensor.name, "' ", to_string(stored.box), " has hash ", hex(seen.digest()),
                      ", the manifest says ", hex(*stored.hash)));
}

void CheckpointReader::verify(const ManifestTensor& tensor, const StoredBox& stored) const {
  if (!stored.hash) return;
  Hasher hasher;
  auto bytes = static_cast<uint64_t>(stored.box.elements() * size_of(tensor.dtype));
  reading([&] {
    read_bytes(stored.file, stored.offset, bytes, [&](uint64_t, std::span<const std::byte> part) {
      hasher.add(part.data(), part.size());
    });
    require_hash(tensor, stored, hasher);
  });
}

void CheckpointReader::verify(std::span<const StateTarget> targets, ThreadPool* pool) const {
  std::vector<std::pair<const ManifestTensor*, const StoredBox*>> boxes;
  for (const StateTarget& target : targets) {
    const ManifestTensor* tensor = find(target.tensor);
    if (!tensor || tensor->shape.size() != target.shape.size()) continue;  // loading says so
    for (const StoredBox& stored : tensor->boxes)
      if (contains(target.box, stored.box.begin)) boxes.emplace_back(tensor, &stored);
  }
  run_all(pool, boxes.size(), [&](size_t i) { verify(*boxes[i].first, *boxes[i].second); });
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
  if (found != box.elements()) throw not_whole(path_, tensor);
}

// In the order of the files. DamagedCheckpoint where a target has elements that no box has.
std::vector<CheckpointReader::NeededBox> CheckpointReader::needed_boxes(
    std::span<const StateTarget> targets) const {
  std::map<std::tuple<size_t, uint64_t, const StoredBox*>, NeededBox> needed;
  for (size_t t = 0; t < targets.size(); ++t) {
    const ManifestTensor& tensor = *find(targets[t].tensor);
    int64_t found = 0;
    for (const StoredBox& stored : tensor.boxes) {
      const int64_t common = common_elements(stored.box, targets[t].box);
      if (common == 0) continue;
      found += common;
      NeededBox& box = needed[{stored.file, stored.offset, &stored}];
      box.tensor = &tensor;
      box.stored = &stored;
      box.targets.push_back(t);
      box.verified |= stored.hash && contains(targets[t].box, stored.box.begin);
    }
    if (found != targets[t].box.elements()) throw not_whole(path_, tensor);
  }
  std::vector<NeededBox> boxes;
  for (auto& [place, box] : needed) boxes.push_back(std::move(box));
  return boxes;
}

void CheckpointReader::load(const NeededBox& box, std::span<const StateTarget> targets) const {
  const ManifestTensor& tensor = *box.tensor;
  const StoredBox& stored = *box.stored;
  const auto element = size_of(tensor.dtype);
  std::vector<StateTarget::Write> writes;
  std::vector<CommonRun> runs;
  for (size_t t : box.targets) {
    const StateTarget& target = targets[t];
    writes.push_back(tensor.dtype == target.dtype ? target.write : converted(tensor.dtype, target));
    for_each_common_run(stored.box, target.box, [&](int64_t from, int64_t to, int64_t count) {
      runs.push_back({from, to, count, writes.size() - 1});
    });
  }
  // Writes what is among these bytes of the box, of the runs from `next` on.
  size_t next = 0;
  auto take = [&](int64_t begin, std::span<const std::byte> part) {
    const int64_t end = begin + std::ssize(part) / element;
    for (size_t r = next; r < runs.size() && runs[r].from < end; ++r) {
      const CommonRun& run = runs[r];
      const int64_t first = std::max(begin, run.from), last = std::min(end, run.from + run.count);
      if (first < last)
        writes[run.write](run.to + first - run.from,
                          part.subspan(static_cast<size_t>((first - begin) * element),
                                       static_cast<size_t>((last - first) * element)));
      if (r == next && run.from + run.count <= end) ++next;
    }
  };
  auto read = [&](int64_t first, int64_t count, Hasher* hasher) {
    read_bytes(stored.file, stored.offset + static_cast<uint64_t>(first * element),
               static_cast<uint64_t>(count * element),
               [&](uint64_t done, std::span<const std::byte> part) {
                 if (hasher) hasher->add(part.data(), part.size());
                 take(first + static_cast<int64_t>(done) / element, part);
               });
  };
  std::ranges::sort(runs, {}, &CommonRun::from);
  reading([&] {
    if (box.verified) {
      Hasher hasher;
      read(0, stored.box.elements(), &hasher);
      require_hash(tensor, stored, hasher);
      return;
    }
    for (size_t r = 0; r < runs.size(); ++r) {
      next = r;
      read(runs[r].from, runs[r].count, nullptr);
    }
  });
}

void CheckpointReader::load_some(std::span<const StateTarget> targets, ThreadPool* pool) const {
  check_fit(targets);
  const std::vector<NeededBox> boxes = needed_boxes(targets);
  run_all(pool, boxes.size(), [&](size_t i) { load(boxes[i], targets); });
}

void CheckpointReader::load_all(std::span<const StateTarget> targets, ThreadPool* pool) const {
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
  load_some(targets, pool);
}

}  // namespace tessera
