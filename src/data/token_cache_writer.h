#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/file.h"
#include "data/token_cache_format.h"
#include "data/token_encoder.h"

namespace tessera {

// Bytes that are read again later: beside a file, from the second MiB on in one without a name, so
// that nothing of it is left however the process ends.
class SpillFile {
 public:
  explicit SpillFile(std::filesystem::path beside);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  void append(const void* data, size_t size);  // UserError when the disk does not take it
  uint64_t size() const { return spilled_ + buffer_.size(); }
  // Writes all of it to `file`; its XXH3.
  uint64_t copy_to(AtomicFile& file) const;

 private:
  [[noreturn]] void fail(const char* action) const;
  void spill();

  std::filesystem::path beside_;
  int fd_ = -1;
  uint64_t spilled_ = 0;
  std::string buffer_;
};

// Writes a token cache (token_cache.h) aside, and moves it into place on commit(). In memory: at
// most 2 MiB beside what it is given; the index is spilled beside the file.
class TokenCacheWriter {
 public:
  // Ids are below `vocab_size`, which decides their width.
  TokenCacheWriter(const std::filesystem::path& path, int64_t vocab_size, uint64_t fingerprint);

  // Tokens of the document that has been begun, or of a new one. `learned`: 1 or 0 for each;
  // empty: all 1. A document without a token is none.
  void add(std::span<const int32_t> ids, std::span<const uint8_t> learned, int64_t text_bytes,
           bool ends_document);
  void add(const EncodedSegment& segment);

  int64_t tokens() const { return static_cast<int64_t>(trailer_.count); }
  int64_t documents() const { return static_cast<int64_t>(trailer_.documents); }
  int64_t text_bytes() const { return static_cast<int64_t>(trailer_.text_bytes); }

  // All documents have ended.
  void commit();

 private:
  void add_learned(std::span<const uint8_t> learned, size_t tokens);
  void write(const std::string& bytes);

  AtomicFile file_;
  int64_t vocab_size_;
  TokenCacheTrailer trailer_;
  Hasher hasher_;
  SpillFile learned_, offsets_;
  bool all_learned_ = true;
  uint64_t bits_ = 0;  // of the tokens from the last multiple of 64 on
  uint64_t document_begin_ = 0;
  std::string buffer_;
};

}  // namespace tessera
