#pragma once
#include <cstdint>
#include <vector>

#include "base/file.h"
#include "tables/byte_buffer.h"
#include "tables/parquet_encodings.h"
#include "tables/parquet_metadata.h"

namespace tessera {

// Some rows of a leaf as Parquet stores them: an entry for each value, null or empty list.
struct LeafRows {
  size_t entries = 0;
  std::vector<uint8_t> repetitions;  // one an entry; empty where the leaf has no repeated node
  std::vector<uint8_t> definitions;  // one an entry; empty where all nodes are required
  ParquetValues values;              // of the entries with the full definition level

  void clear();
};

// The pages of one leaf in one row group, read from front to back. In memory: a window of kWindow
// bytes of the file (or one page, if that is larger), one page unpacked, and the dictionary; pages
// and dictionaries have at most kMaxPage bytes.
class ParquetLeaf {
 public:
  static constexpr size_t kWindow = size_t{1} << 20;
  static constexpr int64_t kMaxPage = int64_t{256} << 20;

  // Damaged or Unsupported where the chunk cannot be read. `node` must outlive this object.
  ParquetLeaf(const ByteSource& source, const ParquetNode& node, const ParquetChunk& chunk);

  int64_t row() const { return row_; }  // the next of the row group
  // Before anything is read: bytes of the first page, as it is stored and unpacked, and of the
  // dictionary.
  int64_t first_page_bytes();
  // Appends the next `rows` rows.
  void read(int64_t rows, LeafRows& out);
  // Passes over rows. Pages that say how many rows they have (all but those of format version 1
  // with repeated values) are not read.
  void skip(int64_t rows);

 private:
  bool find_page();  // reads headers up to the next page of data; false at the end of the chunk
  void load_page();
  void load_dictionary();
  std::span<const std::byte> take_levels(std::span<const std::byte>& body, int encoding);
  void look_ahead();
  void take(size_t entries, LeafRows& out);
  size_t entries_up_to(int64_t rows, int64_t& begun) const;
  std::span<const std::byte> need(size_t bytes);
  std::span<const std::byte> take_stored_page();
  std::span<const std::byte> unpack(std::span<const std::byte> stored, int64_t raw_bytes);
  void pass_over(uint64_t bytes);

  const ByteSource& source_;
  const ParquetNode& node_;
  ParquetChunk chunk_;
  uint64_t end_ = 0;  // of the chunk in the file

  ByteBuffer window_;
  size_t window_begin_ = 0, window_end_ = 0;
  size_t fetch_ = kWindow;    // how many bytes to fetch at least
  uint64_t window_next_ = 0;  // the place in the file behind the window

  ParquetPage page_;
  bool found_ = false;        // page_ is the next page, its body not yet read
  int64_t found_values_ = 0;  // of all pages up to page_, nulls included
  size_t page_left_ = 0;      // entries of the open page that are not yet taken
  ByteBuffer raw_;
  HybridDecoder repetitions_, definitions_;
  ValueDecoder values_;
  bool has_dictionary_ = false;
  ParquetValues dictionary_;
  // Repetition levels have to be looked at to see where a row ends.
  std::vector<uint8_t> ahead_;
  size_t ahead_begin_ = 0;
  int64_t row_ = 0;
  LeafRows skipped_;
};

}  // namespace tessera
