#include "tables/parquet_encodings.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "tables/table_error.h"

namespace tessera {
namespace {

constexpr size_t kBlock = 1024;  // values at a time, where they pass through a buffer

[[noreturn]] void fail_short() { throw Damaged("a page ends before its values do"); }

template <class T>
T load_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// `width` bits, at most 64, from bit `bit` on. Reads up to 9 bytes.
uint64_t load_bits(const std::byte* from, uint64_t bit, unsigned width) {
  if (width == 0) return 0;
  from += bit / 8;
  const unsigned shift = bit % 8;
  uint64_t value = load_at<uint64_t>(from) >> shift;
  if (shift + width > 64) value |= static_cast<uint64_t>(from[8]) << (64 - shift);
  return width == 64 ? value : value & ((uint64_t{1} << width) - 1);
}

uint64_t read_varint(std::span<const std::byte> in, size_t& position) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (position >= in.size()) fail_short();
    const auto part = static_cast<uint8_t>(in[position++]);
    value |= static_cast<uint64_t>(part & 127u) << shift;
    if (part < 128) return value;
  }
  throw Damaged("a number is too long");
}

}  // namespace

HybridDecoder::HybridDecoder(std::span<const std::byte> in, int width)
    : in_(in), width_(static_cast<unsigned>(width)) {
  if (width < 0 || width > 32) throw Damaged(cat("runs of numbers of ", width, " bits"));
}

void HybridDecoder::next_run() {
  // Numbers of no bits are all 0; some writers leave out their runs.
  if (width_ == 0 && position_ == in_.size()) {
    packed_ = false;
    value_ = 0;
    left_ = ~uint64_t{0};
    return;
  }
  const uint64_t head = read_varint(in_, position_);
  packed_ = (head & 1u) != 0;
  const uint64_t rest = in_.size() - position_;
  if (!packed_) {
    const size_t bytes = (width_ + 7) / 8;
    if (bytes > rest) fail_short();
    left_ = head >> 1u;
    value_ = static_cast<uint32_t>(load_bits(in_.data() + position_, 0, width_));
    position_ += bytes;
    return;
  }
  const uint64_t groups = head >> 1u;
  if (width_ == 0) {
    packed_ = false;
    value_ = 0;
    left_ = std::min<uint64_t>(groups, ~uint64_t{0} / 8) * 8;
    return;
  }
  // The last run of a page may be cut off behind its last number.
  bit_ = uint64_t{position_} * 8;
  left_ = std::min(groups, rest) * 8;
  left_ = std::min(left_, rest * 8 / width_);
  if (left_ == 0 && groups > 0) fail_short();
  position_ += static_cast<size_t>(std::min(std::min(groups, rest) * width_, rest));
}

template <class T>
void HybridDecoder::fill(std::span<T> out) {
  size_t done = 0;
  while (done < out.size()) {
    if (left_ == 0) {
      next_run();
      continue;
    }
    const size_t count = static_cast<size_t>(std::min<uint64_t>(left_, out.size() - done));
    if (packed_) {
      const uint64_t mask = (uint64_t{1} << width_) - 1;
      // Bytes of T may be those of members: the loop works on copies.
      const std::byte* from = in_.data();
      uint64_t bit = bit_;
      for (size_t i = 0; i < count; ++i, bit += width_)
        out[done + i] = static_cast<T>(load_at<uint64_t>(from + bit / 8) >> (bit % 8) & mask);
      bit_ = bit;
    } else {
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(done), count, static_cast<T>(value_));
    }
    left_ -= count;
    done += count;
  }
}

void HybridDecoder::read(std::span<uint32_t> out) { fill(out); }
void HybridDecoder::read(std::span<uint8_t> out) { fill(out); }

