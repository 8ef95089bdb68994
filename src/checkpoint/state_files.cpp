#include "checkpoint/state_files.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/streaming_copy.h"
#include "base/text.h"
#include "checkpoint/places.h"
#include "checkpoint/safetensors.h"

namespace tessera {
namespace {

constexpr uint64_t kPiece = 4 << 20;     // written at once
constexpr uint64_t kAtOnce = 256 << 10;  // hashed: still in a core's cache when it is copied
constexpr uint64_t kAlignment = 4096;    // of staged files, as disks want it

std::string file_name(int rank, int ranks, size_t number) {
  std::string stem(kStateName.substr(0, kStateName.find('.')));
  if (ranks > 1) stem += format("-%05d-of-%05d", rank + 1, ranks);
  if (number > 0) stem += cat("-", static_cast<char>('a' + number));
  return stem + ".safetensors";
}

SafetensorsMetadata metadata_of(std::span<const StateBox> boxes) {
  nlohmann::json begins = nlohmann::json::object();
  for (const StateBox& b : boxes) begins[b.tensor] = {{"saved_offsets", b.box.begin}};
  return {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", begins.dump()}};
}

struct Piece {
  alignas(kAlignment) std::byte bytes[kPiece];
};

}  // namespace

// The bytes of a file, in order, and the hashes of its boxes. Each byte is read from where its box
// is once, and hashed on its way.
class StateFiles::Content {
 public:
  explicit Content(const File& file) : file_(file) { hasher_.emplace(); }

  // The next ones.
  void read(std::span<std::byte> to) {
    if (at_ < file_.beginning.size()) {
      const uint64_t n = std::min<uint64_t>(to.size(), file_.beginning.size() - at_);
      std::memcpy(to.data(), file_.beginning.data() + at_, n);
      advance(to, n);
    }
    while (!to.empty()) {
      const StateBox& box = file_.boxes[hashes_.size()];
      const uint64_t done = at_ - file_.offsets[hashes_.size()];
      const uint64_t n = std::min({uint64_t{to.size()}, bytes_of(box) - done, kAtOnce});
      if (const std::byte* data = box.data.data()) {
        hasher_->add(data + done, n);
        streaming_copy(to, std::span(data + done, n));
      } else {
        box.data.read(done, to.first(n));
        hasher_->add(to.data(), n);
      }
      advance(to, n);
    }
  }

  // Of a file read to its end.
  std::vector<uint64_t> hashes() {
    TESSERA_CHECK(hashes_.size() == file_.boxes.size());
    return std::move(hashes_);
  }

 private:
  void advance(std::span<std::byte>& to, uint64_t bytes) {
    to = to.subspan(bytes);
    at_ += bytes;
    if (at_ < file_.beginning.size()) return;
    for (size_t k = hashes_.size(); k < file_.boxes.size(); ++k, hasher_.emplace()) {
      if (at_ < file_.offsets[k] + bytes_of(file_.boxes[k])) return;
      hashes_.push_back(hasher_->digest());
    }
  }

  const File& file_;
  uint64_t at_ = 0;
  std::vector<uint64_t> hashes_;  // of the boxes that are behind
  std::optional<Hasher> hasher_;  // of the next one
};

StateFiles::StateFiles(std::span<const StateBox> state, int rank, int ranks) {
  std::map<std::string_view, size_t> number_of;  // boxes of a tensor so far
  for (const StateBox& b : state) {
    if (b.is_copy) continue;
    size_t number = number_of[b.tensor]++;
    if (number == files_.size()) files_.emplace_back().name = file_name(rank, ranks, number);
    files_[number].boxes.push_back(b);
  }
  uint64_t end = 0;
  for (File& file : files_) {
    lay_out(file);
    file.staged_at = end;
    end += (file.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

// By decreasing element size, so that each tensor is aligned to its own.
void StateFiles::lay_out(File& file) {
  std::ranges::stable_sort(file.boxes, std::greater{},
                           [](const StateBox& b) { return size_of(b.dtype); });
  std::vector<TensorInfo> infos;
  for (const StateBox& b : file.boxes) infos.push_back({b.tensor, b.dtype, b.box.shape});
  file.beginning = safetensors_beginning(infos, metadata_of(file.boxes));
  file.bytes = file.beginning.size();
  for (const StateBox& b : file.boxes) {
    file.offsets.push_back(file.bytes);
    file.bytes += bytes_of(b);
  }
}

int64_t StateFiles::staging_bytes() const {
  if (files_.empty()) return 0;
  return static_cast<int64_t>(files_.back().staged_at + files_.back().bytes);
}

Manifest StateFiles::stage(std::span<std::byte> memory) const {
  TESSERA_CHECK(std::ssize(memory) >= staging_bytes());
  std::vector<std::vector<uint64_t>> hashes;
  for (const File& file : files_) {
    Content content(file);
    content.read(memory.subspan(file.staged_at, file.bytes));
    hashes.push_back(content.hashes());
  }
  return manifest(hashes);
}

void StateFiles::write_staged(const std::filesystem::path& directory,
                              std::span<const std::byte> staged) const {
  for (const File& file : files_) {
    ContentWriter out(directory / file.name, file.bytes);
    for (uint64_t at = 0; at < file.bytes; at += kPiece)
      out.write(staged.data() + file.staged_at + at, std::min(kPiece, file.bytes - at));
    out.commit();
  }
}

Manifest StateFiles::write(const std::filesystem::path& directory) const {
  std::vector<std::vector<uint64_t>> hashes;
  auto piece = std::make_unique<Piece>(), next = std::make_unique<Piece>();
  for (const File& file : files_) {
    ContentWriter out(directory / file.name, file.bytes);
    Content content(file);
    auto size_at = [&](uint64_t at) { return std::min(kPiece, file.bytes - at); };
    // A piece is read while the one before it is written.
    auto read = [&](uint64_t at) { content.read(std::span(next->bytes).first(size_at(at))); };
    std::future<void> reading = std::async(std::launch::async, read, 0);
    for (uint64_t at = 0; at < file.bytes; at += kPiece) {
      reading.get();
      std::swap(piece, next);
      if (at + kPiece < file.bytes) reading = std::async(std::launch::async, read, at + kPiece);
      out.write(piece->bytes, size_at(at));
    }
    out.commit();
    hashes.push_back(content.hashes());
  }
  return manifest(hashes);
}

Manifest StateFiles::manifest(std::span<const std::vector<uint64_t>> hashes) const {
  Manifest manifest;
  std::map<std::string_view, size_t> index_of;
  for (size_t f = 0; f < files_.size(); ++f) {
    const File& file = files_[f];
    manifest.files.push_back({file.name, file.bytes, hash_text(file.beginning)});
    for (size_t k = 0; k < file.boxes.size(); ++k) {
      const StateBox& b = file.boxes[k];
      auto [it, fresh] = index_of.try_emplace(b.tensor, manifest.tensors.size());
      if (fresh) manifest.tensors.push_back({b.tensor, b.role, b.dtype, b.shape, {}});
      manifest.tensors[it->second].boxes.push_back({f, file.offsets[k], b.box, hashes[f][k]});
    }
  }
  return manifest;
}

}  // namespace tessera
