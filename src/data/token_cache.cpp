#include "data/token_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "data/token_file.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "token caches are little-endian");

constexpr std::array<char, 8> kMagic{'T', 'S', 'R', 'T', 'O', 'K', 'E', 'N'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kWidestNarrowVocabulary = 65536;

struct Trailer {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t width = 0;
  uint64_t count = 0, text_bytes = 0, documents = 0, fingerprint = 0;
  uint64_t ids_hash = 0, trailer_hash = 0;

  uint64_t own_hash() const { return hash_bytes(this, offsetof(Trailer, trailer_hash)); }
};
static_assert(sizeof(Trailer) == 64);

uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

// What is wrong with a file of `size` bytes whose last ones are `trailer`, or nullptr.
const char* damage(uint64_t size, const Trailer& trailer) {
  if (trailer.magic != kMagic) return "no token cache, or cut short";
  if (trailer.trailer_hash != trailer.own_hash()) return "its last 64 bytes fail their hash";
  if (trailer.width != 2 && trailer.width != 4) return "its ids have an unknown width";
  const uint64_t stored = size - sizeof(Trailer);
  if (trailer.count > stored / trailer.width || padded(trailer.count * trailer.width) != stored) {
    return "its size does not fit its number of ids";
  }
  return nullptr;
}

// XXH3 of the first `size` bytes.
uint64_t hash_of(const ReadFile& file, uint64_t size) {
  Hasher hasher;
  std::vector<std::byte> piece(std::min<uint64_t>(size, 1 << 20));
  for (uint64_t at = 0; at < size; at += piece.size()) {
    check_interruption();
    const std::span part = std::span(piece).first(std::min<uint64_t>(piece.size(), size - at));
    file.read(at, part);
    hasher.add(part.data(), part.size());
  }
  return hasher.digest();
}

// Writes ids in their final width, hashing them on the way.
class CacheWriter {
 public:
  CacheWriter(const std::filesystem::path& path, const TokenCacheJob& job)
      : file_(path), vocab_size_(job.vocab_size) {
    trailer_.width = vocab_size_ <= kWidestNarrowVocabulary ? 2 : 4;
    trailer_.fingerprint = job.fingerprint;
  }

  void add(std::span<const int32_t> ids) {
    buffer_.resize(ids.size() * trailer_.width);
    for (size_t i = 0; i < ids.size(); ++i) {
      TESSERA_CHECK(ids[i] >= 0 && ids[i] < vocab_size_,
                    cat("the tokenizer gave id ", ids[i], ", its vocabulary is ", vocab_size_));
      std::memcpy(buffer_.data() + i * trailer_.width, &ids[i], trailer_.width);
    }
    trailer_.count += ids.size();
    write(buffer_);
  }

  void commit(const TokenCacheProgress& done) {
    const uint64_t bytes = trailer_.count * trailer_.width;
    write(std::string(padded(bytes) - bytes, '\0'));
    trailer_.text_bytes = static_cast<uint64_t>(done.text_bytes);
    trailer_.documents = static_cast<uint64_t>(done.documents);
    trailer_.ids_hash = hasher_.digest();
    trailer_.trailer_hash = trailer_.own_hash();
    file_.write(&trailer_, sizeof trailer_);
    file_.commit();
  }

 private:
  void write(const std::string& bytes) {
    hasher_.add(bytes.data(), bytes.size());
    file_.write(bytes);
  }

  AtomicFile file_;
  int64_t vocab_size_;
  Trailer trailer_;
  Hasher hasher_;
  std::string buffer_;
};

// The unit of encoding: whole small documents, or a part of a large one. How documents are cut into
// segments depends on the documents only, so the ids do not depend on the number of threads.
struct Segment {
  struct Piece {
    size_t begin, size;
    bool begins_document, ends_document;
  };
  std::string text;
  std::vector<Piece> pieces;
  std::vector<int32_t> ids;
};

constexpr size_t kSegmentBytes = size_t{64} << 10;
constexpr size_t kBatchSegments = 128;  // one batch is encoded while the next is read

class SegmentReader {
 public:
  explicit SegmentReader(const TokenCacheJob& job) : job_(job) {}

  // The next batch; empty at the end of the data.
  void read(std::vector<Segment>& batch) {
    batch.clear();
    while (batch.size() < kBatchSegments) {
      check_interruption();
      Segment segment;
      while (segment.text.size() < kSegmentBytes && (inside_ || next_document())) take(segment);
      if (segment.pieces.empty()) return;
      batch.push_back(std::move(segment));
    }
  }

 private:
  bool next_document() {
    text_.clear();
    position_ = 0;
    TextPart part = ended_ ? TextPart::kNone : job_.documents(text_);
    ended_ = part == TextPart::kNone;
    complete_ = part == TextPart::kLast;
    begins_ = true;
    return inside_ = !ended_;
  }

  // Moves the next piece of the document into the segment.
  void take(Segment& segment) {
    size_t end = end_of_piece();
    TESSERA_CHECK(end >= position_ && end <= text_.size());
    inside_ = !complete_ || end < text_.size();
    segment.pieces.push_back(
        {segment.text.size(), end - position_, std::exchange(begins_, false), !inside_});
    if (segment.text.empty() && position_ == 0 && !inside_)
      segment.text = std::move(text_);
    else
      segment.text.append(text_, position_, end - position_);
    position_ = end;
  }

  // Where the next piece ends: at a place to cut, or with the document.
  size_t end_of_piece() {
    for (;;) {
      if (job_.cut && text_.size() - position_ > kSegmentBytes) {
        size_t end = job_.cut(text_, position_ + kSegmentBytes);
        if (end < text_.size() || complete_) return end;
      } else if (complete_) {
        return text_.size();
      }
      // Twice as much, so that looking for a place to cut takes time in proportion to the text.
      text_.erase(0, std::exchange(position_, 0));
      size_t wanted = std::max(2 * text_.size(), 2 * kSegmentBytes);
      while (!complete_ && text_.size() < wanted) read_on();
    }
  }

  void read_on() {
    TextPart part = job_.documents(part_);
    TESSERA_CHECK(part != TextPart::kNone, "a document without an end");
    complete_ = part == TextPart::kLast;
    if (text_.size() + part_.size() > job_.longest_piece) {
      throw UserError(cat("data set ", job_.name, ": a document of more than ",
                          format_bytes(static_cast<int64_t>(job_.longest_piece)),
                          " that this tokenizer cannot take in parts: separate documents by lines "
                          "'<|endoftext|>'"));
    }
    text_ += part_;
  }

  const TokenCacheJob& job_;
  std::string text_, part_;  // what was read of the document
  size_t position_ = 0;      // in text_: what is before it has been taken
  bool complete_ = false;    // text_ goes to the end of the document
  bool begins_ = false;      // nothing of the document has been taken
  bool inside_ = false;      // not all of it has been taken
  bool ended_ = false;
};

void encode(const TokenCacheJob& job, Segment& segment) {
  check_interruption();
  std::vector<int32_t> ids;
  for (const Segment::Piece& piece : segment.pieces) {
    if (piece.begins_document) {
      segment.ids.insert(segment.ids.end(), job.document_prefix.begin(), job.document_prefix.end());
    }
    ids.clear();
    job.encode(std::string_view(segment.text).substr(piece.begin, piece.size), ids);
    segment.ids.insert(segment.ids.end(), ids.begin(), ids.end());
    if (piece.ends_document) segment.ids.push_back(job.end_of_text);
  }
}

}  // namespace

