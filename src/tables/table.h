#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tessera {

// What the rows of a column are read as.
enum class ColumnType {
  kText,      // strings or bytes, dictionaries of them too
  kInteger,   // an integer of any width, or a truth value as 0 and 1
  kIntegers,  // a list of such integers
  kNested,    // other lists and structs: JSON text of the row's value
  kOther,     // floats, times, decimals and so on: not read
};

struct TableColumn {
  std::string name;
  ColumnType type = ColumnType::kOther;
  std::string description;  // of the type, for messages: "list<int32>"
};

// Some rows of one column. A null row has an empty text, an empty list or the integer 0.
struct ColumnValues {
  std::vector<uint8_t> valid;     // 1 a row, 0 where it is null; empty where none is
  std::vector<int64_t> offsets;   // [rows + 1] from 0: texts in `bytes`, lists in `integers`
  std::string bytes;              // kText, kNested
  std::vector<int64_t> integers;  // kIntegers; kInteger: one a row

  bool is_null(size_t row) const { return !valid.empty() && valid[row] == 0; }
  std::string_view text(size_t row) const {
    return std::string_view(bytes).substr(begin(row), begin(row + 1) - begin(row));
  }
  std::span<const int64_t> list(size_t row) const {
    return std::span(integers).subspan(begin(row), begin(row + 1) - begin(row));
  }
  void clear();

 private:
  size_t begin(size_t row) const { return static_cast<size_t>(offsets[row]); }
};

struct TableBatch {
  size_t rows = 0;
  std::vector<ColumnValues> columns;  // one for each selected column, in the order of the selection
};

// Batches of about so many bytes of all columns keep small what one takes.
constexpr int64_t kTableBatchBytes = int64_t{4} << 20;
// A column of one batch may unpack to so much text, or so many integers; more is an error.
constexpr size_t kMaxBatchBytes = size_t{256} << 20;
constexpr size_t kMaxBatchIntegers = kMaxBatchBytes / sizeof(int64_t);

// Rows in groups, as the file keeps them (record batches, row groups), cut into batches: groups of
// some MiB are cut by rows into parts of about equal number. Depends on what the file says of its
// groups only, so the number of a batch is a place in the file that stays.
class TableBatches {
 public:
  struct Part {
    size_t group = 0;
    int64_t first_row = 0;  // within the group
    int64_t rows = 0;
  };
  // `bytes`: of the group in the file, unpacked where that is known. Damaged (table_error.h) where
  // rows are negative or too many.
  void add_group(int64_t rows, int64_t bytes);
  int64_t rows() const { return groups_.empty() ? 0 : groups_.back().end_row; }
  int64_t batches() const { return groups_.empty() ? 0 : groups_.back().end_batch; }
  Part part(int64_t batch) const;
  int64_t first_row(int64_t batch) const;  // of the table; batch = batches(): the number of rows
  int64_t batch_of(int64_t row) const;     // row < rows()

 private:
  struct Group {
    int64_t end_row, end_batch, rows_per_batch;
  };
  size_t group_of(int64_t batch) const;
  std::vector<Group> groups_;
};

// A table in a file. Any batch can be read at any time; reading them in order is fastest. For one
// thread at a time; several readers may share a ByteSource.
class TableReader {
 public:
  virtual ~TableReader() = default;
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  std::string name() const { return source_->name(); }
  const std::vector<TableColumn>& columns() const { return columns_; }
  // The index of a column. UserError with the names that there are where there is none.
  size_t column(std::string_view name) const;
  int64_t rows() const { return batches_.rows(); }
  int64_t batches() const { return batches_.batches(); }
  int64_t batch_rows(int64_t batch) const { return batches_.part(batch).rows; }
  int64_t first_row(int64_t batch) const { return batches_.first_row(batch); }
  int64_t batch_of(int64_t row) const { return batches_.batch_of(row); }

  // Bytes that reading a column takes beside a batch, as its first page says: 0 where the table has
  // no pages, or where that one is broken, which read() reports.
  int64_t page_bytes(size_t column) const;

  // Reads the selected columns (indices in columns()) of one batch. `out` keeps its memory between
  // calls. UserError naming file and column where the data is damaged, or of a form that is not
  // read: kOther, a null inside a list of kIntegers, an integer above 2^63 - 1.
  void read(int64_t batch, std::span<const size_t> columns, TableBatch& out);

 protected:
  TableReader(std::shared_ptr<const ByteSource> source) : source_(std::move(source)) {}
  virtual int64_t first_page_bytes(size_t /*column*/) const { return 0; }
  virtual void read_column(const TableBatches::Part& part, size_t column, ColumnValues& out) = 0;

  std::shared_ptr<const ByteSource> source_;
  std::vector<TableColumn> columns_;
  TableBatches batches_;
};

enum class TableForm { kArrowStream, kArrowFile, kParquet };

// The form of a table by its first and last bytes; nothing where it is none. An Arrow stream is
// recognised by the mark of its first message, an old one without marks by a schema that is whole.
// UserError where it is a table that is not read: an encrypted Parquet file, Feather of version 1.
std::optional<TableForm> table_form(const ByteSource& source);

// UserError where it is no table, is damaged, or cannot be read. Reads the description of the table
// only: of an Arrow stream the head of every message, else what stands at the end of the file.
std::unique_ptr<TableReader> open_table(std::shared_ptr<const ByteSource> source);

}  // namespace tessera
