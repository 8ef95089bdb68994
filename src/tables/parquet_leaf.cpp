#include "tables/parquet_leaf.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/interruption.h"
#include "base/text.h"
#include "tables/decompress.h"
#include "tables/table_error.h"
#include "tables/thrift_compact.h"

namespace tessera {
namespace {

constexpr size_t kAhead = 4096;
constexpr size_t kHeaders = 4096;  // bytes to fetch where only the header of a page is wanted
constexpr int kRle = 3;

Codec codec_of(int number) {
  switch (number) {
    case 0: return Codec::kNone;
    case 1: return Codec::kSnappy;
    case 2: return Codec::kGzip;
    case 4: return Codec::kBrotli;
    case 6: return Codec::kZstd;
    case 7: return Codec::kLz4Block;
    case 3: throw Unsupported("its pages are packed by LZO; write the file again with zstd");
    case 5:
      throw Unsupported(
          "its pages are packed by Hadoop's form of LZ4; write the file again "
          "with zstd or LZ4_RAW");
    default: throw Unsupported(cat("its pages are packed by an unknown codec, number ", number));
  }
}

int width_of(uint8_t level) { return std::bit_width(unsigned{level}); }

void check_levels(std::span<const uint8_t> levels, uint8_t most) {
  uint8_t highest = 0;
  for (uint8_t level : levels) highest = std::max(highest, level);
  if (highest > most)
    throw Damaged(cat("a level of ", int{highest}, ", at most ", int{most}, " fits"));
}

}  // namespace

void LeafRows::clear() {
  entries = 0;
  repetitions.clear();
  definitions.clear();
  values.clear();
}

ParquetLeaf::ParquetLeaf(const ByteSource& source, const ParquetNode& node,
                         const ParquetChunk& chunk)
    : source_(source), node_(node), chunk_(chunk) {
  if (chunk.encrypted)
    throw Unsupported("it is encrypted; write the file again without encryption");
  if (chunk.elsewhere) throw Unsupported("its pages are in another file");
  codec_of(chunk.codec);
  const uint64_t size = source.size();
  const auto begin = static_cast<uint64_t>(chunk.first_page),
             bytes = static_cast<uint64_t>(chunk.bytes);
  if (chunk.first_page < 0 || chunk.bytes < 0 || chunk.values < 0 || begin > size ||
      bytes > size - begin)
    throw Damaged(cat("its pages claim ", chunk.bytes, " bytes at ", chunk.first_page,
                      ", the file has ", size));
  window_next_ = begin;
  end_ = begin + bytes;
}

int64_t ParquetLeaf::first_page_bytes() {
  fetch_ = kHeaders;
  const bool found = find_page();
  fetch_ = kWindow;
  if (!found) return 0;
  int64_t bytes = std::min(page_.bytes, kMaxPage);
  if (codec_of(chunk_.codec) != Codec::kNone) bytes += std::min(page_.raw_bytes, kMaxPage);
  if (has_dictionary_) {
    const size_t numbers = dictionary_.offsets.size() + dictionary_.integers.size();
    bytes += static_cast<int64_t>(dictionary_.bytes.size() + sizeof(int64_t) * numbers);
  }
  return bytes;
}

// The next `bytes` bytes of the chunk, not yet passed over.
std::span<const std::byte> ParquetLeaf::need(size_t bytes) {
  size_t there = window_end_ - window_begin_;
  if (bytes > there) {
    const uint64_t left = end_ - window_next_;
    if (bytes - there > left) throw Damaged("its last page is cut short");
    const size_t more =
        static_cast<size_t>(std::min<uint64_t>(left, std::max(bytes, fetch_) - there));
    if (there > 0) std::memmove(window_.data(), window_.data() + window_begin_, there);
    window_.resize(there + more, there);
    source_.read(window_next_, window_.bytes().subspan(there));
    window_begin_ = 0;
    window_end_ = there + more;
    window_next_ += more;
  }
  return window_.bytes().subspan(window_begin_, bytes);
}

void ParquetLeaf::pass_over(uint64_t bytes) {
  const size_t there = window_end_ - window_begin_;
  if (bytes <= there) {
    window_begin_ += static_cast<size_t>(bytes);
    return;
  }
  if (bytes - there > end_ - window_next_) throw Damaged("its last page is cut short");
  window_next_ += bytes - there;
  window_begin_ = window_end_ = 0;
}

bool ParquetLeaf::find_page() {
  while (!found_) {
    check_interruption();
    if (found_values_ >= chunk_.values) return false;
    const uint64_t left = window_end_ - window_begin_ + (end_ - window_next_);
    if (left == 0)
      throw Damaged(cat("its pages have ", found_values_, " values of ", chunk_.values));
    // A header is short, unless it has statistics with long texts.
    for (uint64_t guess = 256;; guess *= 4) {
      guess = std::min({guess, left, static_cast<uint64_t>(kMaxPage)});
      try {
        pass_over(parse_parquet_page(need(static_cast<size_t>(guess)), page_));
        break;
      } catch (const EndOfThrift&) {
        if (guess == left || guess == static_cast<uint64_t>(kMaxPage)) throw;
      }
    }
    if (page_.kind == ParquetPage::kData || page_.kind == ParquetPage::kDataV2) {
      found_values_ += page_.values;
      found_ = true;
    } else if (page_.kind == ParquetPage::kDictionary) {
      load_dictionary();
    } else {
      pass_over(static_cast<uint64_t>(page_.bytes));
    }
  }
  return true;
}

std::span<const std::byte> ParquetLeaf::take_stored_page() {
  if (page_.bytes > kMaxPage || page_.raw_bytes > kMaxPage)
    throw Unsupported(cat("a page takes ", std::max(page_.bytes, page_.raw_bytes),
                          " bytes, at most ", kMaxPage,
                          " are read; write the file again with smaller pages"));
  const auto stored = need(static_cast<size_t>(page_.bytes));
  pass_over(stored.size());
  if (page_.crc) {
    const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(stored.data()), stored.size());
    if (sum != *page_.crc) throw Damaged("a page does not have its checksum");
  }
  return stored;
}

