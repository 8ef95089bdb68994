#include "data/table_record_reader.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/ignore_index.h"
#include "base/log.h"
#include "base/text.h"
#include "data/position_bytes.h"
#include "tables/json_text.h"

namespace tessera {
namespace {

constexpr char kTableKind = 't';

// One in which every row is null says nothing.
bool has_column(const TableReader& table, std::string_view name) {
  return std::ranges::any_of(table.columns(), [&](const TableColumn& column) {
    return column.name == name && column.description != "null";
  });
}

bool is_chat(const TableReader& table) {
  return has_column(table, "messages") ||
         (has_column(table, "prompt") && has_column(table, "completion"));
}

std::string listed(const TableReader& table) {
  std::vector<std::string> names;
  for (const TableColumn& column : table.columns()) {
    names.push_back(cat(column.name, " (", column.description, ")"));
    if (names.size() == 20) break;
  }
  return cat(join(names, ", "), table.columns().size() > names.size() ? ", ..." : "");
}

size_t column_of(const TableReader& table, std::string_view name,
                 std::initializer_list<ColumnType> types, std::string_view what) {
  for (size_t i = 0; i < table.columns().size(); ++i) {
    if (table.columns()[i].name != name) continue;
    if (std::ranges::find(types, table.columns()[i].type) != types.end()) return i;
    throw UserError(cat("'", table.name(), "': column '", name, "' is ",
                        table.columns()[i].description, ", not ", what));
  }
  throw UserError(cat("'", table.name(), "' has no column '", name, "' of ", what,
                      what == "text" ? "; give --text_field NAME" : "",
                      ". It has: ", listed(table)));
}

}  // namespace

RecordKind kind_of_table(const TableReader& table, std::string_view text_field,
                         bool text_is_wanted) {
  if (text_is_wanted && has_column(table, text_field)) return RecordKind::kText;
  if (has_column(table, "input_ids")) return RecordKind::kIds;
  if (!has_column(table, text_field) && is_chat(table)) return RecordKind::kChat;
  return RecordKind::kText;
}

TableRecordReader::TableRecordReader(std::shared_ptr<const ByteSource> source, RecordKind kind,
                                     const RecordOptions& options)
    : source_bytes_(static_cast<int64_t>(source->size())),
      kind_(kind),
      options_(options),
      json_(options) {
  table_ = open_table(std::move(source));
  auto add = [&](std::string_view name, std::initializer_list<ColumnType> types,
                 std::string_view what) {
    columns_.push_back(column_of(*table_, name, types, what));
    names_.emplace_back(name);
  };
  using enum ColumnType;
  if (kind == RecordKind::kText) {
    add(options.text_field, {kText}, "text");
  } else if (kind == RecordKind::kIds) {
    add("input_ids", {kIntegers}, "lists of integers");
    for (std::string_view name : {"attention_mask", "labels"})
      if (has_column(*table_, name)) add(name, {kIntegers}, "lists of integers");
    for (std::string_view name : kLossMasks)
      if (has_column(*table_, name) && !has_column(*table_, "labels"))
        add(name, {kIntegers}, "lists of integers");
  } else {
    if (has_column(*table_, "messages")) {
      add("messages", {kNested, kText}, "conversations");
    } else {
      add("prompt", {kNested, kText}, "prompts");
      add("completion", {kNested, kText}, "completions");
    }
    if (has_column(*table_, "tools")) add("tools", {kNested, kText}, "tools");
  }
}

TableRecordReader::~TableRecordReader() = default;

void TableRecordReader::load_batch() {
  const int64_t batch = table_->batch_of(row_);
  table_->read(batch, columns_, batch_);
  batch_begin_ = table_->first_row(batch);
  batch_end_ = batch_begin_ + static_cast<int64_t>(batch_.rows);
}

bool TableRecordReader::next(Record& record) {
  while (row_ < table_->rows()) {
    if (row_ < batch_begin_ || row_ >= batch_end_) load_batch();
    record.clear();
    const std::string problem = read_row(static_cast<size_t>(row_ - batch_begin_), record);
    ++row_;
    if (!problem.empty()) {
      const std::string message = cat("'", table_->name(), "', row ", row_ - 1, ": ", problem);
      if (!options_.skip_bad_lines) throw UserError(message);
      const bool first = bad_++ == 0;
      if (first && !(options_.warned && options_.warned->exchange(true)))
        TESSERA_WARN(cat(message, "; such rows are left out"));
      continue;
    }
    if (!record.empty()) return true;
  }
  return false;
}

std::string TableRecordReader::read_row(size_t row, Record& record) {
  if (kind_ == RecordKind::kIds) return read_ids(row, record);
  if (kind_ == RecordKind::kChat) return read_chat(row, record);
  const std::string_view text = batch_.columns[0].text(row);
  if (text.find('\0') != std::string_view::npos)
    return cat("'", options_.text_field, "' holds a zero byte");
  record.text.assign(text);
  return "";
}

std::string TableRecordReader::read_ids(size_t row, Record& record) const {
  const int64_t end =
      options_.vocab_size > 0 ? options_.vocab_size : int64_t{std::numeric_limits<int32_t>::max()};
  for (int64_t id : batch_.columns[0].list(row)) {
    if (id < 0 || id >= end)
      return cat("input_ids[", record.ids.size(), "] is ", id, ", ids are 0 to ", end - 1);
    record.ids.push_back(static_cast<int32_t>(id));
  }
  auto values_of = [&](std::string_view name) -> std::optional<std::span<const int64_t>> {
    for (size_t c = 1; c < columns_.size(); ++c)
      if (names_[c] == name && !batch_.columns[c].is_null(row)) return batch_.columns[c].list(row);
    return std::nullopt;
  };
  if (const auto labels = values_of("labels")) {
    if (labels->size() != record.ids.size())
      return cat("labels has ", labels->size(), " elements, input_ids ", record.ids.size());
    for (size_t i = 0; i < labels->size(); ++i) {
      const int64_t label = (*labels)[i];
      if (label != kIgnoreIndex && (label < 0 || label >= end))
        return cat("labels[", i, "] is ", label, ", labels are ids or ", kIgnoreIndex);
      record.labels.push_back(static_cast<int32_t>(label));
    }
  } else {
    for (std::string_view name : kLossMasks) {
      const auto mask = values_of(name);
      if (!mask) continue;
      if (std::string problem = apply_loss_mask(name, *mask, record); !problem.empty())
        return problem;
    }
  }
  if (const auto mask = values_of("attention_mask")) {
    if (std::string problem = apply_attention_mask(*mask, record); !problem.empty()) return problem;
  }
  return label_problem(record);
}

std::string TableRecordReader::read_chat(size_t row, Record& record) {
  // As a line of JSON: the rules of conversations are there.
  line_ = "{";
  for (size_t c = 0; c < columns_.size(); ++c) {
    const ColumnValues& column = batch_.columns[c];
    if (column.is_null(row)) continue;
    if (line_.size() > 1) line_ += ',';
    append_json_string(names_[c], line_);
    line_ += ':';
    if (table_->columns()[columns_[c]].type == ColumnType::kNested)
      line_ += column.text(row);
    else
      append_json_string(column.text(row), line_);
  }
  if (line_.size() == 1) return "";
  line_ += '}';
  std::string problem = json_.parse(line_, RecordForm::kJsonChat, record);
  if (line_.size() > kKeptBytes) line_ = std::string();
  return problem;
}

std::string TableRecordReader::position() const {
  PositionWriter writer(kTableKind);
  writer.add(static_cast<uint64_t>(table_->rows()));
  writer.add(static_cast<uint64_t>(row_));
  return writer.finish();
}

void TableRecordReader::seek(std::string_view position) {
  const std::string name = table_->name();
  PositionReader reader(position, kTableKind, name);
  if (reader.value(UINT64_MAX) != static_cast<uint64_t>(table_->rows()))
    reader.refuse("the table has another number of rows");
  row_ = static_cast<int64_t>(reader.value(static_cast<uint64_t>(table_->rows())));
  reader.end();
}

int64_t TableRecordReader::bytes_total() const { return source_bytes_; }

int64_t TableRecordReader::page_bytes() const {
  int64_t bytes = 0;
  for (size_t column : columns_) bytes += table_->page_bytes(column);
  return bytes;
}

int64_t TableRecordReader::bytes_read() const {
  if (table_->rows() == 0) return source_bytes_;
  return static_cast<int64_t>(static_cast<double>(source_bytes_) * static_cast<double>(row_) /
                              static_cast<double>(table_->rows()));
}

}  // namespace tessera
