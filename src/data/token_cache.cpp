#include "data/token_cache.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/ignore_index.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "data/token_cache_format.h"
#include "data/token_cache_writer.h"
#include "data/token_file.h"

namespace tessera {
namespace {

// Hands out bytes [begin, end) in pieces whose sizes are multiples of 8, but for the last.
template <class Visit>
void for_pieces(const ByteSource& source, uint64_t begin, uint64_t end, Visit visit) {
  std::vector<std::byte> piece(std::min<uint64_t>(end - begin, 1 << 20));
  for (uint64_t at = begin; at < end; at += piece.size()) {
    check_interruption();
    const std::span part = std::span(piece).first(std::min<uint64_t>(piece.size(), end - at));
    source.read(at, part);
    visit(std::span<const std::byte>(part));
  }
}

uint64_t hash_of(const ByteSource& source, uint64_t begin, uint64_t end) {
  Hasher hasher;
  for_pieces(source, begin, end, [&](auto part) { hasher.add(part.data(), part.size()); });
  return hasher.digest();
}

// What is wrong with the last bytes of a file of `size` bytes, or nullptr.
const char* damage(uint64_t size, const TokenCacheTrailer& trailer) {
  if (trailer.magic != TokenCacheTrailer::kMagic) return "no token cache, or cut short";
  if (trailer.trailer_hash != trailer.own_hash()) return "its last 96 bytes fail their hash";
  if (trailer.version != TokenCacheTrailer::kVersion) return "it is of another version";
  if (trailer.width != 2 && trailer.width != 4) return "its ids have an unknown width";
  const uint64_t stored = size - sizeof trailer;
  constexpr const char* kMisfit = "its size does not fit its number of ids";
  if (trailer.count > stored / trailer.width) return kMisfit;
  uint64_t at = padded_to_8(trailer.count * trailer.width);
  if (trailer.learned_at != 0) {
    if (trailer.learned_at != at) return kMisfit;
    at += learned_bytes(trailer.count);
  }
  if (trailer.offsets_at != at || at > stored) return kMisfit;
  if (trailer.documents > trailer.count || (trailer.documents == 0) != (trailer.count == 0) ||
      stored - at != (trailer.documents + 1) * 8)
    return "its size does not fit its number of documents";
  return nullptr;
}

// The same of what they describe; hashes all of it.
const char* damage_of_content(const ByteSource& source, const TokenCacheTrailer& trailer) {
  const uint64_t ids_end = trailer.learned_at != 0 ? trailer.learned_at : trailer.offsets_at;
  if (hash_of(source, 0, ids_end) != trailer.ids_hash) return "its ids fail their hash";
  if (trailer.learned_at != 0 &&
      hash_of(source, trailer.learned_at, trailer.offsets_at) != trailer.learned_hash)
    return "what is learned of it fails its hash";
  Hasher hasher;
  bool ordered = true;
  uint64_t number = 0, before = 0;
  const uint64_t end = trailer.offsets_at + (trailer.documents + 1) * 8;
  for_pieces(source, trailer.offsets_at, end, [&](std::span<const std::byte> part) {
    hasher.add(part.data(), part.size());
    for (size_t i = 0; i < part.size(); i += 8, ++number) {
      uint64_t offset = 0;
      std::copy_n(part.data() + i, 8, reinterpret_cast<std::byte*>(&offset));
      ordered &= number == 0 ? offset == 0 : offset > before;
      before = offset;
    }
  });
  if (hasher.digest() != trailer.offsets_hash) return "its documents fail their hash";
  if (!ordered || before != trailer.count) return "its documents are out of order";
  return nullptr;
}

class CachedTokens final : public TokenStore {
 public:
  CachedTokens(std::shared_ptr<const ByteSource> source, const TokenCacheTrailer& trailer,
               int64_t vocab_size)
      : source_(source),
        ids_(std::move(source), 0, static_cast<int>(trailer.width), vocab_size,
             "the file is damaged: copy it again, or prepare the data again; tessera data inspect "
             "checks all of it"),
        learned_at_(trailer.learned_at) {}

  void read(int64_t begin, std::span<int32_t> out) const override { ids_.read(begin, out); }
  bool all_learned() const override { return learned_at_ == 0; }
  void read_targets(int64_t begin, std::span<int32_t> out) const override {
    ids_.read(begin, out);
    if (all_learned()) return;
    std::array<uint8_t, 4096> bits;
    const auto token = static_cast<uint64_t>(begin);
    for (uint64_t done = 0; done < out.size();) {
      const uint64_t first = token + done, in_byte = first % 8;
      const uint64_t tokens = std::min<uint64_t>(out.size() - done, bits.size() * 8 - in_byte);
      source_->read(learned_at_ + first / 8,
                    std::as_writable_bytes(std::span(bits).first((in_byte + tokens + 7) / 8)));
      for (uint64_t i = 0; i < tokens; ++i) {
        const uint64_t bit = in_byte + i;
        if ((bits[bit / 8] >> bit % 8 & 1) == 0) out[done + i] = kIgnoreIndex;
      }
      done += tokens;
    }
  }

