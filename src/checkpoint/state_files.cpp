#include "checkpoint/state_files.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/places.h"
#include "checkpoint/safetensors.h"

namespace tessera {
namespace {

constexpr uint64_t kChunk = 1 << 20;           // hashed while it is in the cache
constexpr uint64_t kPiece = 4 << 20;           // of staged files, as it is written
constexpr uint64_t kHashedAtOnce = 256 << 10;  // of it
constexpr uint64_t kAlignment = 4096;          // of staged files, as disks want it

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

}  // namespace

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

void StateFiles::stage(std::span<std::byte> memory) const {
  TESSERA_CHECK(std::ssize(memory) >= staging_bytes());
  for (const File& file : files_) {
    std::byte* content = memory.data() + file.staged_at;
    std::memcpy(content, file.beginning.data(), file.beginning.size());
    for (size_t k = 0; k < file.boxes.size(); ++k) {
      const StateBox& b = file.boxes[k];
      b.data.read(0, {content + file.offsets[k], bytes_of(b)});
    }
  }
}

Manifest StateFiles::write(const std::filesystem::path& directory,
                           std::span<const std::byte> staged) const {
  Manifest manifest;
  std::map<std::string_view, size_t> index_of;
  for (size_t f = 0; f < files_.size(); ++f) {
    const File& file = files_[f];
    const std::filesystem::path path = directory / file.name;
    const Hashes hashes = staged.empty() ? write(file, path)
                                         : write_staged(file, path, staged.data() + file.staged_at);
    manifest.files.push_back({file.name, file.bytes, hashes.file});
    for (size_t k = 0; k < file.boxes.size(); ++k) {
      const StateBox& b = file.boxes[k];
      auto [it, fresh] = index_of.try_emplace(b.tensor, manifest.tensors.size());
      if (fresh) manifest.tensors.push_back({b.tensor, b.role, b.dtype, b.shape, {}});
      manifest.tensors[it->second].boxes.push_back({f, file.offsets[k], b.box, hashes.boxes[k]});
    }
  }
  return manifest;
}

StateFiles::Hashes StateFiles::write(const File& file, const std::filesystem::path& path) {
  ContentWriter out(path, file.bytes);
  Hasher whole;
  Hashes hashes;
  std::vector<std::byte> chunk(kChunk);
  whole.add(file.beginning.data(), file.beginning.size());
  out.write(file.beginning);
  for (const StateBox& b : file.boxes) {
    Hasher own;
    for (uint64_t done = 0; done < bytes_of(b); done += kChunk) {
      auto part = std::span(chunk).first(std::min(kChunk, bytes_of(b) - done));
      b.data.read(done, part);
      own.add(part.data(), part.size());
      whole.add(part.data(), part.size());
      out.write(part.data(), part.size());
    }
    hashes.boxes.push_back(own.digest());
  }
  out.commit();
  hashes.file = whole.digest();
  return hashes;
}

// Bytes pass by once, in pieces that a core's cache keeps: for the hash of the file, those of its
// boxes and the disk.
StateFiles::Hashes StateFiles::write_staged(const File& file, const std::filesystem::path& path,
                                            const std::byte* content) {
  ContentWriter out(path, file.bytes);
  Hasher whole;
  Hashes hashes;
  uint64_t written = 0;
  auto pass = [&](uint64_t begin, uint64_t end, Hasher* own) {
    for (uint64_t at = begin; at < end;) {
      const uint64_t n = std::min({kHashedAtOnce, end - at, written + kPiece - at});
      whole.add(content + at, n);
      if (own) own->add(content + at, n);
      at += n;
      if (at - written < kPiece && at < file.bytes) continue;
      out.write(content + written, at - written);
      written = at;
    }
  };
  pass(0, file.beginning.size(), nullptr);
  for (size_t k = 0; k < file.boxes.size(); ++k) {
    Hasher own;
    pass(file.offsets[k], file.offsets[k] + bytes_of(file.boxes[k]), &own);
    hashes.boxes.push_back(own.digest());
  }
  TESSERA_CHECK(written == file.bytes, cat(written, " of ", file.bytes, " bytes"));
  out.commit();
  hashes.file = whole.digest();
  return hashes;
}

}  // namespace tessera