uint64_t dataset_fingerprint(std::span<const RemoteEntry> files,
                             const DocumentReaderOptions& options, uint64_t tokenizer_fingerprint) {
  uint64_t hash = hash_combine(kVersion, tokenizer_fingerprint);
  hash = hash_combine(hash, options.skip_bad_lines ? 1 : 0);
  hash = hash_combine(hash, static_cast<uint64_t>(options.kind));
  hash = hash_combine(hash, hash_text(options.text_field));
  for (const RemoteEntry& file : files) hash = hash_combine(hash, file_identity(file));
  return hash;
}

std::optional<TokenCache> open_token_cache(const std::filesystem::path& path,
                                           uint64_t fingerprint) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  auto damaged = [&](const char* why) {
    TESSERA_WARN(cat("token cache '", path.string(), "' is damaged (", why, "): it is made again"));
    return std::nullopt;
  };
  auto opened = std::make_shared<ReadFile>(path);
  const ReadFile& file = *opened;
  if (file.size() < sizeof(Trailer)) return damaged("too short");
  Trailer trailer;
  const uint64_t stored = file.size() - sizeof trailer;
  file.read(stored, std::as_writable_bytes(std::span(&trailer, 1)));
  if (const char* why = damage(file.size(), trailer)) return damaged(why);
  if (trailer.version != kVersion || trailer.fingerprint != fingerprint) return std::nullopt;
  if (hash_of(file, stored) != trailer.ids_hash) return damaged("its ids fail their hash");

  TokenCache cache;
  cache.ids_ = std::make_unique<StoredIds>(std::move(opened), 0, static_cast<int>(trailer.width));
  cache.count_ = static_cast<int64_t>(trailer.count);
  cache.hash_ = trailer.ids_hash;
  cache.text_bytes_ = static_cast<int64_t>(trailer.text_bytes);
  cache.documents_ = static_cast<int64_t>(trailer.documents);
  return cache;
}

TokenCache build_token_cache(const std::filesystem::path& path, const TokenCacheJob& job,
                             ThreadPool& pool) {
  TESSERA_CHECK(job.vocab_size > 0 && job.end_of_text >= 0 && job.end_of_text < job.vocab_size);
  CacheWriter writer(path, job);
  SegmentReader reader(job);
  TokenCacheProgress done;
  std::vector<Segment> batch, next;
  reader.read(next);
  while (!next.empty()) {
    std::swap(batch, next);
    // Reading is one more tile: it goes on beside the encoding where there are threads for both.
    pool.run(static_cast<int64_t>(batch.size()) + 1, [&](int64_t tile, int) {
      if (tile == 0) {
        reader.read(next);
      } else {
        encode(job, batch[static_cast<size_t>(tile - 1)]);
      }
    });
    for (const Segment& segment : batch) {
      writer.add(segment.ids);
      for (const Segment::Piece& piece : segment.pieces) done.documents += piece.ends_document;
      done.text_bytes += static_cast<int64_t>(segment.text.size());
      done.tokens += static_cast<int64_t>(segment.ids.size());
    }
    if (job.progress) job.progress(done);
  }
  if (done.text_bytes == 0) {
    throw UserError(cat("data set ", job.name, " is empty: there is no text in it"));
  }
  writer.commit(done);
  auto cache = open_token_cache(path, job.fingerprint);
  if (!cache) {
    throw UserError(cat("token cache '", path.string(),
                        "' was written and does not read back as it "
                        "was: check the disk, or choose another directory"));
  }
  return std::move(*cache);
}

}  // namespace tessera