DeltaDecoder::DeltaDecoder(std::span<const std::byte> in) : in_(in) {
  block_values_ = number();
  miniblocks_ = number();
  count_ = left_ = number();
  const uint64_t first = number();
  value_ = first >> 1u ^ (0 - (first & 1u));
  if (block_values_ == 0 || block_values_ > (1u << 30u) || miniblocks_ == 0 ||
      block_values_ % miniblocks_ != 0 || block_values_ / miniblocks_ % 8 != 0)
    throw Damaged(cat("blocks of ", block_values_, " values in ", miniblocks_, " parts"));
  miniblock_values_ = block_values_ / miniblocks_;
  miniblock_ = miniblocks_;
}

uint64_t DeltaDecoder::number() { return read_varint(in_, position_); }

void DeltaDecoder::start_block() {
  const uint64_t least = number();
  least_ = least >> 1u ^ (0 - (least & 1u));
  widths_ = position_;
  if (miniblocks_ > in_.size() - position_) fail_short();
  position_ += static_cast<size_t>(miniblocks_);
  miniblock_ = 0;
}

void DeltaDecoder::start_miniblock() {
  if (miniblock_ == miniblocks_) start_block();
  width_ = static_cast<unsigned>(in_[widths_ + static_cast<size_t>(miniblock_++)]);
  if (width_ > 64) throw Damaged(cat("numbers of ", width_, " bits"));
  const uint64_t rest = in_.size() - position_;
  // Bytes behind the last value may be left out.
  const uint64_t needed = (std::min(left_, miniblock_values_) * width_ + 7) / 8;
  if (needed > rest) fail_short();
  bit_ = uint64_t{position_} * 8;
  in_miniblock_ = miniblock_values_;
  position_ += static_cast<size_t>(std::min(miniblock_values_ * width_ / 8, rest));
}

void DeltaDecoder::read(std::span<int64_t> out) {
  if (out.size() > left_) fail_short();
  size_t done = 0;
  if (first_ && !out.empty()) {
    out[done++] = static_cast<int64_t>(value_);
    first_ = false;
    --left_;
  }
  while (done < out.size()) {
    if (in_miniblock_ == 0) start_miniblock();
    const size_t count = static_cast<size_t>(std::min<uint64_t>(in_miniblock_, out.size() - done));
    // In registers: `out` could hold members of this object, as far as a compiler sees.
    uint64_t value = value_, bit = bit_;
    const uint64_t least = least_;
    const unsigned width = width_;
    const std::byte* from = in_.data();
    for (size_t i = 0; i < count; ++i, bit += width) {
      value += least + load_bits(from, bit, width);
      out[done + i] = static_cast<int64_t>(value);
    }
    value_ = value;
    bit_ = bit;
    in_miniblock_ -= count;
    left_ -= count;
    done += count;
  }
}

size_t DeltaDecoder::encoded_bytes(std::span<const std::byte> in) {
  DeltaDecoder decoder(in);
  if (decoder.left_ > 0) --decoder.left_;
  while (decoder.left_ > 0) {
    decoder.start_miniblock();
    decoder.left_ -= std::min(decoder.left_, decoder.miniblock_values_);
  }
  return decoder.position_;
}

void ParquetValues::clear() {
  integers.clear();
  offsets.assign(1, 0);
  bytes.clear();
}

void ParquetValues::add_text(std::string_view text) {
  if (text.size() > kMaxBatchBytes - bytes.size())
    throw Unsupported(cat("a batch holds more than ", kMaxBatchBytes,
                          " bytes of text; write the file again with smaller row groups"));
  bytes.append(text);
  offsets.push_back(static_cast<int64_t>(bytes.size()));
}