 private:
  std::shared_ptr<const ByteSource> source_;
  StoredIds ids_;
  uint64_t learned_at_;
};

class CachedDocuments final : public DocumentTable {
 public:
  CachedDocuments(std::shared_ptr<const ByteSource> source, const TokenCacheTrailer& trailer)
      : source_(std::move(source)),
        offsets_at_(trailer.offsets_at),
        documents_(static_cast<int64_t>(trailer.documents)),
        count_(static_cast<int64_t>(trailer.count)) {}

  void read_offsets(int64_t first, std::span<int64_t> out) const override {
    source_->read(offsets_at_ + static_cast<uint64_t>(first) * 8, std::as_writable_bytes(out));
    // Another program may have written to the file since, or nobody has looked at all of it.
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t number = first + static_cast<int64_t>(i);
      const int64_t low = number == documents_ ? count_ : i == 0 ? number : out[i - 1] + 1;
      // Every document behind has a token too.
      const int64_t high = number == 0 ? 0 : count_ - (documents_ - number);
      if (out[i] >= low && out[i] <= high) continue;
      throw UserError(cat("token file '", source_->name(), "' is damaged: document ", number,
                          " begins at token ", out[i], " of ", count_, ": make it again"));
    }
  }

 private:
  std::shared_ptr<const ByteSource> source_;
  uint64_t offsets_at_;
  int64_t documents_, count_;
};

TokenCacheTrailer read_trailer(const ByteSource& source) {
  TokenCacheTrailer trailer;
  source.read(source.size() - sizeof trailer, std::as_writable_bytes(std::span(&trailer, 1)));
  return trailer;
}

}  // namespace

TokenCache::TokenCache(std::shared_ptr<const ByteSource> source, Check check, int64_t vocab_size) {
  TokenCacheTrailer trailer;
  const char* why = "too short";
  if (source->size() >= sizeof trailer) {
    trailer = read_trailer(*source);
    why = damage(source->size(), trailer);
    if (!why && check == Check::kContent) why = damage_of_content(*source, trailer);
  }
  if (why) throw UserError(cat("token file '", source->name(), "' is damaged (", why, ")"));
  count_ = static_cast<int64_t>(trailer.count);
  text_bytes_ = static_cast<int64_t>(trailer.text_bytes);
  documents_ = static_cast<int64_t>(trailer.documents);
  fingerprint_ = trailer.fingerprint;
  hash_ = hash_combine(hash_combine(trailer.ids_hash, trailer.learned_hash), trailer.offsets_hash);
  offsets_ = std::make_unique<CachedDocuments>(source, trailer);
  tokens_ = std::make_unique<CachedTokens>(std::move(source), trailer, vocab_size);
}

uint64_t dataset_fingerprint(std::span<const RemoteEntry> files,
                             const DocumentReaderOptions& options, uint64_t tokenizer_fingerprint) {
  uint64_t hash = hash_combine(TokenCacheTrailer::kVersion, tokenizer_fingerprint);
  hash = hash_combine(hash, options.skip_bad_lines ? 1 : 0);
  hash = hash_combine(hash, static_cast<uint64_t>(options.kind));
  hash = hash_combine(hash, hash_text(options.text_field));
  // What is learned of rows and conversations, and what is padding, was read by other rules once.
  if (options.kind != RecordKind::kText) hash = hash_combine(hash, 2);
  // Ids are checked against the vocabulary when they are read from the files.
  if (options.kind == RecordKind::kIds)
    hash = hash_combine(hash, static_cast<uint64_t>(options.vocab_size));
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
  auto file = std::make_shared<ReadFile>(path);
  if (file->size() < sizeof(TokenCacheTrailer)) return damaged("too short");
  const TokenCacheTrailer trailer = read_trailer(*file);
  if (const char* why = damage(file->size(), trailer)) return damaged(why);
  if (trailer.fingerprint != fingerprint) return std::nullopt;
  if (const char* why = damage_of_content(*file, trailer)) return damaged(why);
  return TokenCache(std::move(file), TokenCache::Check::kSizes);
}

TokenCache build_token_cache(const std::filesystem::path& path, const TokenCacheJob& job,
                             ThreadPool& pool) {
  TokenCacheWriter writer(path, job.vocab_size, job.fingerprint);
  TokenEncoder encoder(job, pool);
  std::vector<EncodedSegment> batch;
  while (encoder.next(batch)) {
    for (const EncodedSegment& segment : batch) writer.add(segment);
    if (job.progress) job.progress({writer.documents(), writer.text_bytes(), writer.tokens()});
  }
  if (job.records ? writer.tokens() == 0 : writer.text_bytes() == 0) {
    throw UserError(cat("data set ", job.name, " is empty: there is no ",
                        job.records ? "row" : "text", " in it"));
  }
  writer.commit();
  auto cache = open_token_cache(path, job.fingerprint);
  if (!cache) {
    throw UserError(cat("token cache '", path.string(),
                        "' was written and does not read back as it "
                        "was: check the disk, or choose another directory"));
  }
  return std::move(*cache);
}

}  // namespace tessera
