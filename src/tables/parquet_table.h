#pragma once
#include <memory>

#include "tables/table.h"

namespace tessera {

// Parquet (https://parquet.apache.org/docs/file-format/). A batch is some rows of a row group; for
// each leaf that is read, memory holds what ParquetLeaf says. Batches of a row group are read from
// front to back; going back, or to a later one, passes over the rows between.
// Damaged or Unsupported (table_error.h) where it cannot be opened.
std::unique_ptr<TableReader> open_parquet(std::shared_ptr<const ByteSource> source);

}  // namespace tessera
