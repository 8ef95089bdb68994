#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/file.h"
#include "data/token_view.h"

namespace tessera {

// Ids of 2 or 4 bytes, little-endian, one after the other in a source. They are read where they
// are, each time: no copy, no cache, no map.
class StoredIds final : public TokenStore {
 public:
  // `vocab_size` > 0: ids are checked against it when they are read. `advice`: what
  // that error ends with.
  StoredIds(std::shared_ptr<const ByteSource> source, uint64_t offset, int width,
            int64_t vocab_size = 0, std::string advice = {});
  // What the source throws. UserError for an id >= vocab_size, with its number and the offset.
  void read(int64_t begin, std::span<int32_t> out) const override;

 private:
  void check(int64_t begin, std::span<const int32_t> ids) const;

  std::shared_ptr<const ByteSource> source_;
  uint64_t offset_;
  int width_;
  int64_t vocab_size_;
  std::string advice_;
};

// A file of tokens that another program made, in place:
//   flat    ids without a header, as nanoGPT writes train.bin: 2 bytes each where the vocabulary
//   has
//           at most 65536 entries, else 4
//   llm.c   256 i32 of header: magic 20240520, version 1, count, then ids of 2 bytes; or magic
//           20240801, version 7, count, then ids of 4 bytes
// Both little-endian. A header is recognised by its magic number. Documents are joined by
// end-of-text in both; where one begins is not said.
//
// nanoGPT cuts such a file into blocks: block i is ids [iB, iB + B), its targets the ids one
// further, for i < (count - 1) div B. These are the full windows of PackedDataset, which has one
// more where ids are left: its last, filled up with targets that are ignored.
class TokenFile {
 public:
  // `width`: bytes of an id of a flat file, 2 or 4; 0: by the vocabulary. `vocab_size` > 0.
  // UserError, naming the source: it is empty, its size is no multiple of the width, the header's
  // version is unknown, its count does not fit the size or its ids do not fit `width`.
  explicit TokenFile(std::shared_ptr<const ByteSource> source, int64_t vocab_size, int width = 0);

  // Valid as long as this object. Reading them is a UserError where one is >= vocab_size.
  TokenView tokens() const { return {*ids_, count_}; }
  int width() const { return width_; }  // bytes of an id
  bool has_header() const { return has_header_; }

 private:
  std::unique_ptr<const StoredIds> ids_;
  int64_t count_ = 0;
  int width_ = 0;
  bool has_header_ = false;
};

}  // namespace tessera
