#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "tables/arrow_messages.h"
#include "tables/byte_buffer.h"

namespace tessera {

// Some of the values of one array of a record batch, as the file has them: what lies under a null
// is undefined, but safe to look at.
struct ArrowArray {
  int64_t length = 0;
  std::vector<uint8_t> valid;     // 1 a value, 0 where it is null; empty where none is
  std::vector<int64_t> offsets;   // [length + 1] from 0: texts and lists
  std::string bytes;              // of texts
  std::vector<int64_t> integers;  // integers, truth values, bits of floats
  std::vector<ArrowArray> children;

  bool is_null(int64_t i) const { return !valid.empty() && valid[static_cast<size_t>(i)] == 0; }
};

// The arrays of one record batch, or of a dictionary.
class RecordBatch {
 public:
  // `batch` is the RecordBatch table of the message, whose description must outlive this object.
  RecordBatch(const ByteSource& source, const ArrowMessage& message, const FlatTable& batch);

  int64_t rows() const { return rows_; }
  // Values [begin, begin + length) of one of the fields. What has to be unpacked stays in memory
  // for later calls: at most kMaxUnpacked bytes a record batch. A field with a dictionary is loaded
  // as its integers. `out` is empty, but its vectors may have memory to be used.
  void load(const std::vector<ArrowField>& fields, size_t field, int64_t begin, int64_t length,
            ArrowArray& out);

  static constexpr uint64_t kMaxUnpacked = uint64_t{1} << 30;

 private:
  // The next node, buffer and count of further buffers, in the order of the fields.
  struct Place {
    size_t node = 0, buffer = 0, variadic = 0;
  };
  struct Bytes {
    uint64_t offset = 0, size = 0;  // in the file
    ByteBuffer* unpacked = nullptr;
  };
  void skip(const ArrowField& field, Place& place) const;
  size_t take_variadic(Place& place) const;
  void load(const ArrowField& field, int64_t begin, int64_t length, Place& place, ArrowArray& out);
  void load_valid(size_t buffer, int64_t nulls, int64_t begin, ArrowArray& out);
  void load_integers(const ArrowField& field, size_t buffer, int64_t begin, ArrowArray& out);
  // Returns the first offset of the file, by which those in `out` are less.
  int64_t load_offsets(int bits, size_t buffer, int64_t begin, ArrowArray& out);
  void load_text(const ArrowField& field, size_t buffer, int64_t begin, ArrowArray& out);
  void load_views(size_t buffer, size_t buffers, int64_t begin, ArrowArray& out);
  Bytes find(size_t buffer);
  void unpack(size_t buffer, Bytes& bytes);
  // Where `count` bytes of a buffer from `offset` on are, in the file or unpacked.
  Bytes find(size_t buffer, uint64_t offset, uint64_t count);
  std::span<const std::byte> read(size_t buffer, uint64_t offset, uint64_t count);

  const ByteSource& source_;
  ArrowMessage message_;
  int64_t rows_;
  FlatVector nodes_, buffers_, variadic_counts_;
  int codec_ = -1;
  std::unordered_map<size_t, ByteBuffer> unpacked_;
  uint64_t unpacked_bytes_ = 0;
  ByteBuffer scratch_;
};

}  // namespace tessera
