#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "data/document_reader.h"
#include "data/token_view.h"

namespace tessera {

// Token ids of a data set in a file, so that a second run starts at once.
//
// Layout, little-endian: `count` ids of `width` bytes (2 if the vocabulary has at most 65536
// entries, else 4), zeros up to a multiple of 8, then 64 bytes that say what came before:
//   0 "TSRTOKEN"   8 u32 version (1)   12 u32 width   16 u64 count   24 u64 text bytes
//   32 u64 documents   40 u64 fingerprint   48 u64 XXH3 of the ids and their padding
//   56 u64 XXH3 of the 56 bytes before
// They stand at the end because they are known last: the file is written in one pass, of any size,
// and a file that was cut short cannot have them.
//
// The file stays open and is read, not mapped: where a part of it is gone, cut off by another
// program or with the disk that it was on, there is an error to report and no SIGBUS.
class TokenCache {
 public:
  // The ids; valid as long as this object or one that it was moved to lives. Reading them is a
  // UserError when the file does not have them any more.
  TokenView tokens() const { return {*ids_, count_}; }
  // Bytes of the documents' text: what bits per byte are counted against.
  int64_t text_bytes() const { return text_bytes_; }
  int64_t documents() const { return documents_; }
  // Of the ids, XXH3: the same text and tokenizer have the same, wherever they are.
  uint64_t hash() const { return hash_; }

 private:
  friend std::optional<TokenCache> open_token_cache(const std::filesystem::path&, uint64_t);
  TokenCache() = default;

  std::unique_ptr<const TokenStore> ids_;
  int64_t count_ = 0, text_bytes_ = 0, documents_ = 0;
  uint64_t hash_ = 0;
};

// What the ids are made of: every file in order (file_identity), how they are read, and the
// tokenizer. UserError if a file is missing.
uint64_t dataset_fingerprint(std::span<const RemoteEntry> files,
                             const DocumentReaderOptions& options, uint64_t tokenizer_fingerprint);

// The cache at `path`, hash checked; nullopt if there is none, or one made of other input. A
// damaged one is reported by a warning and is nullopt too: in each case it is to be built.
// UserError if the file is there and cannot be read. Interrupted when that is requested.
std::optional<TokenCache> open_token_cache(const std::filesystem::path& path, uint64_t fingerprint);

struct TokenCacheProgress {
  int64_t documents = 0, text_bytes = 0, tokens = 0;
};

struct TokenCacheJob {
  std::string name;                      // of the data set, for messages
  uint64_t fingerprint = 0;              // see dataset_fingerprint()
  int64_t vocab_size = 0;                // ids are below it; decides the width
  std::vector<int32_t> document_prefix;  // stands before every document
  int32_t end_of_text = 0;               // follows every document
  TextSource documents;                  // called by one thread at a time
  // Puts the ids of `text` into `ids`, which comes empty. Called by many threads at once.
  std::function<void(std::string_view text, std::vector<int32_t>& ids)> encode;
  // Where a long document may be cut so that several threads work on it: the first position at or
  // after `from` at which encoding the two sides one by one gives the same ids, or text.size().
  // Without it every document is encoded in one piece. Of the text behind that position it looks at
  // one character at most: documents are read in parts.
  std::function<size_t(std::string_view text, size_t from)> cut;
  size_t longest_piece = size_t{256} << 20;  // bytes of a document that are encoded in one piece
  std::function<void(const TokenCacheProgress&)> progress;  // now and then, on the calling thread
};

// Reads, encodes and writes `path` (aside, then renamed), and opens it. The same bytes for any
// number of threads. In memory: 16 MiB of text with its ids and, of the document being read, the
// part up to the next place to cut. UserError: there is no document ("empty"), more than
// `longest_piece` of one cannot be cut, the file cannot be written, or what the source reports.
// Interrupted when that is requested; nothing is left of it.
TokenCache build_token_cache(const std::filesystem::path& path, const TokenCacheJob& job,
                             ThreadPool& pool);

}  // namespace tessera
