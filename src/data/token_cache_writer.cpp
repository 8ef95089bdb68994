#include "data/token_cache_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/open_files.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kSpillBytes = size_t{1} << 20;
constexpr uint64_t kBits = 64;

}  // namespace

SpillFile::SpillFile(std::filesystem::path beside) : beside_(std::move(beside)) {}

SpillFile::~SpillFile() {
  if (fd_ >= 0) ::close(fd_);
}

void SpillFile::fail(const char* action) const {
  throw UserError(
      cat("cannot ", action, " a file beside '", beside_.string(), "': ", open_error_text(errno)));
}

void SpillFile::append(const void* data, size_t size) {
  buffer_.append(static_cast<const char*>(data), size);
  if (buffer_.size() >= kSpillBytes) spill();
}

void SpillFile::spill() {
  if (fd_ < 0) {
    std::filesystem::path path = beside_;
    path += ".index.tmp-" + unique_suffix();
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 || ::unlink(path.c_str()) != 0) fail("create");
  }
  if (write_fully(fd_, buffer_) < buffer_.size()) fail("write");
  spilled_ += buffer_.size();
  buffer_.clear();
}

uint64_t SpillFile::copy_to(AtomicFile& file) const {
  Hasher hasher;
  std::string piece(std::min<uint64_t>(spilled_, kSpillBytes), '\0');
  for (uint64_t at = 0; at < spilled_;) {
    const size_t wanted = std::min<uint64_t>(piece.size(), spilled_ - at);
    const ssize_t n = ::pread(fd_, piece.data(), wanted, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("read");
    hasher.add(piece.data(), static_cast<size_t>(n));
    file.write(piece.data(), static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  hasher.add(buffer_.data(), buffer_.size());
  file.write(buffer_);
  return hasher.digest();
}

TokenCacheWriter::TokenCacheWriter(const std::filesystem::path& path, int64_t vocab_size,
                                   uint64_t fingerprint)
    : file_(path), vocab_size_(vocab_size), learned_(path), offsets_(path) {
  trailer_.width = token_width(vocab_size);
  trailer_.fingerprint = fingerprint;
}

void TokenCacheWriter::add(std::span<const int32_t> ids, std::span<const uint8_t> learned,
                           int64_t text_bytes, bool ends_document) {
  TESSERA_CHECK(learned.empty() || learned.size() == ids.size());
  buffer_.resize(ids.size() * trailer_.width);
  for (size_t i = 0; i < ids.size(); ++i) {
    TESSERA_CHECK(ids[i] >= 0 && ids[i] < vocab_size_,
                  cat("the tokenizer gave id ", ids[i], ", its vocabulary is ", vocab_size_));
    std::memcpy(buffer_.data() + i * trailer_.width, &ids[i], trailer_.width);
  }
  write(buffer_);
  add_learned(learned, ids.size());
  trailer_.count += ids.size();
  trailer_.text_bytes += static_cast<uint64_t>(text_bytes);
  if (!ends_document || trailer_.count == document_begin_) return;
  offsets_.append(&document_begin_, sizeof document_begin_);
  document_begin_ = trailer_.count;
  ++trailer_.documents;
}

void TokenCacheWriter::add(const EncodedSegment& segment) {
  const std::span<const int32_t> ids = segment.ids;
  const std::span<const uint8_t> learned = segment.learned;
  size_t begin = 0;
  for (const EncodedSegment::Part& part : segment.parts) {
    add(ids.subspan(begin, part.end - begin),
        learned.empty() ? learned : learned.subspan(begin, part.end - begin), part.text_bytes,
        part.ends_document);
    begin = part.end;
  }
}

// Bits are written from the first token on that is not learned; before, they are counted only.
void TokenCacheWriter::add_learned(std::span<const uint8_t> learned, size_t tokens) {
  const bool all = std::ranges::find(learned, uint8_t{0}) == learned.end();
  if (all && all_learned_) return;
  if (all_learned_) {
    all_learned_ = false;
    constexpr uint64_t kOnes = ~uint64_t{0};
    for (uint64_t t = 0; t + kBits <= trailer_.count; t += kBits)
      learned_.append(&kOnes, sizeof kOnes);
    bits_ = (uint64_t{1} << trailer_.count % kBits) - 1;
  }
  for (size_t i = 0; i < tokens; ++i) {
    const uint64_t bit = (trailer_.count + i) % kBits;
    bits_ |= uint64_t{learned.empty() || learned[i] != 0} << bit;
    if (bit + 1 < kBits) continue;
    learned_.append(&bits_, sizeof bits_);
    bits_ = 0;
  }
}

void TokenCacheWriter::commit() {
  TESSERA_CHECK(document_begin_ == trailer_.count, "a document without an end");
  const uint64_t bytes = trailer_.count * trailer_.width;
  write(std::string(padded_to_8(bytes) - bytes, '\0'));
  trailer_.ids_hash = hasher_.digest();
  uint64_t at = padded_to_8(bytes);
  if (!all_learned_) {
    learned_.append(&bits_, sizeof bits_);
    TESSERA_CHECK(learned_.size() == learned_bytes(trailer_.count));
    trailer_.learned_at = at;
    trailer_.learned_hash = learned_.copy_to(file_);
    at += learned_.size();
  }
  offsets_.append(&trailer_.count, sizeof trailer_.count);
  trailer_.offsets_at = at;
  trailer_.offsets_hash = offsets_.copy_to(file_);
  trailer_.trailer_hash = trailer_.own_hash();
  file_.write(&trailer_, sizeof trailer_);
  file_.commit();
}

void TokenCacheWriter::write(const std::string& bytes) {
  hasher_.add(bytes.data(), bytes.size());
  file_.write(bytes);
}

}  // namespace tessera