void ValueDecoder::start(ParquetType type, int encoding, std::span<const std::byte> in,
                         const ParquetValues* dictionary) {
  const bool is_text = type == ParquetType::kText, is_bool = type == ParquetType::kBool;
  const bool is_integer = type == ParquetType::kInt32 || type == ParquetType::kInt64;
  type_ = type;
  in_ = in;
  position_ = 0;
  switch (encoding) {
    case 0:  // PLAIN
      form_ = is_text ? Form::kPlainText : is_bool ? Form::kBits : Form::kPlain;
      return;
    case 2:  // PLAIN_DICTIONARY, RLE_DICTIONARY: a byte of width, then runs of indices
    case 8:
      if (!dictionary) throw Damaged("a page needs a dictionary, and there is none");
      dictionary_ = dictionary;
      if (in.empty()) fail_short();
      runs_ = HybridDecoder(in.subspan(1), static_cast<int>(in[0]));
      form_ = Form::kIndices;
      return;
    case 3:  // RLE: a length of four bytes, then runs
      if (!is_bool) break;
      if (in.size() < 4 || load_at<uint32_t>(in.data()) > in.size() - 4) fail_short();
      runs_ = HybridDecoder(in.subspan(4, load_at<uint32_t>(in.data())), 1);
      form_ = Form::kRuns;
      return;
    case 5:  // DELTA_BINARY_PACKED
      if (!is_integer) break;
      delta_ = DeltaDecoder(in);
      form_ = Form::kDelta;
      return;
    case 6:  // DELTA_LENGTH_BYTE_ARRAY
      if (!is_text) break;
      start_lengths(in);
      form_ = Form::kLengths;
      return;
    case 7:  // DELTA_BYTE_ARRAY
      if (!is_text) break;
      prefixes_ = DeltaDecoder(in);
      start_lengths(in.subspan(DeltaDecoder::encoded_bytes(in)));
      before_.clear();
      form_ = Form::kPrefixes;
      return;
    case 9:  // BYTE_STREAM_SPLIT
      if (is_text || is_bool) break;
      form_ = Form::kSplit;
      return;
    default: throw Unsupported(cat("its pages have the unknown encoding ", encoding));
  }
  throw Damaged(cat("its pages have the encoding ", encoding, ", which is not one of its type"));
}

void ValueDecoder::start_lengths(std::span<const std::byte> in) {
  delta_ = DeltaDecoder(in);
  in_ = in.subspan(DeltaDecoder::encoded_bytes(in));
}

void ValueDecoder::read(size_t count, ParquetValues& out) {
  if (count == 0) return;
  switch (form_) {
    case Form::kPlain: return read_plain(count, out.integers);
    case Form::kPlainText: return read_plain_text(count, out);
    case Form::kBits: return read_bits(count, out.integers);
    case Form::kRuns: return read_runs(count, out.integers);
    case Form::kSplit: return read_split(count, out.integers);
    case Form::kIndices: return read_indices(count, out);
    case Form::kDelta: return read_delta(count, out.integers);
    case Form::kLengths: return read_lengths(count, out);
    case Form::kPrefixes: return read_prefixes(count, out);
  }
}

std::string_view ValueDecoder::take(uint64_t bytes) {
  if (bytes > in_.size() - position_) fail_short();
  std::string_view text(reinterpret_cast<const char*>(in_.data()) + position_,
                        static_cast<size_t>(bytes));
  position_ += text.size();
  return text;
}

void ValueDecoder::read_plain(size_t count, std::vector<int64_t>& out) {
  const bool wide = type_ == ParquetType::kInt64 || type_ == ParquetType::kDouble;
  const auto bytes = std::as_bytes(std::span(take(uint64_t{count} * (wide ? 8 : 4))));
  const size_t old = out.size();
  out.resize(old + count);
  if (wide) {
    std::memcpy(&out[old], bytes.data(), bytes.size());
    return;
  }
  for (size_t i = 0; i < count; ++i) out[old + i] = load_at<int32_t>(bytes.data() + i * 4);
}

void ValueDecoder::read_plain_text(size_t count, ParquetValues& out) {
  for (size_t i = 0; i < count; ++i) {
    const auto length = load_at<uint32_t>(std::as_bytes(std::span(take(4))).data());
    out.add_text(take(length));
  }
}

