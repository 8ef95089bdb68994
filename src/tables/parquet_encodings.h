#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tables/parquet_metadata.h"

namespace tessera {

// The encodings of parquet-format's Encodings.md. All input lies in a ByteBuffer, so that there are
// readable bytes behind it; it must outlive the decoder. Damaged where it ends too early.

// RLE and bit-packed runs of numbers of `width` bits, 0 to 32.
class HybridDecoder {
 public:
  HybridDecoder() = default;
  HybridDecoder(std::span<const std::byte> in, int width);
  void read(std::span<uint32_t> out);
  void read(std::span<uint8_t> out);  // width <= 8

 private:
  template <class T>
  void fill(std::span<T> out);
  void next_run();

  std::span<const std::byte> in_;
  size_t position_ = 0;
  unsigned width_ = 0;
  uint64_t left_ = 0;  // numbers left in the run
  bool packed_ = false;
  uint32_t value_ = 0;  // of a run of equal numbers
  uint64_t bit_ = 0;    // where a packed run goes on
};

// DELTA_BINARY_PACKED.
class DeltaDecoder {
 public:
  DeltaDecoder() = default;
  explicit DeltaDecoder(std::span<const std::byte> in);
  void read(std::span<int64_t> out);
  uint64_t count() const { return count_; }
  // How many bytes all of it takes.
  static size_t encoded_bytes(std::span<const std::byte> in);

 private:
  void start_block();
  void start_miniblock();
  uint64_t number();

  std::span<const std::byte> in_;
  size_t position_ = 0;
  uint64_t count_ = 0, left_ = 0;
  uint64_t block_values_ = 0, miniblocks_ = 0, miniblock_values_ = 0;
  uint64_t value_ = 0, least_ = 0;
  bool first_ = true;
  size_t widths_ = 0;          // where the widths of the block stand
  uint64_t miniblock_ = 0;     // of the block, the next
  uint64_t in_miniblock_ = 0;  // values left in this one
  unsigned width_ = 0;
  uint64_t bit_ = 0;
};

// Values of a leaf. Integers: int32 with its sign, truth values as 0 and 1, the bits of floats.
struct ParquetValues {
  std::vector<int64_t> integers;
  std::vector<int64_t> offsets{0};  // of texts, in bytes
  std::string bytes;

  void clear();
  size_t texts() const { return offsets.size() - 1; }
  std::string_view text(size_t i) const {
    const auto begin = static_cast<size_t>(offsets[i]);
    return std::string_view(bytes).substr(begin, static_cast<size_t>(offsets[i + 1]) - begin);
  }
  // Unsupported where there would be more text than kMaxBatchBytes.
  void add_text(std::string_view text);
};

// The values of one page.
class ValueDecoder {
 public:
  // Unsupported where the encoding is not read for this type. `dictionary` may be null where the
  // chunk has none.
  void start(ParquetType type, int encoding, std::span<const std::byte> in,
             const ParquetValues* dictionary);
  // Appends `count` values.
  void read(size_t count, ParquetValues& out);

 private:
  enum class Form {
    kPlain,
    kPlainText,
    kBits,
    kRuns,
    kSplit,
    kIndices,
    kDelta,
    kLengths,
    kPrefixes
  };
  void start_lengths(std::span<const std::byte> in);
  void read_plain(size_t count, std::vector<int64_t>& out);
  void read_plain_text(size_t count, ParquetValues& out);
  void read_bits(size_t count, std::vector<int64_t>& out);
  void read_runs(size_t count, std::vector<int64_t>& out);
  void read_split(size_t count, std::vector<int64_t>& out);
  void read_indices(size_t count, ParquetValues& out);
  void read_delta(size_t count, std::vector<int64_t>& out);
  void read_lengths(size_t count, ParquetValues& out);
  void read_prefixes(size_t count, ParquetValues& out);
  std::string_view take(uint64_t bytes);

  Form form_ = Form::kPlain;
  ParquetType type_ = ParquetType::kBool;
  std::span<const std::byte> in_;
  size_t position_ = 0;  // bytes; of kBits and kSplit values
  const ParquetValues* dictionary_ = nullptr;
  HybridDecoder runs_;
  DeltaDecoder delta_, prefixes_;
  std::string before_;  // the text before, of which kPrefixes takes the beginning
};

}  // namespace tessera
