#include "tables/arrow_arrays.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "tables/decompress.h"
#include "tables/table_error.h"

namespace tessera {
namespace {

constexpr size_t kNodeBytes = 16;    // FieldNode {i64 length, i64 nulls}
constexpr size_t kBufferBytes = 16;  // Buffer {i64 offset, i64 length}
constexpr size_t kViewBytes = 16;
constexpr int64_t kMaxWithoutBytes = 1 << 20;
constexpr uint32_t kInlineView = 12;  // texts of so many bytes stand in the view itself

template <class T>
T load_at(std::span<const std::byte> bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void widen(std::span<const std::byte> bytes, std::vector<int64_t>& out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int64_t>(load_at<T>(bytes, i));
}

// Offsets become relative to the first.
template <class T>
void rebase(std::span<const std::byte> bytes, std::vector<int64_t>& out) {
  const auto first = static_cast<int64_t>(load_at<T>(bytes, 0));
  if (first < 0) throw Damaged("an offset is negative");
  int64_t before = first;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto offset = static_cast<int64_t>(load_at<T>(bytes, i));
    if (offset < before) throw Damaged("offsets of texts or lists decrease");
    out[i] = offset - first;
    before = offset;
  }
}

void check_count(int64_t count) {
  if (count > static_cast<int64_t>(kMaxBatchIntegers))
    throw Unsupported(cat("a batch holds ", count, " values, more than ", kMaxBatchIntegers,
                          "; write the file again with fewer rows a batch"));
}

// Arrays that take no bytes in the file could claim any length.
void check_bytes_behind(const ArrowField& field, int64_t length) {
  const bool none = field.kind == ArrowKind::kNull ||
                    (field.kind == ArrowKind::kStruct && field.children.empty()) ||
                    (field.kind == ArrowKind::kFixedSizeList && field.list_size == 0);
  if (none && length > kMaxWithoutBytes)
    throw Unsupported(cat("a batch holds ", length, " values of ", field.description,
                          ", more than ", kMaxWithoutBytes));
}

void check_text(uint64_t bytes) {
  if (bytes > kMaxBatchBytes)
    throw Unsupported(cat("a batch holds ", bytes, " bytes of text, more than ", kMaxBatchBytes,
                          "; write the file again with fewer rows a batch"));
}

}  // namespace

RecordBatch::RecordBatch(const ByteSource& source, const ArrowMessage& message,
                         const FlatTable& batch)
    : source_(source),
      message_(message),
      rows_(batch.number<int64_t>(kBatchLength)),
      nodes_(batch.vector(kBatchNodes, kNodeBytes)),
      buffers_(batch.vector(kBatchBuffers, kBufferBytes)),
      variadic_counts_(batch.vector(kBatchVariadicCounts, sizeof(int64_t))) {
  if (auto compression = batch.table(kBatchCompression)) {
    codec_ = compression->number<int8_t>(0);
    if (codec_ != 0 && codec_ != 1)
      throw Unsupported(cat("its buffers are packed by an unknown codec, number ", codec_));
  }
}

void RecordBatch::load(const std::vector<ArrowField>& fields, size_t field, int64_t begin,
                       int64_t length, ArrowArray& out) {
  Place place;
  for (size_t i = 0; i < field; ++i) skip(fields[i], place);
  load(fields[field], begin, length, place, out);
}

size_t RecordBatch::take_variadic(Place& place) const {
  if (place.variadic >= variadic_counts_.size())
    throw Damaged("a record batch does not say how many buffers its views have");
  const auto count = variadic_counts_.number<int64_t>(place.variadic++, sizeof(int64_t));
  if (count < 0 || static_cast<uint64_t>(count) > buffers_.size())
    throw Damaged(cat("a column claims ", count, " buffers"));
  return static_cast<size_t>(count);
}

void RecordBatch::skip(const ArrowField& field, Place& place) const {
  if (field.kind == ArrowKind::kUnknown)
    throw Unsupported(cat("it stands behind a column of ", field.description));
  ++place.node;
  place.buffer += static_cast<size_t>(field.buffers);
  if (field.variadic) place.buffer += take_variadic(place);
  for (const ArrowField& child : field.children) skip(child, place);
}

void RecordBatch::load(const ArrowField& field, int64_t begin, int64_t length, Place& place,
                       ArrowArray& out) {
  if (place.node >= nodes_.size()) throw Damaged("a record batch has fewer arrays than its schema");
  const auto there = nodes_.number<int64_t>(place.node, kNodeBytes);
  const auto nulls = nodes_.number<int64_t>(place.node, kNodeBytes, 8);
  if (there < 0 || begin > there || length > there - begin)
    throw Damaged(cat("an array has ", there, " values, ", length, " from ", begin, " are wanted"));
  check_bytes_behind(field, length);
  out.length = length;
  ++place.node;
  const size_t buffer = place.buffer;
  place.buffer += static_cast<size_t>(field.buffers);
  const size_t variadic = field.variadic ? take_variadic(place) : 0;
  place.buffer += variadic;
  int64_t child_begin = begin, child_length = length;
  if (field.kind != ArrowKind::kNull) load_valid(buffer, nulls, begin, out);
  switch (field.kind) {
    case ArrowKind::kBool:
    case ArrowKind::kInteger:
    case ArrowKind::kFloat: load_integers(field, buffer + 1, begin, out); break;
    case ArrowKind::kText: load_text(field, buffer + 1, begin, out); break;
    case ArrowKind::kTextView: load_views(buffer + 1, variadic, begin, out); break;
    case ArrowKind::kList:
      child_begin = load_offsets(field.bits, buffer + 1, begin, out);
      child_length = out.offsets.back();
      break;
    case ArrowKind::kFixedSizeList:
      if (__builtin_mul_overflow(begin, field.list_size, &child_begin) ||
          __builtin_mul_overflow(length, field.list_size, &child_length))
        throw Damaged("a list is too long");
      break;
    case ArrowKind::kNull:
    case ArrowKind::kStruct: break;
    default: throw Unsupported(cat(field.description, " is not read"));
  }
  if (child_length < 0 || child_begin > std::numeric_limits<int64_t>::max() - child_length)
    throw Damaged("a list is too long");
  out.children.resize(field.children.size());
  for (size_t i = 0; i < field.children.size(); ++i)
    load(field.children[i], child_begin, child_length, place, out.children[i]);
}

void RecordBatch::load_valid(size_t buffer, int64_t nulls, int64_t begin, ArrowArray& out) {
  // Without nulls the bits may be left out.
  if (nulls == 0 || out.length == 0) return;
  const uint64_t first = static_cast<uint64_t>(begin) / 8;
  const uint64_t end = (static_cast<uint64_t>(begin) + static_cast<uint64_t>(out.length) + 7) / 8;
  const auto bits = read(buffer, first, end - first);
  check_count(out.length);
  out.valid.resize(static_cast<size_t>(out.length));
  bool all = true;
  for (size_t i = 0, bit = static_cast<size_t>(begin % 8); i < out.valid.size(); ++i, ++bit) {
    out.valid[i] = static_cast<uint8_t>(static_cast<unsigned>(bits[bit / 8]) >> (bit % 8) & 1u);
    all = all && out.valid[i] == 1;
  }
  if (all) out.valid.clear();
}

void RecordBatch::load_integers(const ArrowField& field, size_t buffer, int64_t begin,
                                ArrowArray& out) {
  if (out.length == 0) return;
  check_count(out.length);
  const auto first = static_cast<uint64_t>(begin), count = static_cast<uint64_t>(out.length);
  if (field.kind == ArrowKind::kBool) {
    const auto bits = read(buffer, first / 8, (first + count + 7) / 8 - first / 8);
    out.integers.resize(static_cast<size_t>(count));
    for (size_t i = 0, bit = first % 8; i < out.integers.size(); ++i, ++bit)
      out.integers[i] = static_cast<int64_t>(bits[bit / 8]) >> (bit % 8) & 1;
    return;
  }
  const uint64_t width = static_cast<uint64_t>(field.bits) / 8;
  if (first > std::numeric_limits<uint64_t>::max() / 16) throw Damaged("an array is too long");
  const auto bytes = read(buffer, first * width, count * width);
  out.integers.resize(static_cast<size_t>(count));
  const bool is_signed = field.is_signed && field.kind == ArrowKind::kInteger;
  switch (field.bits) {
    case 8:
      return is_signed ? widen<int8_t>(bytes, out.integers) : widen<uint8_t>(bytes, out.integers);
    case 16:
      return is_signed ? widen<int16_t>(bytes, out.integers) : widen<uint16_t>(bytes, out.integers);
    case 32:
      return is_signed ? widen<int32_t>(bytes, out.integers) : widen<uint32_t>(bytes, out.integers);
    default: return widen<int64_t>(bytes, out.integers);
  }
}

int64_t RecordBatch::load_offsets(int bits, size_t buffer, int64_t begin, ArrowArray& out) {
  check_count(out.length);
  if (out.length == 0) {  // then the buffer may be empty
    out.offsets.assign(1, 0);
    return 0;
  }
  const uint64_t width = static_cast<uint64_t>(bits) / 8;
  if (static_cast<uint64_t>(begin) > std::numeric_limits<uint64_t>::max() / 16)
    throw Damaged("an array is too long");
  const auto bytes = read(buffer, static_cast<uint64_t>(begin) * width,
                          (static_cast<uint64_t>(out.length) + 1) * width);
  out.offsets.resize(static_cast<size_t>(out.length) + 1);
  if (width == 4) {
    rebase<int32_t>(bytes, out.offsets);
    return load_at<int32_t>(bytes, 0);
  }
  rebase<int64_t>(bytes, out.offsets);
  return load_at<int64_t>(bytes, 0);
}

void RecordBatch::load_text(const ArrowField& field, size_t buffer, int64_t begin,
                            ArrowArray& out) {
  const int64_t first = load_offsets(field.bits, buffer, begin, out);
  const auto size = static_cast<uint64_t>(out.offsets.back());
  check_text(size);
  const auto begin_of_text = static_cast<uint64_t>(first);
  const Bytes bytes = find(buffer + 1, begin_of_text, size);
  out.bytes.resize(static_cast<size_t>(size));
  const auto to = std::as_writable_bytes(std::span(out.bytes));
  if (bytes.unpacked) {
    const auto from = bytes.unpacked->bytes().subspan(static_cast<size_t>(begin_of_text));
    std::copy_n(from.begin(), to.size(), to.begin());
  } else {
    source_.read(bytes.offset + begin_of_text, to);
  }
}

// A view is {u32 length, up to 12 bytes of text} or {u32 length, 4 bytes of it, u32 buffer, u32
// offset}.
void RecordBatch::load_views(size_t buffer, size_t buffers, int64_t begin, ArrowArray& out) {
  struct Range {
    uint64_t begin = std::numeric_limits<uint64_t>::max(), end = 0;
    std::string bytes;
  };
  check_count(out.length);
  if (static_cast<uint64_t>(begin) > std::numeric_limits<uint64_t>::max() / 32)
    throw Damaged("an array is too long");
  const auto bytes = read(buffer, static_cast<uint64_t>(begin) * kViewBytes,
                          static_cast<uint64_t>(out.length) * kViewBytes);
  const std::vector<std::byte> views(bytes.begin(), bytes.end());
  auto word = [&](int64_t i, size_t part) {
    return load_at<uint32_t>(views, static_cast<size_t>(i) * 4 + part);
  };
  std::unordered_map<uint32_t, Range> ranges;
  for (int64_t i = 0; i < out.length; ++i) {
    if (out.is_null(i) || word(i, 0) <= kInlineView) continue;
    if (word(i, 2) >= buffers)
      throw Damaged(cat("a text lies in buffer ", word(i, 2), " of ", buffers));
    Range& range = ranges[word(i, 2)];
    range.begin = std::min<uint64_t>(range.begin, word(i, 3));
    range.end = std::max(range.end, uint64_t{word(i, 3)} + word(i, 0));
  }
  uint64_t in_ranges = 0;
  for (auto& [number, range] : ranges) {
    check_text(in_ranges += range.end - range.begin);
    const auto text = read(buffer + 1 + number, range.begin, range.end - range.begin);
    range.bytes.assign(reinterpret_cast<const char*>(text.data()), text.size());
  }
  out.offsets.assign(1, 0);
  for (int64_t i = 0; i < out.length; ++i) {
    const uint32_t length = out.is_null(i) ? 0 : word(i, 0);
    check_text(out.bytes.size() + uint64_t{length});
    if (length <= kInlineView) {
      out.bytes.append(
          reinterpret_cast<const char*>(&views[static_cast<size_t>(i) * kViewBytes]) + 4, length);
    } else {
      const Range& range = ranges.at(word(i, 2));
      out.bytes.append(range.bytes, static_cast<size_t>(word(i, 3) - range.begin), length);
    }
    out.offsets.push_back(static_cast<int64_t>(out.bytes.size()));
  }
}

RecordBatch::Bytes RecordBatch::find(size_t buffer) {
  if (buffer >= buffers_.size()) throw Damaged("a record batch has fewer buffers than its schema");
  const auto offset = buffers_.number<int64_t>(buffer, kBufferBytes);
  const auto size = buffers_.number<int64_t>(buffer, kBufferBytes, 8);
  if (offset < 0 || size < 0 || static_cast<uint64_t>(offset) > message_.body_bytes ||
      static_cast<uint64_t>(size) > message_.body_bytes - static_cast<uint64_t>(offset))
    throw Damaged(cat("a buffer of ", size, " bytes at ", offset, " leads out of its message"));
  Bytes bytes{message_.body + static_cast<uint64_t>(offset), static_cast<uint64_t>(size), nullptr};
  if (codec_ >= 0 && bytes.size > 0) unpack(buffer, bytes);
  return bytes;
}

// A packed buffer begins with its unpacked size; -1 says that it is not packed after all.
void RecordBatch::unpack(size_t buffer, Bytes& bytes) {
  auto known = unpacked_.find(buffer);
  if (known == unpacked_.end()) {
    int64_t raw_size = 0;
    if (bytes.size < sizeof raw_size) throw Damaged("a packed buffer does not say its size");
    source_.read(bytes.offset, std::as_writable_bytes(std::span(&raw_size, 1)));
    if (raw_size == -1) {
      bytes.offset += sizeof raw_size;
      bytes.size -= sizeof raw_size;
      return;
    }
    const uint64_t packed = bytes.size - sizeof raw_size;
    if (raw_size < 0) throw Damaged(cat("a buffer claims to unpack to ", raw_size, " bytes"));
    if (packed > kMaxUnpacked) throw Unsupported(cat("a packed buffer has ", packed, " bytes"));
    scratch_.resize(static_cast<size_t>(packed));
    source_.read(bytes.offset + sizeof raw_size, scratch_.bytes());
    ByteBuffer raw;
    decompress(codec_ == 0 ? Codec::kLz4Frame : Codec::kZstd, scratch_.bytes(),
               static_cast<uint64_t>(raw_size), kMaxUnpacked - unpacked_bytes_, raw);
    unpacked_bytes_ += raw.size();
    known = unpacked_.emplace(buffer, std::move(raw)).first;
  }
  bytes.unpacked = &known->second;
  bytes.size = known->second.size();
}

RecordBatch::Bytes RecordBatch::find(size_t buffer, uint64_t offset, uint64_t count) {
  Bytes bytes = find(buffer);
  if (offset > bytes.size || count > bytes.size - offset)
    throw Damaged(
        cat("a buffer has ", bytes.size, " bytes, ", count, " from ", offset, " on are needed"));
  return bytes;
}

std::span<const std::byte> RecordBatch::read(size_t buffer, uint64_t offset, uint64_t count) {
  const Bytes bytes = find(buffer, offset, count);
  if (bytes.unpacked)
    return bytes.unpacked->bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(count));
  scratch_.resize(static_cast<size_t>(count));
  source_.read(bytes.offset + offset, scratch_.bytes());
  return scratch_.bytes();
}

}  // namespace tessera
