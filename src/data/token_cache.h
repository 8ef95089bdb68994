#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/thread_pool.h"
#include "data/document_reader.h"
#include "data/document_view.h"
#include "data/token_encoder.h"
#include "data/token_view.h"

namespace tessera {

// Token ids of a data set in a file, so that a second run starts at once.
//
// Layout, little-endian: `count` ids of `width` bytes (2 if the vocabulary has at most 65536
// entries, else 4); unless all tokens are learned, a bit for each token in words of 64, the lowest
// bit first, 1 where it is learned; documents + 1 u64, the number of the first token of each
// document and `count`. Every part begins at a multiple of 8 bytes, behind zeros. Then 96 bytes
// that say what came before:
//   0 "TSRTOKEN"   8 u32 version (2)   12 u32 width   16 u64 count   24 u64 text bytes
//   32 u64 documents   40 u64 fingerprint   48 u64 offset of the bits, 0: there are none
//   56 u64 offset of the documents   64 u64 XXH3 of the ids and their padding
//   72 u64 XXH3 of the bits (0)   80 u64 XXH3 of the documents   88 u64 XXH3 of the 88 bytes before
// They stand at the end because they are known last: the file is written in one pass, of any size,
// and a file that was cut short cannot have them.
//
// The file stays open and is read, not mapped: where a part of it is gone, cut off by another
// program or with the disk that it was on, there is an error to report and no SIGBUS. What is not
// read is not in memory: the index neither.
class TokenCache {
 public:
  // A file of which the hashes of its parts are checked, or only that of its last bytes, their
  // sizes, and what is read when it is read. `vocab_size` > 0: ids are checked against it when they
  // are read. UserError, naming the source, where it is damaged or of another version. Interrupted
  // when that is requested.
  enum class Check : uint8_t { kContent, kSizes };
  TokenCache(std::shared_ptr<const ByteSource> source, Check check, int64_t vocab_size = 0);

  // The ids; valid as long as this object or one that it was moved to lives. Reading them is a
  // UserError when the file does not have them any more.
  TokenView tokens() const { return {*tokens_, count_}; }
  // The documents; valid as long as tokens(). UserError where their order is broken.
  DocumentView document_view() const { return {*offsets_, documents_}; }
  int64_t documents() const { return documents_; }
  // Where documents first ... begin (DocumentTable).
  void offsets(int64_t first, std::span<int64_t> out) const { offsets_->read_offsets(first, out); }
  TokenRange document(int64_t i) const { return document_view()[i]; }
  // Whether every token is learned; else tokens().copy_targets() says which are not.
  bool all_learned() const { return tokens_->all_learned(); }

  // Bytes of the documents' text: what bits per byte are counted against. 0 where they were ids.
  int64_t text_bytes() const { return text_bytes_; }
  // Of the ids, of what is learned and of the documents, XXH3: the same text and tokenizer have the
  // same, wherever they are.
  uint64_t hash() const { return hash_; }
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  std::unique_ptr<const TokenStore> tokens_;
  std::unique_ptr<const DocumentTable> offsets_;
  int64_t count_ = 0, text_bytes_ = 0, documents_ = 0;
  uint64_t hash_ = 0, fingerprint_ = 0;
};

// What the ids are made of: every file in order (file_identity), how they are read, the tokenizer
// and, of rows of ids, the vocabulary. UserError if a file is missing.
uint64_t dataset_fingerprint(std::span<const RemoteEntry> files,
                             const DocumentReaderOptions& options, uint64_t tokenizer_fingerprint);

// The cache at `path`, hash checked; nullopt if there is none, or one made of other input. A
// damaged one is reported by a warning and is nullopt too: in each case it is to be built.
// UserError if the file is there and cannot be read. Interrupted when that is requested.
std::optional<TokenCache> open_token_cache(const std::filesystem::path& path, uint64_t fingerprint);

struct TokenCacheProgress {
  int64_t documents = 0, text_bytes = 0, tokens = 0;
};

struct TokenCacheJob : EncodingJob {
  uint64_t fingerprint = 0;                                 // see dataset_fingerprint()
  std::function<void(const TokenCacheProgress&)> progress;  // now and then, on the calling thread
};

// Reads, encodes and writes `path` (aside, then renamed), and opens it. The same bytes for any
// number of threads. In memory: what the encoder holds and 2 MiB. UserError: there is no document
// ("empty"), the file cannot be written, or what the encoder reports. Interrupted when that is
// requested; nothing is left of it.
TokenCache build_token_cache(const std::filesystem::path& path, const TokenCacheJob& job,
                             ThreadPool& pool);

}  // namespace tessera