std::span<const std::byte> ParquetLeaf::unpack(std::span<const std::byte> stored,
                                               int64_t raw_bytes) {
  const Codec codec = codec_of(chunk_.codec);
  if (codec == Codec::kNone) return stored;
  decompress(codec, stored, static_cast<uint64_t>(raw_bytes), kMaxPage, raw_);
  return raw_.bytes();
}

void ParquetLeaf::load_dictionary() {
  if (has_dictionary_) throw Damaged("it has two dictionaries");
  if (page_.encoding != 0 && page_.encoding != 2)
    throw Unsupported(cat("its dictionary has the encoding ", page_.encoding));
  const auto body = unpack(take_stored_page(), page_.raw_bytes);
  ValueDecoder values;
  values.start(node_.type, 0, body, nullptr);
  values.read(static_cast<size_t>(page_.values), dictionary_);
  has_dictionary_ = true;
}

// The levels of a version 1 page: a length of four bytes, then runs.
std::span<const std::byte> ParquetLeaf::take_levels(std::span<const std::byte>& body,
                                                    int encoding) {
  if (encoding != kRle) throw Unsupported("its levels have the encoding BIT_PACKED of old writers");
  uint32_t length = 0;
  if (body.size() < sizeof length) throw Damaged("a page is too short for its levels");
  std::memcpy(&length, body.data(), sizeof length);
  if (length > body.size() - sizeof length) throw Damaged("a page is too short for its levels");
  const auto levels = body.subspan(sizeof length, length);
  body = body.subspan(sizeof length + length);
  return levels;
}

void ParquetLeaf::load_page() {
  const auto stored = take_stored_page();
  std::span<const std::byte> repetitions, definitions, body;
  if (page_.kind == ParquetPage::kData) {
    body = unpack(stored, page_.raw_bytes);
    if (node_.repetitions > 0) repetitions = take_levels(body, page_.repetition_encoding);
    if (node_.definition > 0) definitions = take_levels(body, page_.definition_encoding);
  } else {
    const int64_t levels = page_.repetition_bytes + page_.definition_bytes;
    if (levels > page_.bytes || levels > page_.raw_bytes)
      throw Damaged("a page is too short for its levels");
    repetitions = stored.first(static_cast<size_t>(page_.repetition_bytes));
    definitions = stored.subspan(repetitions.size(), static_cast<size_t>(page_.definition_bytes));
    body = stored.subspan(static_cast<size_t>(levels));
    if (page_.packed) body = unpack(body, page_.raw_bytes - levels);
  }
  repetitions_ = HybridDecoder(repetitions, width_of(node_.repetitions));
  definitions_ = HybridDecoder(definitions, width_of(node_.definition));
  // A page of nulls need not have anything else.
  if (body.empty() && node_.definition > 0) {
    values_.start(node_.type, 0, body, nullptr);
  } else if (page_.values > 0) {
    values_.start(node_.type, page_.encoding, body, has_dictionary_ ? &dictionary_ : nullptr);
  }
  page_left_ = static_cast<size_t>(page_.values);
  ahead_.clear();
  ahead_begin_ = 0;
  found_ = false;
}

