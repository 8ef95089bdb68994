#pragma once
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tables/table.h"
#include "tests/tables/memory_source.h"

namespace tessera {

inline void check_values(ColumnType type, const ColumnValues& values, size_t rows) {
  auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  require(values.valid.empty() || values.valid.size() == rows);
  if (type == ColumnType::kInteger) return require(values.integers.size() == rows);
  require(values.offsets.size() == rows + 1 && values.offsets[0] == 0);
  require(std::is_sorted(values.offsets.begin(), values.offsets.end()));
  const size_t end = type == ColumnType::kIntegers ? values.integers.size() : values.bytes.size();
  require(static_cast<size_t>(values.offsets.back()) == end);
  for (size_t row = 0; row < rows; ++row)
    require(!values.is_null(row) || values.offsets[row] == values.offsets[row + 1]);
}

// Any bytes as a table: refused, or batches that are whole. Some of them are read, the last first,
// so that rows are passed over.
inline void read_table(std::string content) {
  constexpr int64_t kBatches = 3;
  constexpr size_t kColumns = 16;
  try {
    auto table = open_table(std::make_shared<MemorySource>(std::move(content)));
    TableBatch batch;
    for (size_t column = 0; column < std::min(kColumns, table->columns().size()); ++column) {
      for (int64_t i = std::min(kBatches, table->batches()); i-- > 0;) {
        try {
          table->read(i, std::vector<size_t>{column}, batch);
        } catch (const UserError&) {
          continue;
        }
        check_values(table->columns()[column].type, batch.columns[0], batch.rows);
      }
    }
  } catch (const UserError&) {
  }
}

}  // namespace tessera