void ValueDecoder::read_bits(size_t count, std::vector<int64_t>& out) {
  if (count > in_.size() * 8 - position_) fail_short();
  for (size_t i = 0; i < count; ++i, ++position_)
    out.push_back(static_cast<int64_t>(in_[position_ / 8]) >> (position_ % 8) & 1);
}

void ValueDecoder::read_runs(size_t count, std::vector<int64_t>& out) {
  std::array<uint32_t, kBlock> block;
  while (count > 0) {
    const size_t n = std::min(count, kBlock);
    runs_.read(std::span(block).first(n));
    out.insert(out.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(n));
    count -= n;
  }
}

// Byte j of all values stands together, before byte j + 1 of all.
void ValueDecoder::read_split(size_t count, std::vector<int64_t>& out) {
  const bool wide = type_ == ParquetType::kInt64 || type_ == ParquetType::kDouble;
  const size_t width = wide ? 8 : 4, values = in_.size() / width;
  if (count > values - position_) fail_short();
  for (size_t i = 0; i < count; ++i, ++position_) {
    uint64_t value = 0;
    for (size_t j = 0; j < width; ++j)
      value |= static_cast<uint64_t>(in_[j * values + position_]) << (8 * j);
    out.push_back(wide ? static_cast<int64_t>(value) : static_cast<int32_t>(value));
  }
}

void ValueDecoder::read_indices(size_t count, ParquetValues& out) {
  std::array<uint32_t, kBlock> block;
  const bool is_text = type_ == ParquetType::kText;
  const size_t size = is_text ? dictionary_->texts() : dictionary_->integers.size();
  while (count > 0) {
    const auto indices = std::span(block).first(std::min(count, kBlock));
    runs_.read(indices);
    uint32_t last = 0;
    for (uint32_t index : indices) last = std::max(last, index);
    if (last >= size) throw Damaged(cat("index ", last, " into a dictionary of ", size));
    if (is_text) {
      for (uint32_t index : indices) out.add_text(dictionary_->text(index));
    } else {
      const size_t old = out.integers.size();
      out.integers.resize(old + indices.size());
      int64_t* to = out.integers.data() + old;
      const int64_t* words = dictionary_->integers.data();
      for (uint32_t index : indices) *to++ = words[index];
    }
    count -= indices.size();
  }
}

void ValueDecoder::read_delta(size_t count, std::vector<int64_t>& out) {
  const size_t old = out.size();
  if (count > delta_.count()) fail_short();
  out.resize(old + count);
  const auto values = std::span(out).subspan(old);
  delta_.read(values);
  // Sums of 32-bit numbers are those modulo 2^32.
  if (type_ == ParquetType::kInt32)
    for (int64_t& value : values) value = static_cast<int32_t>(value);
}

void ValueDecoder::read_lengths(size_t count, ParquetValues& out) {
  std::array<int64_t, kBlock> block;
  while (count > 0) {
    const auto lengths = std::span(block).first(std::min(count, kBlock));
    delta_.read(lengths);
    for (int64_t length : lengths) out.add_text(take(static_cast<uint64_t>(length)));
    count -= lengths.size();
  }
}

void ValueDecoder::read_prefixes(size_t count, ParquetValues& out) {
  std::array<int64_t, kBlock> block, prefix_block;
  while (count > 0) {
    const auto lengths = std::span(block).first(std::min(count, kBlock));
    const auto prefixes = std::span(prefix_block).first(lengths.size());
    delta_.read(lengths);
    prefixes_.read(prefixes);
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (prefixes[i] < 0 || prefixes[i] > static_cast<int64_t>(before_.size()))
        throw Damaged("a text takes more of the one before than there is");
      before_.resize(static_cast<size_t>(prefixes[i]));
      const std::string_view rest = take(static_cast<uint64_t>(lengths[i]));
      if (rest.size() > kMaxBatchBytes) throw Unsupported("a text is too long");
      before_.append(rest);
      out.add_text(before_);
    }
    count -= lengths.size();
  }
}

}  // namespace tessera
