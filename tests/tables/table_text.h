#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "tables/table.h"

namespace tessera {

inline const char* name_of(ColumnType type) {
  switch (type) {
    case ColumnType::kText: return "text";
    case ColumnType::kInteger: return "integer";
    case ColumnType::kIntegers: return "integers";
    case ColumnType::kNested: return "nested";
    case ColumnType::kOther: break;
  }
  return "other";
}

// The value of a row as table_goldens.py writes it.
inline std::string value_text(ColumnType type, const ColumnValues& values, size_t row) {
  if (values.is_null(row)) return "null";
  switch (type) {
    case ColumnType::kInteger: return cat(values.integers[row]);
    case ColumnType::kIntegers: return cat("[", join(values.list(row), ","), "]");
    case ColumnType::kNested: return std::string(values.text(row));
    default: break;
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "x";
  for (unsigned char c : values.text(row)) {
    out.push_back(kDigits[c >> 4u]);
    out.push_back(kDigits[c & 15u]);
  }
  return out;
}

// All of a table: a line of each column's name and type, then the values of each column that can be
// read, one a line. `backwards`: the last batch is read first.
inline std::string table_text(TableReader& table, bool backwards = false) {
  std::string out;
  for (const TableColumn& column : table.columns())
    out.append(cat("column ", column.name, " ", name_of(column.type), "\n"));
  const int64_t batches = table.batches();
  for (size_t column = 0; column < table.columns().size(); ++column) {
    const ColumnType type = table.columns()[column].type;
    if (type == ColumnType::kOther) continue;
    std::map<int64_t, std::string> parts;
    TableBatch batch;
    for (int64_t i = 0; i < batches; ++i) {
      const int64_t number = backwards ? batches - 1 - i : i;
      table.read(number, std::vector{column}, batch);
      for (size_t row = 0; row < batch.rows; ++row)
        parts[number].append(value_text(type, batch.columns[0], row)).push_back('\n');
    }
    out.append(cat("values of ", table.columns()[column].name, "\n"));
    for (const auto& [number, part] : parts) out.append(part);
  }
  return out;
}

}  // namespace tessera
