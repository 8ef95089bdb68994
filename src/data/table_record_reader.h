#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/json_record.h"
#include "data/record_reader.h"
#include "tables/table.h"

namespace tessera {

// Reads the rows of a table (Arrow, Parquet) as records:
//
//   kText  a column of text, by the name that the options give: `text`
//   kIds   columns of integers "input_ids" and, where they are there, "attention_mask" and
//   "labels",
//          as JSON lines have them (json_record.h)
//   kChat  a column "messages", or "prompt" and "completion", of the forms of JSON lines
//
// Null rows and empty ones are left out. A position is the number of a row. Memory: one batch of
// the table (tables/table.h) and one record.
//
// UserError, naming the source: what open_table() reports, there is no such column (all of them are
// listed), or a row is broken (with its number, from 0); with skip_bad_lines broken rows are
// counted, warned about once and left out.
class TableRecordReader final : public RecordReader {
 public:
  TableRecordReader(std::shared_ptr<const ByteSource> source, RecordKind kind,
                    const RecordOptions& options);
  ~TableRecordReader() override;

  bool next(Record& record) override;
  std::string position() const override;
  void seek(std::string_view position) override;
  int64_t bytes_read() const override;
  int64_t bytes_total() const override;
  int64_t bad_records() const override { return bad_; }
  // Of the columns that are read (TableReader::page_bytes()).
  int64_t page_bytes() const;

 private:
  void load_batch();
  std::string read_row(size_t row, Record& record);
  std::string read_ids(size_t row, Record& record) const;
  std::string read_chat(size_t row, Record& record);

  std::unique_ptr<TableReader> table_;
  int64_t source_bytes_;
  RecordKind kind_;
  RecordOptions options_;
  JsonRecordParser json_;
  std::vector<size_t> columns_;  // those that are read
  std::vector<std::string> names_;
  TableBatch batch_;
  int64_t batch_begin_ = 0, batch_end_ = 0;  // rows of the table in batch_
  int64_t row_ = 0;                          // the next one
  int64_t bad_ = 0;
  std::string line_;
};

// What the rows of a table are, by the names of its columns: ids, else text, else conversations;
// text first where that is wanted.
RecordKind kind_of_table(const TableReader& table, std::string_view text_field,
                         bool text_is_wanted);

}  // namespace tessera