void ParquetLeaf::look_ahead() {
  ahead_.resize(std::min(kAhead, page_left_));
  ahead_begin_ = 0;
  repetitions_.read(std::span(ahead_));
  check_levels(ahead_, node_.repetitions);
}

// How many of the entries ahead belong to the first `rows` rows; counts the rows that begin.
size_t ParquetLeaf::entries_up_to(int64_t rows, int64_t& begun) const {
  const uint8_t* const first = ahead_.data() + ahead_begin_;
  const uint8_t* const end = ahead_.data() + ahead_.size();
  for (const uint8_t* at = first;; ++at) {
    const size_t left = static_cast<size_t>(end - at);
    at = left == 0 ? nullptr : static_cast<const uint8_t*>(std::memchr(at, 0, left));
    if (!at) return static_cast<size_t>(end - first);
    if (begun == rows) return static_cast<size_t>(at - first);
    ++begun;
  }
}

void ParquetLeaf::take(size_t entries, LeafRows& out) {
  if (entries > kMaxBatchIntegers - out.entries)
    throw Unsupported(cat("a batch holds more than ", kMaxBatchIntegers,
                          " values; write the file again with smaller row groups"));
  size_t values = entries;
  if (node_.definition > 0) {
    out.definitions.resize(out.entries + entries);
    const auto levels = std::span(out.definitions).subspan(out.entries);
    definitions_.read(levels);
    check_levels(levels, node_.definition);
    values = static_cast<size_t>(std::count(levels.begin(), levels.end(), node_.definition));
  }
  if (node_.repetitions > 0) {
    const auto begin = ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_begin_);
    out.repetitions.insert(out.repetitions.end(), begin,
                           begin + static_cast<std::ptrdiff_t>(entries));
    ahead_begin_ += entries;
  }
  values_.read(values, out.values);
  out.entries += entries;
  page_left_ -= entries;
}

void ParquetLeaf::read(int64_t rows, LeafRows& out) {
  int64_t begun = 0;
  for (;;) {
    if (page_left_ == 0) {
      if (begun == rows && node_.repetitions == 0) break;
      if (!find_page()) break;
      // Pages of version 2 begin with a row.
      if (begun == rows && page_.kind == ParquetPage::kDataV2) break;
      load_page();
      continue;
    }
    if (node_.repetitions == 0) {
      const auto entries = std::min<uint64_t>(page_left_, static_cast<uint64_t>(rows - begun));
      if (entries == 0) break;
      take(static_cast<size_t>(entries), out);
      begun += static_cast<int64_t>(entries);
      continue;
    }
    if (ahead_begin_ == ahead_.size()) look_ahead();
    if (begun == 0 && ahead_[ahead_begin_] != 0) throw Damaged("a row begins inside a list");
    const size_t entries = entries_up_to(rows, begun);
    if (entries == 0) break;
    take(entries, out);
  }
  row_ += begun;
  if (begun < rows) throw Damaged(cat("its pages end after row ", row_, " of a row group"));
}

void ParquetLeaf::skip(int64_t rows) {
  while (rows > 0) {
    if (page_left_ == 0) {
      fetch_ = kHeaders;
      const bool found = find_page();
      fetch_ = kWindow;
      if (!found) throw Damaged(cat("its pages end after row ", row_, " of a row group"));
      const bool version_2 = page_.kind == ParquetPage::kDataV2;
      const int64_t known = version_2 ? page_.rows : node_.repetitions == 0 ? page_.values : -1;
      if (known >= 0 && known <= rows) {
        pass_over(static_cast<uint64_t>(page_.bytes));
        found_ = false;
        row_ += known;
        rows -= known;
        continue;
      }
    }
    const int64_t here = std::min<int64_t>(rows, 1024);
    skipped_.clear();
    read(here, skipped_);
    rows -= here;
  }
}

}  // namespace tessera
