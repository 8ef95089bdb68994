#include "tables/table.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"
#include "tables/arrow_table.h"
#include "tables/parquet_table.h"
#include "tables/table_error.h"

namespace tessera {
namespace {

// More rows gain nothing.
constexpr int64_t kPartRows = 8192;
constexpr int64_t kMaxRows = int64_t{1} << 48;

}  // namespace

void ColumnValues::clear() {
  valid.clear();
  offsets.clear();
  bytes.clear();
  integers.clear();
}

void TableBatches::add_group(int64_t rows, int64_t bytes) {
  if (rows < 0 || rows > kMaxRows || rows > kMaxRows - this->rows()) {
    throw Damaged(cat("a group of ", rows, " rows"));
  }
  int64_t parts = std::max({rows / kPartRows + (rows % kPartRows != 0),
                            std::max<int64_t>(bytes, 0) / kTableBatchBytes + 1, int64_t{1}});
  int64_t rows_per_batch = std::max<int64_t>((rows + parts - 1) / parts, 1);
  groups_.push_back({this->rows() + rows, batches() + (rows + rows_per_batch - 1) / rows_per_batch,
                     rows_per_batch});
}

size_t TableBatches::group_of(int64_t batch) const {
  TESSERA_CHECK(batch >= 0 && batch < batches(), cat("batch ", batch, " of ", batches()));
  auto group = std::upper_bound(groups_.begin(), groups_.end(), batch,
                                [](int64_t b, const Group& g) { return b < g.end_batch; });
  return static_cast<size_t>(group - groups_.begin());
}

TableBatches::Part TableBatches::part(int64_t batch) const {
  size_t i = group_of(batch);
  const Group& group = groups_[i];
  int64_t group_row = i == 0 ? 0 : groups_[i - 1].end_row;
  int64_t group_batch = i == 0 ? 0 : groups_[i - 1].end_batch;
  int64_t first = (batch - group_batch) * group.rows_per_batch;
  return {i, first, std::min(group.rows_per_batch, group.end_row - group_row - first)};
}

int64_t TableBatches::first_row(int64_t batch) const {
  if (batch == batches()) return rows();
  Part p = part(batch);
  return (p.group == 0 ? 0 : groups_[p.group - 1].end_row) + p.first_row;
}

int64_t TableBatches::batch_of(int64_t row) const {
  TESSERA_CHECK(row >= 0 && row < rows(), cat("row ", row, " of ", rows()));
  auto group = std::upper_bound(groups_.begin(), groups_.end(), row,
                                [](int64_t r, const Group& g) { return r < g.end_row; });
  if (group == groups_.begin()) return row / group->rows_per_batch;
  auto before = std::prev(group);
  return before->end_batch + (row - before->end_row) / group->rows_per_batch;
}

size_t TableReader::column(std::string_view name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].name == name) return i;
    if (i < 20) names.push_back(columns_[i].name);
  }
  std::string near = nearest(name, names);
  throw UserError(cat("'", this->name(), "' has no column '", name, "'",
                      near.empty() ? "." : cat("; did you mean '", near, "'?"),
                      " It has: ", join(names, ", "), columns_.size() > 20 ? ", ..." : ""));
}

int64_t TableReader::page_bytes(size_t column) const {
  try {
    return first_page_bytes(column);
  } catch (const Damaged&) {
    return 0;
  } catch (const Unsupported&) {
    return 0;
  }
}

void TableReader::read(int64_t batch, std::span<const size_t> columns, TableBatch& out) {
  check_interruption();
  const TableBatches::Part part = batches_.part(batch);
  out.rows = static_cast<size_t>(part.rows);
  out.columns.resize(columns.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    const TableColumn& column = columns_.at(columns[i]);
    out.columns[i].clear();
    try {
      if (column.type == ColumnType::kOther)
        throw Unsupported(cat("its type ", column.description, " is not read"));
      read_column(part, columns[i], out.columns[i]);
    } catch (const Damaged& error) {
      throw UserError(cat("'", name(), "' is damaged: column '", column.name, "', batch ", batch,
                          ": ", error.what(), "; fetch or write it again"));
    } catch (const Unsupported& error) {
      throw UserError(
          cat("'", name(), "', column '", column.name, "', batch ", batch, ": ", error.what()));
    }
  }
}

std::optional<TableForm> table_form(const ByteSource& source) {
  std::array<char, 8> first{}, last{};
  if (source.size() < first.size()) return std::nullopt;
  source.read(0, std::as_writable_bytes(std::span(first)));
  source.read(source.size() - last.size(), std::as_writable_bytes(std::span(last)));
  std::string_view head(first.data(), first.size()), tail(last.data() + 4, 4);
  if ((head.starts_with("PARE") || head.starts_with("PAR1")) && tail == "PARE") {
    throw UserError(cat("'", source.name(),
                        "' is an encrypted Parquet file; write it again "
                        "without encryption"));
  }
  if (head.starts_with("PAR1")) return TableForm::kParquet;
  if (head.starts_with("ARROW1")) return TableForm::kArrowFile;
  if (head.starts_with("FEA1")) {
    throw UserError(cat("'", source.name(),
                        "' is a Feather file of version 1; write it again "
                        "as version 2 or as Parquet"));
  }
  if (is_arrow_stream(source, std::as_bytes(std::span(first)))) return TableForm::kArrowStream;
  return std::nullopt;
}

std::unique_ptr<TableReader> open_table(std::shared_ptr<const ByteSource> source) {
  const std::string name = source->name();
  auto form = table_form(*source);
  if (!form) {
    throw UserError(cat("'", name,
                        "' is no table: it begins as neither an Arrow stream, an Arrow "
                        "file nor a Parquet file does"));
  }
  try {
    if (*form == TableForm::kParquet) return open_parquet(std::move(source));
    return open_arrow(std::move(source), *form);
  } catch (const Damaged& error) {
    throw UserError(cat("'", name, "' is damaged: ", error.what(), "; fetch or write it again"));
  } catch (const Unsupported& error) {
    throw UserError(cat("'", name, "': ", error.what()));
  }
}

}  // namespace tessera
